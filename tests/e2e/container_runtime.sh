#!/bin/bash
# The CPU image in containers of crun and runc, as the pods of a rendered Job and JobSet: bundles made from the rendered
# objects (tests/tools/pod_bundle.py), each pod in a network of its own, reached by its host name. What the kernel says of
# the process, what the program sees of its limits, the bits of the result, probes from outside, a stop at SIGTERM, a pod
# that is out of memory, and one that is killed and starts again. Needs root, umoci, network namespaces, control groups
# that may be written, and python3 with yaml. RUNTIMES="crun runc" chooses; each that is missing is skipped.
self=$(realpath "$0") # for tools/containers.sh
source "$(dirname "$self")/../tools/command_line.sh" "$1"
source "$root/tests/tools/containers.sh"
mkdir secrets models data
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secrets/secret
cp "$root"/examples/demo/model/* models/ && cp "$root/examples/demo/data/train.jsonl" data/
chmod -R a+rX,go-w "$folder" models data
cat >sft.yaml <<'EOF'
model_name_or_path: /models
dataset_name: /data/train.jsonl
output_dir: /run/trimtab/out
device: cpu
seed: 7
bf16: false
lora_target_modules: all-linear
max_length: 64
per_device_train_batch_size: 1
logging_steps: 1
EOF
# rendered KIND NAME SETTINGS...
rendered() {
    "$trimtab" render "$1" --config sft.yaml --name sft --nodes 2 --cpus_per_node 1 --config_json models/config.json --image trimtab:latest \
        --volumes models:/models:ro,data:/data:ro --shm_size 64MiB "${@:3}" >"$2.yaml" 2>err || { fail "render $2: $(cat err)"; finish; }
}
long=(--max_steps 100000 --learning_rate 1e-6 --save_steps 20 --save_total_limit 2)
rendered job large --max_steps 3 --per_device_train_batch_size 128 --max_length 256
rendered job short --max_steps 3 --save_strategy no
rendered jobset long "${long[@]}"
"$trimtab" train --config sft.yaml --model_name_or_path models --dataset_name data/train.jsonl --output_dir threads --ranks 2 \
    --threads 1 --max_steps 3 --save_strategy no >log 2>&1 || fail "two ranks of one process: $(tail -n 3 log)"

if python3 "$root/examples/detection/make_shapes.py" data/openimages --train 20 --validation 10 --size 160 --mixed >log 2>&1 && mkdir weights &&
    python3 "$root/examples/detection/make_weights.py" weights/r.pth --width 8 --pyramid 16 --classes 91 >>log 2>&1; then
    chmod -R a+rX data weights
    cat >det.settings <<'EOF'
task: detection
weights_path: /weights/r.pth
local_image_dir: /data/openimages/images
cache_dir: /run/trimtab/cache
annotations: /data/openimages/oidv6-train-annotations-bbox.csv
eval_annotations: /data/openimages/validation-annotations-bbox.csv
output_dir: /run/trimtab/out
device: cpu
threads: 1
image_size: 160
batch_size: 4
max_train: 8
max_val: 4
epochs: 1
seed: 7
EOF
    "$trimtab" render job --config det.settings --name sft --nodes 2 --cpus_per_node 1 --image trimtab:latest --shm_size 64MiB \
        --weights_file weights/r.pth --volumes weights:/weights:ro,data:/data:ro >det.yaml 2>err || fail "render a detection: $(cat err)"
    "$trimtab" train --config det.settings --weights_path weights/r.pth --local_image_dir data/openimages/images --cache_dir cache \
        --annotations data/openimages/oidv6-train-annotations-bbox.csv \
        --eval_annotations data/openimages/validation-annotations-bbox.csv --output_dir boxes --ranks 2 >log 2>&1 || fail "a detector here: $(tail -n 3 log)"
else
    echo "skipped: a detector: $(tail -n 1 log)"
fi

try() {
    local runtime=$1 process text started index
    rm -rf run.* bundle.*
    "$runtime" --version | head -n 1
    # ---- a run of two pods from start to end ----
    pod "$runtime" short 1 whole
    pod "$runtime" short 0 whole
    for index in 0 1; do ends whole.$index 0 120; done
    cmp -s threads/adapter_model.safetensors run.whole/out/adapter_model.safetensors || fail "$runtime: other bits than two ranks of one process"
    [ "$(stat -c %u:%g run.whole/out/adapter_model.safetensors)" = 65532:65532 ] || fail "$runtime: the result belongs to $(stat -c %u:%g run.whole/out/adapter_model.safetensors)"
    [ ! -s bundle.whole.0/termination-log ] || fail "$runtime: a run that is done leaves a message: $(message whole.0)"

    # ---- what the program sees of its limits ----
    pod "$runtime" short 0 limits --args doctor --json --ranks 1 --output_dir /run/trimtab/out
    ends limits.0 0 60
    for text in "\"memory_bytes\": $(sed -n 's/^memory=//p' bundle.limits.0/pod.env)," '"processors": 1,' '"shm_bytes": 67108864,' '"processes": 1024,'; do
        grep -qF "$text" limits.0 || fail "$runtime: not in what doctor sees: $text: $(grep -F "${text%%:*}" limits.0)"
    done
    for index in 1 0; do pod "$runtime" large $index small --memory $((256 << 20)); done
    for index in 0 1; do ends small.$index 4 60; done
    echo "$runtime: 256 MiB: $(message small.0)"

    # ---- a detector, from a weights file in a volume, images and boxes in one that is not written ----
    if [ -e det.yaml ]; then
        for index in 1 0; do pod "$runtime" det $index boxes --claim weights="$folder/weights"; done
        for index in 0 1; do ends boxes.$index 0 120; done
        cmp -s boxes/model.pth run.boxes/out/model.pth || fail "$runtime: a detector: other bits than two ranks of one process"
    fi

    # ---- a stop ----
    pod "$runtime" long 1 stop
    pod "$runtime" long 0 stop
    says stop.0 '^step 3/'
    process=$(process_of "$runtime" stop-0)
    echo "$runtime: $(grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$process/status" | tr -s '\t\n' '  ')"
    [ "$(outside -o said -w '%{http_code}' http://10.88.7.1:9400/healthz)" = 200 ] || fail "$runtime: /healthz from outside: $(cat said)"
    [ "$(outside -o said -w '%{http_code}' http://10.88.7.2:9400/readyz)" = 200 ] || fail "$runtime: /readyz from outside: $(cat said)"
    outside http://10.88.7.1:9400/metrics | grep -q '^trimtab_steps_total' || fail "$runtime: /metrics from outside"
    started=$(date +%s%N)
    "$runtime" kill "$name-stop-1" TERM
    for index in 0 1; do ends stop.$index 11 60; done
    echo "$runtime: a stop takes $((($(date +%s%N) - started) / 1000000)) ms"
    message stop.1 | grep -q 'stopped on request after step [0-9]* of 100000; checkpoint-[0-9]* is complete' || fail "$runtime: the message of a stop: $(message stop.1)"

    # ---- out of memory: a neighbour in the control group of pod 1 takes what is left, and the kernel ends the pod ----
    for index in 1 0; do pod "$runtime" long $index memory --memory $((256 << 20)); done
    says memory.0 'checkpoint-20'
    echo 1000 >"/proc/$(process_of "$runtime" memory-1)/oom_score_adj" # the kernel chooses the pod, not its neighbour
    python3 -c '
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
held = []
while not os.path.exists(sys.argv[2]):
    held.append(b"x" * (1 << 20))' "$groups/$name-memory-1/cgroup.procs" memory.1.code >hog.log 2>&1 &
    hog=$!
    disown $hog
    ends memory.1 137 60
    started=$(date +%s%N)
    ends memory.0 10 60
    echo "$runtime: the other pod ends $((($(date +%s%N) - started) / 1000000)) ms after the one that was out of memory: $(message memory.0)"
    message memory.0 | grep -q 'rank 1' || fail "$runtime: the other pod does not name rank 1: $(message memory.0)"
    kill -KILL $hog 2>/dev/null
    # ---- all start again ----
    for index in 1 0; do pod "$runtime" long $index memory --attempt 1; done
    says memory.0 '^resuming from /run/trimtab/out/checkpoint-[0-9]*: '
    says memory.0 '^step'
    "$runtime" kill "$name-memory-0" TERM
    for index in 0 1; do ends memory.$index 11 60; done
}
for runtime in "${runtimes[@]}"; do try "$runtime"; done
finish
