#!/bin/bash
# A detector on fake GPUs that work late (tests/tools/late_gpus.c): batches travel beside the steps, blocks write behind
# their inputs, gradients are reduced while backward runs; the result has the bits of the CPU's, whichever streams or GPUs
# are behind.
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" late_gpus
python3 "$root/examples/detection/make_shapes.py" shapes --train 12 --validation 4 --size 96 --mixed || exit 1

train() {
    local output=$1
    shift
    timeout 300 "$build/trimtab" train --task detection --local-image-dir shapes/images --cache-dir shapes --image-size 96 \
        --backbone_width 16 --backbone_blocks 2 --pyramid_width 32 --batch-size 4 --max_steps 5 --num-workers 2 --threads 1 \
        --bf16 true --save_strategy no --eval_strategy steps --eval_steps 2 --output_dir "$output" "$@" >"$output.said" 2>&1 ||
        fail "$output" "$output.said"
}
# late NAME CPUS GPUS SLOWS options...: on processors (CPUS: their options), and on GPUs with each of SLOWS behind.
late() {
    local name=$1 cpus=$2 gpus=$3 slows=$4 slow
    shift 4
    train "$name-cpu" --backend cpu $cpus "$@"
    for slow in $slows; do
        LATE_SLOW=$slow train "$name-$slow" --backend cuda $gpus "$@" &
    done
    wait
    for slow in $slows; do
        cmp -s "$name-cpu/model.pth" "$name-$slow/model.pth" || fail "$name: other weights with $slow late" "$name-$slow.said"
        [ "$(grep -c "eval_map_50" "$name-$slow.said")" = "$(grep -c "eval_map_50" "$name-cpu.said")" ] ||
            fail "$name: evaluations with $slow late" "$name-$slow.said"
    done
}
train probe --backend cpu --max_steps 1
grep -q "this build has no" probe.said && { echo "skipped: $(grep "this build has no" probe.said)"; exit 77; }
grep -q "step 1/1" probe.said || { echo "FAILED: no step"; exit 1; }

late micro "--ranks 1" "--ranks 1" "compute copy" --accum-steps 2
late again "--ranks 1" "--ranks 1" "compute copy" --accum-steps 2 --recompute block
late norms "--ranks 1" "--ranks 1" "compute copy" --norm batch
late ranks "--ranks 2" "--ranks 2" "compute odd even" --accum-steps 1
late second "--ranks 1" "--ranks 1" "compute copy" --architecture retinanet_resnet50_fpn_v2 --pyramid_width 64
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
