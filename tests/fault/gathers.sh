#!/bin/bash
# Ranks that read each other's memory (tests/tools/fake_gpus.c) as processes: the bytes of threads and of the CPU, the
# fallback, and a rank that is killed or stopped inside a gather, where the others end soon with an error that names it.
# TT_TEST_KILLS: kills, each inside another gather (3), and stops (1 for every 3).
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" fake_gpus
kills=${TT_TEST_KILLS:-3}
port=$((20000 + $$ % 9000))

common=(train --model_name_or_path "$root/tests/golden/llama2/model" --dataset_name "$root/tests/golden/llama2/train.jsonl"
    --threads 1 --per_device_train_batch_size 2 --bf16 false --learning_rate 0.01 --recompute none --unsharded_blocks 0)
# ranks NAME WORLD flags...: as a launcher starts them, in the background; logs NAME.R, exit codes NAME.R.code.
ranks() {
    local name=$1 world=$2 rank
    shift 2
    port=$((port + 1))
    for ((rank = 0; rank < world; rank++)); do
        {
            code=0
            RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$world LOCAL_WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                timeout 120 "$build/trimtab" "${common[@]}" --output_dir "$folder/$name" "$@" >"$name.$rank" 2>&1 || code=$?
            echo $code >"$name.$rank.code"
        } &
    done
}
same() { cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 differ" "$2.0"; }

FAKE_COUNT=1 ranks two 2 --max_steps 6
FAKE_COUNT=1 ranks three 3 --max_steps 6
FAKE_ALONE=1 FAKE_COUNT=1 ranks alone 3 --max_steps 6
for world in 2 3; do
    "$build/trimtab" "${common[@]}" --device cpu --ranks $world --max_steps 6 --output_dir cpu$world >said 2>&1 || fail "$world on the CPU"
done
wait
same cpu2 two
same cpu3 three
same cpu3 alone
copies() { sed -n 's/^fake GPUs: \([0-9]*\) copies from other processes$/\1/p' "$1"; }
for log in two.0 two.1 three.0 three.2; do
    [ "$(copies $log)" -gt 0 ] || fail "$log: nothing is read from other processes" $log
    grep -q "cannot be read" $log && fail "$log: a fallback" $log
done
for rank in 0 1 2; do
    [ "$(copies alone.$rank)" = 0 ] || fail "rank $rank reads, although GPU 1 cannot" alone.$rank
done
[ "$(cat alone.? | grep -c 'GPUs of other processes cannot be read, so that NCCL gathers the weights: the fake GPU 1')" = 1 ] ||
    fail "the fallback is not said once" alone.0

# The doctor tries it before a run.
examine() {
    local rank
    port=$((port + 1))
    for rank in 0 1; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout 120 "$build/trimtab" doctor --threads 1 >"doctor.$rank" 2>&1 &
    done
    wait
}
examine
grep -q '^memory of others  *ok  *2 ranks read the GPUs of other processes of their machine$' doctor.0 || fail "the doctor" doctor.0
FAKE_ALONE=1 examine
grep -Eq '^memory of others  *warning  *NCCL gathers the weights, .*; rank 1 on [^:]*: the fake GPU 1 reads no' doctor.0 ||
    fail "the doctor of a GPU that reads no other" doctor.0

# Signal 9 ends rank 1 at once, 19 stops it: then only its silence tells.
for ((i = 0; i < kills; i++)); do
    FAKE_SIGNAL=1:$((5 + 7 * i)):9 ranks killed$i 3 --max_steps 100 --save_strategy no
    [ $((i % 4)) = 3 ] && wait
done
for ((i = 0; i < kills; i += 3)); do FAKE_SIGNAL=1:$((9 + 5 * i)):19 ranks stopped$i 3 --max_steps 100 --save_strategy no; done
begin=$SECONDS
while [ $((SECONDS - begin)) -lt 60 ]; do
    sleep 1
    missing=0
    for ((i = 0; i < kills; i++)); do
        for rank in 0 2; do [ -e killed$i.$rank.code ] || missing=1; done
        [ $((i % 3)) != 0 ] || for rank in 0 2; do [ -e stopped$i.$rank.code ] || missing=1; done
    done
    [ $missing = 1 ] || break
done
took=$((SECONDS - begin))
[ $took -le 35 ] || fail "the others end only after $took s"
pkill -KILL -f "output_dir $folder/stopped"
wait
for ((i = 0; i < kills; i++)); do
    names=("killed$i")
    [ $((i % 3)) != 0 ] || names+=("stopped$i")
    for name in "${names[@]}"; do
        for rank in 0 2; do
            [ "$(cat $name.$rank.code)" = 10 ] || fail "$name: rank $rank ends with $(cat $name.$rank.code)" $name.$rank
        done
        grep -q "^error: rank 1 " $name.0 || fail "$name: the error does not name rank 1" $name.0
    done
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
