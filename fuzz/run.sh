#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs them, each from its corpus. Prints a line for each: executions,
# executions per second of processor time, coverage (edges, features), files of the grown corpus, and findings.
#
#     fuzz/run.sh [--runs N] [--seconds N] [--jobs N] [TARGET...]
#
# A target ends after N executions or N seconds, whichever comes first (0: no limit; default: 60 seconds). Grown
# corpora stay in build-fuzz/corpus, inputs that crash in build-fuzz/findings. A line "words: FILE_OR_FOLDER..." in
# a target's source names sources whose literals are its dictionary. BUILD is the build folder, CC the compiler.
# Exit code 1: a target failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$root/build-fuzz} runs=0 seconds=60 jobs=1 targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --runs | --seconds | --jobs)
        [ $# -ge 2 ] || { sed -n '5p' "${BASH_SOURCE[0]}" >&2; exit 2; }
        declare "${1#--}=$2"
        shift
        ;;
    -*) sed -n '5p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    *) targets+=("$1") ;;
    esac
    shift
done
if [ ${#targets[@]} -eq 0 ]; then
    for source in "$root"/fuzz/*.c; do
        name=$(basename "$source" .c)
        [ "$name" = replay ] || targets+=("$name")
    done
fi
compiler=${CC:-clang}
command -v "$compiler" >/dev/null || { echo "error: no $compiler; libFuzzer comes with clang (Debian: clang, libclang-rt-dev, libomp-dev)" >&2; exit 1; }
options="-DTT_FUZZ=ON -DCMAKE_C_COMPILER=$compiler -DTT_WITH_MPI=OFF -DTT_TESTS=OFF -DTT_WERROR=${TT_WERROR:-TESTED}"
"$root/tools/build.sh" "$build" "$options -DCMAKE_BUILD_TYPE=Release" "${targets[@]/#/fuzz_}"
mkdir -p "$build/corpus" "$build/findings" "$build/logs" "$build/words"

# collect_words NAME: prints the dictionary of a target; nothing if it names no sources.
collect_words() {
    local sources
    read -ra sources < <(sed -n 's|^/\* words: \(.*\) \*/$|\1|p' "$root/fuzz/$1.c") || return 0
    # A file without literals is no failure (1); one that is not there is (2).
    { (cd "$root" && grep -rohE --include='*.c' '"[[:alnum:]_.:<>-]{2,40}"' "${sources[@]}") || [ $? -eq 1 ]; } | sort -u
}

# run_target NAME: runs it and prints its line.
run_target() {
    local name=$1 log=$build/logs/$1.log verdict=ok
    local limits=(-timeout=25 -rss_limit_mb=4096 -print_final_stats=1)
    [ "$runs" -eq 0 ] || limits+=("-runs=$runs")
    [ "$seconds" -eq 0 ] || limits+=("-max_total_time=$seconds")
    mkdir -p "$build/corpus/$name"
    collect_words "$name" >"$build/words/$name"
    [ ! -s "$build/words/$name" ] || limits+=("-dict=$build/words/$name")
    TIMEFORMAT='cpu %U %S'
    { time "$build/fuzz/fuzz_$name" "${limits[@]}" "-artifact_prefix=$build/findings/$name-" "$build/corpus/$name" \
        "$root/fuzz/corpus/$name" >"$log" 2>&1 || verdict=FAILED; } 2>"$log.cpu"
    awk -v name="$name" -v verdict="$verdict" '
        /^cpu / { cpu = $2 + $3 }
        /stat::number_of_executed_units/ { executed = $2 }
        / cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "ft:") features = $(i + 1)
                       if ($i == "corp:") { split($(i + 1), parts, "/"); files = parts[1] } } }
        END { printf "%-18s %12d %10.0f %7d %8d %7d  %s\n", name, executed, (cpu > 0 ? executed / cpu : 0), edges, features, files, verdict }' \
        "$log" "$log.cpu"
    [ "$verdict" = ok ] || tail -n 30 "$log" >&2
    [ "$verdict" = ok ]
}
export -f collect_words run_target
export root build runs seconds
printf '%-18s %12s %10s %7s %8s %7s\n' target executions "a second" edges features corpus
# shellcheck disable=SC2016 # the inner shell expands it
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$jobs" bash -euo pipefail -c 'run_target "$0"'
