#!/bin/bash
# trimtab render: objects that strict schemas accept, sizes that are the plan's, a configuration that trains the planned
# run, and a refusal for every value that Kubernetes or the run would refuse later. After a change of the objects, review
# the differences and accept them: tests/cli/render.sh BUILD --update
source "$(dirname "$0")/../tools/command_line.sh" "$1"
update=$2
golden=$root/tests/golden/render
shape=$root/bench/shapes/l8b.json
cat >sft.yaml <<'EOF'
model_name_or_path: /models/l8b
dataset_name: /data/train.jsonl
output_dir: /run/trimtab/out
max_length: 1024
per_device_train_batch_size: 2
save_total_limit: 3
EOF
image=registry.example/trimtab@sha256:0123
base=(--config sft.yaml --image "$image" --name sft --volumes "models:/models:ro,data:/data:ro" --config_json "$shape")
gpus=("${base[@]}" --nodes 2 --gpus_per_node 4 --chip h200)

# objects NAME words...: renders twice, compares all but the configuration with the golden, and checks the schemas
objects() {
    local name=$1 code=0
    shift
    "$trimtab" render "$@" >"$name.yaml" 2>err || fail "$name: $(cat err)"
    "$trimtab" render "$@" >again.yaml 2>err
    cmp -s "$name.yaml" again.yaml || fail "$name: two calls differ"
    awk '/^  config.yaml: \|$/ { print; inside = 1; next } /^---$/ { inside = 0 } !inside' "$name.yaml" >"$name.golden"
    [ "$update" = --update ] && cp "$name.golden" "$golden/$name.yaml"
    diff -u "$golden/$name.yaml" "$name.golden" || fail "$name"
    awk '/^  config.yaml: \|$/ { inside = 1; next } /^---$/ { inside = 0 } inside { sub(/^    /, ""); print }' \
        "$name.yaml" >"$name.config"
    command -v python3 >/dev/null || return 0
    python3 "$root/tests/tools/check_objects.py" "$golden" "$name.yaml" --typos --rules || code=$?
    [ $code -eq 0 ] || [ $code -eq 77 ] || fail "$name: objects"
}
objects jobset jobset "${gpus[@]}"
"$trimtab" render jobset "${gpus[@]}" --report_to wandb >tracked.yaml 2>err || fail "a tracker: $(cat err)"
grep -q '^warning: report_to: the image of deploy/image.sh has no Python' err || fail "no word of Python: $(cat err)"
objects job job "${gpus[@]}" --rdma rdma/hca_shared_devices_a --networks roce/net1 --queue team-a --priority_class training
objects host jobset "${gpus[@]}" --host_network --storage_class shared --secret keys --max_restarts 7
objects cpu job "${base[@]}" --nodes 3 --device cpu --shm_size 64MiB
objects gang job "${gpus[@]}" --gang true
objects trainjob trainjob "${gpus[@]}" --queue team-a --gang true
objects patched trainjob "${gpus[@]}" --queue team-a --runtime torch-distributed
objects pytorchjob pytorchjob "${gpus[@]}" --queue team-a --gang true
objects mpijob mpijob "${gpus[@]}"
objects volcano volcano "${gpus[@]}" --queue team-a --priority_class training --monitoring_namespace monitoring
objects quiet job "${gpus[@]}" --metrics_port -1
# What a site's pods need: variables, labels of nodes, the registry's secret; mpirun passes the variables on.
site=(--image_pull_secret registry --node_selector '{"nvidia.com/gpu.product": "NVIDIA-H200", "pool": "2"}'
    --pod_env '{"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5_0,mlx5_1"}')
objects site mpijob "${gpus[@]}" "${site[@]}"
objects patched-site trainjob "${gpus[@]}" "${site[@]}" --runtime torch-distributed
for kind in jobset job trainjob pytorchjob volcano; do
    "$trimtab" render $kind "${gpus[@]}" "${site[@]}" >site.$kind 2>err || fail "$kind with a site's settings: $(cat err)"
    code=0
    python3 "$root/tests/tools/check_objects.py" "$golden" site.$kind --rules >out 2>&1 || code=$?
    [ $code -eq 0 ] || [ $code -eq 77 ] || fail "$kind with a site's settings: $(cat out)"
    for line in 'imagePullSecrets: [{name: "registry"}]' 'nvidia.com/gpu.product: "NVIDIA-H200"' 'pool: "2"' \
        '- {name: NCCL_IB_HCA, value: "mlx5_0,mlx5_1"}'; do
        grep -qF -- "$line" site.$kind || fail "$kind: no $line"
    done
done
# Object storage: no volume has it, the policy lets the pods out to its port, and its keys come from Secrets.
stored=(--model_name_or_path s3://bucket/l8b --dataset_name s3://bucket/train.jsonl --output_dir s3://bucket/out
    --pod_env '{"AWS_ENDPOINT_URL": "https://minio.storage:9000"}' --service_account with-role
    --pod_secrets "AWS_ACCESS_KEY_ID=s3-keys/id,AWS_SECRET_ACCESS_KEY=s3-keys/secret")
objects stored job "${gpus[@]}" "${stored[@]}"
objects stored-mpi mpijob "${gpus[@]}" "${stored[@]}"
# A name of the hub has a cache of its own, a tracker its port; labels, a namespace, files of Secrets and CSI drivers.
named=(--model_name_or_path some/l8b --report_to mlflow --pod_env '{"MLFLOW_TRACKING_URI": "http://mlflow.track:5000"}'
    --namespace team-a --object_labels '{"team": "a", "on": "1"}' --object_annotations '{"gke-gcsfuse/volumes": "true"}')
csi='{"/data": {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": true, "volumeAttributes": {"bucketName": "rows"}},
    "/keys": {"driver": "secrets-store.csi.k8s.io", "readOnly": true, "fsType": "ext4", "nodePublishSecretRef": {"name": "vault"},
    "volumeAttributes": {"secretProviderClass": "keys"}}}'
mounted=(--volumes secret/hub-token:/token --csi_volumes "$csi")
objects named jobset "${gpus[@]}" "${named[@]}" "${mounted[@]}" --monitoring_namespace monitoring
objects named-job job "${gpus[@]}" "${named[@]}" "${mounted[@]}" --gang true
objects named-patched trainjob "${gpus[@]}" "${named[@]}" "${mounted[@]}" --runtime torch-distributed
for kind in trainjob pytorchjob mpijob volcano; do
    "$trimtab" render $kind "${gpus[@]}" "${named[@]}" "${mounted[@]}" >named.$kind 2>err || fail "$kind with names: $(cat err)"
    code=0
    python3 "$root/tests/tools/check_objects.py" "$golden" named.$kind --rules >out 2>&1 || code=$?
    [ $code -eq 0 ] || [ $code -eq 77 ] || fail "$kind with names: $(cat out)"
    [ "$(grep -c '^  namespace: team-a$' named.$kind)" -eq "$(grep -c '^kind: ' named.$kind)" ] || fail "$kind: objects without the namespace"
    grep -q 'HF_HOME, value: /var/cache/trimtab' named.$kind || fail "$kind: no cache of the hub"
done
# ports NAME FLAGS...: the ports that the policy opens besides those of names, in one line.
ports() { "$trimtab" render job "${gpus[@]}" "$@" 2>err | awk '/^kind: NetworkPolicy/ { on = 1 } /^---/ { on = 0 }
    on && /protocol: TCP, port: / && !/ 53}/ { gsub(/[^0-9]/, ""); printf "%s ", $0 }'; }
# opened PORTS FLAGS...
opened() { [ "$(ports "${@:2}")" = "$1" ] || fail "opened '$(ports "${@:2}")', not '$1', for ${*:2}: $(cat err)"; }
opened ""
opened "" --report_to mlflow
opened "" --report_to trackio --pod_env '{"MLFLOW_TRACKING_URI": "http://m:5000"}'
opened "443 " --report_to wandb
opened "8080 " --report_to wandb --pod_env '{"WANDB_BASE_URL": "http://wandb.track:8080"}'
opened "80 " --report_to mlflow --pod_env '{"MLFLOW_TRACKING_URI": "http://m/x"}'
opened "443 " --report_to mlflow --pod_env '{"MLFLOW_TRACKING_URI": "https://m/x"}'
opened "" --report_to mlflow --pod_env '{"MLFLOW_TRACKING_URI": "file:///run/trimtab/ml"}'
opened "443 5000 " --report_to mlflow wandb --pod_env '{"MLFLOW_TRACKING_URI": "http://m:5000"}'
opened "443 " --report_to trackio --trackio_space_id me/space
opened "443 " --report_to mlflow --pod_secrets MLFLOW_TRACKING_URI=track/uri
grep -q "^warning: MLFLOW_TRACKING_URI is in a Secret" err || fail "no word of a port in a Secret: $(cat err)"
opened "443 " --push_to_hub true
# Data sets of the hub need no volume either: alone, in a mixture, to evaluate on; a relative path of a file is none.
# shellcheck disable=SC2089 # the quotes are those of JSON
for rows in '--dataset_name trl-lib/Capybara' '--dataset_name some/parts:first' \
    '--eval_strategy steps --eval_steps 5 --eval_dataset some/rows' '--eval_strategy steps --eval_steps 5 --eval_dataset {"a":"some/rows"}'; do
    # shellcheck disable=SC2086,SC2090
    opened "443 " $rows
done
opened "443 " --model_name_or_path some/l8b@v1
# shellcheck disable=SC2089
for rows in '--dataset_name trl-lib/Capybara' '--datasets [{"path":"some/rows","weight":0.5},{"path":"s3://bucket/x.jsonl"}]'; do
    # shellcheck disable=SC2086,SC2090
    expect 0 "port: 443" render job --image "$image" --name sft --config_json "$shape" --nodes 2 --gpus_per_node 4 --chip h200 \
        --model_name_or_path Qwen/Qwen3-0.6B $rows --output_dir s3://bucket/run
    grep -q persistentVolumeClaim printed && fail "a run without files of its own has a claim"
done
for rows in rows/train.jsonl some/rows.parquet rows; do
    expect 2 "dataset_name '$rows' lies in no volume of the pods" render job "${gpus[@]}" --dataset_name $rows
done
opened "443 3128 " --model_name_or_path some/l8b --pod_env '{"HTTPS_PROXY": "http://proxy.net:3128"}'
"$trimtab" render job "${gpus[@]}" "${named[@]}" --pod_env '{"HF_HOME": "/data/hf"}' >out 2>err
grep -q /var/cache out && fail "a cache beside that of HF_HOME"
# A runtime for TrainJobs of all namespaces: its flags are the configuration; what it fetches comes before the training.
llm=(runtime --model_name_or_path /workspace/model --dataset_name /workspace/dataset --output_dir /workspace/output --max_length 1024
    --per_device_train_batch_size 2 --lora_target_modules q_proj v_proj --run_name "a: \"b\", c" --image "$image" --name llm
    --config_json "$shape" --nodes 2 --gpus_per_node 4 --chip h200 --volumes llm:/workspace)
objects runtime "${llm[@]}" --rdma rdma/hca_shared_devices_a
expect 2 "whose claim no ClusterTrainingRuntime has" render "${llm[@]}" --output_dir /run/trimtab/out
expect 2 "namespace is given, but a ClusterTrainingRuntime is in no namespace" render "${llm[@]}" --namespace a
expect 2 "queue is given, but a ClusterTrainingRuntime is in no namespace" render "${llm[@]}" --queue a
# Its flags give the settings that a TrainJob with a configuration of its own has.
if command -v python3 >/dev/null; then
    sed -n 's/^ *args: \[train, \(.*\)\]$/[\1]/p' runtime.yaml | python3 -c 'import json, sys; print("\0".join(json.load(sys.stdin)), end="\0")' >flags
    mapfile -d '' -t flags <flags
    "$trimtab" train "${flags[@]}" --print_config 2>err | sed 's/  # .*//' >flagged.yaml || fail "the flags of a runtime: $(cat err)"
    "$trimtab" render job "${llm[@]:1}" >llm.yaml 2>err || fail "a Job of the same: $(cat err)"
    awk '/^  config.yaml: \|$/ { inside = 1; next } /^---$/ { inside = 0 } inside { sub(/^    /, ""); sub(/  # .*/, ""); print }' llm.yaml >job.flags
    diff flagged.yaml job.flags | grep '^[<>]' | grep -vE '^. (num_machines|ranks|main_process_(ip|port)|num_processes):' && fail "a runtime trains something else"
fi

# A server: its configuration serves, and a pod that is told to stop is not ready and ends.
served=(deployment --model_name_or_path /models/l8b --adapter_name_or_path /trained/out --image "$image" --name chat
    --config_json "$shape" --volumes "models:/models:ro,sft-run:/trained:ro")
objects deployment "${served[@]}" --gpus_per_node 1 --chip h200 --replicas 2 --client_namespace ingress --service_account reader
objects deployment-cpu "${served[@]}" --device cpu --cpus_per_node 4 --context_length 2048 --max_running 4 --namespace team-a \
    --model_name_or_path some/l8b --drain_timeout 100
grep -q '^drain_timeout: 30 ' deployment.config || fail "a server that does not let requests end"
grep -q '^      terminationGracePeriodSeconds: 115$' deployment-cpu.yaml || fail "the time of a server's end"
"$trimtab" render-deployment "${served[@]:1}" --gpus_per_node 1 --chip h200 --replicas 2 --client_namespace ingress \
    --service_account reader | cmp -s - deployment.yaml || fail "render-deployment is another command"
expect 4 "this run needs" render "${served[@]}" --gpus_per_node 1 --chip h200 --device_memory 4GiB
expect 4 "this run needs" render "${served[@]}" --gpus_per_node 1 --chip h200 --max_loras 256 --max_lora_rank 1024
expect 2 "the kind of the GPUs is not known" render "${served[@]}" --gpus_per_node 1
expect 2 "gpus_per_node is given, but the device is cpu" render "${served[@]}" --gpus_per_node 1 --device cpu
expect 2 "port needs a privilege" render "${served[@]}" --device cpu --port 80
expect 2 "host is another" render "${served[@]}" --device cpu --host 127.0.0.1
expect 2 "which only trainings have" render "${served[@]}" --device cpu --adapter_name_or_path /run/trimtab/out
expect 2 "model_name_or_path '/elsewhere' lies in no volume" render "${served[@]}" --device cpu --model_name_or_path /elsewhere
expect 2 "client_namespace 'A' is not valid" render "${served[@]}" --device cpu --client_namespace A
expect 2 "cannot render a 'pod'" render pod "${gpus[@]}"
cp -r "$root/tests/golden/qwen2/model" tiny && cp "$root"/tests/support/tiny_tokenizer/* tiny/
sed 's|^model_name_or_path: .*|model_name_or_path: tiny|; s|^adapter_name_or_path: .*||; s|^port: .*|port: 0|; s|^device: .*|device: cpu|; s|^ranks: .*||
    s|^context_length: .*|context_length: 128|' deployment.config >serve.yaml
"$trimtab" serve --config serve.yaml 2>log &
server=$!
for _ in $(seq 2000); do grep -q 'serving' log && break; kill -0 $server 2>/dev/null || break; sleep 0.05; done
grep -q "serving 'tiny' at http://0.0.0.0:" log || fail "the configuration of a Deployment does not serve: $(cat log)"
kill -TERM $server
wait $server || fail "a server ends with $?: $(cat log)"

for words in 'namespace Team=metadata.namespace' 'namespace a.b=metadata.namespace' 'object_labels {"a":"b c"}=at most 63 letters' \
    'object_labels {"a b":"c"}=[DOMAIN/]NAME' 'object_labels {"trimtab/run":"x"}=the setting `name`' \
    'object_annotations {"k8s.v1.cni.cncf.io/networks":"x"}=the setting `networks`' 'volumes secret/A:/x=volumes[].secret.secretName' \
    'csi_volumes {"/x":{}}=with a `driver`' 'csi_volumes {"/x":{"driver":"a","size":1}}=keys are driver' 'csi_volumes ["/x"]=write paths' \
    'csi_volumes {"x":{"driver":"a"}}=a path is absolute' 'csi_volumes {"/tmp/x":{"driver":"a"}}=lies in /tmp' \
    'csi_volumes {"/x":{"driver":"a","volumeAttributes":{"n":1}}}=numbers need quotes' \
    'csi_volumes {"/x":{"driver":"a","readOnly":"yes"}}=true or false' 'csi_volumes {"/x":{"driver":"a b"}}=at most 63 letters' \
    'csi_volumes {"/x":{"driver":"a","nodePublishSecretRef":"s"}}="name": SECRET'; do
    given=${words#* }
    expect 2 "${given##*=}" render job "${gpus[@]}" --"${words%% *}" "${given%=*}"
done
expect 2 "output_dir '/data/out' lies in no volume of the pods that they may write" render job "${gpus[@]}" --volumes m:/models "${mounted[@]:2}" --output_dir /data/out
grep -q 'protocol: TCP, port: 443' job.yaml && fail "a run of volumes may leave the cluster"
for words in 'pod_secrets A=b=NAME=SECRET/KEY' 'pod_secrets A=/c=NAME=SECRET/KEY' 'pod_secrets A=b/=NAME=SECRET/KEY' \
    'pod_secrets RANK=a/b=the pods, or the controller' 'pod_secrets 1A=a/b=begins with a letter' 'pod_secrets A=B/c=is not valid' \
    'pod_secrets A=a/b c/d=NAME=SECRET/KEY' 'service_account A=serviceAccountName'; do
    given=${words#* }
    case $given in *=NAME=SECRET/KEY) text=NAME=SECRET/KEY ;; *) text=${given##*=} ;; esac
    expect 2 "$text" render job "${gpus[@]}" --"${words%% *}" "${given%"=$text"}"
done
for words in 'pod_env {"RANK":"0"}=the pods, or the controller' 'pod_env {"PET_NNODES":"2"}=the pods, or the controller' \
    'pod_env {"HF_TOKEN":"x"}=mount a Secret' 'pod_env {"1A":"x"}=begins with a letter' 'pod_env {"A-B":"x"}=letters, digits' \
    'pod_env {"A":1}=numbers need quotes' 'pod_env {"A":"\""}=without quotes' 'pod_env ["A"]=it is no object' \
    'node_selector {"a b":"c"}=[DOMAIN/]NAME' 'node_selector {"a":"c d"}=at most 63 letters' 'image_pull_secret Reg=imagePullSecrets'; do
    expect 2 "${words#*=}" render job "${gpus[@]}" --"${words%% *}" "$(sed 's/^[^ ]* //; s/=.*//' <<<"$words")"
done
"$trimtab" render "${gpus[@]}" | cmp -s - jobset.yaml || fail "a JobSet is not the default"

# Rules of alerts are those that Prometheus reads; pods without a port for metrics have no probes.
if command -v promtool >/dev/null; then
    awk '/^kind: PrometheusRule$/ { inside = 1 } /^---$/ { inside = 0 } inside && /^  groups:$/ { print "groups:"; body = 1; next }
        inside && body' volcano.yaml >rules.yaml
    promtool check rules rules.yaml >out 2>&1 && grep -q 'SUCCESS: 4 rules found' out || fail "promtool: $(cat out)"
    sed 's/histogram_quantile(/histogram_quantil(/' rules.yaml >typo.yaml
    promtool check rules typo.yaml >out 2>&1 && fail "promtool takes a typo"
fi
grep -q 'Probe\|name: metrics' quiet.yaml && fail "probes without a port"
grep -q '^metrics_port: 9400 ' jobset.config || fail "metrics_port"
grep -qE '^metrics_host: "?0.0.0.0"? ' jobset.config || fail "metrics_host"
[ "$(grep -c 'readinessProbe:' jobset.yaml job.yaml trainjob.yaml pytorchjob.yaml mpijob.yaml volcano.yaml | sed 's/.*://' | tr -d '\n')" = 111001 ] ||
    fail "readinessProbe"
"$trimtab" render "${gpus[@]}" --monitoring_namespace m --save_strategy no | grep -q TrimtabCheckpointLate && fail "a rule about saves of a run that does not save"

# The configuration in the ConfigMap is the planned run.
for name in jobset cpu; do
    flags=(--config_json "$shape" --device h200 --num_machines 2 --ranks 4)
    [ $name = cpu ] && flags=(--config_json "$shape" --device cpu --num_machines 3 --ranks 1)
    "$trimtab" plan --config sft.yaml "${flags[@]}" --main_process_ip x --json >direct.json || fail "plan of $name"
    # `device` of a plan names a chip
    "$trimtab" plan --config $name.config --config_json "$shape" --device "${flags[3]}" --json >read.json ||
        fail "the configuration of $name is not read back"
    cmp -s direct.json read.json || fail "the configuration of $name has another plan: $(diff direct.json read.json)"
    "$trimtab" train --config $name.config --print_config >printed.yaml || fail "train does not take the configuration"
done
grep -q '^main_process_ip: sft-node-0-0.sft ' jobset.config || fail "the address of rank 0 in a JobSet"
grep -q '^main_process_ip: sft-0.sft ' cpu.config || fail "the address of rank 0 in a Job"
grep -q '^main_process_ip: sft-node-0-0.sft ' trainjob.config || fail "the address of rank 0 in a TrainJob"
grep -q '^main_process_ip: sft-node-0-0.sft ' patched.config || fail "the address of rank 0 in a TrainJob that patches a runtime"
grep -q '^main_process_ip: sft-master-0 ' pytorchjob.config || fail "the address of rank 0 in a PyTorchJob"
grep -q '^main_process_ip: sft-node-0.sft ' volcano.config || fail "the address of rank 0 in a Job of Volcano"
grep -q '^main_process_ip: .*sft' mpijob.config && fail "an MPIJob has a rendezvous"
grep -q '^num_machines: 1 ' mpijob.config || fail "under mpirun each process is a rank"
grep -q '^rendezvous_timeout: 1200 ' jobset.config || fail "rendezvous_timeout"
grep -q '^resume_from_checkpoint: "*true"* ' jobset.config || fail "a restart does not resume"
grep -q '^device: cuda ' jobset.config || fail "a pod without GPU would train on processors"
"$trimtab" render "${gpus[@]}" --rendezvous_timeout 77 | grep -q '^    rendezvous_timeout: 77 ' || fail "own rendezvous_timeout"

# Sizes are the plan's: memory of a pod in MiB, and the claim for three checkpoints and two more.
number() { sed -E "s/.*\"$1\": ([0-9]+).*/\1/" "$2"; }
mebibytes() { echo $((($1 + 1048575) / 1048576)); }
"$trimtab" plan --config jobset.config --config_json "$shape" --device h200 --json >plan.json
wanted=$(mebibytes $((4 * $(number host_bytes plan.json) + (9 << 30))))
grep -q "^ *memory: ${wanted}Mi$" jobset.yaml || fail "memory is not ${wanted}Mi: $(grep memory: jobset.yaml)"
for name in trainjob patched pytorchjob mpijob volcano; do
    grep -q "^ *memory: ${wanted}Mi$" $name.yaml || fail "memory of $name is not ${wanted}Mi"
    grep -q "GracePeriodSeconds: 60$" $name.yaml || fail "grace period of $name"
    grep -q "storage: 2048Mi$" $name.yaml || fail "claim of $name"
    grep -q "sizeLimit: 1024Mi}}$" $name.yaml || fail "/dev/shm of $name"
done
if command -v python3 >/dev/null; then
    python3 "$root/tests/tools/check_objects.py" "$golden" jobset.yaml --plan $((4 * $(number host_bytes plan.json))) >out || [ $? -eq 77 ] ||
        fail "memory and plan: $(cat out)"
    python3 "$root/tests/tools/check_objects.py" "$golden" jobset.yaml --plan $((10 << 30)) >out
    code=$?
    [ $code -eq 77 ] || { [ $code -eq 1 ] && grep -q 'resources.limits.memory: at least the plan' out; } || fail "memory below the plan is not refused"
fi
"$trimtab" plan --config cpu.config --config_json "$shape" --device cpu --threads 8 --json >plan.json
wanted=$(mebibytes $(($(number host_bytes plan.json) + $(number device_bytes plan.json) + (8 << 30) + (64 << 20))))
grep -q "^ *memory: ${wanted}Mi$" cpu.yaml || fail "memory on processors is not ${wanted}Mi: $(grep memory: cpu.yaml)"
full=(--use_peft false --per_device_train_batch_size 1)
"$trimtab" render "${gpus[@]}" "${full[@]}" --storage_rate 1GB >full.yaml || fail "full fine-tuning"
# 8.03e9 parameters: 16 bytes each, five times, in GiB; and 128 GB at 1 GB/s, twice
claim=$(sed -nE 's/^ *storage: ([0-9]+)Mi$/\1/p' full.yaml)
[ "${claim:-0}" -gt 600000 ] && [ "${claim:-0}" -lt 620000 ] || fail "a claim of $claim MiB"
grace=$(sed -nE 's/^ *terminationGracePeriodSeconds: //p' full.yaml)
[ "$grace" -gt 256 ] && [ "$grace" -lt 290 ] || fail "a grace period of $grace s"
"$trimtab" render "${gpus[@]}" "${full[@]}" --sharding_strategy HYBRID_SHARD --storage_rate 1GB |
    grep -q "^ *storage: ${claim}Mi$" || fail "replicas count in the claim"
"$trimtab" render "${gpus[@]}" --step_seconds 100 | grep -q 'GracePeriodSeconds: 40[12]$' || fail "step_seconds"
"$trimtab" render "${gpus[@]}" --step_seconds 100 --spot_notice 30 2>&1 >out | grep -q 'a stop takes 201 s, more than the notice of 30 s' ||
    fail "no warning of a notice that is too short"
"$trimtab" render "${gpus[@]}" --spot_notice 30 >out 2>err || fail "a notice that is long enough"
grep -q notice err && fail "a warning of a notice that is long enough"
"$trimtab" render "${gpus[@]}" --output_dir /data/out --volumes models:/models:ro,data:/data >out || fail "output in a volume"
grep -q 'kind: PersistentVolumeClaim' out && fail "a claim that nothing uses"

# A batch script for Slurm. It runs here with a srun of our own, which starts the four processes of two nodes.
batch=("${base[@]}" --nodes 2 --gpus_per_node 4 --chip h200)
"$trimtab" render sbatch "${batch[@]/--image/--run_name}" --max_restarts 7 >batch.sh 2>err || fail "sbatch: $(cat err)"
awk '/^END_OF_TRIMTAB_CONFIGURATION$/ { inside = 0 } !inside { print } /<<.END_OF/ { inside = 1 }' batch.sh >batch.golden
[ "$update" = --update ] && cp batch.golden "$golden/sbatch.txt"
diff -u "$golden/sbatch.txt" batch.golden || fail "sbatch"
if command -v shellcheck >/dev/null; then shellcheck batch.sh || fail "shellcheck"; fi
mkdir slurm
cat >slurm/scontrol <<'EOF'
#!/bin/bash
case $1 in
show) [ "$*" = "show hostnames n[1-2]" ] && printf '127.0.0.1\nn2\n' ;;
requeue) echo "$2" >>requeued ;;
esac
EOF
cat >slurm/srun <<'EOF'
#!/bin/bash
[ -z "${EXIT:-}" ] || exit "$EXIT"
[ -z "${HANG:-}" ] || { touch hangs; exec sleep 20; }
[[ $1 = --wait=* && $2 = --cpus-per-task=* ]] || exit 70
shift 2
for rank in 0 1 2 3; do
    SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_NTASKS=4 SLURM_LOCALID=$((rank % 2)) SLURM_NODEID=$((rank / 2)) \
        SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 "$@" >"rank$rank" 2>&1 &
    ranks+=($!)
done
highest=0
for rank in "${ranks[@]}"; do
    wait "$rank" || { code=$?; [ $code -le $highest ] || highest=$code; }
done
exit $highest
EOF
chmod +x slurm/*
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
"$trimtab" render sbatch --model model --dataset_name rows.jsonl --output_dir slurm-out --max_steps 2 --device cpu --threads 1 \
    --nodes 2 --num_processes 4 --name small --max_restarts 2 --per_device_train_batch_size 1 >small.sh 2>err || fail "small: $(cat err)"
grep -q '^#SBATCH --ntasks-per-node=2$' small.sh || fail "tasks of a node"
slurm() { env PATH="$folder/slurm:$build:$PATH" SLURM_JOB_ID=$((RANDOM % 9000 + 500)) SLURM_JOB_NODELIST='n[1-2]' "$@" bash small.sh; }
slurm env >out 2>&1 || fail "the batch script: $(cat out rank0)"
[ -e slurm-out/adapter_model.safetensors ] || fail "the batch script trains nothing: $(cat rank0)"
[ -e requeued ] && fail "a run that is done goes back into the queue"
[ -z "$(find . -name secret)" ] || fail "the job secret stays"
[ "$(stat -c %a slurm-out/adapter_model.safetensors)" = "$(stat -c %a rows.jsonl)" ] || fail "the script changes the modes of results"
[ "$(stat -c %a small-*/)" = 700 ] || fail "others see the folder of the job secret: $(stat -c '%n %a' small-*/)"
# A job that Slurm ends: SIGTERM to the shell as well, which has no turn of its own any more.
env PATH="$folder/slurm:$build:$PATH" SLURM_JOB_ID=4242 SLURM_JOB_NODELIST='n[1-2]' HANG=1 bash small.sh >out 2>&1 &
shell=$!
for _ in $(seq 500); do [ ! -e hangs ] || break; sleep 0.02; done
[ "$(stat -c %a small-4242/secret)" = 600 ] || fail "others read the job secret"
kill -TERM $shell
wait $shell
[ -z "$(find . -name secret)" ] || fail "the job secret stays where Slurm ends the job"
# srun without MASTER_ADDR and without a server of MPI
code=0
env -u MASTER_ADDR SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 \
    "$trimtab" train --model model --dataset_name rows.jsonl --output_dir none --device cpu >out 2>&1 || code=$?
{ [ $code -eq 2 ] || grep -q 'no MPI' out; } && grep -q '^  hint: .*MASTER_ADDR' out || fail "srun without MASTER_ADDR: exit $code: $(cat out)"
for code in 2 3 4 70; do
    slurm EXIT=$code >out 2>&1
    [ $? -eq $code ] && [ ! -e requeued ] || fail "exit code $code goes back into the queue"
done
for code in 5 10 11 143; do
    slurm EXIT=$code SLURM_RESTART_COUNT=1 >out 2>&1
    [ -s requeued ] || fail "exit code $code does not go back into the queue"
    rm -f requeued
done
slurm EXIT=10 SLURM_RESTART_COUNT=2 >out 2>&1
[ $? -eq 10 ] && [ ! -e requeued ] || fail "restarts have no end"
slurm EXIT=11 SLURM_RESTART_COUNT=2 >out 2>&1
[ -s requeued ] || fail "a stop counts as a restart"
expect 2 "image is given, but a batch script" render sbatch "${batch[@]}"
expect 2 "image is missing" render job "${batch[@]/--image/--run_name}"
expect 2 "gpus_per_node 4, but the configuration has 2 ranks" render sbatch "${batch[@]/--image/--run_name}" --num_processes 4

# A detection: its network follows from a weights file, of which this machine has a copy under another path.
cat >detection.yaml <<'EOF'
task: detection
weights_path: /weights/retinanet_resnet50_fpn_coco.pth
local_image_dir: /data/openimages/images
annotations: /data/openimages/boxes.csv
cache_dir: /run/trimtab/cache
output_dir: /run/trimtab/out
image_size: 320
batch_size: 16
EOF
if command -v python3 >/dev/null && python3 "$root/examples/detection/make_weights.py" copy.pth --width 8 --pyramid 16 --classes 91 >out 2>&1; then
    detection=(--config detection.yaml --name det --nodes 2 --device cpu --weights_file copy.pth)
    volumes=(--image "$image" --volumes "weights:/weights:ro,data:/data:ro")
    for kind in job jobset trainjob pytorchjob mpijob volcano; do
        "$trimtab" render $kind "${detection[@]}" "${volumes[@]}" >det.$kind.yaml 2>err || fail "a detection as $kind: $(cat err)"
        grep -q '^    weights_path: /weights/retinanet_resnet50_fpn_coco.pth ' det.$kind.yaml || fail "$kind: weights_path of the pods"
        grep -q 'persistentVolumeClaim: {claimName: "weights", readOnly: true}' det.$kind.yaml || fail "$kind: the volume of the weights"
        code=0
        python3 "$root/tests/tools/check_objects.py" "$golden" det.$kind.yaml || code=$?
        [ $code -eq 0 ] || [ $code -eq 77 ] || fail "a detection as $kind: objects"
    done
    "$trimtab" render sbatch "${detection[@]}" >det.sbatch 2>err && grep -q '^weights_path: /weights/' det.sbatch || fail "a detection as sbatch: $(cat err)"
    expect 2 "cache_dir '/data/openimages' lies in no volume of the pods that they may write" render job "${detection[@]}" "${volumes[@]}" --cache_dir /data/openimages
    expect 2 "weights_file is given, and the task is language" render job "${base[@]}" --nodes 2 --device cpu --weights_file copy.pth
    expect 3 "--weights_file FILE names another" render job "${detection[@]::8}" "${volumes[@]}"
else
    echo "skipped: a detection: python3 makes no weights: $(tail -n 1 out)"
fi

# What the run or Kubernetes would refuse later, by the name of the setting
refused() { expect 2 "$1" render "${@:2}"; }
one=(jobset "${base[@]}" --nodes 1 --gpus_per_node 1 --chip h200)
refused "cannot render a 'pod'" pod "${gpus[@]}"
refused "image" --config sft.yaml --nodes 1
long=abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuv
expect 0 "" render "${one[@]}" --name $long
refused "at most 48" "${one[@]}" --name "${long}w"
refused "at most 47" jobset "${gpus[@]}" --nodes 11 --name "${long}"
for name in Sft 1sft sft_1 -sft sft- sft.a; do refused "name '$name' is not valid as metadata.name" "${one[@]}" --name=$name; done
refused "image 'a b' is not valid" "${one[@]}" --image "a b"
refused "networks 'a\"b' is not valid" "${one[@]}" --networks 'a"b'
for setting in storage_class:PersistentVolumeClaim.spec.storageClassName priority_class:priorityClassName \
    secret:volumes[secret].secret.secretName queue:metadata.labels[kueue.x-k8s.io/queue-name]; do
    refused "${setting%%:*} 'A b' is not valid as ${setting#*:}" "${one[@]}" "--${setting%%:*}" "A b"
done
refused "at most 48" trainjob "${gpus[@]}" --name "${long}w" --nodes 1
refused "at most 56" volcano "${gpus[@]}" --name "${long}abcdefghi"
refused "at most 54" pytorchjob "${gpus[@]}" --name "${long}abcdefg"
refused "an MPIJob of one node has no worker (spec.mpiReplicaSpecs.Worker)" mpijob "${gpus[@]}" --nodes 1
refused "metrics_port is 0, a free port, which probes (containers[0].ports) cannot know" "${one[@]}" --metrics_port 0
refused "metrics_port is main_process_port" job "${gpus[@]}" --metrics_port 29500
expect 0 "" render "${one[@]}" --metrics_port 29500
refused "metrics_port is dashboard_port" "${one[@]}" --dashboard true --dashboard_port 9400
for setting in metrics_port main_process_port; do
    refused "$setting 1023 needs a privilege that the pods do not have" "${one[@]}" --$setting 1023
done
for host in 127.0.0.1 ::1 localhost 10.0.0.7; do
    refused "ask a pod at its own address, and metrics_host is another" "${one[@]}" --metrics_host $host
done
for words in "--metrics_host ::" "--metrics_host 127.0.0.1 --metrics_port -1"; do
    expect 0 "" render "${one[@]}" $words
done
refused "the pods have no port for metrics" "${one[@]}" --monitoring_namespace m --metrics_port -1
refused "the pods have no port for metrics" mpijob "${gpus[@]}" --monitoring_namespace m
refused "monitoring_namespace 'M' is not valid as NetworkPolicy.spec.ingress[].from[].namespaceSelector" "${one[@]}" --monitoring_namespace M
refused "gang is given, but Slurm" sbatch "${batch[@]/--image/--run_name}" --gang true
refused "GPUs of a node" trainjob "${base[@]}" --nodes 2 --chip h200
refused "rdma 'hca' is not valid" "${one[@]}" --rdma hca
refused "gpu_resource 'gpu' is not valid" "${one[@]}" --gpu_resource gpu
refused "an entry is CLAIM:PATH" "${one[@]}" --volumes models
refused "an entry is CLAIM:PATH" "${one[@]}" --volumes models:/models:rw
refused "a path is absolute" "${one[@]}" --volumes models:models
refused "a path is absolute" "${one[@]}" --volumes models:/a/../etc
refused "lies in /etc, which pods have of their own" "${one[@]}" --volumes models:/etc/models
refused "a path is absolute" "${one[@]}" --volumes models:/
refused "two volumes have the same path" "${one[@]}" --volumes a:/models,b:/models
refused "volumes: '/tmp/x' lies in /tmp, which pods have of their own" "${one[@]}" --volumes a:/models,b:/tmp/x
refused "volumes: '/run' contains /run/trimtab, which pods have" "${one[@]}" --volumes a:/models,b:/run
refused "model_name_or_path '/models/l8b' lies in no volume" "${one[@]}" --volumes data:/data
refused "dataset_name 'train.jsonl' lies in no volume" "${one[@]}" --dataset_name train.jsonl
refused "output_dir '/data/out' lies in no volume of the pods that they may write" "${one[@]}" --output_dir /data/out
refused "output_dir 'out' lies in no volume" "${one[@]}" --output_dir out
for setting in eval_dataset chat_template_path dataset_prepared_path logging_dir resume_from_checkpoint; do
    refused "$setting '/elsewhere/x' lies in no volume" "${one[@]}" "--$setting" /elsewhere/x
done
refused "logging_dir '/data/runs' lies in no volume of the pods that they may write" "${one[@]}" --logging_dir /data/runs
images=(job --name boxes --image registry.example/trimtab --nodes 1 --gpus_per_node 1 --chip h200 --task detection
    --volumes data:/data:ro --output_dir /run/trimtab/out)
for setting in weights_path annotations eval_annotations class_descriptions cache_dir; do
    refused "$setting '/elsewhere/x' lies in no volume" "${images[@]}" --local_image_dir /data/images "--$setting" /elsewhere/x
done
refused "local_image_dir '/elsewhere/x' lies in no volume" "${images[@]}" --local_image_dir /elsewhere/x
refused "memory 2.0 GiB (resources.limits.memory) is less than the" "${one[@]}" --memory 2GiB
refused "grace_period 70 (terminationGracePeriodSeconds) is less than the 201 s" "${one[@]}" --step_seconds 100 --grace_period 70
refused "storage_rate" "${one[@]}" --storage_rate 0
refused "the kind of the GPUs is not known" "${base[@]}" --nodes 1 --gpus_per_node 1
refused "the number of GPUs of a node is not known" "${base[@]}" --nodes 1 --chip h200
refused "gpus_per_node 4, but the configuration has 2 ranks" "${gpus[@]}" --num_processes 4
refused "gpus_per_node is given, but the device is cpu" "${gpus[@]}" --device cpu
refused "not a multiple" "${base[@]}" --nodes 2 --num_processes 3 --chip h200
refused "runtime is given, but only a TrainJob has one" jobset "${gpus[@]}" --runtime torch-distributed
refused "runtime 'a b' is not valid as TrainJob.spec.runtimeRef.name" trainjob "${gpus[@]}" --runtime 'a b'
for flag in '--gang true' --host_network '--priority_class training' '--monitoring_namespace monitoring'; do
    # shellcheck disable=SC2086
    refused "is given, but runtimePatches of a TrainJob cannot change it" trainjob "${gpus[@]}" --runtime torch-distributed $flag
done
expect 4 "this run needs" render "${one[@]}" --device_memory 4GiB
expect 3 "--config_json FILE" render jobset --config sft.yaml --image $image --gpus_per_node 1 --chip h200 --volumes models:/models,data:/data
# machines and processes of accelerate's file
printf 'distributed_type: FSDP\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n' >fsdp.yaml
"$trimtab" render "${base[@]}" --config_file fsdp.yaml --chip h200 >out || fail "accelerate's file"
grep -q '^    main_process_ip: sft-node-0-0.sft ' out || fail "the address of accelerate's file stays"
grep -q '^ *nvidia.com/gpu: 4$' out || fail "processes of accelerate's file"
finish
