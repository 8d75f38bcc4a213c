#!/bin/bash
# Two machines without a shared disk, as network and mount namespaces: model, data and output folder on the first one
# only. Started on each as accelerate's configuration files have it. It trains, saves on rank 0's machine and resumes,
# with the bits of two ranks of one process; a full disk of rank 0 and a killed process end both.
source "$(dirname "$0")/../tools/machines.sh" "$1"
mkdir "$folder/small" # of each machine, too
machine alpha 'mount -t tmpfs -o size=24m small "$2/small"'
a=$made
machine beta 'mount -t tmpfs -o size=24m small "$2/small"'
b=$made
in_machine "$a" ip link add cable type veth peer name cable netns "$b" 2>"$folder/said" ||
    { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
in_machine "$a" ip addr add 10.78.1.1/24 dev cable
in_machine "$b" ip addr add 10.78.1.2/24 dev cable
for machine in "$a" "$b"; do in_machine "$machine" ip link set cable up; done
disk=$folder/disk
in_machine "$a" sh -c 'cp -r "$1/model" "$2" && head -60 "$1/data/train.jsonl" >"$2/train.jsonl"' sh "$root/examples/demo" "$disk"

cat >"$folder/sft.yaml" <<END
model_name_or_path: $disk/model
dataset_name: $disk/train.jsonl
output_dir: $disk/out
device: cpu
threads: 1
bf16: false
lora_target_modules: all-linear
max_length: 128
per_device_train_batch_size: 1
max_steps: 4
logging_steps: 1
save_steps: 2
seed: 7
verify_inputs: full
END
mkdir "$folder/config"
cat >"$folder/config/fsdp_2xH200.yaml" <<END
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 2
num_processes: 2
rdzv_backend: static
same_network: true
END
# start NAME RANK PORT OPTIONS...: on its machine, with logs in NAME.RANK; its process is in $pid.
start() {
    local name=$1 rank=$2 port=$3 machine=$a
    shift 3
    [ "$rank" -eq 0 ] || machine=$b
    # the command of a cluster's nodes, the same on all, with the variables that the cluster sets
    nsenter --target "$machine" --net --uts --mount --wdns="$folder" env PATH="$build:$PATH" RANK="$rank" MASTER_ADDR=10.78.1.1 \
        MASTER_PORT="$port" bash -c 'exec trimtab train --config sft.yaml --config_file config/fsdp_2xH200.yaml \
            --machine_rank ${RANK:-0} --main_process_ip ${MASTER_ADDR:-localhost} --main_process_port ${MASTER_PORT:-29500} \
            --num_machines 2 --num_processes 2 "$@"' bash "$@" >"$folder/$name.$rank" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
}
# both NAME PORT OPTIONS...: sets $code0 and $code1.
both() {
    local name=$1 port=$2 first
    shift 2
    start "$name" 1 "$port" "$@"
    first=$pid
    start "$name" 0 "$port" "$@"
    wait "$pid"
    code0=$?
    wait "$first"
    code1=$?
}
good() {
    both "$@"
    [ $code0 -eq 0 ] && [ $code1 -eq 0 ] || { fail "$1: $code0 and $code1"; tail -n 5 "$folder/$1.0" "$folder/$1.1"; }
}
# threads NAME OPTIONS...: two ranks of one process on the first machine.
threads() {
    in_machine "$a" "$build/trimtab" train --config "$folder/sft.yaml" --ranks 2 --output_dir "$disk/threads_$1" "${@:2}" \
        >"$folder/threads_$1" 2>&1 || { fail "threads $1"; tail -5 "$folder/threads_$1"; }
}
# saves NAME STEP: waits until it has.
saves() {
    for ((i = 0; i < 6000; i++)); do
        grep -q "saved .*checkpoint-$2:" "$folder/$1.0" && return
        sleep 0.02
    done
    fail "$1: no checkpoint-$2"
}
# same NAME FOLDER FILES...: of FOLDER and of the run of threads
same() {
    for file in "${@:3}"; do
        in_machine "$a" cmp "$2/$file" "$disk/threads_$1/$file" || fail "$1: $file has other bits than with threads"
    done
}

both_files="adapter_model.safetensors checkpoint-2/adapter_model.safetensors checkpoint-2/training_state.safetensors
    checkpoint-4/adapter_model.safetensors checkpoint-4/training_state.safetensors"
threads adapter
good whole 29500
same adapter "$disk/out" $both_files
grep -q "rank 1 of 2 has no .*out.*model.*train.jsonl" "$folder/whole.1" || fail "rank 1 does not say what it has not"
[ "$(in_machine "$a" sh -c "wc -l <'$disk/out/ranks/rank-1.jsonl'")" -eq 4 ] || fail "the file of rank 1's times does not have 4 rows"
[ -z "$(in_machine "$b" ls "$disk")" ] || fail "the second machine has files: $(in_machine "$b" ls "$disk")"

# Killed in its middle, and resumed.
long=(--max_steps 16 --save_steps 4 --save_total_limit 2 --logging_steps 100)
start killed 1 29501 --output_dir "$disk/resumed" "${long[@]}"
second=$pid
start killed 0 29501 --output_dir "$disk/resumed" "${long[@]}"
saves killed 4
kill -KILL "$second"
wait "$pid"
[ $? -eq 10 ] || fail "rank 0 does not end with 10 when the other machine is killed"
grep -q "rank 1 .*beta.* closed its connection" "$folder/killed.0" || fail "killed: $(tail -4 "$folder/killed.0")"
in_machine "$a" ls "$disk/resumed" >"$folder/said"
last=$(sed -n 's/checkpoint-\([0-9]*\)$/\1/p' "$folder/said" | sort -n | tail -n 1)
good resumed 29502 --output_dir "$disk/resumed" --resume_from_checkpoint true "${long[@]}"
grep -q "resuming from .*checkpoint-$last:" "$folder/resumed.0" || fail "the run does not resume at $last"
threads resumed "${long[@]}"
same resumed "$disk/resumed" adapter_model.safetensors

# Rank 0, which serves the files, stops: the other one ends all the same.
start stopped 1 29506 --output_dir "$disk/stopped" "${long[@]}" --max_steps 5000
second=$pid
start stopped 0 29506 --output_dir "$disk/stopped" "${long[@]}" --max_steps 5000
saves stopped 4
kill -STOP "$pid"
began=$SECONDS
wait "$second"
[ $? -eq 10 ] || fail "rank 1 does not end with 10 when rank 0 is stopped: $(tail -n 4 "$folder/stopped.1")"
[ $((SECONDS - began)) -le 30 ] || fail "rank 1 ends $((SECONDS - began)) s after rank 0 was stopped"
grep -q 'rank 0 ' "$folder/stopped.1" || fail "nobody is blamed: $(tail -n 4 "$folder/stopped.1")"
kill -KILL "$pid"
wait "$pid" 2>/dev/null

# The whole model, and the best of it loaded at the end.
full=(--use_peft false --max_steps 2 --save_steps 1 --eval_strategy steps --eval_steps 1 --eval_split_size 0.1
    --load_best_model_at_end true --state_dict_type)
threads full "${full[@]}" FULL_STATE_DICT
good full 29503 --output_dir "$disk/full" "${full[@]}" FULL_STATE_DICT
same full "$disk/full" model.safetensors checkpoint-2/training_state.safetensors
good sharded 29504 --output_dir "$disk/sharded" "${full[@]}" SHARDED_STATE_DICT
same full "$disk/sharded" model.safetensors

# A disk of rank 0 that fills while slices arrive.
filling=(--output_dir "$folder/small/out" --max_steps 5000 --save_total_limit 1 --logging_steps 1000)
start small 1 29505 "${filling[@]}"
second=$pid
start small 0 29505 "${filling[@]}"
saves small 2
in_machine "$a" sh -c 'head -c 100000000 /dev/zero >"$1/small/other" 2>"$1/said"' sh "$folder"
wait "$pid"
code0=$?
wait "$second"
code1=$?
[ $code0 -eq 5 ] || [ $code0 -eq 10 ] || fail "a full disk: rank 0 ends with $code0"
[ $code1 -eq 5 ] || [ $code1 -eq 10 ] || fail "a full disk: rank 1 ends with $code1"
grep -q "No space left" "$folder/small.1" && grep -q "No space left" "$folder/small.0" ||
    fail "a full disk: $(tail -n 3 "$folder/small.0" "$folder/small.1")"
[ -z "$(in_machine "$a" find "$folder/small" -name '*.saving')" ] || fail "a full disk: an unfinished save is there"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
