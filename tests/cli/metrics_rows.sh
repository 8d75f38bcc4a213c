#!/bin/bash
# Times in metrics.jsonl and ranks/rank-N.jsonl: the phases of every rank make its step, and a save between two rows is
# in the later one.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
"$trimtab" train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --output_dir out --ranks 2 \
    --max_steps 8 --logging_steps 2 --save_steps 4 --report_to none --per_device_train_batch_size 2 >said 2>&1 ||
    fail "a training: $(cat said)"

# values FILE KEY: its value in each row that has step_seconds
values() {
    grep '"step_seconds": ' "$1" | sed -nE "s/.*\"$2\": ([-0-9.e]+)[,}].*/\1/p"
}
for file in out/metrics.jsonl out/ranks/rank-1.jsonl; do
    [ "$(values "$file" step | paste -sd ' ')" = '2 4 6 8' ] || fail "$file has not the rows of 2 4 6 8"
    for key in data gather forward backward reduce device_wait rank_wait optimizer save_wait; do
        values "$file" ${key}_seconds >"phase_$key"
        [ "$(wc -l <"phase_$key")" = 4 ] || fail "$file: a row without ${key}_seconds"
    done
    values "$file" step_seconds >steps
    paste phase_* | awk '{ sum = 0; for (i = 1; i <= NF; i++) sum += $i; print sum }' | paste - steps |
        awk '{ if ($1 > 1.03 * $2 || $1 < 0.97 * $2) exit 1 }' || fail "$file: the phases are not the step"
    for key in tokens_per_second model_tflops weights_bytes activations_bytes device_bytes; do
        [ "$(values "$file" $key | awk '$1 > 0' | wc -l)" = 4 ] || fail "$file: a row without $key"
    done
done
[ -e out/ranks/rank-0.jsonl ] && fail "rank 0 has two files"

# The save after step 4 begins after its row: the row of step 6 has its stall, and the other rows nearly none.
values out/metrics.jsonl save_stall_seconds | paste -sd ' ' |
    awk '{ exit !($3 > 10 * $1 && $3 > 10 * $2) }' || fail "the save is not in the row after it:" \
    "$(values out/metrics.jsonl save_stall_seconds)"
grep -Eq '"save_stall_total_seconds": [0-9.e-]*[1-9]' out/metrics.jsonl || fail "the run has no sum of saves"
finish
