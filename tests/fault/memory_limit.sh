#!/bin/bash
# A run that needs more than the memory limit of its control group is refused before it allocates, and is not killed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

name=trimtab-test-$$ group=
for file in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; do
    candidate=$(dirname $file)/$name
    mkdir "$candidate" 2>/dev/null || continue
    if (echo 256M >"$candidate/$(basename $file)") 2>/dev/null; then
        group=$candidate
        break
    fi
    rmdir "$candidate"
done
if [ -z "$group" ]; then
    echo "skipped: this user cannot make a control group with a memory limit"
    exit 77
fi
trap 'rmdir "$group"; rm -rf "$folder"' EXIT
run_in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"); }
if ! run_in_group grep -q "/$name\$" /proc/self/cgroup; then
    echo "skipped: /proc/self/cgroup does not show the group"
    exit 77
fi

bench=(bench train --config_json "$root/bench/shapes/q05b.json" --device cpu --ranks 2 --threads 1)
code=0
run_in_group "$trimtab" "${bench[@]}" >said 2>&1 || code=$?
[ $code -eq 4 ] || fail "exit code $code, not 4: $(cat said)"
grep -q 'of host memory for 2 ranks on this machine, the limit of its control group is 256 MiB' said ||
    fail "another message: $(cat said)"
grep -q 'resources.limits.memory' said || fail "another hint: $(cat said)"
# What fits runs.
run_in_group "$trimtab" bench train --config_json "$root/bench/shapes/tiny.json" --device cpu --threads 1 --sequence_length 64 \
    >said 2>&1 || fail "a small run: $(cat said)"
finish
