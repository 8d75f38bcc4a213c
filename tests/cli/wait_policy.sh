#!/usr/bin/env bash
# Waiting threads of the program sleep soon, unless the user sets another policy.
set -euo pipefail
trimtab=$1/trimtab
if command -v ldd >/dev/null && ldd "$trimtab" | grep -qE 'libgomp|libomp'; then
    echo "skipped: this build takes the system's OpenMP runtime"
    exit 77
fi
# spin_count [VARIABLE=VALUE]: the spin count that the runtime reports.
spin_count() {
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" "$trimtab" --version 2>&1 |
        sed -n "s/.*GOMP_SPINCOUNT = '\([0-9]*\)'.*/\1/p"
}
expect() {
    [ "$2" = "$3" ] || {
        echo "error: $1: the spin count is $2, expected $3"
        exit 1
    }
}
expect "nothing set" "$(spin_count)" 200
expect "GOMP_SPINCOUNT=77" "$(spin_count GOMP_SPINCOUNT=77)" 77
expect "OMP_WAIT_POLICY=passive" "$(spin_count OMP_WAIT_POLICY=passive)" 0
[ "$(spin_count OMP_WAIT_POLICY=active)" -gt 1000 ] || expect "OMP_WAIT_POLICY=active" "$(spin_count OMP_WAIT_POLICY=active)" "more than 1000"
