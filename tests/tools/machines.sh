# Sourced by tests with machines of their own, as far as one kernel can have several: network, name and mount namespaces
# with a disk each. $1 is the build folder. Sets $build, $root and $folder, which is removed at the end with all processes
# in `machines` and `started`; defines fail, machine and in_machine. Skips the test (77) where that is not possible.
build=$(cd "$1" && pwd) || exit 1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ "$(id -u)" -ne 0 ]; then
    unshare --user --map-root-user true 2>/dev/null || { echo "skipped: neither root nor a user namespace makes networks"; exit 77; }
    exec unshare --user --map-root-user bash "$0" "$@"
fi
for program in ip unshare nsenter; do
    command -v $program >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
folder=$(mktemp -d)
failures=0 machines=() started=()
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
finish() {
    [ ${#started[@]} -eq 0 ] || kill -KILL "${started[@]}" 2>/dev/null
    [ ${#machines[@]} -eq 0 ] || kill -KILL "${machines[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
}
trap finish EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIMTAB_NODE TRIMTAB_JOB_SECRET TRIMTAB_JOB_SECRET_FILE
mkdir "$folder/disk" # a disk of each machine is mounted there

# machine NAME [COMMANDS]: sets $made to its process, after COMMANDS there, whose $1 is NAME, $2 $folder and $3 $root.
machine() {
    unshare --net --uts --mount sh -c 'hostname "$1" && mount -t tmpfs disk "$2/disk" && ip link set lo up && eval "$4" &&
        touch "$2/up.$1" && exec setpriv --pdeathsig KILL sleep 1800' sh "$1" "$folder" "$root" "${2:-true}" >"$folder/made.$1" 2>&1 &
    made=$!
    machines+=("$made")
    for ((i = 0; i < 1000; i++)); do
        [ -e "$folder/up.$1" ] && return
        kill -0 $made 2>/dev/null || break
        sleep 0.02
    done
    echo "skipped: a machine of its own cannot be made: $(tail -1 "$folder/made.$1")"
    exit 77
}
# in_machine PROCESS COMMAND...
in_machine() { nsenter --target "$1" --net --uts --mount "${@:2}"; }
