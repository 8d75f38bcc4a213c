#!/usr/bin/env bash
# neftune_noise_alpha in training runs: other losses than without, the same bits twice and on any number of micro
# batches' rows, evaluations without noise, and a part of what a resumed run must have in common with its beginning.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
model=$root/tests/golden/qwen2/model
run=(train --model_name_or_path "$model" --dataset_name "$root/tests/golden/qwen2/train.jsonl" --threads 1 --device cpu
    --eval_dataset "$root/tests/golden/qwen2/train.jsonl" --eval_strategy steps --eval_on_start true --logging_steps 1
    --eval_steps 4 --save_strategy no --report_to none --learning_rate 0.01 --lr_scheduler_type constant --max_steps 4)
noise=(--neftune_noise_alpha 10)
# losses FOLDER KEY: the values in the order of the steps
losses() { grep -oE "\"$2\": ?[0-9.e+-]+" "$1/metrics.jsonl"; }

expect 0 'done: 4 steps' "${run[@]}" --output_dir plain
expect 0 'done: 4 steps' "${run[@]}" --output_dir zero --neftune_noise_alpha 0
cmp plain/adapter_model.safetensors zero/adapter_model.safetensors || fail "alpha 0 changes the weights"
expect 0 'done: 4 steps' "${run[@]}" --output_dir one "${noise[@]}"
expect 0 'done: 4 steps' "${run[@]}" --output_dir two "${noise[@]}"
cmp one/adapter_model.safetensors two/adapter_model.safetensors || fail "two runs with noise differ"
cmp -s plain/adapter_model.safetensors one/adapter_model.safetensors && fail "noise changes nothing"
[ "$(losses plain loss | head -n 1)" != "$(losses one loss | head -n 1)" ] || fail "the first loss has no noise"
# Before the first step the weights are the same, so an evaluation without noise gives the same digits.
[ -n "$(losses plain eval_loss)" ] && [ "$(losses plain eval_loss | head -n 1)" = "$(losses one eval_loss | head -n 1)" ] ||
    fail "an evaluation has noise: $(losses plain eval_loss | head -n 1), $(losses one eval_loss | head -n 1)"

expect 0 'done: 2 steps' "${run[@]}" --output_dir parts "${noise[@]}" --max_steps 2 --save_strategy steps --save_steps 2
expect 2 "neftune_noise_alpha" "${run[@]}" --output_dir parts --neftune_noise_alpha 5 --resume_from_checkpoint true
expect 2 "neftune_noise_alpha" "${run[@]}" --output_dir parts --resume_from_checkpoint true
expect 0 'done: 4 steps' "${run[@]}" --output_dir parts "${noise[@]}" --resume_from_checkpoint true
cmp one/adapter_model.safetensors parts/adapter_model.safetensors || fail "a resumed run has other noise"
expect 2 "neftune_noise_alpha" "${run[@]}" --output_dir x --neftune_noise_alpha -1
finish
