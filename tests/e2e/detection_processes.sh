#!/bin/bash
# A user's command for two machines, with torchrun's variables: RetinaNet on images in Open Images' layout, two processes,
# stopped and resumed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
example=$root/examples/detection
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$example"/make_shapes.py openimages --train 20 --validation 10 --size 160 --mixed || exit 1
python3 "$example"/make_weights.py retinanet_resnet50_fpn_coco.pth --width 8 --pyramid 16 --classes 91 || exit 1
probe=$("$trimtab" detect --weights-path retinanet_resnet50_fpn_coco.pth --local-image-dir openimages/images \
    --evaluate false --image-size 64 --max-val 1 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

port=$((20000 + $$ % 12000))
# both LOG words...: the command in two processes, as torchrun starts them.
both() {
    local log=$1 rank pids=()
    shift
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            TORCHELASTIC_RUN_ID=none "$trimtab" "$@" >"$log$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    wait "${pids[0]}" && wait "${pids[1]}" || fail "$*: $(cat "$log"0 "$log"1)"
}
command=(train --task detection --batch-size 16 --accum-steps 1 --image-size 320 --max-train 16 --backend cpu --num-workers 8
    --debug-freq 10 --max-val 8 --epochs 2 --weights-path retinanet_resnet50_fpn_coco.pth --local-image-dir openimages/images
    --cache-dir openimages)
both log "${command[@]}" --logging_first_step --threads 1
grep -q "2 steps, 1 an epoch, on 2 ranks (tcp, NO_SHARD)" log0 || fail "not two ranks: $(cat log0)"
grep -q "training data: 16 images" log0 || fail "not 16 images: $(cat log0)"
grep -qE "^step 1/2 +loss [0-9.]+.* num_images 16 " log0 || fail "no row of step 1: $(cat log0)"
[ "$(grep -c "eval_map_50" log0)" -eq 2 ] || fail "not two evaluations: $(cat log0)"
grep -q "rank 1 of 2: training is complete, 2 steps" log1 || fail "the other process: $(cat log1)"
grep -q "^step" log1 && fail "both processes print rows"
cp -r trainer_output whole
rm -r trainer_output/checkpoint-2 trainer_output/completion.json # as if it had been killed
both again "${command[@]}" --threads 1 --resume_from_checkpoint true --overwrite_output_dir
grep -q "step 1 of 2 is done" again0 || fail "not resumed: $(cat again0)"
cmp whole/model.pth trainer_output/model.pth || fail "a resumed run has other weights"

# Machines with other boxes are found out before the first step.
cp -r openimages other
sed -i 's/,0[.]2/,0.3/' other/oidv6-train-annotations-bbox.csv
for rank in 0 1; do
    folder=openimages && [ $rank = 1 ] && folder=other
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 7)) \
        "$trimtab" "${command[@]}" --local-image-dir $folder/images --cache-dir $folder --output_dir differs \
        >differs$rank 2>&1 </dev/null &
done
wait
grep -q "the images and boxes of the training data" differs0 differs1 || fail "not noticed: $(cat differs0 differs1)"
finish
