#!/usr/bin/env bash
# The Python wheel and the container image on GPUs, as their users run them, on a machine without network, compiler and
# trimtab's build; as root for the image.
#
#     tests/gpu/packages.sh WHEEL IMAGE LOG_FOLDER
#
# WHEEL: of packaging/wheel.sh. IMAGE: the OCI layout of deploy/image.sh gpu-base. NVIDIA's libraries are those of this
# machine's Python packages (nvidia/*/lib): they are put beside the wheel's package, where pip puts what the extra `cuda`
# names, and, by deploy/nvidia.sh, into the tree of the image. That tree is then the root of a pod: user 65532, read-only but
# for /tmp, /dev/shm and the output folder, with the devices and the driver's libraries that NVIDIA's toolkit would mount;
# where mounts are not allowed, a folder with copies, which is not read-only.
#
# TT_LIMIT: seconds for each training (60). Ends with a table of PASS, FAIL and SKIP; the exit code is 1 when anything
# failed.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 3 ] || { sed -n '2,16p' "${BASH_SOURCE[0]}" >&2; exit 2; }
wheel=$(realpath "$1") image=$(realpath "$2") log=$3 limit=${TT_LIMIT:-60}
mkdir -p "$log"
log=$(cd "$log" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$log/packages.tsv
: >"$table"
model=$root/examples/demo/model data=$root/examples/demo/data
python=$(command -v python3)
nvidia=$("$python" -c 'import os, nvidia; print(os.path.realpath(list(nvidia.__path__)[0]))') ||
    { echo "error: Python has no package nvidia"; exit 2; }
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)
train=(train --dataset_name "$data/train.jsonl" --model_name_or_path "$model" --max_length 128 --per_device_train_batch_size 2
    --max_steps 4 --logging_steps 1 --save_strategy no --device cuda)
# A model whose heads cuDNN's attention takes.
heads=(bench train --config_json "$root/bench/shapes/l30m.json" --device cuda --sequence_length 256 --per_device_train_batch_size 2
    --steps 2 --warmup 1 --ranks 1 --attention cudnn)

# row NAME STATUS SECONDS DETAIL
row() { printf '%s\t%s\t%s\t%s\n' "$2" "$1" "$3" "$4" | tee -a "$table"; }
# try NAME 'PATTERN that its output must have, or empty' COMMAND...
try() {
    local name=$1 pattern=$2 file code=0 begin
    shift 2
    file=$log/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$name").log begin=$(date +%s)
    timeout --signal=KILL "$limit" "$@" >"$file" 2>&1 </dev/null || code=$?
    if [ $code -ne 0 ]; then
        row "$name" FAIL $(($(date +%s) - begin)) "exit $code: $(grep -m 1 -iE '^error' "$file" || tail -n 1 "$file")"
    elif [ -n "$pattern" ] && ! grep -qE -- "$pattern" "$file"; then
        row "$name" FAIL $(($(date +%s) - begin)) "no '$pattern' in $file"
    else
        row "$name" PASS $(($(date +%s) - begin)) "$(grep -E -- "${pattern:-^}" "$file" | tail -n 1 | cut -c1-120)"
    fi
}

# is NAME VALUE WANTED
is() {
    if [ "$2" = "$3" ]; then row "$1" PASS 0 "$2"; else row "$1" FAIL 0 "'$2', not '$3'"; fi
}

# ---- The wheel ----
environment=$work/environment
if "$python" -m venv "$environment" >"$log/venv.log" 2>&1; then
    pip=("$environment/bin/python" -m pip)
else # without ensurepip: pip of the machine, into a folder of its own
    "$python" -m venv --without-pip "$environment" >>"$log/venv.log" 2>&1
    pip=("$python" -m pip --python "$environment/bin/python")
fi
try "wheel: pip install" "Successfully installed trimtab" "${pip[@]}" install --no-index --disable-pip-version-check "$wheel"
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ln -s "$nvidia" "$site/nvidia"
mkdir -p "$work/cache"
clean=(env -i PATH="$environment/bin:/usr/bin:/bin" XDG_CACHE_HOME="$work/cache" NCCL_NVLS_ENABLE=0)
installed=("${clean[@]}" "$environment/bin/trimtab")
try "wheel: version" "^trimtab [0-9]" "${installed[@]}" --version
try "wheel: 4 steps on a GPU" "^step 4/4" "${installed[@]}" "${train[@]}" --ranks 1 --output_dir "$work/wheel1"
try "wheel: cuDNN's attention" '"tokens_per_second"' "${installed[@]}" "${heads[@]}"
# Which files the loader opened.
"${clean[@]}" LD_DEBUG=libs "$environment/bin/trimtab" "${heads[@]}" >"$log/opened.log" 2>&1 </dev/null
for name in libcublasLt libcudnn; do
    file=$(sed -n "s/.*calling init: \(.*\/$name\.so[^ ]*\)$/\1/p" "$log/opened.log" | head -n 1)
    case $(realpath "$file" 2>/dev/null) in
    "$(realpath "$nvidia")"/*) row "wheel: $name beside the package" PASS 0 "$file" ;;
    *) row "wheel: $name beside the package" FAIL 0 "'$file' was opened" ;;
    esac
done
if [ "$gpus" -ge 2 ]; then
    try "wheel: 4 steps on two GPUs" "^step 4/4" "${installed[@]}" "${train[@]}" --ranks 2 --output_dir "$work/wheel2"
    # Two processes: NCCL.
    cat >"$work/processes.sh" <<'END'
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
shift
RANK=1 LOCAL_RANK=1 "$@" >/dev/null 2>&1 &
RANK=0 LOCAL_RANK=0 "$@"
code=$?
wait $! && exit $code
END
    try "wheel: two processes over NCCL" "^step 4/4" "${clean[@]}" /bin/bash "$work/processes.sh" $((20000 + RANDOM % 10000)) \
        "$environment/bin/trimtab" "${train[@]}" --output_dir "$work/wheel3"
else
    row "wheel: two GPUs" SKIP 0 "there is one GPU"
fi

# ---- The image ----
tree=$work/tree
libdir=$tree/usr/lib/$(uname -m)-linux-gnu
mkdir -p "$tree"
"$python" - "$image" "$tree" "$work/config" <<'END' || { row "image: unpacked" FAIL 0 "see above"; exit 1; }
import json, pathlib, subprocess, sys
layout, tree, config = (pathlib.Path(word) for word in sys.argv[1:])
def blob(digest):
    return layout / "blobs" / digest.replace(":", "/")
manifest = json.loads(blob(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]).read_text())
for layer in manifest["layers"]:
    subprocess.run(["tar", "-C", tree, "-xzf", blob(layer["digest"])], check=True)
settings = json.loads(blob(manifest["config"]["digest"]).read_text())["config"]
config.write_text("\n".join([settings["User"], settings["Entrypoint"][0], *settings.get("Env", [])]) + "\n")
END
read -r user <"$work/config"
entry=$(sed -n 2p "$work/config")
mapfile -t variables < <(sed -n '3,$p' "$work/config")
folders=$(find "$nvidia" -mindepth 2 -maxdepth 2 -name lib | paste -sd:)
try "image: NVIDIA's libraries" "" "$root/deploy/nvidia.sh" "$folders" "$libdir"
# The driver's, where NVIDIA's toolkit mounts them: beside the other libraries.
driver=$(ldconfig -p | sed -n 's/^\tlibcuda\.so\.1 (.*x86-64.* => \(.*\)$/\1/p' | head -n 1)
[ -n "$driver" ] || driver=$(find /usr/local/nvidia /usr/lib /usr/lib64 -name libcuda.so.1 2>/dev/null | head -n 1)
for name in cuda nvidia-ml nvidia-ptxjitcompiler nvidia-nvvm nvidia-gpucomp; do
    for file in "$(dirname "$driver")/lib$name".so.*; do [ ! -e "$file" ] || cp -L "$file" "$libdir/"; done
done
mkdir -p "$tree"/{models,data,run/trimtab,dev/shm} "$work/volume"
chown 65532:65532 "$work/volume"
cat >"$work/pod.sh" <<'END'
set -e
tree=$1 model=$2 data=$3 volume=$4 user=$5
shift 5
mount --bind "$tree" "$tree"
mount -t tmpfs -o mode=755 devices "$tree/dev"
for path in /dev/null /dev/zero /dev/random /dev/urandom /dev/nvidia*; do
    [ -c "$path" ] || continue
    : >"$tree$path"
    mount --bind "$path" "$tree$path"
done
mkdir "$tree/dev/shm"
mount -t tmpfs -o size=1g,mode=1777 shm "$tree/dev/shm"
mount --rbind /proc "$tree/proc"
mount --rbind -o ro /sys "$tree/sys"
mount -t tmpfs -o size=1g,mode=1777 tmp "$tree/tmp"
mount --bind -o ro "$model" "$tree/models"
mount --bind -o ro "$data" "$tree/data"
mount --bind "$volume" "$tree/run/trimtab"
mount -o remount,ro,bind "$tree"
exec chroot --userspec="$user" "$tree" "$@"
END
pod=(unshare --mount --propagation private bash "$work/pod.sh" "$tree" "$model" "$data" "$work/volume" "$user" "$entry")
if ! unshare --mount --propagation private mount --bind "$tree" "$tree" 2>"$log/mount.log"; then
    row "image: read-only root" SKIP 0 "no mounts here: $(tail -n 1 "$log/mount.log")"
    cp -r "$model/." "$tree/models/"
    cp -r "$data/." "$tree/data/"
    for path in /dev/null /dev/zero /dev/random /dev/urandom /dev/nvidia*; do
        [ ! -c "$path" ] || cp -a "$path" "$tree$path" 2>>"$log/mount.log"
    done
    chmod 1777 "$tree/dev/shm" "$tree/tmp"
    chown 65532:65532 "$tree/run/trimtab"
    pod=(chroot --userspec="$user" "$tree" "$entry")
fi
in_pod=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin XDG_CACHE_HOME=/tmp/cache NCCL_NVLS_ENABLE=0 "${variables[@]}" "${pod[@]}")
is "image: user" "$user" 65532:65532
try "image: version" "^trimtab [0-9]" "${in_pod[@]}" version
inside=(train --dataset_name /data/train.jsonl --model_name_or_path /models "${train[@]:5}")
try "image: 4 steps on a GPU" "^step 4/4" "${in_pod[@]}" "${inside[@]}" --ranks 1 --output_dir /run/trimtab/one
[ "$gpus" -lt 2 ] || try "image: 4 steps on two GPUs" "^step 4/4" "${in_pod[@]}" "${inside[@]}" --ranks 2 --output_dir /run/trimtab/two
cp "$root/bench/shapes/l30m.json" "$work/volume/"
try "image: cuDNN's attention" '"tokens_per_second"' "${in_pod[@]}" "${heads[@]/"$root/bench/shapes"//run/trimtab}"
try "image: doctor" "^gpus " "${in_pod[@]}" doctor --device cuda --output_dir /run/trimtab/doctor
owner=$(stat -c %u "$work/volume/one/adapter_model.safetensors" "$tree/run/trimtab/one/adapter_model.safetensors" 2>/dev/null | head -n 1)
is "image: owner of the result" "$owner" 65532

echo
awk -F '\t' '{ printf "%-4s %4d s  %-36s %s\n", $1, $3, $2, $4; count[$1]++ }
    END { printf "\n%d passed, %d failed, %d skipped\n", count["PASS"], count["FAIL"], count["SKIP"] }' "$table"
! grep -q '^FAIL' "$table"
