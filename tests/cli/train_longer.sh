#!/usr/bin/env bash
# A resumed run with more steps than it was planned for: one line says what becomes of the learning rate, and nothing has
# to be forced. Any other change is refused as before.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --report_to none --save_steps 4 --learning_rate 1e-2 --logging_steps 1)
resumed=("${run[@]}" --resume_from_checkpoint true)

# With a constant rate the run ends as one that was planned with all steps.
constant=(--lr_scheduler_type constant)
expect 0 'done: 8 steps' "${run[@]}" "${constant[@]}" --max_steps 8 --output_dir whole
expect 0 'done: 4 steps' "${run[@]}" "${constant[@]}" --max_steps 4 --output_dir part
expect 0 'training longer: 8 steps instead of 4. The learning rate follows the schedule of the new length: step 4 had 0.01, step 5 has 0.01' \
    "${resumed[@]}" "${constant[@]}" --max_steps 8 --output_dir part
cmp whole/adapter_model.safetensors part/adapter_model.safetensors || fail "a longer run has other weights"

# A linear schedule with a warm-up that is a share of all steps: 4 steps of 1e-2 * (1, 3/4, ...), then those of 8 epochs.
linear=(--lr_scheduler_type linear --warmup_ratio 0.25)
expect 0 'done: 8 steps' "${run[@]}" "${linear[@]}" --num_train_epochs 4 --output_dir epochs
expect 0 'training longer: 16 steps instead of 8. The learning rate follows the schedule of the new length: step 8 had 0.001667, step 9 has 0.006667' \
    "${resumed[@]}" "${linear[@]}" --num_train_epochs 8 --output_dir epochs
grep -qE '"learning_rate": 0\.00666.*"step": 9\b' epochs/metrics.jsonl || fail "step 9: $(grep '"step": 9' epochs/metrics.jsonl)"
[ "$(grep -c 'training longer' err)" = 1 ] || fail "not one line"

# Whatever else changes is named, and alone.
expect 2 "belongs to: warmup_steps was 4 and is 1" "${resumed[@]}" --lr_scheduler_type linear --warmup_steps 1 --num_train_epochs 16 \
    --output_dir epochs
expect 2 "belongs to: learning_rate was 0.01 and is 0.02" "${resumed[@]}" "${linear[@]}" --learning_rate 2e-2 --num_train_epochs 16 \
    --output_dir epochs
! grep -q 'steps in all' err || fail "the length is named: $(cat err)"
finish
