#!/usr/bin/env bash
# Tries ./demo.sh and ./test.sh as a new user does: in a fresh clone of this repository on a minimal Debian, one
# release after the other. Needs root, debootstrap and the Debian mirror of this machine's apt.
#
#     tools/bare_machine.sh [-o LOG] [-r "bookworm trixie"] [-c "COMMAND; COMMAND"] [-k]
#
#   -o  file of the report, in Markdown (default: standard output)
#   -r  the releases
#   -c  commands to run in the clone, each timed (default: ./demo.sh; ./test.sh). They run in the root of the clone, so
#       "./demo.sh; ctest --test-dir build -R '^tidy_'" is a quick try
#   -k  keep the folder with the roots, and print its path
# CACHE=folder keeps the minimal roots as archives between calls, so that a later call needs the mirror for packages
# only.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
report=/dev/stdout releases="bookworm trixie" commands="./demo.sh; ./test.sh" keep=
while getopts o:r:c:k option; do
    case $option in
    o) report=$OPTARG ;;
    r) releases=$OPTARG ;;
    c) commands=$OPTARG ;;
    k) keep=1 ;;
    *) exit 2 ;;
    esac
done
export PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || { echo "error: chroot and mount need root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
[ -z "$(git -C "$root" status --porcelain --untracked-files=no)" ] ||
    { echo "error: the clone has what is committed, and there are changes that are not" >&2; exit 1; }
# The first archive in this machine's own sources that is not a security archive.
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list || true; } 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' | sed -n '\#/debian/*$#{p;q}')
[ -n "$mirror" ] || { echo "error: no Debian archive in /etc/apt" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/trimtab-bare.XXXXXX")
machine= # the root that is mounted into
leave() {
    [ -z "$machine" ] || umount -l "$machine/proc" "$machine/sys" "$machine/dev" 2>/dev/null || true
    machine=
}
clean() {
    leave
    if [ -n "$keep" ]; then
        echo "the roots are in $work" >&2
    else
        rm -rf --one-file-system "$work"
    fi
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

# make_root RELEASE FOLDER
make_root() {
    local archive=${CACHE:+$CACHE/$1.tar}
    mkdir -p "$2"
    if [ -n "$archive" ] && [ -e "$archive" ]; then
        tar -C "$2" -xf "$archive"
    else
        debootstrap --variant=minbase "$1" "$2" "$mirror" >"$work/$1.debootstrap" 2>&1 ||
            { tail "$work/$1.debootstrap" | sed "s#$mirror#MIRROR#g" >&2; return 1; }
        [ -z "$archive" ] || { mkdir -p "$CACHE" && tar -C "$2" -cf "$archive.part" . && mv "$archive.part" "$archive"; }
    fi
    cp /etc/resolv.conf /etc/hosts "$2/etc/"
    # This machine's access to its mirror (proxies, dates), without options that clean or install.
    grep -hE '^ *Acquire::' /etc/apt/apt.conf /etc/apt/apt.conf.d/* 2>/dev/null >"$2/etc/apt/apt.conf.d/99-as-outside" || true
}

# inside COMMAND: runs it in the clone, with a bare environment.
inside() {
    chroot "$machine" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash -c "cd /root/trimtab && $1" </dev/null
}

failed=0
{
    echo "## $(date -u +%Y-%m-%d), commit $(git -C "$root" rev-parse --short HEAD)"
    echo
    echo "$(nproc) processors of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), load before: $(cut -d' ' -f1 /proc/loadavg)"
    echo
    echo "| release | gcc | command | seconds | exit | last line |"
    echo "|---|---|---|---|---|---|"
} >"$report"
for release in $releases; do
    echo "$release: a minimal root" >&2
    make_root "$release" "$work/$release"
    machine=$work/$release
    mount -t proc proc "$machine/proc"
    mount --rbind /dev "$machine/dev"
    mount --make-rslave "$machine/dev"
    mount -t sysfs -o ro sysfs "$machine/sys" # Open MPI looks there for processors
    git clone -q --no-hardlinks "$root" "$machine/root/trimtab"
    count=0
    while IFS= read -r command; do
        [ -n "$command" ] || continue
        count=$((count + 1)) status=0 log=$work/$release.$count.log
        echo "$release: $command" >&2
        started=$(date +%s.%N)
        inside "$command" >"$log" 2>&1 || status=$?
        seconds=$(awk "BEGIN { printf \"%.0f\", $(date +%s.%N) - $started }")
        gcc=$(inside "gcc -dumpfullversion" 2>/dev/null || echo "none")
        echo "| $release | $gcc | \`$command\` | $seconds | $status | \`$(tail -n 1 "$log" | cut -c 1-200)\` |" >>"$report"
        if [ $status -ne 0 ]; then
            failed=1
            tail -n 40 "$log" >&2
        fi
        grep -E '^ +[0-9]+ +skipped: |The following tests FAILED|^ +[0-9]+ - ' "$log" | sort -u | sed "s/^ */    /" >>"$work/$release.notes" || true
    done < <(tr ';' '\n' <<<"$commands" | sed 's/^ *//; s/ *$//')
    leave
done
{
    for release in $releases; do
        [ -s "$work/$release.notes" ] || continue
        printf '\nSkipped on %s:\n\n' "$release"
        cat "$work/$release.notes"
    done
} >>"$report"
exit $failed
