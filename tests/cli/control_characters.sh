#!/bin/bash
# The content of files cannot control the terminal: no escape character and no forged line comes from any kind of
# file.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/qwen2
work=$(mktemp -d "${TMPDIR:-/tmp}/tt-control-XXXXXX")
trap 'rm -rf "$work"' EXIT
clean() {
    local what=$1
    shift
    "$@" >"$work/out" 2>&1 </dev/null
    [ -s "$work/out" ] || { echo "FAILED: $what: no output"; failures=$((failures + 1)); }
    if LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$work/out" || grep -q $'^error: forged' "$work/out"; then
        echo "FAILED: $what:"
        cat -v "$work/out"
        failures=$((failures + 1))
    fi
}
begin() {
    rm -rf "$work/model"
    cp -r "$golden/model" "$work/model"
    chmod -R u+w "$work/model"
    printf '{"text": "a"}\n' >"$work/rows.jsonl"
}
train() { "$trimtab" train --model_name_or_path "$work/model" --dataset_name "$work/rows.jsonl" --output_dir "$work/run" --max_steps 1 "$@"; }
begin
sed -i 's/"Qwen2ForCausalLM"/"X\\u001b[31m\\nerror: forged"/; s/"qwen2"/"q\\u001b]0;title\\u0007\\nerror: forged"/' "$work/model/config.json"
clean "config.json, train" train
clean "config.json, inspect" "$trimtab" inspect "$work/model"
begin
printf '{"a\\u001b[2J\\nerror: forged": "x"}\n' >"$work/rows.jsonl"
clean "rows" train
begin
printf '"na\\x1b[2Jme\\nerror: forged": 1\n' >"$work/sft.yaml"
clean "YAML" train --config "$work/sft.yaml"
begin
cp "$root/tests/golden/tokenizer/llama2/tokenizer.json" "$work/model"
sed -i 's/"type": *"BPE"/"type": "B\\u001b[2J\\nerror: forged"/' "$work/model/tokenizer.json"
clean "tokenizer" train
begin
cp -r "$golden/adapter_init" "$work/adapter"
chmod -R u+w "$work/adapter"
sed -i 's/"peft_type": *"LORA"/"peft_type": "L\\u001b[2J\\nerror: forged"/' "$work/adapter/adapter_config.json"
clean "adapter, inspect" "$trimtab" inspect "$work/adapter"
clean "adapter, train" train --adapter_name_or_path "$work/adapter"
clean "a name on the command line" train --resume_from_checkpoint $'no\x1b[2J\nerror: forged'
begin
cp "$root"/examples/demo/model/* "$work/model"
printf '{"text": "a\\u001b[2J\\nerror: forged\\r\\nb"}\n' >"$work/rows.jsonl"
odd=$work/$'no\x1b[2J\nerror: forged'
small=(--threads 1 --device cpu --save_strategy steps --save_steps 1)
clean "the sample that is shown, the name of output_dir" train --output_dir "$odd" "${small[@]}"
grep -q '^done: 1 step' "$work/out" || { echo "FAILED: the run with that name:" && cat -v "$work/out" && failures=$((failures + 1)); }
clean "the name of a checkpoint" train --output_dir "$odd" "${small[@]}" --max_steps 2 --resume_from_checkpoint true --resume_changed true
grep -q '^resuming from' "$work/out" || { echo "FAILED: the run that goes on:" && cat -v "$work/out" && failures=$((failures + 1)); }
finish
