#!/usr/bin/env bash
# eval_delay, by the rules of transformers' DefaultFlowCallback: with eval_strategy steps no evaluation before that step,
# with epoch none before that epoch; eval_on_start acts in spite of it, and so does a resumed run.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
model=$root/tests/golden/qwen2/model
for i in $(seq 16); do printf '{"input_ids": [%d, 7, 9, 11]}\n' "$((i + 3))"; done >rows.jsonl
run=(train --model_name_or_path "$model" --dataset_name rows.jsonl --eval_dataset rows.jsonl --device cpu --threads 1 --report_to none
    --per_device_train_batch_size 4 --learning_rate 1e-3)
# evaluated FOLDER: the steps of its evaluations
evaluated() { sed -n 's/.*"eval_loss".*"step": \([0-9]*\).*/\1/p' "$1/metrics.jsonl" | paste -sd,; }
# delayed FOLDER STEPS words...
delayed() {
    local out=$1 steps=$2
    shift 2
    expect 0 'done: ' "${run[@]}" --output_dir "$out" "$@"
    [ "$(evaluated "$out")" = "$steps" ] || fail "$*: evaluations after steps $(evaluated "$out"), not $steps"
}
steps=(--eval_strategy steps --eval_steps 2 --max_steps 9)
delayed at_once 2,4,6,8,9 "${steps[@]}"
delayed by_steps 6,8,9 "${steps[@]}" --eval_delay 5
delayed on_the_step 6,8,9 "${steps[@]}" --eval_delay 6
delayed start 0,8,9 "${steps[@]}" --eval_delay 7 --eval_on_start true
delayed never '' "${steps[@]}" --eval_delay 10
# Four steps are an epoch.
delayed by_epochs 12,16 --eval_strategy epoch --num_train_epochs 4 --eval_delay 2.5
delayed part '' "${steps[@]}" --eval_delay 5 --max_steps 4 --save_steps 4 --lr_scheduler_type constant
expect 0 'done: ' "${run[@]}" "${steps[@]}" --eval_delay 7 --output_dir part --lr_scheduler_type constant --resume_from_checkpoint true
[ "$(evaluated part)" = 8,9 ] || fail "a resumed run evaluates after steps $(evaluated part)"
# The best of those that were evaluated; none was: the last weights.
expect 0 'done: ' "${run[@]}" "${steps[@]}" --eval_delay 7 --output_dir best --save_steps 2 --load_best_model_at_end true --max_steps 8
grep -q '"best_global_step": 8' best/trainer_state.json || fail "the best step: $(grep best_global_step best/trainer_state.json)"
expect 0 'done: ' "${run[@]}" "${steps[@]}" --eval_delay 20 --output_dir none_best --save_steps 2 --load_best_model_at_end true --max_steps 8
cmp none_best/adapter_model.safetensors none_best/checkpoint-8/adapter_model.safetensors || fail "without an evaluation: not the last weights"
expect 0 'eval_delay has no effect: it needs eval_strategy other than no' "${run[@]}" --output_dir off --max_steps 1 --eval_delay 3
finish
