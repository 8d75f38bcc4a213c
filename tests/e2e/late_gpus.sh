#!/bin/bash
# Fake GPUs that work late (tests/tools/late_gpus.c): a run gives the same bits whichever streams or GPUs run behind, and
# a GPU that fails ends the run soon, with one error. With program and plugin under the thread sanitizer a missing event
# is always reported, not only by chance. Several runs are in progress at a time, because they wait more than they compute.
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" late_gpus
runs_max=8

# start NAME COMMAND...: in the background, after others if too many are in progress; its exit code goes to NAME.code.
start() {
    local name=$1
    shift
    while [ "$(jobs -pr | wc -l)" -ge $runs_max ]; do wait -n; done
    { "$@"; echo $? >"$name.code"; } &
}
good() {
    local name
    for name in "$@"; do [ "$(cat "$name.code")" = 0 ] || fail "$name" "$name.said"; done
}
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

train() {
    local output=$1
    shift
    timeout 300 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --threads 1 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 4 --per_device_train_batch_size 2 --bf16 false \
        --learning_rate 0.01 --save_steps 2 --unsharded_blocks 0 --output_dir "$output" "$@" >"$output.said" 2>&1
}
# timings NAME SLOWS options...: a run in time, and one for each word of SLOWS.
timings() {
    local name=$1 slow slows=$2
    shift 2
    start "$name" train "$name" --device cuda "$@"
    for slow in $slows; do LATE_SLOW=$slow start "$name-$slow" train "$name-$slow" --device cuda "$@"; done
}
# check_timings NAME SLOWS FILE_OF_THE_RESULT
check_timings() {
    local name=$1 slow
    good "$name"
    for slow in $2; do
        good "$name-$slow"
        same "$name/$3" "$name-$slow/$3"
    done
}
each='compute copy even odd'
timings lora "$each" --ranks 4
timings eight odd --ranks 8 --per_device_train_batch_size 1
timings full "$each" --ranks 2 --use_peft false --offload_params true --recompute offload --bf16 true
timings whole "$each" --ranks 3 --unsharded_blocks 2
timings grad_op "$each" --ranks 3 --sharding_strategy SHARD_GRAD_OP --reduce_dtype bfloat16
timings copies "$each" --ranks 2 --sharding_strategy NO_SHARD --eval_strategy steps --eval_steps 2 \
    --eval_dataset "$root/tests/golden/llama2/train.jsonl" --load_best_model_at_end true
# A reference that is a copy takes the place of the trained values, and makes place again, in each micro batch.
mkdir paired
cp "$root"/tests/golden/llama2/model/* "$root"/tests/golden/dpo/tokenizer/* paired
timings reference "$each" --ranks 2 --model_name_or_path paired --dataset_name "$root/tests/golden/dpo/train.jsonl" \
    --objective dpo --adapter_name_or_path "$root/tests/golden/llama2/adapter_random" --gradient_accumulation_steps 2
start cpu train cpu --device cpu --ranks 2 --gradient_accumulation_steps 2
start late train late --device cuda --ranks 2 --gradient_accumulation_steps 2
start cpu4 train cpu4 --device cpu --ranks 4
for slow in $each; do
    TRIMTAB_DETERMINISTIC=1 LATE_SLOW=$slow start "ordered-$slow" train "ordered-$slow" --device cuda --ranks 4
done

# Enough tokens that gathers begin with attention: one wait more for each. The number of tokens follows from the chip alone,
# so the model is narrow.
sed 's/\("hidden_size":\) 256/\1 64/; s/\("intermediate_size":\) 704/\1 96/; s/\("vocab_size":\) 2048/\1 256/
    s/\("num_attention_heads":\) 8/\1 2/; s/\("num_key_value_heads":\) 4/\1 1/' "$root/bench/shapes/tiny.json" >narrow.json
sed 's/\("num_hidden_layers":\) 4/\1 16/' narrow.json >deep.json
bench() {
    local name=$1 model=${model:-narrow.json}
    shift
    timeout 300 "$build/trimtab" bench train --config_json "$model" --ranks 2 --sequence_length 64 --threads 1 \
        --steps 1 --warmup 1 --lora_dropout 0 --unsharded_blocks 0 --device cuda "$@" >"$name.out" 2>"$name.said"
}
for batch in 16 128; do
    LATE_COUNT=1 start waits$batch bench waits$batch --per_device_train_batch_size $batch --recompute none --limit_all_gathers false
done
# A queue of a length that two blocks and the update do not fill, and a pass does.
for lead in true false; do
    model=deep.json LATE_COUNT=1 LATE_QUEUE=320 LATE_SLOW=compute start lead-$lead bench lead-$lead --per_device_train_batch_size 1 \
        --recompute none --ranks 4 --lora_r 1 --lora_target_modules q_proj --limit_all_gathers $lead
done
for level in none block; do
    late=(--per_device_train_batch_size 128 --recompute "$level" --limit_all_gathers false)
    start $level bench $level "${late[@]}"
    for slow in $each; do
        LATE_SLOW=$slow start $level-$slow bench $level-$slow "${late[@]}"
    done
done

# A rank fails while it starts, loads, computes; no rank may wait for one that waits for it.
fails() {
    LATE_FAIL=1:$1 timeout 20 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --ranks 2 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 4 --output_dir "failing$1" --device cuda >"fails$1.said" 2>&1
}
calls='1 3 60 110'
for call in $calls; do start "fails$call" fails "$call"; done
wait

check_timings lora "$each" adapter_model.safetensors
check_timings eight odd adapter_model.safetensors
check_timings full "$each" model.safetensors
check_timings whole "$each" adapter_model.safetensors
check_timings grad_op "$each" adapter_model.safetensors
check_timings copies "$each" adapter_model.safetensors
check_timings reference "$each" adapter_model.safetensors
# Sums over two ranks are the same in either order.
good cpu late cpu4
grep -q "on 2 ranks" late.said || fail "two ranks, not said" late.said
same cpu/adapter_model.safetensors late/adapter_model.safetensors
same cpu/checkpoint-2/adapter_model.safetensors late/checkpoint-2/adapter_model.safetensors
# With more of them the order shows; `deterministic` makes it that of the CPU, whatever runs behind.
for slow in $each; do
    good "ordered-$slow"
    same cpu4/adapter_model.safetensors "ordered-$slow/adapter_model.safetensors"
done

loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1.out"; }
waits() { sed -n 's/^late GPUs: \([0-9]*\) waits.*/\1/p' "$1.said"; }
few=$(waits waits16) many=$(waits waits128)
[ "${few:-0}" -gt 0 ] && [ "${many:-0}" -gt "$few" ] || fail "gathers are not late: ${few:-no} and ${many:-no} waits" waits128.said
# The host's lead over its GPU is limited, so that no queue fills and no copy waits for a rank whose queue is full.
good lead-true lead-false
# Copies that are queued before their turn are those of adapters, behind the sums of a step, and few others.
stalls() {
    sed -n 's/^late GPUs: .* waits, \([0-9]*\) full queues, \([0-9]*\) stalled copies, \([0-9]*\) held copies$/\1 \2 \3/p' "$1.said"
}
read -r full stalled few < <(stalls lead-true)
[ "${full:-1}" = 0 ] && [ "${stalled:-1}" = 0 ] || fail "a limited lead: a full queue or a stalled copy" lead-true.said
read -r full stalled many < <(stalls lead-false)
[ "${full:-0}" -gt 0 ] && [ "${stalled:-0}" -gt 0 ] || fail "without a limit of the lead no copy stalls" lead-false.said
[ "${many:-0}" -gt 100 ] && [ "${few:-100}" -lt $((many / 2)) ] ||
    fail "copies that are queued before their turn: ${few:-?} with a limited lead, ${many:-?} without" lead-true.said
[ "$(loss lead-true)" = "$(loss lead-false)" ] || fail "the limit of the lead changes the loss"
for level in none block; do
    wanted=$(loss $level)
    [ -n "$wanted" ] || fail "a bench with late gathers, $level" $level.said
    for slow in $each; do
        got=$(loss $level-$slow)
        [ "$got" = "$wanted" ] || fail "late gathers, $level, $slow late: loss $got instead of $wanted" $level-$slow.said
    done
done

for call in $calls; do
    said=fails$call.said
    [ "$(cat "fails$call.code")" = 10 ] || fail "a GPU that fails at its call $call ends the run with $(cat "fails$call.code")" "$said"
    [ "$(grep -c "^error: the fake GPU 1 stops working" "$said")" -eq 1 ] || fail "a GPU that fails at its call $call: the message" "$said"
    [ "$(grep -c "^error" "$said")" -eq 1 ] || fail "a GPU that fails at its call $call: more than one message" "$said"
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
