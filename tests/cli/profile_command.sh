#!/bin/bash
# trimtab profile: whole runs, runs that were killed, torn rows; what it proposes follows from the shares of the time.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
"$trimtab" train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --output_dir run --ranks 2 \
    --max_steps 6 --logging_steps 2 --save_steps 3 --report_to none >said 2>&1 || fail "a training: $(cat said)"
"$trimtab" profile run >out 2>&1 || fail "profile: $(cat out)"
for part in '^run: 6 steps with times, 3 saves$' '^  forward  *[0-9.]+ m?s' '% of the step$' '% of the wall time$' \
    'tokens/s, .*TFLOP/s of the model, .* of device memory' '^  ranks: 2; rank [01] waits the least' '^change: '; do
    grep -Eq "$part" out || fail "no $part in:" "$(cat out)"
done
grep -q 'killed\|left out' out && fail "a whole run is not whole:" "$(cat out)"
"$trimtab" profile run --json | grep -q '"ended": true, "steps": 6, "saves": 3, "broken_lines": 0, "ranks": 2' || fail --json

# Killed in the middle of a row, and the folder is elsewhere, without its ranks.
mkdir elsewhere
grep '"step_seconds"' run/metrics.jsonl >rows # saves have rows of their own between them
head -n 2 rows >elsewhere/metrics.jsonl
sed -n 3p rows | head -c 100 | tr -d '\n' >>elsewhere/metrics.jsonl
"$trimtab" profile elsewhere >out 2>&1 || fail "a torn row: $(cat out)"
grep -q 'the run has not ended, or was killed' out || fail "a killed run ended:" "$(cat out)"
grep -q '  1 line is not a whole row and left out' out || fail "the torn row is not counted:" "$(cat out)"
grep -q '^elsewhere: 4 steps with times' out || fail "the steps of a killed run:" "$(cat out)"
: >elsewhere/metrics.jsonl
"$trimtab" profile elsewhere >out 2>&1 || fail "a run without a row: $(cat out)"
grep -q 'no row has times' out || fail "an empty run:" "$(cat out)"

# row SHARE OF SECONDS: a run of one row with that part of the step or the wall time
row() {
    mkdir -p made
    echo "{\"step\": 1, \"loss\": 2.5, \"step_seconds\": 1.0, \"wall_seconds\": 2.0, \"$1\": $2}" >made/metrics.jsonl
    "$trimtab" profile made >out 2>&1 || fail "$1: $(cat out)"
}
while read -r key little much text; do
    row "$key" "$little"
    grep -q '^change: nothing' out || fail "$key $little is worth a change:" "$(cat out)"
    row "$key" "$much"
    grep '^change: ' out | grep -qF "$text" || fail "$key $much is worth no change:" "$(cat out)"
done <<'ROWS'
data_seconds 0.05 0.2 prepare the rows
gather_seconds 0.1 0.2 sharding_strategy
reduce_seconds 0.1 0.2 gradient_accumulation_steps
rank_wait_seconds 0.05 0.2 rows of equal length
queue_seconds 0.5 0.9 per_device_train_batch_size
save_wait_seconds 0.01 0.1 save_steps
save_stall_seconds 0.05 0.2 save_steps
evaluate_seconds 0.2 0.8 eval_steps
ROWS
expect 2 "profile needs the folder of a run" profile
expect 3 "has no metrics.jsonl" profile nowhere
finish
