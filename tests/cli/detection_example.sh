#!/bin/bash
# The generated data set of examples/detection: the same bytes from the same arguments, readable images, and the same
# boxes as Open Images and as COCO; the starting weights are a RetinaNet.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
example=$root/examples/detection
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

make_shapes() { python3 "$example/make_shapes.py" "$1" --train 6 --validation 5 --size 96 --mixed "${@:2}"; }
make_shapes one && make_shapes two && make_shapes other --seed 1 || exit 1
diff -r one two || fail "two runs give other bytes"
cmp -s one/validation-annotations-bbox.csv other/validation-annotations-bbox.csv && fail "another seed gives the same boxes"
head -n 1 one/oidv6-train-annotations-bbox.csv | grep -qx \
    'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside' ||
    fail "the columns are not those of Open Images"
[ "$(ls one/images/train/*.jpg one/images/train/*.png | wc -l)" = 6 ] || fail "not 6 images: $(ls one/images/train)"

small=(--width 4 --pyramid 12)
python3 "$example/make_weights.py" start.pth "${small[@]}" && python3 "$example/make_weights.py" again.pth "${small[@]}" || exit 1
cmp start.pth again.pth || fail "two runs give other weights"
detect=(detect --weights-path start.pth --local-image-dir one/images --image-size 96 --max_image_size 128 --score_threshold 0
    --json)
probe=$("$trimtab" "${detect[@]}" 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }
# Fractions have six digits, so an area at the border of small and medium may be on either side.
numbers() { grep -v 'seconds\|_small\|_medium' printed >"$1"; }
for split in train validation; do
    expect 0 '"map_50"' "${detect[@]}" --cache-dir one --split "$split"
    numbers open_images
    expect 0 '"map_50"' "${detect[@]}" --annotations "one/coco/$split.json" --split "$split"
    numbers coco
    cmp open_images coco || fail "COCO's boxes of $split give other numbers than Open Images'"
done

# Tiles of a large picture: boxes are cut at the borders, and one of which too little is visible is marked as a group.
if python3 -c 'import PIL' 2>/dev/null; then
    mkdir large
    python3 -c 'from PIL import Image; Image.new("RGB", (130, 60), (9, 99, 9)).save("large/wood.png")'
    printf 'image_path,xmin,ymin,xmax,ymax,label\n' >large/boxes.csv
    printf 'wood.png,%s\n' 10,10,20,20,Tree 45,5,55,15,Tree 38,40,62,50,Tree 35,20,52,30,Tree 90,0,110,10,Tree 1,1,9,9,Dead \
        >>large/boxes.csv
    python3 "$example/tile.py" tiled large/boxes.csv --tile 50 --holdout 0.2 --classes Tree >counts || fail "tile.py"
    # 104 of 130 columns train, in tiles at 0, 50 and 54, each in two rows.
    printf '%s\n' 'train: 5 tiles, 12 boxes, 5 of which too little is visible' \
        'validation: 0 tiles, 0 boxes, 0 of which too little is visible' | cmp - counts || fail "tiles: $(cat counts)"
    # Columns 54 to 104: a third of one box, and seven tenths of another, which ends beyond what trains.
    printf 'wood-54-0,xclick,/m/class01,1,%s\n' 0.000000,0.160000,0.800000,1.000000,0,1,1,0,0 \
        0.720000,1.000000,0.000000,0.200000,0,0,0,0,0 >rows
    grep '^wood-54-0' tiled/oidv6-train-annotations-bbox.csv | cmp - rows || fail "boxes of a tile: $(grep wood-54 tiled/*.csv)"
fi
finish
