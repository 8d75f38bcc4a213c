#!/bin/bash
# Fake GPUs that work late (tests/tools/late_gpus.c): a run gives the same bits whichever streams or GPUs run behind, and
# a GPU that fails ends the run soon, with one error. With program and plugin under the thread sanitizer a missing event
# is always reported, not only by chance. Runs that are compared run in parallel, because they wait more than they compute.
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" late_gpus

train() {
    local output=$1
    shift
    timeout 300 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --threads 1 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 4 --per_device_train_batch_size 2 --bf16 false \
        --learning_rate 0.01 --save_steps 2 --output_dir "$output" "$@" >"$output.said" 2>&1
}
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# Sums over two ranks are the same in either order.
train cpu --device cpu --ranks 2 --gradient_accumulation_steps 2 || fail "two ranks on the CPU" cpu.said
train late --device cuda --ranks 2 --gradient_accumulation_steps 2 || fail "two ranks on GPUs" late.said
grep -q "on 2 ranks" late.said || fail "two ranks, not said" late.said
same cpu/adapter_model.safetensors late/adapter_model.safetensors
same cpu/checkpoint-2/adapter_model.safetensors late/checkpoint-2/adapter_model.safetensors

# With more of them the order shows; `deterministic` makes it that of the CPU, whatever runs behind.
train cpu4 --device cpu --ranks 4 || fail "four ranks on the CPU" cpu4.said
for slow in compute copy even odd; do
    TRIMTAB_DETERMINISTIC=1 LATE_SLOW=$slow train "ordered-$slow" --device cuda --ranks 4 || fail "four ranks in order, $slow late" "ordered-$slow.said"
    same cpu4/adapter_model.safetensors "ordered-$slow/adapter_model.safetensors"
done

# name FILE_OF_THE_RESULT options...
slows=(compute copy even odd)
timings() {
    local name=$1 file=$2 slow run
    local -A runs=()
    shift 2
    train "$name" --device cuda "$@" &
    runs[$name]=$!
    for slow in "${slows[@]}"; do
        LATE_SLOW=$slow train "$name-$slow" --device cuda "$@" &
        runs[$name-$slow]=$!
    done
    for run in "${!runs[@]}"; do wait "${runs[$run]}" || fail "$run" "$run.said"; done
    for slow in "${slows[@]}"; do same "$name/$file" "$name-$slow/$file"; done
}
timings lora adapter_model.safetensors --ranks 4
slows=(odd)
timings eight adapter_model.safetensors --ranks 8 --per_device_train_batch_size 1
slows=(compute copy even odd)
timings full model.safetensors --ranks 2 --use_peft false --offload_params true --recompute offload --bf16 true
timings grad_op adapter_model.safetensors --ranks 3 --sharding_strategy SHARD_GRAD_OP --reduce_dtype bfloat16
timings copies adapter_model.safetensors --ranks 2 --sharding_strategy NO_SHARD --eval_strategy steps --eval_steps 2 \
    --eval_dataset "$root/tests/golden/llama2/train.jsonl" --load_best_model_at_end true

# Enough tokens that gathers begin with attention: one wait more for each.
bench() {
    local name=$1
    shift
    timeout 300 "$build/trimtab" bench train --config_json "$root/bench/shapes/tiny.json" --ranks 2 --sequence_length 64 --threads 1 \
        --steps 1 --warmup 1 --lora_dropout 0 --device cuda "$@" >"$name.out" 2>"$name.said"
}
loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1.out"; }
waits() { sed -n 's/^late GPUs: \([0-9]*\) waits/\1/p' "$1.said"; }
for batch in 16 128; do
    LATE_COUNT=1 bench waits$batch --per_device_train_batch_size $batch --recompute none &
done
wait
few=$(waits waits16) many=$(waits waits128)
[ "${few:-0}" -gt 0 ] && [ "${many:-0}" -gt "$few" ] || fail "gathers are not late: ${few:-no} and ${many:-no} waits" waits128.said
for level in none block; do
    bench $level --per_device_train_batch_size 128 --recompute $level &
    for slow in compute copy even odd; do
        LATE_SLOW=$slow bench $level-$slow --per_device_train_batch_size 128 --recompute $level &
    done
    wait
    wanted=$(loss $level)
    [ -n "$wanted" ] || fail "a bench with late gathers, $level" $level.said
    for slow in compute copy even odd; do
        got=$(loss $level-$slow)
        [ "$got" = "$wanted" ] || fail "late gathers, $level, $slow late: loss $got instead of $wanted" $level-$slow.said
    done
done

# A rank fails while it starts, loads, computes; no rank may wait for one that waits for it.
for call in 1 3 60 110; do
    LATE_FAIL=1:$call timeout 20 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --ranks 2 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 4 --output_dir "failing$call" --device cuda >said 2>&1
    code=$?
    [ $code -eq 10 ] || fail "a GPU that fails at its call $call ends the run with $code"
    [ "$(grep -c "^error: the fake GPU 1 stops working" said)" -eq 1 ] || fail "a GPU that fails at its call $call: the message"
    [ "$(grep -c "^error" said)" -eq 1 ] || fail "a GPU that fails at its call $call: more than one message"
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
