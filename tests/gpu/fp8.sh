#!/usr/bin/env bash
# FP8 on GPUs, in one call of at most ten minutes: the ops against plain code, then steps of 8 and 11 billion parameters
# with gate and up kept as computed and in E4M3 (docs/fp8.md), beside bfloat16 and PyTorch in FP8.
#
#     tests/gpu/fp8.sh BUNDLE LOG_FOLDER
#
# BUNDLE is a folder of tests/gpu/bundle.sh. The cases beside PyTorch need torch, transformers and peft and are left out
# without them. The cases of 11 billion need two GPUs. TT_BUDGET (540): seconds after which no further step
# begins; each has its own limit. Ends with a summary; the exit code is 1 when a test or a case failed.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '2,11p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$(cd "$1" && pwd) budget=${TT_BUDGET:-540} failed=0
mkdir -p "$2"
log=$(cd "$2" && pwd)
libraries=${TT_GPU_LIBRARIES:-$(python3 -c 'import glob, nvidia
print(":".join(sorted(path for root in nvidia.__path__ for path in glob.glob(root + "/*/lib"))))' 2>/dev/null)}
export LD_LIBRARY_PATH=$bundle/lib${libraries:+:$libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TRIMTAB_CUDA_PLUGIN=$bundle/libtrimtab_cuda.so XDG_CACHE_HOME=$log/cache
export TT_TEST_DEVICE=cuda TT_REQUIRE=gpu OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
: >"$log/summary.txt"

# The oracles need processors, so the tests run side by side.
ops=(lora_gradients image norm_rows rmsnorm rope swiglu_rows swiglu gemm_scaled gemm_fused quant round_groups)
for test in "${ops[@]}"; do
    (
        code=0
        timeout --signal=KILL 150 "$bundle/test_ops_$test" >"$log/$test.log" 2>&1 </dev/null || code=$?
        echo "$code" >"$log/$test.code"
    ) &
done
wait
for test in "${ops[@]}"; do
    code=$(cat "$log/$test.code")
    if [ "$code" = 0 ]; then
        echo "PASS ops $test"
    else
        failed=1
        echo "FAIL ops $test, exit code $code: $(grep -m 1 -E '^ERROR|\[ *(ERROR|FAILED)' "$log/$test.log" | cut -c1-300)"
    fi
done | tee -a "$log/summary.txt"
grep -q '^FAIL' "$log/summary.txt" && failed=1

cases=(l8b-e4m3 l8b-fp8-own l8b-fp8-head l8b-nf4-fp8 l8b-e4m3-4)
! python3 -c 'import torch, transformers, peft' 2>/dev/null || cases=(l8b-e4m3 l8b-fp8 l8b-fp8-own l8b-fp8-head l8b-nf4-fp8 l8b-e4m3-4 l8b-fp8-4)
[ "$(nvidia-smi --list-gpus | wc -l)" -lt 2 ] || cases+=(m11b-e4m3 m11b-fp8-own)
env CUDA_DEVICE_ORDER=PCI_BUS_ID TRIMTAB="$bundle/trimtab" PYTHON=python3 OUT="$log/steps" "$root/bench/peers/run_gpu.sh" \
    --budget $((budget - SECONDS)) --limit 90 --steps 8 --warmup 3 "${cases[@]}" 2>&1 | tee "$log/steps.log"
grep -qE '(trimtab|peer): (failed|not run)' "$log/steps.log" && failed=1
grep -q '^case ' "$log/steps.log" || failed=1

echo
echo "== time by op of a step, ms"
for name in l8b-e4m3 m11b-e4m3; do
    for side in trimtab peer; do
        [ -s "$log/steps/$name.$side.json" ] || continue
        python3 - "$log/steps/$name.$side.json" "$name $side" <<'END'
import json
import sys

row = json.loads(open(sys.argv[1]).read().splitlines()[-1])
ops = sorted(row.get("seconds_by_op", {}).items(), key=lambda item: -item[1])[:12]
print(f"{sys.argv[2]}: " + ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in ops))
END
    done
done
echo
cat "$log/summary.txt"
sed -n '/^case /,$p' "$log/steps.log"
exit $failed
