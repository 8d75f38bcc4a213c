#!/bin/bash
# trimtab doctor on three machines (namespaces) that are connected in a ring of cables, of which one is slow (a token
# bucket of 80 Mbit/s): the links between machines are compared, and that one is named with both its ends.
source "$(dirname "$0")/../tools/machines.sh" "$1"
command -v tc >/dev/null || { echo "skipped: there is no tc"; exit 77; }
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret
mkdir "$folder/shared"
names=(alpha beta gamma) made_of=()
for name in "${names[@]}"; do
    machine "$name"
    made_of+=("$made")
done
# Each machine has one address, which its neighbours reach over the cable to them.
cable() { # FROM TO: numbers
    local ends=("$1" "$2") at end other
    in_machine "${made_of[$1]}" ip link add "to$2" type veth peer name "to$1" netns "${made_of[$2]}" 2>"$folder/said" ||
        { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
    for at in 0 1; do
        end=${ends[at]} other=${ends[1 - at]}
        in_machine "${made_of[end]}" ip link set "to$other" up
        in_machine "${made_of[end]}" ip addr replace "10.79.3.$((end + 1))/32" dev lo
    done
}
route() { # FROM TO: of one way, when both ends are up
    in_machine "${made_of[$1]}" ip route add "10.79.3.$(($2 + 1))/32" dev "to$2" src "10.79.3.$(($1 + 1))"
}
cable 0 1
cable 1 2
cable 2 0
for way in '0 1' '1 0' '1 2' '2 1' '2 0' '0 2'; do route "${way% *}" "${way#* }" || fail "the route $way"; done
port=29800
examine() { # NAME: all ranks; logs to NAME.RANK
    local rank pids=()
    port=$((port + 1))
    for rank in 2 1 0; do
        nsenter --target "${made_of[rank]}" --net --uts --mount env RANK=$rank WORLD_SIZE=3 MASTER_ADDR=10.79.3.1 MASTER_PORT=$port \
            "$build/trimtab" doctor --device cpu --threads 1 --output_dir "$folder/shared/out" >"$folder/$1.$rank" 2>&1 </dev/null &
        pids[rank]=$!
        started+=("$!")
    done
    for rank in 0 1 2; do wait "${pids[rank]}" || fail "$1: rank $rank ends with $?: $(tail -3 "$folder/$1.$rank")"; done
}
slow='rank 1 on beta with rank 2 on gamma: 0.0[01][0-9]* GB/s'
examine plain
grep -qE '^links +(ok|warning) +between machines: median ' "$folder/plain.0" || fail "no links between machines: $(cat "$folder/plain.0")"
grep -qE "$slow" "$folder/plain.0" && fail "a fast link is slow: $(cat "$folder/plain.0")"
for end in '1 2' '2 1'; do
    in_machine "${made_of[${end% *}]}" tc qdisc add dev "to${end#* }" root tbf rate 80mbit burst 128kb latency 100ms 2>"$folder/said" ||
        { echo "skipped: this kernel has no token bucket: $(tail -1 "$folder/said")"; exit 77; }
done
began=$SECONDS
examine slow
[ $((SECONDS - began)) -lt 60 ] || fail "with a slow link it takes $((SECONDS - began)) s"
grep -qE "^links +warning +between machines: median .*; $slow" "$folder/slow.0" || fail "the slow link is not named: $(cat "$folder/slow.0")"
for other in 'rank 0 on alpha with rank 1' 'rank 2 on gamma with rank 0'; do
    grep -qE "$other on [a-z]*: 0\.0[01]" "$folder/slow.0" && fail "$other is named: $(cat "$folder/slow.0")"
done
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
