#!/bin/bash
# A pod of a rendered Job in a container whose model, rows and output_dir lie in object storage, and whose keys come from a
# Secret: the image with libcurl, no volume, the bits of a run on a disk; killed in the middle of a save and started again by
# its controller. The S3 server of the tests is at the loopback of the pod's network. No key is in the objects, in what the pod
# writes, or in a list of processes.
self=$(realpath "$0") # for tools/containers.sh
source "$(dirname "$self")/../tools/command_line.sh" "$1"
/sbin/ldconfig -p | grep -q 'libcurl\.so\.4 ' || { echo "skipped: there is no libcurl"; exit 77; }
[ -s /etc/ssl/certs/ca-certificates.crt ] || { echo "skipped: there is no ca-certificates"; exit 77; }
# shellcheck disable=SC2034
image_kind=cpu-net
source "$root/tests/tools/containers.sh"
unset http_proxy HTTPS_PROXY ALL_PROXY
mkdir secrets keys models data server seen base rows
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secrets/secret
printf AKIDTEST >keys/id && printf secretTESTkey >keys/secret
cp "$root"/tests/golden/qwen2/model/* "$root"/tests/support/tiny_tokenizer/* base/
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%d +", "completion": " %d"}\n' $i $i; done >rows/train.jsonl
chmod a+rX "$folder"
ip netns exec "$name-0" python3 "$root/tests/tools/s3_server.py" "$folder/server" >server/out 2>&1 &
server=$!
trap 'kill $server; clean' EXIT
for _ in $(seq 200); do [ -e server/port ] && break; sleep 0.1; done
s3=http://127.0.0.1:$(cat server/port)
control() { ip netns exec "$name-0" curl -sG "$s3/-/$1" "${@:2}"; }
control load -d "folder=$folder"
run=(--device cpu --threads 1 --per_device_train_batch_size 1 --learning_rate 1e-3 --bf16 false --max_length 64 --max_steps 6
    --save_steps 2 --log_sample false)
"$trimtab" train "${run[@]}" --model_name_or_path base --dataset_name rows/train.jsonl --output_dir local >log 2>&1 || fail "a run here: $(cat log)"
for output in whole killed; do
    "$trimtab" render job "${run[@]}" --name sft --nodes 1 --cpus_per_node 1 --config_json base/config.json --image trimtab:latest \
        --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --output_dir "s3://bucket/$output" \
        --shm_size 64MiB --tmp_size 64MiB --pod_env "{\"AWS_ENDPOINT_URL\": \"$s3\"}" \
        --pod_secrets AWS_ACCESS_KEY_ID=s3-keys/id,AWS_SECRET_ACCESS_KEY=s3-keys/secret >$output.yaml 2>err || { fail "render: $(cat err)"; finish; }
    grep -q "port: $(cat server/port)}" $output.yaml || fail "the policy does not open the server's port"
    grep -q persistentVolumeClaim $output.yaml && fail "a pod without files of its own has a claim"
done
same() {
    control get -d "path=/bucket/$1" >got
    cmp -s got "$2" || fail "bucket/$1 and $2 differ"
}
try() {
    local runtime=$1 process
    pod "$runtime" whole 0 whole --secret s3-keys="$folder/keys"
    ends whole.0 0 120
    for file in adapter_model.safetensors checkpoint-4/adapter_model.safetensors checkpoint-6/training_state.safetensors; do
        same whole/$file local/$file
    done
    # Killed while the last file of checkpoint-4 is put, and started again.
    control fault -d "match=PUT+/bucket/killed/checkpoint-4/manifest" -d do=503 -d times=1000
    : >server/log
    pod "$runtime" killed 0 killed --secret s3-keys="$folder/keys"
    for _ in $(seq 1200); do grep -q "^PUT /bucket/killed/checkpoint-4/manifest" server/log && break; sleep 0.05; done
    process=$(process_of "$runtime" killed-0)
    tr '\0' '\n' <"/proc/$process/cmdline" >"seen/words.$runtime"
    grep -q train "seen/words.$runtime" || fail "no words of the process"
    "$runtime" kill "$name-killed-0" KILL
    ends killed.0 137 60
    control fault -d clear=1
    control list | grep -q "^killed/checkpoint-4/manifest" && fail "checkpoint-4 is whole"
    pod "$runtime" killed 0 killed --secret s3-keys="$folder/keys" --attempt 1
    ends killed.0 0 180
    grep -q '^resuming from s3://bucket/killed/checkpoint-2' killed.0 || fail "$runtime: not resumed: $(cat killed.0)"
    for file in adapter_model.safetensors checkpoint-6/training_state.safetensors; do same killed/$file local/$file; done
    control list | grep -E "lock|probe|saving" && fail "left in the bucket"
    cp whole.0 killed.0 whole.yaml killed.yaml seen/
    message killed.0 >seen/message
    control dump -d "folder=$folder/seen"
    [ "$(find seen -type f | wc -l)" -gt 20 ] || fail "little was seen: $(find seen)"
    for secret in secretTESTkey Signature= "$(cat secrets/secret)"; do grep -rlaF -- "$secret" seen && fail "'$secret' is in what was written"; done
    rm -rf run.* bundle.*
    control delete -d prefix=whole/ && control delete -d prefix=killed/
}
for runtime in "${runtimes[@]}"; do try "$runtime"; done
finish
