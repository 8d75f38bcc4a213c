#!/bin/bash
# The limits of control groups of both versions, in trees of files that a mount namespace shows the program in place of
# /sys/fs/cgroup and /proc/self/cgroup: what doctor measures, and which limit a run is refused by.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unshare --mount true 2>err || { echo "skipped: no mount namespace here: $(head -1 err)"; exit 77; }
skip() { echo "skipped: $*"; exit 77; }

# within TREE COMMAND...: the tree's file `cgroup` is that of the process
within() {
    # shellcheck disable=SC2016
    timeout 30 unshare --mount sh -c 'mount --bind "$0" /sys/fs/cgroup && mount --bind "$0/cgroup" /proc/$$/cgroup && exec "$@"' "$@"
}
put() { # TREE FILE TEXT
    mkdir -p "$(dirname "$1/$2")" && printf '%s\n' "$3" >"$1/$2"
}
put try cgroup "0::/here"
within try cat /proc/self/cgroup >said 2>err || skip "no such mounts: $(head -1 err)"
[ "$(cat said)" = "0::/here" ] || skip "the mounts have no effect"

# limits TREE PROCESSORS MEMORY PIDS: of two ranks
limits() {
    within "$1" "$trimtab" doctor --threads 1 --device cpu --output_dir "$folder/out" --json >said 2>err || fail "$1: doctor ends with $?: $(cat err)"
    local key wanted got
    for key in processors:"$2" memory_bytes:"$3" processes:"$4"; do
        wanted=${key#*:} key=${key%:*}
        got=$(sed -nE "s/^ +\"$key\": ([0-9]+).*/\1/p" said | head -1)
        [ -z "$wanted" ] || [ "$got" = "$wanted" ] || fail "$1: $key is $got, not $wanted"
    done
}
# refused TREE TEXT: a run that needs 2.6 GiB
refused() {
    local code=0
    within "$1" "$trimtab" bench train --config_json "$root/bench/shapes/q05b.json" --device cpu --ranks 2 --threads 1 >said 2>&1 ||
        code=$?
    [ $code -eq 4 ] || fail "$1: ends with $code, not 4: $(tail -3 said)"
    grep -q "the limit of its control group is $2" said || fail "$1: not $2: $(tail -3 said)"
    grep -q 'resources.limits.memory' said || fail "$1: another hint: $(tail -3 said)"
}

# A pod of version 2 with a control group namespace: its own group is the root.
put pod cgroup "0::/"
put pod memory.max 536870912
put pod cpu.max "100000 100000"
put pod pids.max 300
limits pod 1 536870912 300
refused pod "512 MiB"

# The same without a namespace: the smallest limit of all groups, wherever it is.
put nested cgroup "0::/kubepods.slice/pod7.slice/cri-9.scope"
put nested kubepods.slice/memory.max max
put nested kubepods.slice/cpu.max "max 100000"
put nested kubepods.slice/pod7.slice/memory.max 268435456
put nested kubepods.slice/pod7.slice/cpu.max "50000 100000"
put nested kubepods.slice/pod7.slice/cri-9.scope/memory.max 1073741824
put nested kubepods.slice/pod7.slice/cri-9.scope/memory.high max
put nested kubepods.slice/pod7.slice/cri-9.scope/cpu.max "200000 100000"
put nested kubepods.slice/pod7.slice/cri-9.scope/pids.max max
put nested kubepods.slice/pids.max 400
limits nested 1 268435456 400
refused nested "256 MiB"
put nested kubepods.slice/pod7.slice/cri-9.scope/memory.high 134217728
limits nested 1 134217728 400
refused nested "128 MiB"

# No limit: the machine's.
put free cgroup "0::/user.slice"
for name in memory.max memory.high pids.max; do put free user.slice/$name max; done
put free user.slice/cpu.max "max 100000"
limits free "$(nproc)" "$(($(sed -nE 's/^MemTotal: +([0-9]+) kB/\1/p' /proc/meminfo) * 1024))" 0

# Version 1, with and without the group's path in the mounts; the pod's limit is in memory.stat only.
put old cgroup "$(printf '%s\n' 9:pids:/job 4:memory:/job 3:cpu,cpuacct:/job 2:cpuset:/job 1:name=systemd:/job)"
put old memory/job/memory.limit_in_bytes 805306368
put old memory/memory.limit_in_bytes 9223372036854771712
put old cpu,cpuacct/job/cpu.cfs_quota_us 100000
put old cpu,cpuacct/job/cpu.cfs_period_us 100000
put old pids/job/pids.max 500
limits old 1 805306368 500
refused old "768 MiB"
put container cgroup "$(printf '%s\n' 4:memory:/kubepods/pod7/9 3:cpu,cpuacct:/kubepods/pod7/9)"
put container memory/memory.limit_in_bytes 805306368
put container memory/memory.stat "$(printf '%s\n' 'cache 0' 'hierarchical_memory_limit 402653184')"
put container cpu,cpuacct/cpu.cfs_quota_us -1
put container cpu,cpuacct/cpu.cfs_period_us 100000
limits container "$(nproc)" 402653184 0
refused container "384 MiB"

# Both versions: memory of version 2 is beside the others, in `unified`.
put both cgroup "$(printf '%s\n' 3:cpu:/job 0::/job)"
put both unified/job/memory.max 536870912
put both cpu/job/cpu.cfs_quota_us 100000
put both cpu/job/cpu.cfs_period_us 100000
limits both 1 536870912 0
refused both "512 MiB"
finish
