#!/bin/bash
# Runs a test with a folder of its own as TMPDIR, which is removed when the last process of the test is gone, even where
# all of them were killed. Below TMPDIR; by default in memory (/dev/shm) where 4 GiB are free, because many tests wait
# for a disk most of the time, or else in /tmp. Where programs cannot be run there (noexec), in the build folder.
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
# The remover is nobody's child, so that who kills the test and its children does not find it. It holds one end of a pipe,
# the processes of the test the other; the end of the pipe is the end of the last of them.
remover='trap "" HUP INT TERM; cat >/dev/null; rm -rf "$0"'
exec 9> >(setsid --fork sh -c "$remover" "$folder" >/dev/null 2>&1)
exec "$@"
