#!/usr/bin/env bash
# A 4-bit base whose layers are small beside its embedding and head: with a limit just below the need of whole ones the
# plan gathers both in parts. Training, resumption and evaluation then work as without the limit.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
model=$root/tests/golden/llama2/model
base=(--model_name_or_path "$model" --load_in_4bit true --bf16 false --threads 1 --ranks 2)
sets=("${base[@]}" --dataset_name "$root/tests/golden/llama2/train.jsonl" --recompute block --per_device_train_batch_size 2
    --save_strategy steps --save_steps 3 --logging_steps 1 --lora_r 4 --lora_dropout 0.1)
parts='embedding and head gathered in parts'
# run NAME flags: trains into the folder NAME, with the log NAME.log
run() {
    local name=$1
    shift
    "$trimtab" train "${sets[@]}" --output_dir "$name" "$@" 2>"$name.log" || fail "$name:" "$(cat "$name.log")"
}
# need FOLDER: prints the bytes that its run was planned with, less twenty KiB
need() { echo $(($(tr -d '\n' <"$1/run.json" | sed -E 's/.*"plan": *\{ *"device_bytes": *([0-9]+).*/\1/') - 20480)); }

run whole --max_steps 6
grep -q "$parts" whole.log && fail "a run without a limit gathers in parts"
limit=$(need whole)
run split --max_steps 6 --device_memory "$limit"
grep -q "$parts" split.log || fail "with $limit nothing is gathered in parts:" "$(cat split.log)"

losses() { sed -nE 's/.*"loss": *([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }
paste <(losses whole) <(losses split) >curves
[ "$(wc -l <curves)" -ge 6 ] || fail "no curves:" "$(cat curves)"
awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-4 * $1)) bad = 1 } END { exit bad }' curves || fail "other losses:" "$(cat curves)"

# Steps 4 to 6 again from the checkpoint: the same bits.
mkdir again && cp -r split/checkpoint-3 again/
run again --max_steps 6 --device_memory "$limit" --resume_from_checkpoint again/checkpoint-3
cmp split/adapter_model.safetensors again/adapter_model.safetensors || fail "a resumed run ends elsewhere"

# eval FLAGS
evaluate() {
    "$trimtab" eval "${base[@]}" --eval_dataset "$root/tests/golden/llama2/train.jsonl" --adapter_name_or_path split \
        --max_length 256 --per_device_eval_batch_size 3 --json true "$@" 2>eval.log
}
evaluate >whole.json || fail "eval:" "$(cat eval.log)"
evaluate --device_memory 20KiB >small.json && fail "eval in 20 KiB"
grep -q 'this run needs' eval.log || fail "eval in 20 KiB:" "$(cat eval.log)"
# The least limit that is enough is one for parts: whole matrices need more.
refused=0 limit=65536
while [ $((limit - refused)) -gt 1 ]; do
    middle=$(((limit + refused) / 2))
    if evaluate --device_memory ${middle}KiB >/dev/null; then limit=$middle; else refused=$middle; fi
done
evaluate --device_memory ${limit}KiB >split.json || fail "eval with $limit KiB:" "$(cat eval.log)"
loss() { sed -nE 's/.*"(eval_)?loss": *([0-9.]+).*/\2/p' "$1" | head -n 1; }
awk "BEGIN { a = $(loss whole.json); b = $(loss split.json); exit !(a > 0 && (a - b) ^ 2 < 1e-10 * a * a) }" ||
    fail "eval:" "$(cat whole.json split.json)"
finish
