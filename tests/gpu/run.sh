#!/usr/bin/env bash
# All tests that need GPUs, in a few minutes, from what is already built; the machine needs neither a compiler nor our
# dependencies (tests/gpu/bundle.sh makes a folder that holds them).
#
#     tests/gpu/run.sh BUNDLE LOG_FOLDER [part ...]
#
# Parts: ops (each op against its fp64 oracle, with each variant of attention), memcheck (compute-sanitizer over the small
# cases), runs (tests/gpu/properties.py), peer (loss curves beside transformers + PEFT, where Python has them). Without parts:
# all. Ends with a table of PASS, FAIL and SKIP with seconds; the exit code is 1 when anything failed.
#
# TT_AT_ONCE=1 runs the parts side by side, for machines that are lent by the minute.
# TT_GPU_LIBRARIES: folders of CUDA libraries to use first; without it those that Python's nvidia packages bring.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,13p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$(cd "$1" && pwd) log=$2
shift 2
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(ops memcheck runs peer)
mkdir -p "$log"
log=$(cd "$log" && pwd)
results=$log/results.tsv
: >"$results"

# Newer libraries than the system's come with Python packages.
python_libraries() {
    python3 - 2>/dev/null <<'END'
import glob, nvidia
print(":".join(sorted(path for root in nvidia.__path__ for path in glob.glob(root + "/*/lib"))))
END
}
libraries=${TT_GPU_LIBRARIES:-$(python_libraries)}
export LD_LIBRARY_PATH=$bundle/lib${libraries:+:$libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TRIMTAB_CUDA_PLUGIN=$bundle/libtrimtab_cuda.so
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where hosts are shared
export XDG_CACHE_HOME=$log/cache               # what is tuned and compiled here stays here
export TT_TEST_DEVICE=cuda TT_REQUIRE=gpu OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# record NAME SECONDS CODE LOG: one row. The detail is the first failure, or the reason of a skip.
record() {
    local status=PASS detail
    detail=$(tail -n 1 "$4" | tr '\t' ' ' | cut -c1-200)
    case $3 in
    0) detail= ;;
    77) status=SKIP ;;
    124 | 137) status=FAIL detail="took longer than allowed" ;;
    *) status=FAIL detail=$(grep -m 1 -E '^ERROR: |^FAIL |Invalid|[eE]rror:|TT_REQUIRE|=+ +ERROR SUMMARY' "$4" | tr '\t' ' ' | cut -c1-300) ;;
    esac
    printf '%s\t%s\t%s\t%s\n' "$status" "$1" "$2" "${detail:-}" >>"$results"
    printf '%s\t%s\t%s\n' "$status" "$1" "$2"
}
# timed NAME LIMIT COMMAND...: runs it with its output in a file of its own, and records it.
timed() {
    local name=$1 limit=$2 file code begin end
    shift 2
    file=$log/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$name").log
    begin=$(date +%s.%N)
    timeout --kill-after=5 "$limit" "$@" >"$file" 2>&1 </dev/null
    code=$?
    end=$(date +%s.%N)
    record "$name" "$(awk "BEGIN { printf \"%.1f\", $end - $begin }")" "$code" "$file"
}
ops_tests() {
    find "$bundle" -maxdepth 1 -name 'test_ops_*' -printf '%f\n' | sort
}
# The oracles are the slow part and need processors, so several tests run at a time.
wait_below() {
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n || true; done
}

part_ops() {
    local test at_once=$(($(nproc) / 2))
    [ "$at_once" -ge 1 ] || at_once=1
    [ "$at_once" -le 8 ] || at_once=8
    for test in attention attention_sizes; do
        for variant in auto own cudnn; do
            timed "ops $test, $variant" 200 env TRIMTAB_ATTENTION=$variant "$bundle/test_ops_$test" &
            wait_below "$at_once"
        done
    done
    timed "ops attention, deterministic" 200 env TRIMTAB_DETERMINISTIC=1 "$bundle/test_ops_attention" &
    timed "ops gemm, tuned" 200 env TRIMTAB_GEMM_TUNE=1 TT_TEST_SIZES=0 "$bundle/test_ops_gemm" &
    for test in $(ops_tests); do
        case $test in test_ops_attention*) continue ;; esac
        wait_below "$at_once"
        timed "ops ${test#test_ops_}" 200 "$bundle/$test" &
    done
    wait
}

part_memcheck() {
    local test sanitizer
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
    if [ -z "$sanitizer" ]; then
        printf 'SKIP\tmemcheck\t0.0\tthere is no compute-sanitizer\n' | tee -a "$results"
        return
    fi
    for test in $(ops_tests); do
        wait_below 4
        timed "memcheck ${test#test_ops_}" 240 env TT_TEST_SIZES=0 TRIMTAB_ATTENTION=own \
            "$sanitizer" --tool memcheck --error-exitcode 1 --leak-check no "$bundle/$test" &
    done
    wait
}

part_runs() {
    python3 "$root/tests/gpu/properties.py" --trimtab "$bundle/trimtab" --out "$log/properties" >"$log/properties.log" 2>&1
    local code=$?
    cat "$log/properties.log"
    cat "$log/properties/results.tsv" >>"$results" 2>/dev/null
    if ! grep -q . "$log/properties/results.tsv" 2>/dev/null; then
        printf 'FAIL\truns\t0.0\t%s (exit code %d)\n' "$(tail -n 1 "$log/properties.log")" "$code" >>"$results"
    fi
}

part_peer() {
    timed "curves beside transformers + PEFT" 300 python3 "$root/tests/gpu/peer_curves.py" --trimtab "$bundle/trimtab" \
        --out "$log/peer"
    cat "$log/curves_beside_transformers___PEFT.log"
}

rm -f "$log/properties/results.tsv"
for part in "${parts[@]}"; do
    case $part in
    ops | memcheck | runs | peer) ;;
    *) echo "error: there is no part '$part'" >&2; exit 2 ;;
    esac
done
for part in "${parts[@]}"; do
    if [ "${TT_AT_ONCE:-0}" = 1 ]; then
        "part_$part" &
    else
        "part_$part"
    fi
done
wait

echo
awk -F '\t' '{ printf "%-4s  %7.1f s  %-48s %s\n", $1, $3, $2, substr($4, 1, 160); count[$1]++ }
    END { printf "\n%d passed, %d failed, %d skipped\n", count["PASS"], count["FAIL"], count["SKIP"] }' "$results" |
    tee "$log/table.txt"
! grep -q '^FAIL' "$results" && grep -q '^PASS' "$results"
