#!/bin/bash
# Processes on machines of their own, as far as one kernel can have several: network namespaces with a cable (veth) between
# them, host names, name tables and disks of their own. Runs give the bits of threads, whatever name or address rank 0 has;
# a cut cable, a killed and a stopped process end all others within 30 s, and each log names who is to blame; a cable that is
# out for a moment ends nothing.
source "$(dirname "$0")/../tools/machines.sh" "$1"
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret

# named_machine NAME HOSTS: sets $made; HOSTS is its name table. It has the demo's model.
named_machine() {
    printf '%s\n' "$2" >"$folder/hosts.$1"
    machine "$1" 'mount --bind "$2/hosts.$1" /etc/hosts && cp -r "$3/examples/demo/model" "$2/disk"'
}
# cable FROM TO NET: 10.77.NET.1 and 10.77.NET.2, fd77:NET::1 and ::2
cable() {
    in_machine "$1" ip link add cable type veth peer name cable netns "$2" 2>"$folder/said" ||
        { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
    local i=0
    for machine in "$1" "$2"; do
        i=$((i + 1))
        in_machine "$machine" ip addr add "10.77.$3.$i/24" dev cable
        in_machine "$machine" ip addr add "fd77:$3::$i/64" dev cable nodad 2>/dev/null
        in_machine "$machine" ip link set cable up
    done
}

common=(train --dataset_name "$root/examples/demo/data/train.jsonl" --device cpu --threads 1 --seed 7 --bf16 false
    --lora_target_modules all-linear --max_length 128 --per_device_train_batch_size 1 --logging_steps 1 --save_strategy no)
# start NAME MACHINE RANK WORLD ADDRESS PORT OPTIONS...: logs to NAME.RANK; its process is in $pid.
start() {
    local name=$1 machine=$2 rank=$3 world=$4 address=$5 port=$6
    shift 6
    nsenter --target "$machine" --net --uts --mount env RANK="$rank" WORLD_SIZE="$world" MASTER_ADDR="$address" MASTER_PORT="$port" \
        "$build/trimtab" "${common[@]}" --model_name_or_path "$folder/disk/model" --output_dir "$folder/out.$name" "$@" \
        >"$folder/$name.$rank" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
}
# good NAME WORLD ADDRESS PORT OPTIONS...: half of the ranks on each machine; the bits of as many threads.
good() {
    local name=$1 world=$2 address=$3 port=$4 pids=() rank
    shift 4
    for ((rank = world - 1; rank >= 0; rank--)); do
        start "$name" "$([ $rank -lt $((world / 2)) ] && echo "$a" || echo "$b")" $rank "$world" "$address" "$port" \
            --max_steps 3 --rendezvous_timeout 20 "$@"
        pids[rank]=$pid
    done
    for ((rank = 0; rank < world; rank++)); do
        wait "${pids[rank]}" || { fail "$name: rank $rank ends with $?"; tail -5 "$folder/$name.$rank"; return; }
    done
    grep -q "on 2 machines" "$folder/$name.0" || fail "$name: not two machines"
    cmp "$folder/out.$name/adapter_model.safetensors" "$folder/out.threads$world/adapter_model.safetensors" ||
        fail "$name: other bits than threads"
}
# trains NAME RANK: waits until it does.
trains() {
    for ((i = 0; i < 1200; i++)); do
        grep -q "step 3/" "$folder/$1.$2" && return
        sleep 0.1
    done
    fail "$1: rank $2 does not train"
    tail -5 "$folder/$1.$2"
}
# ended NAME RANK PROCESS TEXT: with 10, and why, within 30 s of $hurt.
ended() {
    local name=$1 rank=$2 code left=$((hurt + 30 - SECONDS))
    timeout $((left > 0 ? left : 1)) tail --pid="$3" -f /dev/null || fail "$name: rank $rank is there after 30 s"
    kill -KILL "$3" 2>/dev/null
    wait "$3"
    code=$?
    [ $code -eq 10 ] || fail "$name: rank $rank ends with $code"
    grep -qE "$4" "$folder/$name.$rank" || { fail "$name: rank $rank does not say '$4'"; tail -8 "$folder/$name.$rank"; }
}

# Rank 0's own name is 127.0.1.1 to itself, as Debian's installer leaves it.
named_machine alpha "127.0.0.1 localhost
127.0.1.1 alpha"
a=$made
named_machine beta "127.0.0.1 localhost
10.77.1.1 alpha"
b=$made
cable "$a" "$b" 1
named_machine gamma "127.0.0.1 localhost"
c=$made
named_machine delta "127.0.0.1 localhost"
d=$made
cable "$c" "$d" 2

# ---- Runs that are hurt: all at once, since most of the time they wait ----

forever=(--max_steps 1000000 --learning_rate 1e-6)
declare -A of
run_pair() { # NAME PORT: a rank on each of the first two machines
    start "$1" "$a" 0 2 10.77.1.1 "$2" "${forever[@]}"
    of[$1.0]=$pid
    start "$1" "$b" 1 2 10.77.1.1 "$2" "${forever[@]}"
    of[$1.1]=$pid
}
run_pair killed0 29510
run_pair killed1 29511
run_pair stopped0 29512
run_pair stopped1 29513
for rank in 0 1 2 3; do
    start cut "$([ $rank -lt 2 ] && echo "$c" || echo "$d")" $rank 4 10.77.2.1 29514 "${forever[@]}"
    of[cut.$rank]=$pid
done
for name in killed0 killed1 stopped0 stopped1 cut; do trains $name 0; done
# A cable that is out for a moment costs no run.
in_machine "$c" ip link set cable down
sleep 2
in_machine "$c" ip link set cable up
done_so_far=$(grep -c "step [0-9]*/" "$folder/cut.0")
# Twelve processes share two processors here; under sanitizers a step of all takes 15 s.
for ((i = 0; i < 1200; i++)); do
    [ "$(grep -c "step [0-9]*/" "$folder/cut.0")" -gt $((done_so_far + 1)) ] && break
    sleep 0.1
done
[ $i -lt 1200 ] || fail "a cable that was out for 2 s: no steps after it"
hurt=$SECONDS
kill -KILL "${of[killed0.0]}" "${of[killed1.1]}"
kill -STOP "${of[stopped0.0]}" "${of[stopped1.1]}"
in_machine "$c" ip link set cable down

# ---- Runs that come to their end, meanwhile ----

for world in 2 4; do
    "$build/trimtab" "${common[@]}" --model_name_or_path "$root/examples/demo/model" --output_dir "$folder/out.threads$world" \
        --max_steps 3 --ranks $world >"$folder/threads$world" 2>&1 || fail "$world threads: $(tail -3 "$folder/threads$world")"
done
good address 2 10.77.1.1 29520
good two_and_two 4 10.77.1.1 29521
good own_name 4 alpha 29522
good bind 4 10.77.1.1 29523 --rendezvous_bind 10.77.1.1
good six 2 fd77:1::1 29524

# Output on a disk of rank 0's machine only: the slices of rank 1 travel there.
for rank in 1 0; do
    start own_disks "$([ $rank -eq 0 ] && echo "$a" || echo "$b")" $rank 2 10.77.1.1 29525 --max_steps 3 --output_dir "$folder/disk/out"
    [ $rank -eq 1 ] && other=$pid
done
wait "$pid" || fail "output on the disk of rank 0: $(tail -3 "$folder/own_disks.0")"
wait "$other" || fail "output on the disk of rank 0: $(tail -3 "$folder/own_disks.1")"
in_machine "$a" cmp "$folder/disk/out/adapter_model.safetensors" "$folder/out.threads2/adapter_model.safetensors" ||
    fail "output on the disk of rank 0: other bits than threads"
in_machine "$b" test ! -e "$folder/disk/out" || fail "output on the disk of rank 0: rank 1 has a folder of its own"

# ---- How the others ended ----

ended killed0 1 "${of[killed0.1]}" "rank 0 \(on 10.77.1.1\) closed its connection unexpectedly"
ended killed1 0 "${of[killed1.0]}" "rank 1 \(process [0-9]+ on beta\) closed its connection unexpectedly"
ended stopped0 1 "${of[stopped0.1]}" "rank 0 \(on 10.77.1.1\) has been silent"
ended stopped1 0 "${of[stopped1.0]}" "rank 1 \(process [0-9]+ on beta\) has been silent"
ended cut 0 "${of[cut.0]}" "rank [23] .*silent"
ended cut 1 "${of[cut.1]}" "rank [23] .*silent"
ended cut 2 "${of[cut.2]}" "rank 0 .*silent"
ended cut 3 "${of[cut.3]}" "rank 0 .*silent"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
