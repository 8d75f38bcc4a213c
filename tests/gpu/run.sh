#!/usr/bin/env bash
# All tests that need GPUs, in a few minutes, from an existing build; the machine needs neither a compiler nor
# trimtab's dependencies (tests/gpu/bundle.sh makes a folder with them).
#
#     tests/gpu/run.sh BUNDLE LOG_FOLDER [part ...]
#
# Parts: ops (each op against its fp64 oracle, with each variant of attention; layers that differ), memcheck
# (compute-sanitizer over the small cases), comm (exchanges and ordered sums between GPUs, two at least), runs (tests/gpu/properties.py), peer (loss
# curves compared with transformers + PEFT, and over NF4 with bitsandbytes, where Python has them). Without parts: all.
# Ends with a table of PASS, FAIL and SKIP with seconds; the exit code is 1 when anything failed.
#
# TT_AT_ONCE=1 runs the parts in parallel, which takes less time, and makes the times of single tests less exact.
# TT_CHECKS_AT_ONCE (4), TT_JOBS (by the processors): numbers of parallel checks and programs of part runs.
# TT_ONLY: words; of that part only checks run whose name holds one of them. TT_BUDGET: seconds after which that part
# begins no further check; the others are SKIP. TT_GPU_LIBRARIES: folders of CUDA libraries to use first; without it
# those of Python's nvidia packages.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,16p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$(cd "$1" && pwd) log=$2
shift 2
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(ops memcheck comm runs peer)
mkdir -p "$log"
log=$(cd "$log" && pwd)
results=$log/results.tsv
: >"$results"

# Python packages have newer libraries than the system.
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
export XDG_CACHE_HOME=$log/cache               # tuned and compiled kernels stay in the log folder
export TT_TEST_DEVICE=cuda TT_REQUIRE=gpu OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

export TT_RUN_SH=$$ # by which programs are found that must end

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
# timed NAME LIMIT COMMAND...: runs the command with its output in a file, and records the result.
timed() {
    local name=$1 limit=$2 file code begin end
    shift 2
    file=$log/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$name").log
    begin=$(date +%s.%N)
    timeout --signal=KILL "$limit" "$@" >"$file" 2>&1 </dev/null
    code=$?
    end=$(date +%s.%N)
    record "$name" "$(awk "BEGIN { printf \"%.1f\", $end - $begin }")" "$code" "$file"
}
ops_tests() {
    find "$bundle" -maxdepth 1 -name 'test_ops_*' -printf '%f\n' | sort
}
# The oracles take most of the time and need processors, so several tests run in parallel.
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
    # The products that this kernel supports depend on the number of processors.
    if nvidia-smi --query-gpu=name --format=csv,noheader | grep -qE 'H200|H100 80GB HBM3'; then
        timed "ops gemm_fused, in one kernel" 200 env TRIMTAB_GEMM_FUSED=require "$bundle/test_ops_gemm_fused" &
    fi
    for test in unit_engine_mixed_model unit_infer_shared_keys; do timed "$test" 200 "$bundle/test_$test" & done
    for test in $(ops_tests); do
        case $test in test_ops_attention*) continue ;; esac
        wait_below "$at_once"
        timed "ops ${test#test_ops_}" 200 "$bundle/$test" &
    done
    wait
}

part_memcheck() {
    local test sanitizer tool
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
    # Kernels whose warps use the same shared memory in turns.
    for tool in racecheck synccheck; do
        wait_below 4
        timed "$tool gemm_dropout" 240 env TT_TEST_SIZES=0 "$sanitizer" --tool $tool --error-exitcode 1 \
            "$bundle/test_ops_gemm_dropout" &
    done
    wait
}

part_comm() {
    timed "comm exchanges and ordered sums" 240 "$bundle/test_unit_comm_gpus"
}

part_runs() {
    local limit=900 more=() words begin=$SECONDS code
    if [ -n "${TT_BUDGET:-}" ]; then limit=$((TT_BUDGET + 120)) more+=(--budget "$TT_BUDGET"); fi
    if [ -n "${TT_JOBS:-}" ]; then more+=(--jobs "$TT_JOBS"); fi
    if [ -n "${TT_ONLY:-}" ]; then
        read -ra words <<<"$TT_ONLY"
        more+=(--only "${words[@]}")
    fi
    timeout --signal=KILL "$limit" python3 "$root/tests/gpu/properties.py" --trimtab "$bundle/trimtab" --out "$log/properties" \
        --results "$results" --checks-at-once "${TT_CHECKS_AT_ONCE:-4}" "${more[@]}" >"$log/properties.log" 2>&1 </dev/null
    code=$?
    cat "$log/properties.log"
    # A program that ends by itself has reported its failures; any other end is a failure.
    if [ $code -ne 0 ] && { [ $code -ne 1 ] || ! grep -q '^FAIL' "$log/properties.log"; }; then
        printf 'exit code %d\n' $code >>"$log/properties.log"
        printf 'FAIL\truns\t%d\t%s\n' $((SECONDS - begin)) "$(tail -n 2 "$log/properties.log" | tr '\t\n' '  ')" >>"$results"
    fi
}

# The Nth GPU from the last: parallel parts leave the first ones to the others.
gpu_from_last() {
    local names count
    IFS=, read -ra names <<<"${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | paste -sd, -)}"
    count=${#names[@]}
    [ "$count" -gt 0 ] || { echo 0; return; }
    echo "${names[$((count >= $1 ? count - $1 : 0))]}"
}
peer_curves() {
    local name=$1 gpu=$2 out=$3
    shift 3
    timed "$name" 200 env CUDA_VISIBLE_DEVICES="$(gpu_from_last "$gpu")" python3 "$root/tests/gpu/peer_curves.py" \
        --trimtab "$bundle/trimtab" --out "$log/$out" "$@"
    grep -E '^(PASS|FAIL) ' "$log/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$name").log"
}
part_peer() {
    peer_curves "curves beside transformers + PEFT" 2 peer &
    [ "${TT_AT_ONCE:-0}" = 1 ] || wait
    peer_curves "curves over NF4 beside bitsandbytes" 1 peer_nf4 --quant nf4 --families llama qwen3 &
    wait
}

# Prints the table at any kind of end, with the results so far.
table() {
    echo
    awk -F '\t' '{
            row = sprintf("%-4s  %7.1f s  %-48s %s", $1, $3, $2, substr($4, 1, 160))
            sub(/ +$/, "", row)
            print row
            count[$1]++
        }
        END { printf "\n%d passed, %d failed, %d skipped\n", count["PASS"], count["FAIL"], count["SKIP"] }' "$results" |
        tee "$log/table.txt"
    ! grep -q '^FAIL' "$results" && grep -q '^PASS' "$results"
}
stopped() {
    trap '' TERM INT
    # Shells of this script are killed first, so that they start nothing more, then programs, some already orphans.
    jobs -p | xargs -r kill -KILL 2>/dev/null
    grep -lsz "^TT_RUN_SH=$$\$" /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r env -u TT_RUN_SH kill -KILL 2>/dev/null
    printf 'FAIL\trun.sh\t%d\tstopped by a signal\n' $SECONDS >>"$results"
    table
    exit 1
}

for part in "${parts[@]}"; do
    case $part in
    ops | memcheck | comm | runs | peer) ;;
    *) echo "error: there is no part '$part'" >&2; exit 2 ;;
    esac
done
trap stopped TERM INT
for part in "${parts[@]}"; do
    "part_$part" &
    [ "${TT_AT_ONCE:-0}" = 1 ] || wait
done
wait
table
