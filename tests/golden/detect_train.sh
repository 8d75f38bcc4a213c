#!/bin/bash
# A training of a detector from files, against torchvision's (tests/golden/detect/make_train.py): the losses of every
# step, the precision of the result, and the same on two ranks, in two micro steps, and resumed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
example=$root/examples/detection
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$example"/make_shapes.py shapes --train 8 --validation 6 --size 96 --mixed || exit 1
python3 "$example"/make_weights.py start.pth --width 8 --pyramid 16 || exit 1
probe=$("$trimtab" detect --weights-path start.pth --local-image-dir shapes/images --evaluate false --image-size 96 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

command=(train --task detection --local_image_dir shapes/images --annotations shapes/coco/train.json
    --eval_annotations shapes/coco/validation.json --weights_path start.pth --image_size 96 --max_image_size 160
    --trainable_layers 5 --hflip 0 --bf16 false --use_cpu --threads 1 --learning_rate 0.02 --momentum 0.9
    --weight_decay 1e-4 --lr_scheduler_type constant --num_train_epochs 8 --eval_strategy no --save_steps 3
    --save_strategy steps --logging_steps 1 --score_threshold 0)
cat >compare.py <<'END'
import json
import sys

wanted = json.load(open(sys.argv[1]))
tolerance = float(sys.argv[3])
rows = [r for r in map(json.loads, open(sys.argv[2] + "/metrics.jsonl")) if "classification" in r]
rows = {r["step"]: r for r in rows}
assert sorted(rows) == list(range(1, len(wanted["steps"]) + 1)), sorted(rows)
for number, step in enumerate(wanted["steps"], 1):
    for name, value in step.items():
        off = abs(rows[number][name] - value) / value
        assert off <= tolerance, f"step {number}: {name} is {rows[number][name]}, of torchvision {value}"
END
golden=$root/tests/golden/detect/train.json
expect 0 "8 steps, 1 an epoch" "${command[@]}" --per_device_train_batch_size 8 --output_dir one
python3 compare.py "$golden" one 1e-4 || fail "one rank"
expect 0 "on 2 ranks" "${command[@]}" --per_device_train_batch_size 4 --output_dir two --ranks 2
python3 compare.py "$golden" two 1e-4 || fail "two ranks"
expect 0 "on 3 ranks" "${command[@]}" --per_device_train_batch_size 3 --output_dir three --ranks 3 \
    --sharding_strategy FULL_SHARD --optim sgd
python3 compare.py "$golden" three 1e-4 || fail "three ranks that share 8 images unevenly"

expect 0 "recompute block" "${command[@]}" --per_device_train_batch_size 8 --output_dir less --recompute block
cmp one/model.safetensors less/model.safetensors || fail "recomputing changes the weights"

cp -r two again && rm -r again/checkpoint-6 again/checkpoint-8 again/completion.json # as if it had been killed
expect 0 "step 3 of 8 is done" "${command[@]}" --per_device_train_batch_size 4 --output_dir again --ranks 2 \
    --resume_from_checkpoint true --overwrite_output_dir
cmp two/model.safetensors again/model.safetensors || fail "a resumed run has other weights"

expect 0 '"map_50"' eval --task detection --weights_path one/model.pth --local_image_dir shapes/images \
    --eval_annotations shapes/coco/validation.json --image_size 96 --max_image_size 160 --bf16 false --use_cpu --threads 1 \
    --score_threshold 0 --json
cp printed result.json
python3 - "$golden" <<'END' || fail "the precision is not pycocotools': $(cat result.json)"
import json
import sys

names = "map map_50 map_75 map_small map_medium map_large mar_1 mar_10 mar_100 mar_small mar_medium mar_large".split()
ours, wanted = json.load(open("result.json")), json.load(open(sys.argv[1]))["stats"]
for name, value in zip(names, wanted):
    assert abs(ours[name] - value) <= 1e-3, f"{name} is {ours[name]}, of pycocotools {value}"
END
finish
