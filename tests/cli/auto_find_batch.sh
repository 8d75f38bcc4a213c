#!/usr/bin/env bash
# auto_find_batch_size: a run has the largest batch up to the one given that fits by the memory plan, the same as if it
# had been given; the next larger one does not fit; a resumed run keeps it; a plan finds it too.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
model=$root/tests/golden/qwen2/model
for i in $(seq 600); do
    printf '{"input_ids": [%s1]}\n' "$(for _ in $(seq $((i * 7 % 31 + 20))); do printf '%d, ' $((i % 50 + 3)); done)"
done >rows.jsonl
run=(train --model_name_or_path "$model" --dataset_name rows.jsonl --threads 1 --device cpu --report_to none --max_steps 2
    --learning_rate 1e-3 --lr_scheduler_type constant --save_steps 2 --logging_steps 1)
# found FOLDER: the batch size of its run, as trainer_state.json records it
found() { grep -oE '"train_batch_size": ?[0-9]+' "$1/trainer_state.json" | grep -oE '[0-9]+$'; }

expect 0 'auto_find_batch_size: per_device_train_batch_size 4 fits' "${run[@]}" --output_dir fits --per_device_train_batch_size 4 \
    --auto_find_batch_size true
limit=(--device_memory 24MiB)
expect 4 'the limit is 24.0 MiB' "${run[@]}" --output_dir never --per_device_train_batch_size 256 "${limit[@]}"
expect 0 'instead of 256 is the largest that fits' "${run[@]}" --output_dir auto --per_device_train_batch_size 256 \
    --auto_find_batch_size true "${limit[@]}"
n=$(found auto)
[ "$n" -gt 4 ] && [ "$n" -lt 256 ] || fail "the batch size that was found: $n"
grep -q "per_device_train_batch_size $n instead of 256" err || fail "the line and the state name different sizes: $n"
[ "$(grep -c auto_find_batch_size err)" = 1 ] || fail "not one line: $(grep auto_find err)"
expect 0 'done: 2 steps' "${run[@]}" --output_dir given --per_device_train_batch_size "$n" "${limit[@]}"
cmp auto/adapter_model.safetensors given/adapter_model.safetensors || fail "the same batch size, given, trains other weights"
expect 4 '' "${run[@]}" --output_dir more --per_device_train_batch_size $((n + 1)) "${limit[@]}"

# With more memory the resumed run keeps the batch size of its checkpoint.
expect 0 "auto_find_batch_size: per_device_train_batch_size $n, as before" "${run[@]}" --output_dir auto --max_steps 4 \
    --per_device_train_batch_size 256 --auto_find_batch_size true --resume_from_checkpoint true
expect 0 'done: 4 steps' "${run[@]}" --output_dir given --max_steps 4 --per_device_train_batch_size "$n" --resume_from_checkpoint true
cmp auto/adapter_model.safetensors given/adapter_model.safetensors || fail "a resumed run has another batch size"
expect 0 'which is complete: 4 steps. There is nothing to do' "${run[@]}" --output_dir auto --max_steps 4 \
    --per_device_train_batch_size 256 --auto_find_batch_size true --resume_from_checkpoint true

# On two ranks, and where nothing fits.
expect 0 'instead of 256 is the largest that fits' "${run[@]}" --output_dir two --ranks 2 --per_device_train_batch_size 256 \
    --auto_find_batch_size true "${limit[@]}"
expect 4 'the limit is 1.0 MiB' "${run[@]}" --output_dir nothing --per_device_train_batch_size 256 --auto_find_batch_size true --device_memory 1MiB
grep -q "auto_find_batch_size:" err && fail "a batch size was found where none fits"

# Two processes with different memory: the smaller one decides for both.
port=$((20000 + $$ % 20000))
machines=(--num_machines 2 --main_process_ip 127.0.0.1 --main_process_port "$port" --output_dir machines --auto_find_batch_size true
    --per_device_train_batch_size 256)
"$trimtab" "${run[@]}" "${machines[@]}" --machine_rank 1 --device_memory 20MiB >other 2>&1 &
expect 0 'instead of 256 is the largest that fits' "${run[@]}" "${machines[@]}" --machine_rank 0 "${limit[@]}"
wait $! || fail "the other process: $(tail -n 3 other)"
[ "$(found machines)" -lt "$(found two)" ] || fail "two processes took $(found machines), two ranks $(found two)"

expect 0 'per_device_train_batch_size' plan --model_name_or_path "$model" --device cpu --device_memory 24MiB --max_length 52 \
    --per_device_train_batch_size 256 --auto_find_batch_size true
planned=$(sed -nE 's/^auto_find_batch_size: --per_device_train_batch_size ([0-9]+)$/\1/p' printed)
[ "${planned:-0}" -gt 4 ] && [ "$planned" -le "$n" ] || fail "the plan: $(cat printed)"
finish
