#!/usr/bin/env bash
# Installs what is missing, builds, and runs the whole test suite: once as released, then the parts that meet raw memory
# and hostile bytes again under the address and undefined-behaviour sanitizers. About 10 minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")"
jobs=$(nproc)

tools/install-dependencies.sh --test

build() { # folder, cmake options
    local folder=$1 log
    shift
    log=$(mktemp)
    if ! { cmake -S . -B "$folder" -G Ninja "$@" && ninja -C "$folder" -j "$jobs"; } >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "error: the build in $folder failed; the whole log is $log" >&2
        exit 1
    fi
    rm -f "$log"
}

# Runs ctest in $1 with the rest as options; leaves its closing lines on the terminal and counts in $passed and $failed.
passed=0 failed=0 skipped=0
run_tests() {
    local folder=$1 log line status=0
    shift
    log=$(mktemp)
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || status=$?
    # "98% tests passed, 2 tests failed out of 100"
    line=$(grep -E 'tests passed, [0-9]+ tests failed out of [0-9]+' "$log" || true)
    local bad total left
    bad=$(sed -E 's/.*, ([0-9]+) tests failed.*/\1/' <<<"$line")
    total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$line")
    left=$(grep -cE '\*\*\*Skipped' "$log" || true)
    rm -f "$log"
    [ -n "$total" ] || { echo "error: ctest ran nothing in $folder" >&2; exit 1; }
    passed=$((passed + total - bad - left)) failed=$((failed + bad)) skipped=$((skipped + left))
    return "$status"
}

status=0
echo "== released build"
build build
run_tests build || status=1

echo "== sanitizers"
build build-sanitize -DTT_SANITIZE=ON -DTT_WITH_MPI=OFF
export OMP_NUM_THREADS=2 ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
run_tests build-sanitize -R '^(unit|fuzz|fault|ops)_' || status=1

echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
