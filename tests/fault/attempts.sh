#!/bin/bash
# Starts of a run that a cluster repeats (RUN_UID, RUN_ATTEMPT): a process of an earlier start, a second process of the same
# rank and one that comes too late are refused by name, end with 10, and change nothing; a rank 0 that came back ends when
# the later start calls it; output_dir that an earlier start still holds is no error of the settings.
build=$(cd "$1" && pwd) || exit 1
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
failures=0 started=()
trap '[ ${#started[@]} -eq 0 ] || kill -KILL "${started[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIMTAB_NODE TRIMTAB_JOB_SECRET RUN_UID RUN_ATTEMPT
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret
demo=$root/examples/demo
common=(train --model_name_or_path "$demo/model" --dataset_name "$demo/data/train.jsonl" --device cpu --threads 1 --seed 7
    --lora_target_modules all-linear --max_length 64 --per_device_train_batch_size 1 --save_steps 5 --save_total_limit 2
    --logging_steps 5 --rendezvous_timeout 60)
# start LOG RANK PORT VARIABLE=VALUE... -- OPTIONS...: its process is in $pid
start() {
    local log=$1 rank=$2 port=$3 set=()
    shift 3
    while [ "$1" != -- ]; do
        set+=("$1")
        shift
    done
    env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "${set[@]}" "$build/trimtab" "${common[@]}" "${@:2}" \
        >"$folder/$log" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
}
# ends LOG PROCESS CODE SECONDS TEXT
ends() {
    local code=0
    timeout "$4" tail --pid="$2" -f /dev/null || fail "$1: is there after $4 s"
    kill -KILL "$2" 2>/dev/null
    wait "$2" || code=$?
    [ $code -eq "$3" ] || { fail "$1: ends with $code, not $3"; tail -5 "$folder/$1"; }
    [ -z "$5" ] || grep -qE "$5" "$folder/$1" || { fail "$1: does not say '$5'"; tail -5 "$folder/$1"; }
}
appears() { # LOG TEXT
    for ((i = 0; i < 1500; i++)); do
        grep -q "$2" "$folder/$1" 2>/dev/null && return
        sleep 0.02
    done
    fail "$1: no '$2'"
    tail -5 "$folder/$1"
}
port=$((20000 + $$ % 9000))
short=(--max_steps 10 --output_dir "$folder/out")
"$build/trimtab" "${common[@]}" --ranks 2 --max_steps 10 --output_dir "$folder/whole" >"$folder/log" 2>&1 || fail "threads: $(tail -3 "$folder/log")"
same() { cmp "$folder/out/adapter_model.safetensors" "$folder/whole/adapter_model.safetensors" || fail "$1: other bits"; }

# Rank 1 of the first start comes before that of the second.
start new0 0 $port RUN_UID=u RUN_ATTEMPT=2 -- "${short[@]}"
new0=$pid
start old1 1 $port RUN_UID=u RUN_ATTEMPT=1 -- "${short[@]}"
ends old1 $pid 10 20 'rank 0 refused this process: rank 1 on .* is of attempt 1, which has ended: attempt 2 runs'
start other1 1 $port RUN_UID=v RUN_ATTEMPT=2 -- "${short[@]}"
ends other1 $pid 10 20 "rank 0 is of run 'u', rank 1 on .* of run 'v'"
start new1 1 $port RUN_UID=u RUN_ATTEMPT=2 -- "${short[@]}"
ends new1 $pid 0 180 'rank 1 of 2: process'
ends new0 $new0 0 180 'is of attempt 1, which has ended'
same "a stale rank 1"

# Rank 0 of the first start comes back, waits at the address, and ends when the second one calls it, which then waits on.
rm -rf "$folder/out"
port=$((port + 1))
start old0 0 $port RUN_ATTEMPT=1 -- "${short[@]}"
old0=$pid
start new1 1 $port RUN_ATTEMPT=2 -- "${short[@]}"
new1=$pid
ends old0 $old0 10 30 'rank 0 is of attempt 1, and attempt 2 has begun with rank 1 on'
[ ! -e "$folder/out" ] || fail "a stale rank 0 writes: $(ls -A "$folder/out")"
start new0 0 $port RUN_ATTEMPT=2 -- "${short[@]}"
ends new0 $pid 0 180 'met rank 1, process'
ends new1 $new1 0 180 ''
same "a stale rank 0"

# A second rank 1 while the run trains, and a second rank 0, which finds the folder locked.
rm -rf "$folder/out"
port=$((port + 1))
long=(--max_steps 100000 --learning_rate 1e-6 --output_dir "$folder/out")
start run0 0 $port RUN_UID=u -- "${long[@]}"
run0=$pid
start run1 1 $port RUN_UID=u -- "${long[@]}"
run1=$pid
appears run0 'step 5/'
start twin1 1 $port RUN_UID=u -- "${long[@]}"
ends twin1 $pid 10 20 'refused this process: the run has begun, and rank 1 is process [0-9]+ on .* already'
start alone 0 $port RUN_UID=u -- "${long[@]}" --main_process_port $((port + 1000))
alone=$pid
start alone1 1 $port RUN_UID=u -- "${long[@]}" --main_process_port $((port + 1000))
ends alone $alone 10 30 "output_dir .* is in use by another run: process $run0 "
ends alone1 $pid 10 30 ''
steps=$(grep -c '^step ' "$folder/run0")
for ((i = 0; i < 500; i++)); do
    [ "$(grep -c '^step ' "$folder/run0")" -gt "$steps" ] && break
    sleep 0.02
done
[ $i -lt 500 ] || fail "a twin ends the steps"

# Stopped in the first start, awake again in the second.
kill -STOP "$run1"
ends run0 $run0 10 35 'rank 1 .*has been silent'
start next0 0 $port RUN_UID=u -- "${long[@]}" --resume_from_checkpoint true
next0=$pid
start next1 1 $port RUN_UID=u -- "${long[@]}" --resume_from_checkpoint true
next1=$pid
appears next0 'resuming from'
kill -CONT "$run1"
ends run1 $run1 10 30 ''
kill -TERM "$next1"
ends next0 $next0 11 180 ''
ends next1 $next1 11 180 ''
"$build/trimtab" checkpoint verify "$folder/out" >"$folder/verified" 2>&1 || fail "the checkpoints: $(tail -2 "$folder/verified")"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
