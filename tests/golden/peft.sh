#!/usr/bin/env bash
# Adapters that trimtab writes over every family and class of folders: adapter_config.json, and names, types and shapes of
# the tensors, are those of tests/golden/peft byte for byte. PEFT has loaded each of them without a warning, over the text
# model and over the folder's class, with equal logits and no tower adapted; it does so again here where the Python of
# TT_PYTHON (default: python3) has it. --update writes the files anew after that (peft/check_peft.py).
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
python=${TT_PYTHON:-python3}
cases=(llama2 llama3 mistral qwen2 qwen3 smollm3 phi3 gemma3 gemma2)
for model in "$golden"/dense/*/model "$golden"/vision/*/model; do
    model=${model#"$golden/"}
    cases+=("${model%/model}")
done
[ ${#cases[@]} -ge 30 ] || fail "there are ${#cases[@]} cases only: ${cases[*]}"

loss_of() {
    "$trimtab" eval "$@" --eval_dataset train.jsonl --bf16 false --threads 1 --json 2>>log | sed -n 's/.*"loss": \([0-9.e-]*\).*/\1/p'
}
rate() { case $1 in *gemma*) echo 0.001 ;; *) echo 0.01 ;; esac; }
# Parameters of experts have adapters without dropout. all-linear has them in the first of these (src/model/lora_convert.h).
experts() {
    case $1 in
        dense/qwen3_moe | dense/mixtral | dense/olmoe | dense/qwen3_next | dense/glm4_moe* | dense/minimax_m2 | dense/deepseek_v3)
            echo --lora_dropout 0
            ;;
        dense/nemotron_h) echo --lora_dropout 0 --target_parameters experts.up_proj experts.down_proj gate.weight ;;
        dense/gpt_oss | dense/granite4_moe | dense/gemma4_moe | dense/qwen2_moe | vision/qwen3_5_moe | vision/mistral4)
            echo --lora_dropout 0 --target_parameters experts.gate_up_proj experts.down_proj
            ;;
    esac
}
for name in "${cases[@]}"; do
    mkdir -p "$name" && cd "$name" && ln -s "$golden/$name/model" model
    rows=$golden/$name/train.jsonl
    [ -e "$rows" ] || rows=$golden/dense/train.jsonl
    ln -s "$rows" train.jsonl
    read -ra more <<<"$(experts "$name")"
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --output_dir adapter --bf16 false --threads 1 \
        --report_to none --max_steps 4 --save_strategy no --lora_r 2 --lora_alpha 32 --lora_target_modules all-linear \
        --learning_rate "$(rate "$name")" "${more[@]}" >log 2>&1 || fail "$name:" "$(cat log)"
    "$trimtab" merge --model_name_or_path model --adapter_name_or_path adapter --output_dir merged --save_dtype float32 \
        >>log 2>&1 || fail "$name:" "$(cat log)"
    apart=$(loss_of --model_name_or_path model --adapter_name_or_path adapter) whole=$(loss_of --model_name_or_path merged)
    awk -v a="$apart" -v b="$whole" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-5 * a) ^ 2) }' ||
        fail "$name: the merged model has a loss of $whole, model and adapter of $apart"
    { cat adapter/adapter_config.json && echo && "$trimtab" inspect adapter --tensors | grep '^[A-Z0-9]*  *base_model'; } >written
    cd "$folder" || exit 1
done
compare() {
    for name in "${cases[@]}"; do
        cmp "$name/written" "$golden/peft/${name//\//_}.txt" || fail "$name: the adapter is another one"
    done
}
[ "$2" = --update ] || compare
if "$python" -c 'import peft, transformers' 2>/dev/null; then
    [ -x "$build/tests/dump_logits" ] || fail "there is no $build/tests/dump_logits: ninja -C $build dump_logits"
    "$python" "$golden/peft/check_peft.py" "$build" "${cases[@]}" || fail "PEFT differs"
    if [ "$2" = --update ] && [ $failures -eq 0 ]; then
        for name in "${cases[@]}"; do cp "$name/written" "$golden/peft/${name//\//_}.txt"; done
    fi
else
    echo "skipped: PEFT loads them: $python has no peft or no transformers (TT_PYTHON)"
fi
finish
