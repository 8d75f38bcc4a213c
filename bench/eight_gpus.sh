#!/usr/bin/env bash
# A host of eight GPUs, measured in one go: ceilings of its links, training steps of dense models and of mixtures on one
# GPU, two, four and all, beside PyTorch's FSDP2, and the checks of runs on all of them, among them one that goes on
# with half as many. It prints each table as it comes, and all of them once more at the end.
#
#     bench/eight_gpus.sh BUNDLE LOGS [GPUS]
#
# BUNDLE: a folder that tests/gpu/bundle.sh made. GPUS (8): the largest number; powers of two below it come first.
# TT_STAGES="links dense large mixtures checks": the stages to run; no case and no check begins after TT_SECONDS (540)
# of its stage. TT_CHECKS: the words that choose the checks, with commas between them. TT_SHAPES=tiny TT_DEVICE=cpu
# tries the script without GPUs.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 2 ] || { sed -n '2,14p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$(cd "$1" && pwd) gpus=${3:-8}
mkdir -p "$2"
logs=$(cd "$2" && pwd)
device=${TT_DEVICE:-cuda} seconds=${TT_SECONDS:-540}
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where hosts are shared
[ "$device" = cpu ] || export TRIMTAB_CUDA_PLUGIN=$bundle/libtrimtab_cuda.so
failures=0

# dense, large, mixture: the cases of bench/scaling.py of a stage.
dense() { echo "11b-bf16:$1 11b-fp8:$1"; }
large="70b-fp8:threads:fp8_gate_up=e4m3 70b-fp8:processes"
mixtures="30b-bf16:alone 30b-bf16:threads 30b-fp8:threads 119b-bf16:threads"
if [ "${TT_SHAPES:-}" = tiny ]; then
    dense() { echo "tiny-bf16:$1"; }
    large=tiny-bf16:processes mixtures=tiny-bf16:threads
fi
scaling() {
    local name=$1 count=$2
    shift 2
    python3 "$root/bench/scaling.py" --trimtab "$bundle/trimtab" --device "$device" --gpus "$count" \
        --budget "$seconds" --out "$logs/$name" "$@" 2>&1 | tee "$logs/$name.txt"
    grep -q tokens_per_second "$logs/$name/scaling.json" || failures=$((failures + 1))
}
links() {
    [ "$device" = cpu ] && return
    "$bundle/bench_comm" gpus 2>&1 | tee "$logs/links.txt"
}
run_dense() {
    local count=1 cases
    while [ "$count" -le "$gpus" ]; do
        cases="$(dense alone) $(dense threads)"
        [ "$count" -eq "$gpus" ] && cases+=" $(dense processes) $(dense threads:sharding_strategy=HYBRID_SHARD)"
        [ "$count" -gt 1 ] && [ "$device" = cuda ] && cases+=" 11b-bf16:fsdp2"
        # shellcheck disable=SC2086
        scaling "dense$count" "$count" $cases
        count=$((2 * count))
    done
}
checks() {
    local words
    IFS=, read -ra words <<<"${TT_CHECKS:-ranks $gpus,to $device ranks,a process for each,threads and of processes}"
    python3 "$root/tests/gpu/properties.py" --trimtab "$bundle/trimtab" --device "$device" --gpus "$gpus" \
        --out "$logs/checks" --budget "$seconds" --only "${words[@]}" 2>&1 | tee "$logs/checks.txt"
    ! grep -q '^FAIL' "$logs/checks.txt" || failures=$((failures + 1))
}

for stage in ${TT_STAGES:-links dense large mixtures checks}; do
    printf '\n== %s\n' "$stage"
    # shellcheck disable=SC2086
    case $stage in
    links) links ;;
    dense) run_dense ;;
    large) scaling large "$gpus" $large ;;
    mixtures) scaling mixtures "$gpus" $mixtures ;;
    checks) checks ;;
    *) echo "error: there is no stage '$stage'" >&2; exit 2 ;;
    esac
done
printf '\n== all tables\n'
for table in "$logs"/*.txt; do
    printf '\n%s\n' "$(basename "$table" .txt)"
    case $table in
    */checks.txt) cut -f 1 "$table" | sort | uniq -c ;;
    */links.txt) tail -n 40 "$table" ;;
    *) sed -n '/tokens\/s/,$p' "$table" ;;
    esac
done
exit $((failures > 0))
