#!/bin/bash
# trimtab doctor on two machines (namespaces with a cable and disks of their own), each fault put in once and named with its
# rank: a name that does not exist, a port at which nobody listens, a clock that is off, a folder that cannot be written, a
# small /dev/shm, another file system, other files of the model, another MTU. A training with a preflight ends
# where doctor fails.
[[ ${TMPDIR-} != /dev/shm/* ]] || export TMPDIR=/tmp # these machines have a /dev/shm of their own
source "$(dirname "$0")/../tools/machines.sh" "$1"
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret
mkdir "$folder/shared" "$folder/sealed"
demo=$root/examples/demo
for name in alpha beta; do
    machine $name 'mkdir "$2/disk/own" && cp -r "$3/examples/demo/model" "$2/disk/model" && mount -t tmpfs -o size=1g shm /dev/shm'
    [ $name = alpha ] && a=$made || b=$made
done
in_machine "$a" ip link add cable type veth peer name cable netns "$b" 2>"$folder/said" ||
    { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
in_machine "$a" ip addr add 10.79.2.1/24 dev cable
in_machine "$b" ip addr add 10.79.2.2/24 dev cable
for machine in "$a" "$b"; do in_machine "$machine" ip link set cable up; done
port=29700 host=10.79.2.1 world=2 program=doctor
# examine NAME OPTIONS...: all ranks, half of them on each machine; logs to NAME.RANK, exit codes in $codes
examine() {
    local name=$1 rank machine set pids=()
    shift
    port=$((port + 1)) codes=()
    for ((rank = world - 1; rank >= 0; rank--)); do
        machine=$([ $rank -lt $((world / 2)) ] && echo "$a" || echo "$b") set=()
        [ $rank -eq 1 ] && set=("${odd[@]}")
        nsenter --target "$machine" --net --uts --mount env RANK=$rank WORLD_SIZE=$world MASTER_ADDR=$host MASTER_PORT=$port "${set[@]}" \
            "$build/trimtab" "$program" --device cpu --threads 1 "$@" >"$folder/$name.$rank" 2>&1 </dev/null &
        pids[rank]=$!
        started+=("$!")
    done
    for ((rank = 0; rank < world; rank++)); do
        wait "${pids[rank]}"
        codes+=($?)
    done
}
odd=() # variables of rank 1
# found NAME CODE LINE: of rank 0
found() {
    [ "${codes[0]}" -eq "$2" ] || fail "$1: ends with ${codes[0]}, not $2: $(tail -3 "$folder/$1.0")"
    grep -qE "$3" "$folder/$1.0" || fail "$1: no '$3' in: $(cat "$folder/$1.0")"
}
shared=(--output_dir "$folder/shared/out")
began=$SECONDS
examine good "${shared[@]}" --model_name_or_path "$demo/model" --dataset_name "$demo/data/train.jsonl"
[ $((SECONDS - began)) -lt 60 ] || fail "good: takes $((SECONDS - began)) s"
found good 0 '^launch +ok +2 ranks on 2 machines over tcp; rank 0 on alpha'
found good 0 '^network +ok +to rank 0 by cable \(MTU 1500\)'
found good 0 '^links +ok'
found good 0 '^plan +ok .*of memory a rank, a checkpoint at most'
found good 0 ' 0 failed, '

# Names: each machine finds the other by its name; then one leads to an address that the other does not have. A name that is
# unknown is no fault.
hosts() { # MACHINE TEXT
    printf '127.0.0.1 localhost\n%s\n' "$2" >"$folder/hosts.$1" && in_machine "$1" mount --bind "$folder/hosts.$1" /etc/hosts
}
if hosts "$a" $'10.79.2.1 alpha.site alpha\n10.79.2.2 beta.site beta' && hosts "$b" $'10.79.2.2 beta.site beta\n10.79.2.1 alpha.site alpha'; then
    examine names "${shared[@]}"
    found names 0 '^network +ok +to rank 0 by cable \(MTU 1500\); 2 of 2 names of machines lead to them'
    hosts "$b" $'127.0.1.1 beta.site beta\n10.79.2.9 alpha.site alpha'
    examine names "${shared[@]}"
    found names 0 "^network +warning .*; 1 of 2 names of machines lead to them; rank 1 on beta: 'alpha.site', the name of rank 0's machine, is 10.79.2.9, which that machine does not have"
    hosts "$a" $'10.79.2.1 alpha.site alpha' && hosts "$b" $'10.79.2.2 beta.site beta'
    examine names "${shared[@]}"
    found names 0 '^network +ok +to rank 0 by cable \(MTU 1500\); no RDMA'
    examine names "${shared[@]}" --json
    grep -q '"name": "beta.site"' "$folder/names.0" || fail "names: not in JSON: $(cat "$folder/names.0")"
else
    echo "names are skipped: no file can be mounted over /etc/hosts"
fi

host=no-such-host examine name --rendezvous_timeout 2 "${shared[@]}"
[ "${codes[1]}" -eq 10 ] && grep -q "cannot be reached at no-such-host port" "$folder/name.1" || fail "a wrong name: ${codes[1]}, $(head -1 "$folder/name.1")"
found name 10 'rank 1 of 2 did not connect to port'
"$build/trimtab" doctor --print_config | grep -q '^rendezvous_timeout: 30 ' || fail "doctor waits for longer than it may take"
code=0
env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29699 "$build/trimtab" doctor --rendezvous_timeout 1 >"$folder/closed" 2>&1 || code=$?
[ $code -eq 10 ] && grep -q 'port 29699: Connection refused' "$folder/closed" || fail "a closed port: $code, $(head -1 "$folder/closed")"

if command -v cc >/dev/null && cc -shared -fPIC -D_GNU_SOURCE -o "$folder/clock.so" "$root/tests/tools/shifted_clock.c" -ldl 2>"$folder/said"; then
    odd=(LD_PRELOAD="$folder/clock.so" ASAN_OPTIONS=verify_asan_link_order=0 SHIFT_SECONDS=90)
    examine clock "${shared[@]}"
    odd=()
    found clock 0 '^clocks +warning +the clock of rank 1 on beta is (89|90)\.[0-9] s ahead of that of rank 0'
else
    echo "a clock that is off is skipped: no compiler"
fi

in_machine "$b" mount -t tmpfs -o ro sealed "$folder/sealed"
examine sealed --output_dir "$folder/sealed/out"
found sealed 10 "^storage +FAILED +rank 1 on beta: .*Read-only file system"
program=train examine preflight --output_dir "$folder/sealed/out" --model_name_or_path "$demo/model" --dataset_name "$demo/data/train.jsonl" \
    --max_steps 1 --preflight quick
found preflight 10 "^error: 1 of [0-9]+ checks failed, first 'storage': rank 1 on beta: .*Read-only file system"
[ "${codes[1]}" -eq 10 ] || fail "preflight: rank 1 ends with ${codes[1]}"
[ ! -e "$folder/sealed/out" ] || fail "preflight: the run begins"

in_machine "$b" mount -t tmpfs -o size=1m shm /dev/shm
in_machine "$b" ip link set cable mtu 1400
examine small --output_dir "$folder/disk/own/out"
in_machine "$b" ip link set cable mtu 1500
found small 0 '^limits +warning .*/dev/shm of rank 1 has 1\.0 MiB'
found small 0 "^storage +warning .*rank 1 on beta does not see rank 0's file"
found small 0 '^network +warning .*rank 1 on beta by cable has an MTU of 1400, rank 0 of 1500'

in_machine "$b" sh -c 'printf x >>"$1/model/model.safetensors"' sh "$folder/disk"
examine model "${shared[@]}" --model_name_or_path "$folder/disk/model"
found model 10 "^model +FAILED .*of rank 1 on beta has other files than that of rank 0"

[ -z "$(find "$folder/shared" -name '.trimtab-doctor*')" ] || fail "files are left"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
