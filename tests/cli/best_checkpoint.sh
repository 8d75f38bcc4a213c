#!/usr/bin/env bash
# load_best_model_at_end in a resumed run: the best checkpoint is found where it lies, verified before the first step, and
# replaced by the best of those that are whole where it is gone or damaged.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --eval_dataset rows.jsonl --max_steps 8 --report_to none
    --eval_strategy steps --eval_steps 2 --save_steps 2 --learning_rate 1e-2 --load_best_model_at_end true --threads 1
    --logging_steps 1 --metric_for_best_model loss --greater_is_better true) # the loss falls: the first is the best
resumed=("${run[@]}" --resume_from_checkpoint true)
weights_of() { cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 has other weights than $2"; }
# killed FROM TO STEP: what FROM would have been, had it been killed after its checkpoint of the step, under a new name.
killed() {
    rm -rf "$2" && cp -r "$1" "$2" && rm -f "$2"/adapter_model.safetensors "$2/completion.json"
    for step in 2 4 6 8; do [ $step -le "$3" ] || rm -rf "$2/checkpoint-$step"; done
}

expect 0 'done: 8 steps' "${run[@]}" --output_dir named && mv named whole
grep -q '"best_model_checkpoint": "named/checkpoint-2"' whole/trainer_state.json || fail "another best checkpoint"
weights_of whole whole/checkpoint-2

# The best one is gone: said before the first step, and the next best is taken.
killed whole gone 6 && rm -r gone/checkpoint-2
expect 0 "'checkpoint-2' is gone; the best of those that are whole takes its place: 'gone/checkpoint-4'" "${resumed[@]}" \
    --output_dir gone
weights_of gone "gone/checkpoint-4"
grep -q "\"best_model_checkpoint\": \"gone/checkpoint-4\"" gone/trainer_state.json || fail "trainer_state.json: another best"
[ "$(grep -n 'cannot be loaded at the end' err | cut -d: -f1)" -lt "$(grep -n '^step 7/8' err | head -1 | cut -d: -f1)" ] ||
    fail "the warning comes after a step"

# One byte of its weights differs, and of the next best one the manifest is missing.
killed whole damaged 6
printf 'X' | dd of=damaged/checkpoint-2/adapter_model.safetensors bs=1 seek=900 conv=notrunc status=none
rm damaged/checkpoint-4/manifest.json
expect 0 "adapter_model.safetensors' is not as it was saved: its bytes have changed; the best of those that are whole takes its place: 'damaged/checkpoint-6'" \
    "${resumed[@]}" --output_dir damaged --ranks 2 --per_device_train_batch_size 4
weights_of damaged damaged/checkpoint-6

# A checkpoint of another run with the same step is not taken for it.
killed whole strange 6 && rm -r strange/checkpoint-2
expect 0 'done: 2 steps' "${run[@]}" --output_dir other --max_steps 2 --seed 7 && cp -r other/checkpoint-2 strange/
expect 0 "'strange/checkpoint-2' is of another run: its evaluation differs" "${resumed[@]}" --output_dir strange
weights_of strange "strange/checkpoint-4"

# The best evaluation had no checkpoint, nor has the one to resume from an evaluation: the best from then on is taken.
expect 0 'done: 8 steps' "${run[@]}" --output_dir sparse --load_best_model_at_end false --save_steps 3
rm -r sparse/checkpoint-[68] sparse/adapter_model.safetensors sparse/completion.json
expect 0 'no other checkpoint with an evaluation is whole, so the best of the evaluations from now on is taken' "${resumed[@]}" \
    --output_dir sparse
weights_of sparse sparse/checkpoint-4

# The best one lies beside the checkpoint to resume from, in another folder: now, and when that run is resumed itself.
expect 0 'done: 8 steps' "${run[@]}" --output_dir next --resume_from_checkpoint whole/checkpoint-4
weights_of next whole/checkpoint-2
grep -q '"best_model_checkpoint": "whole/checkpoint-2"' next/checkpoint-8/trainer_state.json || fail "next: another best checkpoint"
killed next again 6
expect 0 'resuming from again/checkpoint-6' "${resumed[@]}" --output_dir again
weights_of again whole/checkpoint-2
! grep -q 'cannot be loaded' err || fail "the best checkpoint of another folder is not found: $(cat err)"

# Two processes: each loads the same one.
killed whole both 6 && rm -r both/checkpoint-2
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 12000)) WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
half=("${resumed[@]}" --output_dir both --per_device_train_batch_size 4)
RANK=1 "$trimtab" "${half[@]}" >printed1 2>err1 &
RANK=0 expect 0 "takes its place: 'both/checkpoint-4'" "${half[@]}"
wait $! || fail "rank 1: $(cat err1)"
unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE
weights_of both "both/checkpoint-4"
finish
