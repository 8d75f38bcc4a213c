#!/bin/bash
# What a cluster does to pods. A pod as it is rendered: user 65532 without a name, a read-only root, no HOME, a small
# /dev/shm; it trains, and names a folder that it cannot write. SIGTERM to one process of two, while they meet, load,
# train, evaluate and save: all end with 11 and the same checkpoint; a second signal ends at once. A storage that hangs
# for half a minute is no hang of the run.
[[ ${TMPDIR-} != /dev/shm/* ]] || export TMPDIR=/tmp # the pod has a /dev/shm of its own
source "$(dirname "$0")/../tools/machines.sh" "$1"
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret
demo=$root/examples/demo
common=(train --model_name_or_path "$demo/model" --dataset_name "$demo/data/train.jsonl" --device cpu --threads 1 --seed 7
    --lora_target_modules all-linear --max_length 64 --per_device_train_batch_size 1 --logging_steps 1)
port=$((21000 + $$ % 8000))
# pair NAME OPTIONS...: processes in ${of[NAME.0]} and ${of[NAME.1]}
declare -A of
pair() {
    local name=$1 rank
    shift
    port=$((port + 1))
    for rank in 0 1; do one "$name.$rank" $rank "$@"; done
}
# one LOG RANK OPTIONS...: its exit code is in LOG.code when it has ended. The shell itself forgets how a process ended when
# a later one gets its number.
one() {
    local log=$1 rank=$2
    shift 2
    rm -f "$folder/$log.pid" "$folder/$log.code"
    (
        env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$build/trimtab" "${common[@]}" \
            --output_dir "$folder/${log%.*}" "$@" >"$folder/$log" 2>&1 </dev/null &
        echo $! >"$folder/$log.pid"
        wait $!
        echo $? >"$folder/$log.code"
    ) 2>/dev/null &
    until [ -s "$folder/$log.pid" ]; do sleep 0.01; done
    of[$log]=$(cat "$folder/$log.pid")
    started+=("${of[$log]}")
}
says() { # NAME.RANK TEXT
    for ((i = 0; i < 3000; i++)); do
        grep -qE "$2" "$folder/$1" 2>/dev/null && return
        sleep 0.02
    done
    fail "$1 does not say '$2'"
    tail -3 "$folder/$1"
}
ends() { # NAME.RANK CODE SECONDS
    local until=$((SECONDS + $3)) code
    until [ -s "$folder/$1.code" ] || [ $SECONDS -ge $until ]; do sleep 0.1; done
    [ -s "$folder/$1.code" ] || { fail "$1: is there after $3 s: $(tail -2 "$folder/$1")"; kill -KILL "${of[$1]}"; return; }
    code=$(cat "$folder/$1.code")
    [ "$code" -eq "$2" ] || { fail "$1: ends with $code, not $2"; tail -4 "$folder/$1"; }
}
steps_of() { (cd "$folder/$1" 2>/dev/null && ls -d checkpoint-*) | sed 's/checkpoint-//' | sort -n | tail -1; }

# ---- A storage that hangs for 30 s, longer than a hang of the run may last: it goes on meanwhile ----
slow=
if command -v cc >/dev/null && cc -shared -fPIC -D_GNU_SOURCE -o "$folder/slow.so" "$root/tests/tools/slow_storage.c" -ldl 2>"$folder/said"; then
    slow=1
    LD_PRELOAD=$folder/slow.so ASAN_OPTIONS=verify_asan_link_order=0 SLOW_FILE=checkpoint-2 SLOW_SECONDS=30 \
        pair slow --max_steps 6 --save_steps 2 --grace_seconds 20
else
    echo "a slow storage is skipped: no compiler"
fi

# ---- SIGTERM to rank 1 alone ----
long=(--max_steps 100000 --learning_rate 1e-6 --save_steps 100000)
many=$folder/many.jsonl
for ((i = 0; i < 30; i++)); do cat "$demo/data/train.jsonl"; done >"$many"
port=$((port + 1))
one meeting.1 1
sleep 1
kill -TERM "${of[meeting.1]}"
ends meeting.1 11 10
[ ! -e "$folder/meeting" ] || fail "a process that met nobody makes a folder"
pair loading "${long[@]}"
says loading.1 'met rank 0'
kill -TERM "${of[loading.1]}"
pair training "${long[@]}"
says training.0 '^step 3/'
kill -TERM "${of[training.1]}"
pair evaluating "${long[@]}" --eval_dataset "$many" --eval_strategy steps --eval_steps 2
says evaluating.0 '^step 2/'
kill -TERM "${of[evaluating.1]}"
pair saving "${long[@]}" --save_steps 1 --save_total_limit 2
says saving.0 'saved .*checkpoint-2'
kill -TERM "${of[saving.1]}"
for name in loading training evaluating saving; do
    ends $name.0 11 90
    ends $name.1 11 10
    last=$(steps_of $name)
    [ $name = loading ] || [ -n "$last" ] || fail "$name: no checkpoint"
    [ -z "$last" ] || "$build/trimtab" checkpoint verify "$folder/$name" >"$folder/said" 2>&1 || fail "$name: $(tail -1 "$folder/said")"
done
# An evaluation that a stop has ended is the first that a resumed run does. A sanitizer's evaluation of all rows takes minutes.
few=$folder/few.jsonl
head -n 24 "$demo/data/train.jsonl" >"$few"
pair evaluating --max_steps 4 --learning_rate 1e-6 --save_steps 100000 --eval_dataset "$few" --eval_strategy steps \
    --eval_steps 2 --resume_from_checkpoint true --resume_changed true
ends evaluating.0 0 240
ends evaluating.1 0 10
grep '"eval_loss"' "$folder/evaluating/metrics.jsonl" | grep -o '"step": [0-9]*' | tr -d '\n' >"$folder/said"
[ "$(cat "$folder/said")" = '"step": 2"step": 4' ] || fail "a resumed run evaluates at $(cat "$folder/said")"
# The first signal waits for the step that rank 0, which is stopped, does not finish.
pair second "${long[@]}"
says second.0 '^step 2/'
kill -STOP "${of[second.0]}"
kill -TERM "${of[second.1]}"
says second.1 'stopping after this step'
sleep 1
kill -TERM "${of[second.1]}"
ends second.1 11 5
grep -q 'stopped at once' "$folder/second.1" || fail "a second signal: $(tail -2 "$folder/second.1")"
kill -KILL "${of[second.0]}" 2>/dev/null

if [ -n "$slow" ]; then
    ends slow.0 0 120
    ends slow.1 0 10
    grep -q 'a stop takes about .*, but grace_seconds are 20' "$folder/slow.0" || fail "no warning of a grace period that is too short: $(grep 'a save takes' "$folder/slow.0")"
    grep -qi 'hang\|silent\|stall' "$folder/slow.0" "$folder/slow.1" && fail "a slow storage is called a hang"
fi

# ---- A pod ----
if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null || [ "$(awk '$1 == 0 && $3 > 65532' /proc/self/uid_map | wc -l)" -eq 0 ]; then
    echo "a pod of user 65532 is skipped: this user cannot become another one"
    [ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
    exit $((failures > 0))
fi
chmod 755 "$folder"
machine pod 'cp -r "$3/examples/demo" "$2/disk/demo" && chmod -R a+rX "$2/disk/demo" && mkdir "$2/disk/run" "$2/disk/closed" &&
    chown 65532:65532 "$2/disk/run" && mount -t tmpfs -o size=64m shm /dev/shm'
pod=$made
in_machine "$pod" mount -o remount,bind,ro / 2>"$folder/said" || { echo "a read-only root is skipped: $(tail -1 "$folder/said")"; exit $((failures > 0)); }
# as_pod NAME OUTPUT_DIR: logs to NAME; sets $code
as_pod() {
    code=0
    in_machine "$pod" setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all env -i \
        PATH=/usr/bin:/bin "$build/trimtab" "${common[@]}" --model_name_or_path "$folder/disk/demo/model" \
        --dataset_name "$folder/disk/demo/data/train.jsonl" --max_steps 2 --output_dir "$2" >"$folder/$1" 2>&1 </dev/null || code=$?
}
as_pod good "$folder/disk/run/out"
[ $code -eq 0 ] || { fail "as a pod: $code"; tail -4 "$folder/good"; }
in_machine "$pod" test -e "$folder/disk/run/out/adapter_model.safetensors" || fail "as a pod: nothing is saved"
as_pod closed "$folder/disk/closed/out"
[ $code -eq 3 ] && grep -q "^error: .*'$folder/disk/closed/out'.*Permission denied" "$folder/closed" || fail "a folder of another user: $code, $(tail -2 "$folder/closed")"
as_pod readonly "$folder/elsewhere/out"
[ $code -eq 3 ] && grep -q "^error: .*'$folder/elsewhere.*Read-only file system" "$folder/readonly" || fail "a read-only folder: $code, $(tail -2 "$folder/readonly")"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
