#!/usr/bin/env bash
# overwrite_output_dir: checkpoints of the earlier run stay until the new one has its own, and a resume continues the new
# run, not the earlier one.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --report_to none --per_device_train_batch_size 4)
saved() { (cd "$1" && compgen -G 'checkpoint-*' | sort | paste -sd,); }

expect 0 '' "${run[@]}" --max_steps 6 --save_steps 2 --output_dir first
[ "$(saved first)" = checkpoint-2,checkpoint-4,checkpoint-6 ] || fail "the first run left $(saved first)"

# A run that fails before its first save leaves what was there.
cp -r first kept
expect 3 '' "${run[@]}" --dataset_name nowhere.jsonl --output_dir kept --overwrite_output_dir
[ "$(saved kept)" = checkpoint-2,checkpoint-4,checkpoint-6 ] || fail "a failed run removed checkpoints: $(saved kept)"

# A shorter run, with another rate: its checkpoints alone, and a resume finds nothing left to do.
cp -r first shorter
expect 0 '' "${run[@]}" --max_steps 3 --save_steps 1 --learning_rate 1e-3 --output_dir shorter --overwrite_output_dir
[ "$(saved shorter)" = checkpoint-1,checkpoint-2,checkpoint-3 ] || fail "the second run left $(saved shorter)"
rm shorter/completion.json # as if it had been killed
expect 0 'resuming from shorter/checkpoint-3' "${run[@]}" --max_steps 3 --save_steps 1 --learning_rate 1e-3 --output_dir shorter \
    --resume_from_checkpoint true

# As if the second run had been killed after its first save.
cp -r first killed
expect 0 '' "${run[@]}" --max_steps 6 --save_steps 1 --learning_rate 1e-3 --output_dir whole
expect 0 '' "${run[@]}" --max_steps 6 --save_steps 1 --learning_rate 1e-3 --output_dir killed --overwrite_output_dir
[ "$(saved killed)" = "$(saved whole)" ] || fail "the second run left $(saved killed)"
rm -r killed/checkpoint-[3-6] killed/adapter_model.safetensors
expect 0 'resuming from killed/checkpoint-2' "${run[@]}" --max_steps 6 --save_steps 1 --learning_rate 1e-3 --output_dir killed \
    --overwrite_output_dir --resume_from_checkpoint true
cmp whole/adapter_model.safetensors killed/adapter_model.safetensors || fail "a resumed run has other weights"

# Without checkpoints of its own: the result replaces all.
cp -r first alone
expect 0 '' "${run[@]}" --max_steps 2 --save_strategy no --learning_rate 1e-3 --output_dir alone --overwrite_output_dir
[ -z "$(saved alone)" ] || fail "the run without checkpoints left $(saved alone)"
finish
