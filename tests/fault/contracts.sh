#!/bin/bash
# Two machines (namespaces) as the two pods of every kind of workload, with the variables that its controller sets and the
# configuration that `trimtab render` writes for it. Rank 1 is up 23 s before the name of rank 0 resolves: longer than the
# silence after which a process counts as lost once all have joined. Every run gives the bits of two ranks of one process,
# each process says once who it is and whom it met, and neither the job secret nor a token of the environment is in logs,
# records or objects.
source "$(dirname "$0")/../tools/machines.sh" "$1"
late=23 token=hf_$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
head -c 32 /dev/urandom | base64 >"$folder/secret"
mkdir "$folder/out" "$folder/mnt"
for name in alpha beta; do
    printf '127.0.0.1 localhost\n' >"$folder/hosts.$name"
    machine $name 'mount --bind "$2/hosts.$1" /etc/hosts && mount -t tmpfs volumes /mnt && mkdir /mnt/demo /mnt/out &&
        mount --bind "$3/examples/demo" /mnt/demo && mount --bind "$2/out" /mnt/out'
    [ $name = alpha ] && a=$made || b=$made
done
in_machine "$a" ip link add cable type veth peer name cable netns "$b" 2>"$folder/said" ||
    { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
in_machine "$a" ip addr add 10.79.1.1/24 dev cable
in_machine "$b" ip addr add 10.79.1.2/24 dev cable
for machine in "$a" "$b"; do in_machine "$machine" ip link set cable up; done

cat >"$folder/sft.yaml" <<'END'
model_name_or_path: /mnt/demo/model
dataset_name: /mnt/demo/data/train.jsonl
device: cpu
threads: 1
seed: 7
bf16: false
lora_target_modules: all-linear
max_length: 64
per_device_train_batch_size: 1
max_steps: 3
logging_steps: 1
save_strategy: 'no'
END
in_machine "$a" "$build/trimtab" train --config "$folder/sft.yaml" --ranks 2 --output_dir /mnt/out/threads >"$folder/threads" 2>&1 ||
    { fail "threads"; tail -3 "$folder/threads"; }

declare -A processes hosts
port=29600 names=()
# pods NAME HOST COMMAND...: COMMAND of each pod without its variables, which `variables NAME RANK` prints
pods() {
    local name=$1 host=$2 rank machine set
    names+=("$name")
    hosts[$name]=$host
    for rank in 1 0; do
        machine=$([ $rank -eq 0 ] && echo "$a" || echo "$b")
        mapfile -t set < <(variables "$name" $rank "$host")
        nsenter --target "$machine" --net --uts --mount env -i PATH="$PATH" HF_TOKEN="$token" NODE_NAME="node-$rank" \
            TRIMTAB_JOB_SECRET_FILE="$folder/secret" "${set[@]}" "$build/trimtab" "${@:3}" >"$folder/$name.$rank" 2>&1 </dev/null &
        processes[$name.$rank]=$!
        started+=("$!")
    done
}
# The variables that controllers and launchers set, with the port that a controller chooses, which the settings replace.
variables() {
    local name=$1 rank=$2 host=$3
    local cluster=(KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443)
    case $name in
    job) printf '%s\n' "${cluster[@]}" JOB_COMPLETION_INDEX="$rank" RUN_UID=3f2a ;;
    jobset) printf '%s\n' "${cluster[@]}" JOB_COMPLETION_INDEX="$rank" RUN_UID=77aa RUN_ATTEMPT=0 ;;
    trainjob)
        printf '%s\n' "${cluster[@]}" JOB_COMPLETION_INDEX="$rank" PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_NODE_RANK="$rank" \
            PET_MASTER_ADDR="$host" PET_MASTER_PORT=29500 RUN_UID=77bb RUN_ATTEMPT=0
        ;;
    pytorchjob) # the operator gives the master itself the name localhost
        printf '%s\n' "${cluster[@]}" PYTHONUNBUFFERED=1 MASTER_PORT=23456 WORLD_SIZE=2 RANK="$rank" PET_NODE_RANK="$rank" \
            PET_NNODES=2 PET_NPROC_PER_NODE=1 MASTER_ADDR="$([ "$rank" -eq 0 ] && echo localhost || echo "$host")"
        ;;
    volcano) printf '%s\n' "${cluster[@]}" VC_TASK_INDEX="$rank" VK_TASK_INDEX="$rank" VC_NODE_NUM=2 RUN_ATTEMPT=0 ;;
    volcano_pytorch) # one task for rank 0, one for the others
        printf '%s\n' "${cluster[@]}" VC_TASK_INDEX=0 VK_TASK_INDEX=0 RANK="$rank" WORLD_SIZE=2 MASTER_ADDR="$host" MASTER_PORT=29620
        ;;
    leader) printf '%s\n' "${cluster[@]}" LWS_GROUP_SIZE=2 LWS_WORKER_INDEX="$rank" LWS_LEADER_ADDRESS="$host" MASTER_PORT=29621 ;;
    torchrun)
        printf '%s\n' RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK="$rank" MASTER_ADDR="$host" MASTER_PORT=29622 \
            TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_RUN_ID=none
        ;;
    srun)
        printf '%s\n' SLURM_STEP_ID=0 SLURM_PROCID="$rank" SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID="$rank" SLURM_STEP_NUM_NODES=2 \
            SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 MASTER_ADDR="$host" MASTER_PORT=29623
        ;;
    skypilot) printf '%s\n' SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK="$rank" SKYPILOT_NODE_IPS=10.79.1.1 MASTER_PORT=29624 ;;
    esac
}
for kind in job jobset trainjob pytorchjob volcano; do
    port=$((port + 1))
    in_machine "$a" "$build/trimtab" render $kind --config "$folder/sft.yaml" --image registry.example/trimtab --name $kind --nodes 2 \
        --volumes demo:/mnt/demo:ro,out:/mnt/out --output_dir /mnt/out/$kind --main_process_port $port \
        --metrics_port $((port + 100)) >"$folder/$kind.yaml" 2>"$folder/said" ||
        fail "render $kind: $(cat "$folder/said")"
    awk '/^  config.yaml: \|$/ { inside = 1; next } /^---$/ { inside = 0 } inside { sub(/^    /, ""); print }' \
        "$folder/$kind.yaml" >"$folder/$kind.config"
    host=$(sed -n 's/^main_process_ip: \([^ ]*\) .*/\1/p' "$folder/$kind.config")
    pods $kind "$host" train --config "$folder/$kind.config"
done
for launcher in volcano_pytorch leader torchrun srun; do
    pods $launcher $launcher-0.$launcher train --config "$folder/sft.yaml" --output_dir /mnt/out/$launcher
done
pods skypilot "" train --config "$folder/sft.yaml" --output_dir /mnt/out/skypilot
sleep $late # after the last of them has started
for name in "${names[@]}"; do
    [ $name = skypilot ] || grep -q "^rank 1 of 2 waits: rank 0 cannot be reached at $name" "$folder/$name.1" ||
        fail "$name: rank 1 does not say that it waits: $(tail -2 "$folder/$name.1")"
done
# One run after the other, so that few processes compute at a time.
for name in "${names[@]}"; do
    [ -z "${hosts[$name]}" ] || echo "10.79.1.1 ${hosts[$name]}" >>"$folder/hosts.beta"
    for rank in 0 1; do
        wait "${processes[$name.$rank]}" || { fail "$name: rank $rank ends with $?"; tail -4 "$folder/$name.$rank"; }
    done
    cmp "$folder/out/$name/adapter_model.safetensors" "$folder/out/threads/adapter_model.safetensors" || fail "$name: other bits than threads"
    grep -o '"loss": [0-9.e-]*' "$folder/out/threads/metrics.jsonl" >"$folder/wanted"
    grep -o '"loss": [0-9.e-]*' "$folder/out/$name/metrics.jsonl" | cmp -s - "$folder/wanted" || fail "$name: other losses"
    grep -qE '^rank 0 of 2: process [0-9]+ on alpha \(node node-0\) \(2 machines\); met rank 1, process [0-9]+ on beta \(node node-1\)' \
        "$folder/$name.0" || fail "$name: rank 0 does not say whom it met: $(head -5 "$folder/$name.0")"
    grep -qE '^rank 1 of 2: process [0-9]+ on beta \(node node-1\) .*met rank 0, process [0-9]+ on alpha \(node node-0\)' "$folder/$name.1" ||
        fail "$name: rank 1 does not say whom it met: $(head -5 "$folder/$name.1")"
done
if grep -rlF -e "$token" -e "$(cat "$folder/secret")" "$folder" --exclude=secret --exclude-dir=mnt; then fail "a secret is shown in the files above"; fi
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
