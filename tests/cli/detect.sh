#!/bin/bash
# detect: results, pictures, mean average precision, and what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
weights=$golden/detect/retinanet/weights.pth
mkdir images && cp "$golden"/images/rgb.png "$golden"/images/grey.png "$golden"/images/palette.png images/ || exit 1
probe=$("$trimtab" detect --weights-path "$weights" --local-image-dir images --evaluate false --image-size 64 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

small=(--weights-path "$weights" --local-image-dir images --image-size 64 --max_image_size 128)
expect 3 "no annotations for 'images'" detect "${small[@]}"
expect 0 "3 images" detect "${small[@]}" --evaluate false --output_dir out --pictures 2
[ "$(ls out/pictures)" = "$(printf '1-grey.jpg\n2-palette.jpg')" ] || fail "the pictures are $(ls out/pictures)"
grep -q '^\[{"image_id": 1, "category_id": ' out/results.json || fail "no results of COCO"
printf 'ImageID,LabelName,XMin,XMax,YMin,YMax\n' >train-annotations-bbox.csv
printf 'ImageID,LabelName,XMin,XMax,YMin,YMax\ngrey,/m/1,0.1,0.5,0.2,0.8\nrgb,/m/2,0,1,0,0.5\nno,/m/2,0,1,0,1\n' >validation-annotations-bbox.csv
expect 0 "map_50" detect "${small[@]}" --output_dir first --cache_dir cache
expect 0 "1 images without a file" detect "${small[@]}" --output_dir second --cache_dir cache --num-workers 3 --cpu_threads 2
cmp first/results.json second/results.json || fail "other threads or decoded pixels give other results"
expect 0 '"map_small": 0.' detect "${small[@]}" --json --max-val 1
expect 0 '"open_images_map_50": 0' detect "${small[@]}" --json
expect 0 "2 images" detect "${small[@]}" --dtype bfloat16
printf 'LabelName,Source\n' >labels.csv
expect 3 "'labels.csv' has no column 'ImageID': it is no file of image labels" detect "${small[@]}" --image_labels labels.csv
printf 'ImageID,Source,LabelName,Confidence\ngrey,x,/m/2,0\nno,x,/m/1,1\n' >validation-annotations-human-imagelabels-boxable.csv
expect 0 "open_images_map_50" detect "${small[@]}"
printf 'ImageID,Source,LabelName,Confidence\ngrey,x,/m/2,much\n' >labels.csv
expect 3 "labels.csv" detect "${small[@]}" --image_labels labels.csv
echo '{"LabelName": "root", "Subcategory": [{"LabelName": "/m/1", "Subcategory": [{"LabelName": "/m/2"}]}]}' >tree.json
expect 0 "open_images_map_50" detect "${small[@]}" --class_hierarchy tree.json
echo '{"LabelName": "root", "Subcategory": [{"LabelName": "/m/1"}]}' >tree.json
expect 3 "no two classes" detect "${small[@]}" --class_hierarchy tree.json
printf 'no image' >images/rgb.png
expect 3 "images/rgb.png' is neither a JPEG nor a PNG image" detect "${small[@]}"
expect 0 "1 damaged images, left out" detect "${small[@]}" --skip_corrupt_images
expect 3 "is not a RetinaNet of torchvision" detect --weights-path "$golden/pth/archive.pth" --local-image-dir images
expect 2 "weights_path" detect --local-image-dir images
finish
