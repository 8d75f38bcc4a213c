#!/usr/bin/env bash
# What exists goes on: runs of an earlier version, saved by two ranks in their middle (golden/older/make_older.sh), with
# the program of today. Each configuration is read and says the same; each run resumes, and ends with the bits and rows of
# the earlier program's uninterrupted run; each checkpoint generates and merges. Over FP8 the bits are those of the
# earlier program with numbers divided by their scale, for codes are made so since: one line says it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
older=$root/tests/golden/older
cp -r "$older/inputs/." . && chmod -R u+w .
unset TRIMTAB_CPU_ISA TRIMTAB_CPU_GEMM
times='s/"[a-z_]*(second|runtime|tflops|bytes|time)[a-z_]*": [^,}]*(, )?//g; s/, }/}/'
lost="a version that multiplied numbers by the reciprocal of their scale"

# take NAME [TO]: the run as it was left.
take() { cp -r "$older/runs/$1" "${2:-$1}" && chmod -R u+w "${2:-$1}"; }
rows() { grep -v '"event"' "$1" | sed -E "$times"; }

# Each line of the configuration of then is one of that of today.
configuration() {
    expect 0 "" train --config "$1/trimtab_config.yaml" --print_config
    sed -n 's/^\([a-z][a-z0-9_]*: .*\)/\1/p' "$1/trimtab_config.yaml" | sed 's/  #.*//' | LC_ALL=C sort >before
    sed 's/  #.*//' printed | LC_ALL=C sort >after
    [ "$(wc -l <before)" -gt 100 ] || fail "$1: its configuration has $(wc -l <before) settings"
    LC_ALL=C comm -23 before after >gone
    [ ! -s gone ] || fail "$1: another configuration:" "$(cat gone)"
}

# resume NAME RESULT
resume() {
    expect 0 "resuming from $1/checkpoint-4: step 4 of 8 is done" train --config "$1/trimtab_config.yaml" --resume_from_checkpoint true
    if [ "$1" = fp8 ]; then
        grep -qF "'fp8/checkpoint-4' is of $lost" err || fail "fp8: no word on codes: $(cat err)"
    elif grep '^warning:' err; then
        fail "$1: a warning at its resume"
    fi
    cmp "$1/$2" "$older/ends/$1/$2" || fail "$1: other weights than those of the uninterrupted run"
    if [ "$1" = fp8 ]; then return; fi
    rows "$1/metrics.jsonl" | diff - "$older/ends/$1/rows.jsonl" || fail "$1: other rows than those of the uninterrupted run"
}

# complete NAME words...
complete() {
    local name=$1
    shift
    expect 0 '"completion"' generate --prompt_file eval.jsonl --max_new_tokens 16 --device cpu --cpu_isa portable --threads 1 --json "$@"
    diff printed "$older/ends/$name/text.jsonl" || fail "$name: other completions"
}

for name in sft qlora fp8 dpo full detection; do
    take $name
    if [ $name = detection ] && "$trimtab" version | grep -q "^  PNG *none"; then continue; fi # no reader of its images
    configuration $name
    expect 0 "whole" checkpoint verify $name
    case $name in full | detection) resume $name model.safetensors ;; *) resume $name adapter_model.safetensors ;; esac
done

# On one rank the same data come in the same order, and sums in another one: the losses agree to four decimals.
take sft one
expect 0 "It was saved by 2 ranks and resumes with 1" train --config "$older/runs/sft/trimtab_config.yaml" --output_dir one \
    --resume_from_checkpoint true --ranks 1 --gradient_accumulation_steps 4
losses() { grep -oE '"loss": [0-9]+\.[0-9]{4}' "$1"; }
[ "$(losses one/metrics.jsonl | wc -l)" -eq 8 ] || fail "one rank: not 8 steps"
diff <(losses one/metrics.jsonl) <(losses "$older/ends/sft/rows.jsonl") || fail "one rank: other losses"

# The numbers of that version's choices are words.
refuse() {
    local name=$1 text=$2
    shift 2
    take "$name" again
    expect 2 "this is not the run that 'again/checkpoint-4' belongs to: $text" train --config "$older/runs/$name/trimtab_config.yaml" \
        --output_dir again --resume_from_checkpoint true "$@"
    rm -r again
}
refuse qlora 'quantized base was "nf4" and is "fp4"' --bnb_4bit_quant_type fp4
refuse fp8 'fp8_products was "single" and is "forward"' --fp8_products forward
refuse dpo 'loss_type (dpo) was "robust" and is "exo_pair"' --loss_type '["exo_pair"]'

# A complete run of that version is complete, unless another setting is given, of then or of now.
take sft ended
cp "$older"/ends/sft/* ended/
again=(train --config "$older/runs/sft/trimtab_config.yaml" --output_dir ended)
expect 0 "'ended' holds the result of this run, which is complete: 8 steps. There is nothing to do" "${again[@]}"
sed -i 's/"settings": "/&gone_since: 1\\n/' ended/completion.json
expect 0 "There is nothing to do" "${again[@]}"
[ ! -e ended/metrics.jsonl ] || fail "a complete run trained"
expect 2 "output_dir 'ended'" "${again[@]}" --learning_rate 0.02
expect 2 "output_dir 'ended'" "${again[@]}" --max_unpacked_size 1GiB
expect 2 "output_dir 'ended'" "${again[@]}" --save_total_limit 1

lora=(--model_name_or_path model --adapter_name_or_path)
complete sft "${lora[@]}" sft/checkpoint-4
complete qlora "${lora[@]}" qlora/checkpoint-4 --load_in_4bit --bnb_4bit_use_double_quant --bf16 false
complete fp8 "${lora[@]}" fp8/checkpoint-4 --base_dtype fp8 --fp8_products single
complete dpo "${lora[@]}" dpo/checkpoint-4
complete full --model_name_or_path full/checkpoint-4
for name in sft qlora fp8 dpo; do
    expect 0 "tensors changed" merge "${lora[@]}" $name/checkpoint-4 --output_dir $name-merged
    (cd $name-merged && sha256sum --check --quiet "$older/ends/$name/merged.sha256") || fail "$name: other merged weights"
done
finish
