#!/bin/bash
# The image of deploy/image.sh: its contents, the same digest twice, and the program in it as a pod runs it: uid 65532
# without a passwd entry, a read-only root, no HOME, a small /dev/shm, only the pod's mounts. Needs umoci and, to run,
# root and mount namespaces. `image.sh BUILD gpu` by hand tries the image with the GPU plugin, as far as it can
# without a GPU; tests/gpu/packages.sh does with one.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
kind=${2:-cpu}
command -v umoci >/dev/null || { echo "skipped: there is no umoci"; exit 77; }
[ -x "$build/portable/trimtab" ] || { echo "skipped: a build with sanitizers has no portable program"; exit 77; }
sum() { sed -n "s/.*$kind \(sha256:[0-9a-f]*\) \([0-9]*\) bytes.*/\\$1/p" made; }
"$root/deploy/image.sh" "$kind" "$build" one >made 2>log || { cat log; exit 1; }
cat made
if [ "$kind" = cpu ]; then
    first=$(sum 1)
    umask 077 # what the files are called from must not matter
    TZ=Asia/Tokyo LC_ALL=C "$root/deploy/image.sh" "$kind" "$build" two second >made 2>log || { cat log; exit 1; }
    umask 022
    [ -n "$first" ] && [ "$first" = "$(sum 1)" ] || fail "two digests: $first and $(sum 1)"
    [ "$(sum 2)" -le 7000000 ] || fail "the image has $(sum 2) bytes, and was promised to have 7 MB"
fi
"$root/deploy/image.sh" "$kind" "$build" one >said 2>&1 && fail "an existing folder is overwritten"
grep -q 'one exists' said || fail "an existing folder: $(cat said)"

# NVIDIA's libraries are a layer of their own, the same for every version of the program. Here they are small files under
# their names, which the loader can read.
layers() {
    sed -n 's/.*"manifests":\[{[^}]*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' "$1/index.json" | xargs -I{} cat "$1/blobs/sha256/{}" |
        grep -o '"layers":.*' | grep -o 'sha256:[0-9a-f]*' | cut -d: -f2
}
if [ "$kind" = cpu ] && [ -e "$build/libtrimtab_cuda.so" ]; then
    mkdir nvidia
    beside=$(ldd "$build/libtrimtab_cuda.so" | sed -n 's/.*=> \(.*\)\/libcublasLt\..*/\1/p')
    # shellcheck disable=SC2016
    bash -c 'source "$0" && nvidia_libraries "$1"' "$root/deploy/closure.sh" "$beside" | while read -r path; do
        cp -L "$(gcc -print-file-name=libgcc_s.so.1)" "nvidia/${path##*/}"
    done
    for time in 1 2; do
        SOURCE_DATE_EPOCH=$time CUDA_LIBRARIES=$folder/nvidia "$root/deploy/image.sh" gpu "$build" gpu$time >said 2>&1 ||
            fail "an image for GPUs: $(cat said)"
        layers gpu$time >layers$time
    done
    [ "$(wc -l <layers1)" = 2 ] && [ "$(comm -12 <(sort layers1) <(sort layers2))" = "$(head -n 1 layers1)" ] ||
        fail "the first layer changes with the second: $(cat layers1 layers2)"
    tar -tzf "gpu1/blobs/sha256/$(head -n 1 layers1)" | sed -n 's#.*/\(lib[^/]*\.so.*\)#\1#p' >listed
    diff <(sort listed) <(find nvidia -type f -printf '%f\n' | sort) || fail "other libraries in the first layer"
    if /sbin/ldconfig -p | grep -q 'libcurl\.so\.4 ' && [ -s /etc/ssl/certs/ca-certificates.crt ]; then
        SOURCE_DATE_EPOCH=1 CUDA_LIBRARIES=$folder/nvidia "$root/deploy/image.sh" gpu-net "$build" gpu_net >said 2>&1 ||
            fail "an image for GPUs with libcurl: $(cat said)"
        layers gpu_net >layers3
        [ "$(wc -l <layers3)" = 3 ] && [ "$(head -n 1 layers3)" = "$(head -n 1 layers1)" ] || fail "the layers: $(cat layers1 layers3)"
        tar -tzf "gpu_net/blobs/sha256/$(sed -n 2p layers3)" | grep -q '/libcurl\.so\.4$' || fail "no libcurl for GPUs"
    fi
    "$root/deploy/image.sh" gpu-base "$build" base >said 2>&1 || fail "an image without NVIDIA's libraries: $(cat said)"
    tar -tzf "base/blobs/sha256/$(layers base)" >listed || fail "not one layer: $(layers base)"
    grep -q '/libtrimtab_cuda\.so$' listed && grep -q '/libstdc++\.so\.6$' listed || fail "no plugin, or no libstdc++: $(cat listed)"
    ! grep -E 'lib(cublas|cudnn|nccl|nvrtc)' listed || fail "libraries of NVIDIA"
    rm -f nvidia/libnccl.so.2
    "$root/deploy/nvidia.sh" nvidia some >said 2>&1 && fail "a missing library is no error"
    grep -q 'error: libnccl' said || fail "a missing library: $(cat said)"
else
    echo "skipped: images for GPUs: a build without the plugin"
fi

umoci unpack --rootless --image one:latest bundle 2>log || { cat log; exit 1; }
tree=$folder/bundle/rootfs
[ -z "$(find "$tree" -perm /6000)" ] || fail "setuid files: $(find "$tree" -perm /6000)"
others=$(find "$tree" -type f -perm /111 -not -name 'ld-linux*' -not -path '*/usr/bin/trimtab')
[ -z "$others" ] || fail "programs besides trimtab: $others"
[ -z "$(find "$tree" -type f -newermt '@'"$(($(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s) + 1))")" ] || fail "files have the time of the build"
# The paths of the machine that built it.
! grep -rlF -e "$root" -e "$build" "$tree" >found || fail "the name of the build's folder is in $(cat found)"
umoci stat --image one:latest --json >stat || fail "umoci stat"
"$(command -v python3 || echo true)" - "$tree" "$folder" "$kind" <<'END' || fail "configuration or bill of materials"
import json, os, sys
tree, folder, kind = sys.argv[1:]
def blob(digest):
    return json.load(open(os.path.join(folder, "one/blobs", *digest.split(":"))))
manifest = blob(json.load(open(os.path.join(folder, "one/index.json")))["manifests"][0]["digest"])
config = blob(manifest["config"]["digest"])
assert config["config"]["User"] == "65532:65532", config
assert config["config"]["Entrypoint"] == ["/usr/bin/trimtab"] and not config["config"].get("Cmd"), config
labels = config["config"]["Labels"]
assert all(labels["org.opencontainers.image." + name] for name in ("source", "revision", "licenses", "version")), labels
assert ("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in config["config"].get("Env", [])) == (kind == "gpu"), config
bill = json.load(open(os.path.join(tree, "usr/share/doc/trimtab/sbom.spdx.json")))
names = {package["name"] for package in bill["packages"]}
assert {"trimtab", "libc6", "libyaml-0-2", "libgcc-s1"} <= names, names
assert ("libcublasLt.so.13" in names or "libcublasLt.so.12" in names) == (kind == "gpu"), names
identifiers = [package["SPDXID"] for package in bill["packages"]]
assert len(set(identifiers)) == len(identifiers), identifiers
for name in names:
    own = os.path.join(tree, "usr/share/doc", name, "copyright")
    assert name == "trimtab" or ".so" in name or os.path.getsize(own) > 0, own
END

if command -v skopeo >/dev/null; then # a registry gets the same manifest, so the digest holds there
    skopeo --insecure-policy copy -q --preserve-digests oci:one:latest dir:pushed >log 2>&1 || fail "skopeo copy: $(cat log)"
    grep -qF "$(sha256sum pushed/manifest.json | cut -d' ' -f1)" one/index.json || fail "copying changes the digest"
fi

if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
    echo "skipped: the program in the image: neither root nor mount namespaces"
    finish
fi
mkdir -p "$tree"/{models,data,run/trimtab,dev/shm} volume
chown 65532:65532 volume
# What a container runtime gives a pod: devices, a small /dev/shm, its own hosts file, its volumes.
cat >pod.sh <<'END'
set -e
tree=$1 root=$2 volume=$3 without=$4
shift 4
mount --bind "$tree" "$tree"
mount -t tmpfs -o mode=755 devices "$tree/dev"
for name in null zero random urandom; do
    : >"$tree/dev/$name"
    mount --bind "/dev/$name" "$tree/dev/$name"
done
mkdir "$tree/dev/shm"
mount -t tmpfs -o size=64m,mode=1777 shm "$tree/dev/shm"
mount --bind /proc "$tree/proc"
mount -t tmpfs -o size=64m,mode=1777 tmp "$tree/tmp"
echo "127.0.0.1 sft-0.sft" >hosts
: >"$tree/etc/hosts"
mount --bind hosts "$tree/etc/hosts"
[ "$without" = models ] || mount --bind -o ro "$root/examples/demo/model" "$tree/models"
mount --bind -o ro "$root/examples/demo/data" "$tree/data"
[ "$without" = volume ] || mount --bind "$volume" "$tree/run/trimtab"
mount -o remount,ro,bind "$tree"
exec env ${LIBS:+LD_DEBUG=libs} /usr/sbin/chroot --userspec=65532:65532 "$tree" /usr/bin/trimtab "$@"
END
# in_pod WITHOUT words...: the program in the image, without one of the mounts.
in_pod() {
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin ${LIBS:+LIBS=1} \
        unshare --mount --propagation private bash pod.sh "$tree" "$root" "$folder/volume" "$@" </dev/null
}
# pod CODE 'TEXT' WITHOUT words...: it ends with this code and prints the text.
pod() {
    local code=$1 text=$2 got=0
    shift 2
    (in_pod "$@") >said 2>err || got=$?
    [ $got -eq "$code" ] || fail "in the image: $* -> exit $got (wanted $code): $(tail -n 5 err)"
    cat said err | grep -qF -- "$text" || fail "in the image: $* -> without '$text': $(tail -n 5 said err)"
}
train=(train --model_name_or_path /models --dataset_name /data/train.jsonl --max_length 128
    --per_device_train_batch_size 2 --lora_target_modules all-linear)
pod 0 "trimtab $("$trimtab" --version | cut -d' ' -f2)" none version
pod 0 "in host memory" none plan --model_name_or_path /models --max_length 128
pod 2 "there is no setting 'nonsense'" none train --nonsense 1
pod 3 "/models" models "${train[@]}" --output_dir /run/trimtab/out
pod 3 "cannot create folder '/run/trimtab/out': Read-only file system" volume "${train[@]}" --output_dir /run/trimtab/out
grep -q 'hint: .*mount a writable volume' err || fail "no hint about the missing volume: $(cat err)"
[ "$kind" = cpu ] || pod 10 "no GPU can be used" none "${train[@]}" --output_dir /run/trimtab/out --device cuda

# Names are resolved and threads end without a library that is opened at run time and not there.
LIBS=1
port=$((20000 + $$ % 12000))
for rank in 0 1; do
    (in_pod none "${train[@]}" --max_steps 2 --output_dir /run/trimtab/two --device cpu --threads 2 --ranks 1 \
        --num_machines 2 --machine_rank $rank --main_process_ip sft-0.sft --main_process_port $port --rendezvous_timeout 30) >said.$rank 2>err.$rank &
done
for job in $(jobs -p); do wait "$job" || fail "a process of two ended with $?: $(grep -h ^error: err.?)"; done
unset LIBS
grep -q '^step 2/2' err.0 || grep -q '^step 2/2' said.0 || fail "no step of two processes: $(grep -v '^ *[0-9]*:' err.0 | tail -n 5)"
for rank in 0 1; do
    sed -n 's/.*find library=\([^ ]*\) .*/\1/p' err.$rank | sort -u >searched
    sed -n 's/.*calling init: .*\/\([^/]*\)$/\1/p' err.$rank | sort -u >opened
    missing=$(comm -23 searched opened | grep -vE '^lib(selinux|cap|nss_)')
    [ -z "$missing" ] || fail "libraries that are not in the image: $missing"
    grep -qx libgcc_s.so.1 opened || fail "rank $rank opened nothing at run time: the test sees too little"
done
[ "$(stat -c %u volume/two/adapter_model.safetensors)" = 65532 ] || fail "the result belongs to another user"

# Stopped by SIGTERM, as the first process of a pod is.
(in_pod none "${train[@]}" --max_steps 100000 --output_dir /run/trimtab/stopped --device cpu --logging_steps 1) >said 2>err &
for _ in $(seq 200); do
    ! grep -q '^step' said err || break
    sleep 0.1
done
kill -TERM $!
code=0
wait $! || code=$?
[ $code -eq 11 ] || fail "after SIGTERM: exit $code: $(tail -n 3 err)"
compgen -G 'volume/stopped/checkpoint-*' >where || fail "SIGTERM left no checkpoint"
finish
