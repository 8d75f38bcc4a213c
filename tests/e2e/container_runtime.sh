#!/bin/bash
# The CPU image in containers of crun and runc, as the pods of a rendered Job and JobSet: bundles made from the rendered
# objects (tests/tools/pod_bundle.py), each pod in a network of its own, reached by its host name. What the kernel says of
# the process, what the program sees of its limits, the bits of the result, probes from outside, a stop at SIGTERM, a pod
# that is out of memory, and one that is killed and starts again. Needs root, umoci, network namespaces, control groups
# that may be written, and python3 with yaml. RUNTIMES="crun runc" chooses; each that is missing is skipped.
self=$(realpath "$0")
source "$(dirname "$self")/../tools/command_line.sh" "$1"
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "containers of user 65532 need root"
[ -x "$build/portable/trimtab" ] || skip "a build with sanitizers has no portable program"
for program in umoci ip python3 curl; do command -v $program >/dev/null || skip "there is no $program"; done
python3 -c 'import yaml' 2>/dev/null || skip "python3 has no yaml (Debian: python3-yaml)"
runtimes=()
for runtime in ${RUNTIMES:-crun runc}; do
    if command -v "$runtime" >/dev/null; then runtimes+=("$runtime"); else echo "skipped: there is no $runtime"; fi
done
[ ${#runtimes[@]} -gt 0 ] || exit 77
if [ -d /sys/fs/cgroup/memory ]; then groups=/sys/fs/cgroup/memory; else groups=/sys/fs/cgroup; fi
name=tt$$
mkdir "$groups/$name" 2>/dev/null && rmdir "$groups/$name" || skip "control groups cannot be made"
profile=/usr/share/containers/seccomp.json
seccomp=()
if [ -e "$profile" ]; then seccomp=(--seccomp "$profile"); else echo "skipped: the profile of system calls (Debian: golang-github-containers-common)"; fi
# crun 1.8 refuses to start where a hierarchy of version 2 with controllers is mounted beside those of version 1.
if [ -d /sys/fs/cgroup/memory ] && [ -n "$(cat /sys/fs/cgroup/unified/cgroup.controllers 2>/dev/null)" ]; then
    [ -n "${own_mounts:-}" ] || { cd / && rm -rf "$folder" && own_mounts=1 exec unshare --mount bash "$self" "$build"; }
    umount /sys/fs/cgroup/unified 2>err || skip "control groups of both versions: $(cat err)"
fi
networks=("$name-out" "$name-0" "$name-1")
containers=()
clean() {
    local container
    for container in "${containers[@]}"; do "${container%%:*}" delete --force "${container#*:}" >/dev/null 2>&1; done
    for network in "${networks[@]}"; do ip netns delete "$network" 2>/dev/null; done
    find /sys/fs/cgroup -depth -type d -path "*/$name*" -exec rmdir {} + 2>/dev/null
    cd / && rm -rf "$folder"
}
trap clean EXIT
# A bridge outside, and a cable from it to each pod.
for network in "${networks[@]}"; do ip netns add "$network" 2>err || skip "no network of its own: $(cat err)"; done
ip -n "$name-out" link add bridge type bridge 2>err || skip "no bridge: $(cat err)"
ip -n "$name-out" addr add 10.88.7.254/24 dev bridge && ip -n "$name-out" link set bridge up
for index in 0 1; do
    ip -n "$name-out" link add "pod$index" type veth peer name eth0 netns "$name-$index"
    ip -n "$name-out" link set "pod$index" master bridge up
    ip -n "$name-$index" addr add 10.88.7.$((index + 1))/24 dev eth0
    ip -n "$name-$index" link set eth0 up && ip -n "$name-$index" link set lo up
done

"$root/deploy/image.sh" cpu "$build" layout >log 2>&1 || { cat log; exit 1; }
tail -n 1 log
umoci unpack --image layout:latest unpacked 2>log || { cat log; exit 1; }
# A runtime that cannot start the plainest container here, as inside of another container, is skipped.
able=()
for runtime in "${runtimes[@]}"; do
    mkdir "plain-$runtime"
    (cd "plain-$runtime" && "$runtime" spec && python3 - "$folder/unpacked/rootfs" <<'END'
import json, sys
spec = json.load(open("config.json"))
spec["process"].update(terminal=False, args=["/usr/bin/trimtab", "--version"])
spec["root"] = {"path": sys.argv[1], "readonly": True}
json.dump(spec, open("config.json", "w"))
END
    ) && "$runtime" run --bundle "plain-$runtime" "$name-plain" </dev/null >log 2>&1 && able+=("$runtime") ||
        echo "skipped: $runtime starts no container here: $(tail -n 1 log)"
done
runtimes=("${able[@]}")
[ ${#runtimes[@]} -gt 0 ] || exit 77
blob() { grep -o "\"$1\":{[^}]*\"digest\":\"sha256:[0-9a-f]*" "$2" | sed 's/.*sha256:/layout\/blobs\/sha256\//' | head -n 1; }
manifest=layout/blobs/sha256/$(sed -n 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' layout/index.json)
image=$(blob config "$manifest")
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

# pod RUNTIME OBJECTS INDEX RUN [OPTIONS OF THE BUNDLE]: starts it; its output is in RUN.INDEX, its exit code in RUN.INDEX.code
pod() {
    local runtime=$1 objects=$2 index=$3 run=$4
    shift 4
    mkdir -p "run.$run"
    chown 65532:65532 "run.$run"
    { [ "$objects" != long ] && printf '10.88.7.%d sft-%d.sft\n' 1 0 2 1 || printf '10.88.7.%d sft-node-0-%d.sft\n' 1 0 2 1; } >hosts
    echo '127.0.0.1 localhost' >>hosts
    rm -f "$run.$index" "$run.$index.code"
    python3 "$root/tests/tools/pod_bundle.py" $objects.yaml "bundle.$run.$index" --index "$index" --image "$image" \
        --rootfs "$folder/unpacked/rootfs" --netns "/run/netns/$name-$index" --cgroup "/$name-$run-$index" --hosts "$folder/hosts" \
        --claim models="$folder/models" --claim data="$folder/data" --claim sft-run="$folder/run.$run" \
        --secret sft-secret="$folder/secrets" "${seccomp[@]}" "$@" || { fail "bundle of $run.$index"; return; }
    containers+=("$runtime:$name-$run-$index")
    (
        "$runtime" run --bundle "bundle.$run.$index" "$name-$run-$index" >"$run.$index" 2>&1 </dev/null
        echo $? >"$run.$index.code"
    ) &
}
says() { # RUN.INDEX TEXT
    local i
    for ((i = 0; i < 1200; i++)); do
        grep -qE "$2" "$1" 2>/dev/null && return
        [ ! -s "$1.code" ] || break
        sleep 0.05
    done
    fail "$1 does not say '$2': $(tail -n 3 "$1")"
    return 1
}
ends() { # RUN.INDEX CODE SECONDS
    local until=$((SECONDS + $3))
    until [ -s "$1.code" ] || [ $SECONDS -ge $until ]; do sleep 0.05; done
    [ -s "$1.code" ] || { fail "$1 is there after $3 s: $(tail -n 3 "$1")"; return 1; }
    [ "$(cat "$1.code")" -eq "$2" ] || fail "$1 ends with $(cat "$1.code"), not $2: $(tail -n 4 "$1")"
}
message() { cat "bundle.$1/termination-log"; }
outside() { ip netns exec "$name-out" curl -s -m 5 "$@"; }
# The process of a container, seen by the machine.
process_of() { "$1" state "$name-$2" | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }

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
