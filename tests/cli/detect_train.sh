#!/bin/bash
# train and eval --task detection: the names of a user's command, files of the result, resuming, ranks, wrong input.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root"/examples/detection/make_shapes.py openimages --train 10 --validation 5 --size 64 --mixed || exit 1
python3 "$root"/examples/detection/make_weights.py few.pth --classes 3 --width 4 --pyramid 8 || exit 1
weights=$root/tests/golden/detect/retinanet/weights.pth
probe=$("$trimtab" detect --weights-path "$weights" --local-image-dir openimages/images --evaluate false --image-size 64 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

command=(train --task detection --batch-size 3 --accum-steps 1 --image-size 64 --max-train 8 --backend cpu
    --num-workers 2 --debug-freq 1 --max-val 4 --weights-path "$weights" --local-image-dir openimages/images
    --cache-dir openimages --bf16 false --threads 1 --score_threshold 0)
expect 0 "epoch 2" "${command[@]}" --epochs 2 --output_dir out
grep -qF "training data: 8 images" err || fail "no report of the data: $(cat err)"
grep -qF "last convolution begins with random weights for 3" err || fail "no report of the classifier: $(cat err)"
grep -qE "classification [0-9.]+ +bbox_regression [0-9.]+ +num_images 3 +images_per_second" err || fail "no losses: $(cat err)"
grep -qE "eval_loss [0-9.]+.* eval_map_50 " err || fail "no precision: $(cat err)"
grep -qF '"eval_map": ' out/metrics.jsonl || fail "no precision in metrics.jsonl"
for file in model.pth model.safetensors config.json classes.csv; do
    [ -s out/$file ] && [ -s out/checkpoint-3/$file ] || fail "no $file"
done
grep -q "^/m/shape01,Circle" out/classes.csv || fail "other classes: $(cat out/classes.csv)"

# A run that ends after one epoch and goes on has the bits of one that never stopped.
expect 0 "" "${command[@]}" --epochs 2 --output_dir half
rm -r half/checkpoint-6 half/completion.json # as if it had been killed
expect 0 "resuming from half/checkpoint-3: step 3 of 6" "${command[@]}" --epochs 2 --output_dir half \
    --resume_from_checkpoint true --overwrite_output_dir --num-workers 5
cmp out/model.safetensors half/model.safetensors || fail "resumed weights differ"
cmp out/model.pth half/model.pth || fail "resumed weights differ for torch"
cmp out/checkpoint-6/training_state.safetensors half/checkpoint-6/training_state.safetensors || fail "moments differ"
expect 2 "image_size was 64 and is 96" "${command[@]}" --epochs 2 --output_dir half --resume_from_checkpoint true \
    --overwrite_output_dir --image-size 96

# What a run says of itself counts images.
expect 0 " images/s, " profile out
grep -qi 'token\|rows' printed && fail "the profile of a detection has tokens or rows: $(cat printed)"
for key in images_per_second eval_map; do
    "$trimtab" plot out --output out.html >/dev/null && grep -q "\"$key\":{\"steps\"" out.html || fail "no curve of $key"
done
grep -q '"tokens_per_second":{' out.html && fail "the dashboard of a detection has tokens"
expect 0 '"images_per_second": ' "${command[@]}" --epochs 1 --output_dir json --log_format json
grep -q 'tokens_per_second' err && fail "a JSON log has tokens: $(cat err)"

# Ranks share the images of a step, also where one has none, and the precision is that of one.
expect 0 "on 3 ranks" "${command[@]}" --epochs 2 --output_dir ranks --ranks 3 --batch-size 1 --hflip 0
expect 0 "on 2 ranks (threads, FULL_SHARD)" "${command[@]}" --epochs 1 --output_dir shards --ranks 2 --batch-size 2 \
    --sharding_strategy FULL_SHARD
grep -q '"images_per_second"' shards/ranks/rank-1.jsonl && ! grep -q tokens shards/ranks/rank-1.jsonl ||
    fail "rows of rank 1: $(head -n 1 shards/ranks/rank-1.jsonl)"

# The evaluation of the result says what the training said, on any number of ranks.
evaluate=(eval --task detection --local-image-dir openimages/images --cache-dir openimages --image-size 64 --max-val 4
    --bf16 false --threads 1 --score_threshold 0 --weights-path out/model.pth)
expect 0 '"bbox_regression"' "${evaluate[@]}" --json
cp printed one.json
expect 0 '"bbox_regression"' "${evaluate[@]}" --json --ranks 3
[ "$(sed 's/"seconds": [^,]*//' one.json)" = "$(sed 's/"seconds": [^,]*//' printed)" ] ||
    fail "three ranks: $(cat printed), one: $(cat one.json)"
python3 - <<'END' || fail "the evaluation is not that of the training"
import json
row = [r for r in map(json.loads, open("out/metrics.jsonl")) if "eval_map" in r][-1]
alone = json.load(open("one.json"))
assert alone["images"] == 4 and alone["map_50"] > 0, alone
assert all(abs(alone[k] - row["eval_" + k]) <= 1e-6 for k in ("loss", "classification", "map", "map_50", "mar_100"))
END
expect 0 "images          4" "${evaluate[@]}"
expect 2 "setting 'weights_path' is missing" eval --task detection --local-image-dir openimages/images
expect 3 "does not find as many" "${evaluate[@]}" --weights-path few.pth

# A plan needs no images; it has the largest canvas of any.
expect 0 "recompute cheap" plan --task detection --device cpu --image-size 64 --batch-size 2 --weights-path "$weights"
expect 0 "trainable_params" plan --task detection --device cpu --ranks 2 --json
expect 0 "recompute block" plan --task detection --device cpu --image-size 320 --device_memory 2GiB --batch-size 16 \
    --weights-path few.pth --recompute block

# A training of the largest batch that fits runs under the limit, the next one is refused before it starts.
limit=(--image-size 64 --max_image_size 64 --device_memory $((1400 + 17 * 1024))KiB --weights-path "$weights" --bf16 false --threads 1)
expect 0 "the largest that fits" plan --task detection --device cpu --max batch "${limit[@]}" --num_classes 4
most=$(sed -nE 's/^the largest that fits: --per_device_train_batch_size ([0-9]+);.*/\1/p' printed)
[ "${most:-0}" -gt 1 ] && [ "$most" -lt 10 ] || fail "the largest batch is '$most': the limit is not a useful one"
largest=(train --task detection --local-image-dir openimages/images --cache-dir openimages "${limit[@]}" --use_cpu --max_steps 1
    --save_strategy no --report_to none)
expect 0 "done: 1 step" "${largest[@]}" --batch-size "$most" --output_dir most
expect 4 "this run needs" "${largest[@]}" --batch-size $((most + 1)) --output_dir more
expect 0 "45 x 12 x 3 x 3" plan --task detection --units --weights-path "$weights"
expect 0 "2367 x 256" plan --task detection --units --num_classes 263
expect 2 "which is the background alone" plan --task detection --num_classes 1
expect 2 "num_classes is given, and the task is language" plan --config_json "$root"/bench/shapes/tiny.json --num_classes 4
expect 2 "a detector generates no text" plan --task detection --generation_length 5

# Without a list of classes labels are numbered as they come: those of the training count, also to `detect`.
mkdir named && cp -r openimages/images named/images
for split in oidv6-train validation; do cp openimages/$split-annotations-bbox.csv named/; done
(head -n 1 named/oidv6-train-annotations-bbox.csv && tail -n +2 named/oidv6-train-annotations-bbox.csv | sort -t , -k 3,3r) >sorted
mv sorted named/oidv6-train-annotations-bbox.csv
expect 0 "epoch 1" "${command[@]}" --epochs 1 --local-image-dir named/images --cache-dir named --output_dir by_name
# Weights of other classes, as many: the classifier begins anew, unless the list is given.
cp -r named other && sed -i 's/shape0/form0/' other/*-annotations-bbox.csv
other=("${command[@]}" --epochs 1 --local-image-dir other/images --cache-dir other --weights-path by_name/model.pth)
expect 0 "its last convolution begins with random weights for 3" "${other[@]}" --output_dir anew
grep -q "beside the weights has not: classes are numbered anew" err || fail "no word on the classes: $(cat err)"
grep -q form03 anew/classes.csv || fail "classes of the weights: $(cat anew/classes.csv)"
expect 3 "classes that the list of classes lacks" "${other[@]}" --class_descriptions by_name/classes.csv --output_dir listed
head -n 1 by_name/classes.csv | grep -q shape03 || fail "classes are not in the order of the annotations: $(cat by_name/classes.csv)"
expect 0 '"map_50"' detect --weights-path by_name/model.pth --local-image-dir named/images --cache-dir named \
    --image-size 64 --score_threshold 0 --json --cpu_threads 1
cp printed detect.json
expect 0 "" eval --task detection --weights-path by_name/model.pth --local-image-dir named/images --cache-dir named \
    --image-size 64 --bf16 false --threads 1 --score_threshold 0 --json
cp printed eval.json
python3 - <<'END' || fail "detect names other classes than the training"
import csv
import json

assert [row[0] for row in csv.reader(open("by_name/classes.csv"))] == ["/m/shape03", "/m/shape02", "/m/shape01"]
detect, evaluation = json.load(open("detect.json")), json.load(open("eval.json"))
assert evaluation["map_50"] > 0 and abs(detect["map_50"] - evaluation["map_50"]) < 1e-9, (detect, evaluation)
END

# Random weights; all settings by their own names, from a file; a share of the images evaluates.
cp -r openimages/images/train flat
cat >scratch.yaml <<'END'
task: detection
local_image_dir: flat
annotations: openimages/oidv6-train-annotations-bbox.csv
validation_share: 0.3
per_device_train_batch_size: 4
num_train_epochs: 1
image_size: 64
backbone_width: 4
backbone_blocks: 1
pyramid_width: 8
multiscale: true
use_cpu: true
output_dir: scratch
END
expect 0 "weights: random" train --config scratch.yaml
grep -qF '"backbone_width": 4' scratch/config.json || fail "another network: $(cat scratch/config.json)"

# Batch norm: a resumed run has the bits of one that never stopped; statistics are whole on every rank.
norm=(train --config scratch.yaml --norm batch --bf16 false --threads 1 --num_train_epochs 2 --overwrite_output_dir)
expect 0 "weights: random" "${norm[@]}" --output_dir norm
expect 0 "" "${norm[@]}" --output_dir norm_half
rm -r norm_half/checkpoint-6 norm_half/completion.json # as if it had been killed
expect 0 "step 3 of 6" "${norm[@]}" --output_dir norm_half --resume_from_checkpoint true
cmp norm/model.safetensors norm_half/model.safetensors || fail "resumed weights with batch norm differ"
cmp -s norm/model.safetensors norm/checkpoint-3/model.safetensors && fail "a step with batch norm changes nothing"
expect 2 "norm was \"batch\" and is \"frozen\"" "${norm[@]}" --norm frozen --output_dir norm_half --resume_from_checkpoint true
expect 2 "norm is batch, and sharding_strategy is not NO_SHARD" "${norm[@]}" --sharding_strategy FULL_SHARD --ranks 2

# The second version, from random weights: a resumed run has the bits of one that never stopped, also on two ranks; the
# result is known by its tensors.
second=(train --config scratch.yaml --architecture retinanet_resnet50_fpn_v2 --pyramid_width 64 --bf16 false --threads 1
    --num_train_epochs 2 --overwrite_output_dir --ranks 2 --per_device_train_batch_size 2 --score_threshold 0)
expect 0 "weights: random" "${second[@]}" --output_dir second
grep -qF '"architecture": "retinanet_resnet50_fpn_v2"' second/config.json || fail "another network: $(cat second/config.json)"
expect 0 "" "${second[@]}" --output_dir second_half
rm -r second_half/checkpoint-6 second_half/completion.json # as if it had been killed
expect 0 "step 3 of 6" "${second[@]}" --output_dir second_half --resume_from_checkpoint true
cmp second/model.safetensors second_half/model.safetensors || fail "resumed weights of the second version differ"
expect 0 '"map_50"' eval --task detection --weights-path second/model.pth --local-image-dir flat \
    --eval_annotations openimages/oidv6-train-annotations-bbox.csv --image-size 64 --bf16 false --threads 1 --score_threshold 0 --json
expect 0 "images, " detect --weights-path second/model.safetensors --local-image-dir flat --evaluate false --image-size 64
# Its weights train with batch norm again. Of stages that do not train only running statistics change; a resumed run has
# them.
stages=("${second[@]}" --weights-path second/model.pth --trainable_layers 3)
expect 0 "weights: 'second/model.pth'" "${stages[@]}" --output_dir stages
expect 0 "" "${stages[@]}" --output_dir stages_half
rm -r stages_half/checkpoint-6 stages_half/completion.json # as if it had been killed
expect 0 "step 3 of 6" "${stages[@]}" --output_dir stages_half --resume_from_checkpoint true
cmp stages/model.safetensors stages_half/model.safetensors || fail "resumed weights of frozen stages differ"
python3 - second/model.safetensors stages/model.safetensors <<'END' || fail "what changes in frozen stages"
import json
import struct
import sys

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items()}

before, after = map(read, sys.argv[1:])
frozen = [name for name in before if any(part in name for part in (".body.layer1.", ".body.conv1.", ".body.bn1."))]
assert len(frozen) > 20
for name in frozen:
    changes = ".running_" in name or name.endswith("num_batches_tracked")
    assert (before[name] != after[name]) == changes, name
END
expect 2 "norm is batch, and sharding_strategy is not NO_SHARD" "${stages[@]}" --sharding_strategy FULL_SHARD --output_dir no
expect 0 "weights: 'second/model.pth'" "${stages[@]}" --norm frozen --norm-weight-decay 0 --output_dir stages_frozen
expect 2 "norm_weight_decay is given, and the task is language" train --model_name_or_path . --dataset_name x.jsonl \
    --norm-weight-decay 0

expect 2 "architecture is retinanet_resnet50_fpn, and 'second/model.pth' has the weights of retinanet_resnet50_fpn_v2" \
    "${second[@]}" --architecture retinanet_resnet50_fpn --weights-path second/model.pth --output_dir no
expect 0 "done: 6 steps" train --config scratch.yaml --weights-path second/model.pth --num_train_epochs 2 --output_dir third
grep -qF '"architecture": "retinanet_resnet50_fpn_v2"' third/config.json || fail "another network: $(cat third/config.json)"
expect 2 "channels of the pyramid in 32 groups is not supported" "${second[@]}" --pyramid_width 24 --output_dir no
expect 0 "extra_blocks.p6.weight" plan --task detection --units --architecture retinanet_resnet50_fpn_v2

# Wrong input.
damaged=$(ls openimages/images/train/*.png | head -n 1)
expect 2 "setting 'model_name_or_path' is missing" train --local_image_dir openimages/images
expect 2 "setting 'model_name_or_path' is missing" train --task language
expect 2 "setting 'local_image_dir' is missing" train --task detection
expect 2 "model_name_or_path is given, and the task is detection" train --task detection --local-image-dir x --model y
expect 2 "datasets is given, and the task is detection" train --task detection --local-image-dir x --datasets '[{"path": "y"}]'
expect 2 "use_peft is on, and the task is detection" train --task detection --local-image-dir x --use_peft
expect 2 "dataset_name and annotations are both given" train --task detection --annotations x --dataset_name y
expect 3 "there is no file or folder 'y'" train --task detection --dataset_name y
expect 2 "has an unknown word 'tpu'" "${command[@]}" --backend tpu
expect 3 "the image folder 'nowhere' is not there" "${command[@]}" --local-image-dir nowhere --output_dir no
expect 3 "is not a RetinaNet of torchvision" "${command[@]}" --weights-path "$root"/tests/golden/pth/archive.pth --output_dir no
printf 'no image' >"$damaged"
expect 3 "$(basename "$damaged")' is neither a JPEG nor a PNG image" "${command[@]}" --epochs 1 --output_dir no
expect 0 "1 damaged images, left out" "${command[@]}" --epochs 1 --output_dir skips --skip_corrupt_images
rm "$damaged"
expect 0 "1 annotated images without a file" "${command[@]}" --epochs 1 --output_dir skips --overwrite_output_dir
finish
