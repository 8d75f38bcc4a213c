#!/usr/bin/env bash
# The tests: a release build with all of them, then a build with address and undefined-behaviour sanitizers with the
# unit tests, the fault tests and the tests with hostile input. Installs missing packages (apt, as root or with sudo).
#
#     ./test.sh [--all]
#
# --all: with these sanitizers also golden, property, command line and end-to-end tests, and a build with clang's thread
# sanitizer with those of ranks, savers, communicators and readers (label threads).
#
# Warnings are errors with the compilers that are tested (TT_WERROR=ON: with any, OFF: with none).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
kinds='unit|ops|fault|fuzz' targets=sanitizer_tests threads=false
case ${1-} in
'') ;;
--all) kinds+='|golden|property|cli|e2e' targets=all threads=true ;;
*) sed -n '5p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
tools/install-dependencies.sh test
! $threads || tools/install-dependencies.sh threads

passed=0 failed=0 skipped=0
# attribute FILE NAME: a number of the JUnit file's <testsuite>.
attribute() {
    sed -n "/<testsuite/,/>/s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1
}
# run_tests FOLDER [ctest options]: runs tests and adds up their numbers.
run_tests() {
    local folder=$1 report=$1/junit.xml tests failures skips
    shift
    rm -f "$report"
    # One test more than processors: many wait for a process, a lease or a clock.
    ctest --test-dir "$folder" --output-on-failure --no-tests=error --parallel $(($(nproc) + 1)) \
        --output-junit "$report" "$@" || true
    if [ ! -e "$report" ]; then
        failed=$((failed + 1))
        return
    fi
    tests=$(attribute "$report" tests) failures=$(attribute "$report" failures)
    skips=$(($(attribute "$report" skipped) + $(attribute "$report" disabled)))
    # The reasons of skipped tests, each once: ctest itself shows the output of failures only.
    sed -n 's/^\(skipped: .*\)$/  \1/p' "$folder/Testing/Temporary/LastTest.log" | sort | uniq -c
    passed=$((passed + tests - failures - skips)) failed=$((failed + failures)) skipped=$((skipped + skips))
}

options="-DTT_TESTS=ON -DTT_WERROR=${TT_WERROR:-TESTED}"
tools/build.sh "$root/build" "-DCMAKE_BUILD_TYPE=Release $options"
run_tests "$root/build"

tools/build.sh "$root/build-sanitize" "-DCMAKE_BUILD_TYPE=Debug -DTT_SANITIZE=ON $options" $targets
# Without the demo, its training over 4 bits and the commands of the documentation: they take minutes, and other tests take the
# same paths.
run_tests "$root/build-sanitize" --tests-regex "^($kinds)_" --exclude-regex '^(cli_docs_commands|e2e_demo|e2e_qlora)$'

if $threads; then
    tools/build.sh "$root/build-threads" \
        "-DCMAKE_BUILD_TYPE=Debug -DTT_SANITIZE_THREAD=ON -DCMAKE_C_COMPILER=clang -DTT_WITH_MPI=OFF $options" thread_tests
    run_tests "$root/build-threads" --label-regex '^threads$'
fi

total=$((passed + failed))
printf '\n%d%% tests passed, %d tests failed out of %d\n' $((total > 0 ? 100 * passed / total : 0)) "$failed" "$total"
[ "$skipped" -eq 0 ] || echo "$skipped skipped (the reasons stand above)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$total" -gt 0 ]
