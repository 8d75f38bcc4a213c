#!/usr/bin/env bash
# Runs of four processes on two machines (network namespaces with a cable between them and one output folder), each hurt once
# at a random step: a rank is killed, stopped or asked to end, or the cable is cut. Prints a line a run: what was done to which
# rank at which step, the seconds until the last of the others had ended, whether each of their logs names the culprit, and
# whether the resumed run has the bits of a run that nothing happened to.
#
#     tools/kill_runs.sh [-n RUNS] [-s SEED] [BUILD]
#
# Needs root, or user namespaces; several may run at the same time.
set -uo pipefail
runs=8 seed=1
while getopts n:s: option; do
    case $option in
    n) runs=$OPTARG ;;
    s) seed=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd) || exit 2
if [ "$(id -u)" -ne 0 ]; then exec unshare --user --map-root-user bash "$0" -n "$runs" -s "$seed" "$build"; fi
RANDOM=$seed steps=60 failures=0
folder=$(mktemp -d)
processes=() machines=()
finish() {
    [ ${#processes[@]} -eq 0 ] || kill -KILL "${processes[@]}" 2>/dev/null
    [ ${#machines[@]} -eq 0 ] || kill -KILL "${machines[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
}
trap finish EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIMTAB_NODE TRIMTAB_JOB_SECRET
head -c 32 /dev/urandom | base64 >"$folder/secret"
export TRIMTAB_JOB_SECRET_FILE=$folder/secret

for name in alpha beta; do
    unshare --net --uts sh -c "hostname $name && ip link set lo up && touch $folder/up.$name && exec sleep 100000" &
    machines+=("$!")
    until [ -e "$folder/up.$name" ]; do
        kill -0 "$!" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
        sleep 0.02
    done
done
in_machine() { nsenter --target "${machines[$1]}" --net --uts "${@:2}"; }
in_machine 0 ip link add cable type veth peer name cable netns "${machines[1]}" || exit 77
for i in 0 1; do
    in_machine $i ip addr add 10.78.1.$((i + 1))/24 dev cable
    in_machine $i ip link set cable up
done

common=(train --model_name_or_path "$root/examples/demo/model" --dataset_name "$root/examples/demo/data/train.jsonl" --device cpu
    --threads 1 --seed 7 --bf16 false --lora_target_modules all-linear --lora_dropout 0.1 --max_length 64
    --per_device_train_batch_size 1 --logging_steps 1 --save_steps 5 --save_total_limit 2 --max_steps "$steps")
trimtab() { "$build/trimtab" "${common[@]}" "$@"; }
trimtab --output_dir "$folder/whole" --ranks 4 >"$folder/whole.log" 2>&1 || { tail -3 "$folder/whole.log"; exit 1; }

start_all() { # PORT
    local rank
    processes=()
    for rank in 0 1 2 3; do
        # not in_machine: its process would be a shell
        nsenter --target "${machines[rank / 2]}" --net --uts env RANK=$rank WORLD_SIZE=4 MASTER_ADDR=10.78.1.1 MASTER_PORT="$1" \
            "$build/trimtab" "${common[@]}" --output_dir "$folder/run" >"$folder/log.$rank" 2>&1 </dev/null &
        processes+=("$!")
    done
}
reaches() { # STEP: false if the run ends before
    until grep -q "step $1/" "$folder/log.0" 2>/dev/null; do
        kill -0 "${processes[0]}" 2>/dev/null || return 1
        sleep 0.01
    done
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
complain() {
    failures=$((failures + 1))
    said="$said; FAILED: $*"
}
blames() { # RANK CULPRITS
    grep -qE "^(error|ended): .*rank [$2]([^0-9]|\$)" "$folder/log.$1" ||
        { complain "the log of rank $1 does not name rank [$2]"; tail -3 "$folder/log.$1"; }
}

kinds=(kill stop term cut)
for ((run = 1; run <= runs; run++)); do
    kind=${kinds[RANDOM % 4]} rank=$((RANDOM % 4)) step=$((RANDOM % (steps - 25) + 3)) said="" bound=30
    rm -rf "$folder/run"
    start_all $((20000 + (seed * 131 + run) % 9000))
    reaches $step || { echo "run $run: ended before step $step: $(tail -1 "$folder/log.0")"; failures=$((failures + 1)); continue; }
    sleep 0.$((RANDOM % 10))
    hurt=$(milliseconds)
    wanted=10 others=(0 1 2 3)
    [ $kind = kill ] && bound=15
    [ $kind = term ] && wanted=11
    case $kind in
    kill) kill -KILL "${processes[rank]}" ;;
    stop) kill -STOP "${processes[rank]}" ;;
    term) kill -TERM "${processes[rank]}" ;;
    cut) in_machine 0 ip link set cable down ;;
    esac
    [ $kind = kill ] || [ $kind = stop ] && unset "others[rank]"
    for other in "${others[@]}"; do
        timeout 60 tail --pid="${processes[other]}" -f /dev/null
        kill -KILL "${processes[other]}" 2>/dev/null && complain "rank $other is there after 60 s"
        wait "${processes[other]}"
        code=$?
        [ $code -eq $wanted ] || complain "rank $other ends with $code, not $wanted: $(tail -1 "$folder/log.$other")"
    done
    took=$(($(milliseconds) - hurt))
    kill -KILL "${processes[@]}" 2>/dev/null
    wait "${processes[@]}" 2>/dev/null
    [ $took -lt $((bound * 1000)) ] || complain "not over in $bound s"
    for other in "${others[@]}"; do
        case $kind in
        kill | stop) blames "$other" "$rank" ;;
        cut) blames "$other" "$([ "$other" -lt 2 ] && echo 23 || echo 01)" ;;
        esac
    done
    [ $kind = cut ] && in_machine 0 ip link set cable up
    trimtab --output_dir "$folder/run" --ranks 4 --resume_from_checkpoint true >"$folder/log.resumed" 2>&1 ||
        complain "resuming: $(tail -1 "$folder/log.resumed")"
    cmp -s "$folder/run/adapter_model.safetensors" "$folder/whole/adapter_model.safetensors" || complain "other bits"
    echo "run $run: $kind rank $rank after step $step: over in $((took / 1000)).$(printf %03d $((took % 1000))) s$said"
done
echo "$runs runs, $failures failures (seed $seed)"
exit $((failures > 0))
