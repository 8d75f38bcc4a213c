#!/bin/bash
# Runs a test with a folder of its own as TMPDIR. The folder is removed when the last process of the test has ended, even
# if all were killed. It is below TMPDIR; by default in memory (/dev/shm) where 4 GiB are free, because many tests wait
# for a disk most of the time, or else in /tmp. Where programs cannot run there (noexec), it is in the build folder.
#
#     own_folder.sh BUILD COMMAND...
build=$1
shift
make_folder() {
    folder=$(mktemp -d "$1/trimtab-test.XXXXXX") && printf '#!/bin/sh\n' >"$folder/run" && chmod +x "$folder/run" &&
        "$folder/run" 2>/dev/null && rm "$folder/run" && return 0
    [ -z "$folder" ] || rm -rf "$folder"
    return 1
}
parent=${TMPDIR:-/tmp}
if [ -z "$TMPDIR" ] && [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    free=$(df --output=avail -k /dev/shm | tail -n 1)
    [ "$free" -lt $((4 << 20)) ] || parent=/dev/shm
fi
for place in "$parent" "${TMPDIR:-/tmp}" "$build/tests/tmp"; do
    folder=
    [ "$place" != "$build/tests/tmp" ] || mkdir -p "$place"
    make_folder "$place" && break
done
[ -n "$folder" ] && [ -d "$folder" ] || exit 1
export TMPDIR=$folder
# The remover is not a child of the test, so that killing the test and its children does not reach it. It has one
# end of a pipe and the processes of the test have the other; the pipe closes when the last of them has ended.
remover='trap "" HUP INT TERM; cat >/dev/null; rm -rf "$0"'
exec 9> >(setsid --fork sh -c "$remover" "$folder" >/dev/null 2>&1)
# No test asks the hub, but those that have one of their own.
export HF_HUB_OFFLINE=1
exec "$@"
