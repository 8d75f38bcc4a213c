# Sourced after command_line.sh by tests that start pods of rendered objects in containers of crun and runc, each pod in a
# network of its own, from the image $image_kind (cpu where it is not set); $self is the test, by its whole path. Sets runtimes,
# those that start a container here, and defines pod, says, ends, message, outside and process_of. Skips the test where there
# are none. RUNTIMES="crun runc" chooses.
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

"$root/deploy/image.sh" "${image_kind:-cpu}" "$build" layout >log 2>&1 || { cat log; exit 1; }
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
