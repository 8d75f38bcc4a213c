#!/bin/bash
# A save on a GPU is written and published while the next step runs, not when it ends: with steps of some seconds it
# is safe long before the step is over, and the grace period is little more than one step. On fake GPUs
# (tests/tools/fake_gpus.c).
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" fake_gpus

train() {
    timeout 300 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --threads 1 --ranks 2 \
        --dataset_name rows.jsonl --per_device_train_batch_size 8 --max_length 256 --report_to none "$@" >said 2>&1
}
for i in $(seq 1024); do
    printf '{"input_ids": [%d' $((i % 200))
    for t in $(seq 200); do printf ', %d' $(((i + t) % 200)); done
    printf ']}\n'
done >rows.jsonl

# Measures a step of 16 micro batches, then uses as many micro batches as make a step of about 3 s.
train --output_dir measure --max_steps 2 --gradient_accumulation_steps 16 --save_strategy no --logging_steps 1 ||
    fail "the step that is measured"
rate=$(sed -n 's/.*"tokens_per_second": \([0-9.]*\).*/\1/p' measure/metrics.jsonl | head -1)
micro=$(awk -v rate="$rate" 'BEGIN { n = int(3 * rate / (2 * 8 * 201)); print n < 16 ? 16 : n }')
train --output_dir out --max_steps 3 --gradient_accumulation_steps "$micro" --save_steps 1 --logging_steps 1 || fail "saving"
save=$(sed -n 's/.*"event": "save".*"seconds": \([0-9.e-]*\),.*"step": 1}/\1/p' out/metrics.jsonl)
step=$(awk -F'[:,]' '/"loss"/ { for (i = 1; i < NF; i++) { if ($i ~ /num_tokens/) tokens = $(i + 1); if ($i ~ /tokens_per_second/) rate = $(i + 1) }
    print (tokens - before) / rate; before = tokens }' out/metrics.jsonl | sed -n 2p)
echo "a step takes about $step s, its save was safe after $save s"
awk -v save="$save" -v step="$step" 'BEGIN { exit !(save > 0 && save < step / 3) }' || fail "safe after $save s, a step takes $step s"
grep -q "a grace period must be longer" said || fail "no grace period"
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
