#!/bin/bash
# Images and boxes in Parquet and Arrow files (tests/golden/detect/make_tables.py) against the same as files beside COCO's
# annotations: the same bits of the losses and of the weights.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
tables=$root/tests/golden/detect/tables
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root"/examples/detection/make_weights.py start.pth --width 8 --pyramid 16 || exit 1
probe=$("$trimtab" detect --weights-path start.pth --local-image-dir "$tables/files" --evaluate false --image-size 64 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

common=(train --task detection --weights_path start.pth --image_size 64 --max_image_size 96 --trainable_layers 5
    --bf16 false --use_cpu --threads 1 --learning_rate 0.01 --per_device_train_batch_size 2 --num_train_epochs 2
    --logging_steps 1 --save_strategy no --num_workers 2)
# losses FOLDER: every loss and figure of its rows.
losses() {
    python3 - "$1" <<'END'
import json
import sys

for row in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")):
    kept = {k: v for k, v in row.items() if "loss" in k or "class" in k or "bbox" in k or "map" in k or k == "grad_norm"}
    if kept:
        print(kept)
END
}
# run NAME words...: a training, whose losses are in NAME.txt.
run() {
    local name=$1
    shift
    expect 0 "training data: 6 images, 9 boxes, 3 classes" "${common[@]}" "$@" --output_dir "$name"
    losses "$name" >"$name.txt"
}
# same OTHER NAME words...: a training that has the bits of the training OTHER.
same() {
    local other=$1 name=$2
    shift
    run "$@"
    cmp "$other.txt" "$name.txt" || fail "$name: other losses than $other"
    cmp "$other/model.safetensors" "$name/model.safetensors" || fail "$name: other weights than $other"
}
validation=$tables/validation-columns.parquet
run files --local_image_dir "$tables/files" --annotations "$tables/files/train.json" \
    --eval_annotations "$tables/files/validation.json" --category_labels sorted
[ "$(wc -l <files.txt)" -ge 8 ] || fail "few rows: $(cat files.txt)"
same files columns --dataset_name "$tables/train-columns.parquet" --eval_dataset "$validation"
same files list --dataset_name "$tables/train-list.parquet" --eval_dataset "$validation" --cache_dir cache
same files again --dataset_name "$tables/train-list.parquet" --eval_dataset "$validation" --cache_dir cache
same files saved --dataset_name "$tables/saved" --ranks 1
run alone --local_image_dir "$tables/files" --annotations "$tables/files/train.json" --category_labels sorted --eval_strategy no
same alone packed --dataset_name "$tables/train-packed.parquet" --bbox_format xyxy --eval_strategy no --validation_share 0
same alone plain --dataset_name "$tables/train-plain.arrow" --eval_strategy no --validation_share 0
cmp files/classes.csv saved/classes.csv && fail "the classes of tables have COCO's ids"
printf 'bar,bar\ncross,cross\ndisc,disc\n' | cmp - saved/classes.csv || fail "classes: $(cat saved/classes.csv)"

# Evaluation and detection of tables: the figures of the same files.
figures() {
    sed 's/"seconds": [^,]*//' printed
}
expect 0 '"map_50"' eval --task detection --weights_path files/model.pth --local_image_dir "$tables/files" \
    --eval_annotations "$tables/files/validation.json" --category_labels sorted --image_size 64 --max_image_size 96 \
    --bf16 false --use_cpu --threads 1 --score_threshold 0 --json
figures >one
expect 0 '"map_50"' eval --task detection --weights_path saved/model.pth --eval_dataset "$validation" --image_size 64 \
    --max_image_size 96 --bf16 false --use_cpu --threads 1 --score_threshold 0 --json
figures >two
cmp one two || fail "an evaluation of tables differs: $(cat one two)"
expect 0 "3 images" detect --weights_path saved/model.pth --dataset_name "$tables/saved" --image_size 64 --output_dir found \
    --picture_score 0 --pictures 2
[ "$(ls found/pictures | wc -l)" -eq 2 ] || fail "not two pictures: $(ls found/pictures)"
expect 0 "6 images" detect --weights_path saved/model.pth --dataset_name "$tables/train-list.parquet" --image_size 64 \
    --evaluate false

# Rows that are left out, and those that end the command.
odd=(detect --weights_path saved/model.pth --dataset_name "$tables/odd.parquet" --image_size 64)
expect 3 "odd.parquet#4" "${odd[@]}"
expect 0 "images_corrupt" "${odd[@]}" --skip_corrupt_images true --json
python3 - <<'END' || fail "counts of odd rows: $(cat printed)"
import json

got = json.load(open("printed"))
assert got["images"] == 4 and got["images_absent"] == 2 and got["images_corrupt"] == 1 and got["boxes_outside"] == 1 and got["boxes_unknown"] == 1, got
END
expect 2 "dataset_name and annotations are both given" detect --weights_path saved/model.pth --dataset_name x.parquet \
    --annotations y.json
expect 2 "setting 'local_image_dir' is missing" detect --weights_path saved/model.pth

# Images that the table names: below local_image_dir, else below the table's folder, and nowhere else.
same plain named --dataset_name "$tables/train-named.parquet" --local_image_dir "$tables/files" --eval_strategy no --validation_share 0
cp "$tables/train-named.parquet" "$tables"/files/p* .
same plain here --dataset_name train-named.parquet --eval_strategy no --validation_share 0
rm p3.png
expect 0 "1 annotated images without a file (the first: p3.png)" "${common[@]}" --dataset_name train-named.parquet --eval_strategy no \
    --validation_share 0 --output_dir fewer --max_steps 1
expect 0 "6 images" detect --weights_path saved/model.pth --dataset_name train-named.parquet --local_image_dir "$tables/files" \
    --image_size 64 --evaluate false
expect 3 "" "${common[@]}" --dataset_name "$tables/train-named.parquet" --eval_strategy no --validation_share 0 --output_dir none
expect 3 "neither Parquet nor Arrow" "${common[@]}" --dataset_name start.pth --output_dir none
expect 3 "no column 'image'" "${common[@]}" --dataset_name "$root/tests/golden/parquet/chat-snappy.parquet" --output_dir none
finish
