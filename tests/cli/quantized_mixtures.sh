#!/usr/bin/env bash
# Folders of every family with experts, whose experts `quantize` leaves in numbers: config.json names what is in numbers and
# nothing else, a training over the folder makes the adapter of one that quantizes while it loads, and the folder merges.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
goldens=$root/tests/golden/dense
adapter() { # NAME MODEL flags...
    expect 0 "" train --output_dir "$1" --model_name_or_path "$2" --dataset_name "$goldens/train.jsonl" --max_steps 2 \
        --learning_rate 0.01 --report_to none --threads 1 --bf16 true --max_length 128 --lora_target_modules o_proj \
        --lora_dropout 0 --save_strategy no "${@:3}"
}
for name in deepseek_v3 gemma4_moe glm4_moe glm4_moe_lite gpt_oss granite4_moe minimax_m2 mixtral nemotron_h olmoe qwen2_moe \
    qwen3_5_moe_text qwen3_moe qwen3_next; do
    expect 0 "" quantize --model_name_or_path "$goldens/$name/model" --output_dir "$name" --to nf4
    adapter "of-$name" "$name"
    adapter "over-$name" "$goldens/$name/model" --load_in_4bit true
    cmp "of-$name/adapter_model.safetensors" "over-$name/adapter_model.safetensors" || fail "$name: other adapters"
    expect 0 "" merge --model_name_or_path "$name" --adapter_name_or_path "of-$name" --output_dir "merged-$name"
done
skipped() { tr -d ' \n' <"$1/config.json" | grep -qF "$2" || fail "$1 names other modules:" "$(grep -A12 -e skip -e ignore "$1/config.json")"; }
skipped deepseek_v3 '"llm_int8_skip_modules":["gate","mlp.experts","lm_head"]'
skipped gemma4_moe '"llm_int8_skip_modules":["router.proj","lm_head"]'
skipped qwen2_moe '"llm_int8_skip_modules":["gate","shared_expert_gate","experts","lm_head"]'

# The form of compressed-tensors has expressions; files whose names begin otherwise than the class's have the class's names in it.
for name in deepseek_v3 nemotron_h; do
    expect 0 "" quantize --model_name_or_path "$goldens/$name/model" --output_dir "$name-fp8" --to fp8
    adapter "of-$name-fp8" "$name-fp8" --fp8_products none
    adapter "over-$name-fp8" "$goldens/$name/model" --base_dtype fp8 --fp8_products none
    cmp "of-$name-fp8/adapter_model.safetensors" "over-$name-fp8/adapter_model.safetensors" || fail "$name: other adapters in fp8"
done
skipped deepseek_v3-fp8 '"ignore":["re:.*gate$","re:.*mlp.experts\\..*","lm_head"]'
finish
