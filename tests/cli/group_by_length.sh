#!/usr/bin/env bash
# train_sampling_strategy: group_by_length in training runs: the first batch has the longest row and its neighbours, its
# older spelling means the same, a resumed run keeps the order, and with packing a warning says that it has no effect.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
for i in $(seq 96); do
    printf '{"input_ids": [%s1]}\n' "$(for _ in $(seq $((i * 7 % 31 + 1))); do printf '%d, ' $((i % 50 + 3)); done)"
done >rows.jsonl
run=(train --model_name_or_path "$root/tests/golden/qwen2/model" --dataset_name rows.jsonl --threads 1 --device cpu --report_to none
    --per_device_train_batch_size 4 --logging_steps 1 --max_steps 6 --save_steps 3 --learning_rate 1e-3)
tokens() { grep -oE '"num_tokens": ?[0-9]+' "$1/metrics.jsonl" | grep -oE '[0-9]+$' | head -n 1; }

expect 0 'done: 6 steps' "${run[@]}" --output_dir grouped --train_sampling_strategy group_by_length
# 24 batches are four runs of six; of 24 rows with 2 to 32 tokens the four longest are near 32.
[ "$(tokens grouped)" -ge 104 ] || fail "the first batch has $(tokens grouped) tokens"
expect 0 'done: 6 steps' "${run[@]}" --output_dir older --group_by_length true
grep -q '^train_sampling_strategy: group_by_length' older/trimtab_config.yaml || fail "group_by_length is not settled"
cmp grouped/adapter_model.safetensors older/adapter_model.safetensors || fail "group_by_length: true is another order"
expect 0 'done: 6 steps' "${run[@]}" --output_dir random
cmp -s grouped/adapter_model.safetensors random/adapter_model.safetensors && fail "the order is that of random"
expect 0 'done: 3 steps' "${run[@]}" --output_dir parts --group_by_length true --max_steps 3 --lr_scheduler_type constant
expect 2 'train_sampling_strategy' "${run[@]}" --output_dir parts --lr_scheduler_type constant --resume_from_checkpoint true
expect 0 'done: 6 steps' "${run[@]}" --output_dir parts --group_by_length true --lr_scheduler_type constant --resume_from_checkpoint true
expect 0 'done: 6 steps' "${run[@]}" --output_dir whole --group_by_length true --lr_scheduler_type constant
cmp whole/adapter_model.safetensors parts/adapter_model.safetensors || fail "a resumed run has another order"
expect 0 'group_by_length has no effect with packing' "${run[@]}" --output_dir packed --packing true --max_length 64 \
    --train_sampling_strategy group_by_length --max_steps 2
finish
