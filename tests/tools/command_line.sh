# Sourced by tests of the command line: $1 is the build folder. Changes to an empty folder of the test, $folder,
# which is removed at its end; sets $trimtab and $root, and defines fail and expect, which count, and finish, a
# test's last line.
build=$(cd "$1" && pwd) || exit 1
trimtab=$build/trimtab
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# expect CODE 'text in the output' words...: a failing command must print exactly one error.
expect() {
    local code=$1 text=$2 got=0
    shift 2
    "$trimtab" "$@" >printed 2>err </dev/null || got=$?
    if [ $got -ne "$code" ] || { [ -n "$text" ] && ! cat printed err | grep -qF -- "$text"; }; then
        fail "trimtab $* -> exit $got (wanted $code), wanted '$text' in:" "$(cat printed err)"
    elif [ "$code" -ne 0 ] && [ "$(grep -c '^error:' err)" -ne 1 ]; then
        fail "trimtab $* -> not one error:" "$(cat err)"
    fi
}
finish() {
    [ $failures -eq 0 ] && echo "all as expected"
    exit $((failures > 0))
}
