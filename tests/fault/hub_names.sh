#!/bin/bash
# Names of the hub on two machines without a shared disk, as network and mount namespaces; the hub is reachable from the
# first alone. Rank 0 fetches each file once, the other machine uses rank 0's cache over the network; what two ranks of
# one process make of the folders is the same.
source "$(dirname "$0")/../tools/machines.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
machine alpha
a=$made
machine beta
b=$made
in_machine "$a" ip link add cable type veth peer name cable netns "$b" 2>"$folder/said" ||
    { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
in_machine "$a" ip addr add 10.78.1.1/24 dev cable
in_machine "$b" ip addr add 10.78.1.2/24 dev cable
for machine in "$a" "$b"; do in_machine "$machine" ip link set cable up; done
unset HF_HUB_OFFLINE HF_TOKEN HF_HUB_CACHE http_proxy https_proxy HTTPS_PROXY ALL_PROXY all_proxy
export HF_HOME=$folder/disk/hf # on the disk of each machine

mkdir -p "$folder/hub/models/some" "$folder/hub/datasets/some/rows/data"
cp -r "$root/tests/golden/qwen2/model" "$folder/hub/models/some/base"
cp "$root"/tests/support/tiny_tokenizer/* "$folder/hub/models/some/base"
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >"$folder/hub/datasets/some/rows/data/train-00000-of-00001.jsonl"
in_machine "$a" python3 "$root/tests/tools/fake_hub.py" "$folder/hub" >"$folder/hub_output" 2>&1 &
started+=($!)
for _ in $(seq 1000); do [ -e "$folder/hub/port" ] && break; sleep 0.1; done
HF_ENDPOINT=http://127.0.0.1:$(cat "$folder/hub/port")
export HF_ENDPOINT

# start NAME RANK OPTIONS...: its process is in $pid.
start() {
    local name=$1 rank=$2 machine=$a
    [ "$rank" -eq 0 ] || machine=$b
    nsenter --target "$machine" --net --uts --mount --wdns="$folder/disk" "$build/trimtab" train --machine_rank "$rank" \
        --main_process_ip 10.78.1.1 --main_process_port 29611 --num_machines 2 --num_processes 2 --device cpu --threads 1 \
        --max_steps 2 --per_device_train_batch_size 1 --bf16 false --model_name_or_path some/base --dataset_name some/rows \
        --output_dir "$folder/disk/out" >"$folder/$name.$rank" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
}
start named 1
first=$pid
start named 0
wait "$pid" || fail "rank 0: $(tail -5 "$folder/named.0")"
wait "$first" || fail "rank 1: $(tail -5 "$folder/named.1")"
grep -q "needs libcurl" "$folder/named.0" && { echo "skipped: there is no libcurl"; exit 77; }
grep -q "it uses rank 0's over the network" "$folder/named.1" || fail "rank 1 had files of its own: $(cat "$folder/named.1")"
in_machine "$b" test ! -e "$folder/disk/hf/hub/models--some--base/blobs" || fail "the other machine fetched too"
[ -z "$(grep -o '/cdn/[0-9a-f]*' "$folder/hub/log" | sort | uniq -d)" ] || fail "a file was fetched twice"
"$build/trimtab" train --ranks 2 --device cpu --threads 1 --max_steps 2 --per_device_train_batch_size 1 --bf16 false \
    --model_name_or_path "$folder/hub/models/some/base" --dataset_name "$folder/hub/datasets/some/rows" \
    --output_dir "$folder/local" >"$folder/local.log" 2>&1 || fail "the local run: $(tail -5 "$folder/local.log")"
in_machine "$a" cat "$folder/disk/out/adapter_model.safetensors" | cmp - "$folder/local/adapter_model.safetensors" ||
    fail "the result differs from the local run's"
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
