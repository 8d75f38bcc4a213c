#!/bin/bash
# What people and strangers give a detector by mistake or on purpose: damaged and missing images, boxes outside, unknown
# classes, wrong weights, a tar, a pickle that would run code. Each ends in one error that names it, or is left out and
# counted, the same for train, eval and detect.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root"/examples/detection/make_shapes.py whole --train 8 --validation 4 --size 64 || exit 1
python3 "$root"/examples/detection/make_weights.py good.pth --width 4 --pyramid 8 || exit 1
small=(--image-size 64 --max_image_size 128)
probe=$("$trimtab" detect --weights-path good.pth --local-image-dir whole/images --evaluate false "${small[@]}" 2>&1)
grep -q "this build has no" <<<"$probe" && { echo "skipped: ${probe#error: }"; exit 77; }

# all CODE TEXT FOLDER words...: train, eval and detect of the images in FOLDER.
all() {
    local code=$1 text=$2 folder=$3 job
    shift 3
    for job in "train --task detection --backend cpu --threads 1 --batch-size 4 --epochs 1 --save_strategy no --overwrite_output_dir" \
        "eval --task detection --backend cpu --threads 1" "detect --cpu_threads 1"; do
        # shellcheck disable=SC2086
        expect "$code" "$text" $job "${small[@]}" --weights-path good.pth --local-image-dir "$folder"/images \
            --cache-dir "$folder" "$@"
    done
}
# fresh: a copy of the whole data set.
fresh() {
    rm -rf data && cp -r whole data
}
# of SPLIT KIND: an image file of the data set.
of() {
    find "data/images/$1" -name "*.$2" | sort | head -n 1
}
all 0 "" whole

# Images. A training looks at both splits, an evaluation at one.
for kind in jpg png; do
    for split in train validation; do
        fresh
        file=$(of $split $kind)
        head -c $(($(stat -c %s "$file") / 2)) "$file" >half.image && mv half.image "$file"
        expect 3 "$(basename "$file")" train --task detection --backend cpu --threads 1 --batch-size 4 --epochs 1 "${small[@]}" \
            --weights-path good.pth --local-image-dir data/images --cache-dir data --save_strategy no --overwrite_output_dir
        expect 0 "1 damaged images, left out" train --task detection --backend cpu --threads 1 --batch-size 4 --epochs 1 \
            "${small[@]}" --weights-path good.pth --local-image-dir data/images --cache-dir data --save_strategy no \
            --overwrite_output_dir --skip_corrupt_images
    done
    all 3 "$(basename "$file")" data
    all 0 "damaged" data --skip_corrupt_images
done
fresh
: >"$(of validation jpg)"
all 3 "is neither a JPEG nor a PNG image" data
fresh
rm "$(of validation png)"
all 0 "without a file" data
fresh
rm -r data/images
mkdir -p data/images/validation
expect 3 "has no images" eval --task detection --backend cpu "${small[@]}" --weights-path good.pth \
    --local-image-dir data/images --cache-dir data
fresh
python3 - <<'END'
import struct
import zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

head = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
open("bomb.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))
END
mv bomb.png "$(of validation png)"
all 3 "60000 x 60000" data
# A picture of a side that JPEG has not: drawn smaller, with a word, and the other pictures are there.
fresh
python3 - <<'END'
import struct
import zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

head = struct.pack(">IIBBBBB", 1, 70000, 8, 2, 0, 0, 0)
open("long.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(4 * 70000))) + chunk(b"IEND", b""))
END
mkdir tall && mv long.png tall/a.png && cp "$(of validation png)" tall/b.png
expect 0 "2 images" detect --cpu_threads 1 "${small[@]}" --weights-path good.pth --local-image-dir tall --evaluate false --output_dir found
grep -q "warning: '.*a.png' has 1 x 70000 pixels, .* its picture is smaller" err || fail "no word of the picture:" "$(cat err)"
[ "$(find found/pictures -name '*.jpg' | wc -l)" = 2 ] || fail "not two pictures:" "$(ls found/pictures)"

# Boxes and classes.
# rows SED: changes the first box of the validation images.
rows() {
    fresh
    sed -i "2$1" data/validation-annotations-bbox.csv
}
rows 's/\(,1,\)[0-9.]*,\([0-9.]*,\)/\10.2,1.25,/'
all 3 "row 2: the box" data
rows 's/\(,1,\)[0-9.]*,[0-9.]*,/\10.5,0.5,/'
all 0 "boxes without width or height, left out" data
rows 's/\(,1,\)[0-9.]*,/\1nan,/'
all 3 "row 2" data
rows 's/shape0[0-9]/shape99/'
all 0 "of unknown classes, left out" data
rows 's/$/,"an open quote/'
all 3 "validation-annotations-bbox.csv" data
fresh
sed -i 's/shape0[0-9]/other/' data/validation-annotations-bbox.csv
all 0 "of unknown classes, left out" data
fresh
python3 - <<'END'
import json

data = json.load(open("data/coco/validation.json"))
data["annotations"][0]["bbox"] = [500, 500, 10, 10]
json.dump(data, open("data/coco/outside.json", "w"))
data["annotations"][0]["category_id"] = 77
json.dump(data, open("data/coco/class.json", "w"))
data["annotations"][0]["bbox"] = [1, 2, 3]
json.dump(data, open("data/coco/three.json", "w"))
END
head -c 300 data/coco/validation.json >data/coco/cut.json
detect=(detect "${small[@]}" --cpu_threads 1 --weights-path good.pth --local-image-dir data/images)
expect 0 "outside their image, left out" "${detect[@]}" --annotations data/coco/outside.json
expect 0 "of unknown classes, left out" "${detect[@]}" --annotations data/coco/class.json

# Training images without a box: left out, or background if asked.
python3 - <<'END'
import json

data = json.load(open("data/coco/train.json"))
first = data["images"][0]["id"]
data["annotations"] = [a for a in data["annotations"] if a["image_id"] != first]
json.dump(data, open("data/coco/empty.json", "w"))
END
train=(train --task detection --backend cpu --threads 1 --batch-size 2 --epochs 1 "${small[@]}" --weights-path good.pth
    --local-image-dir data/images --annotations data/coco/empty.json --eval_annotations data/coco/validation.json
    --category_labels sorted --save_strategy no --logging_steps 1 --overwrite_output_dir)
expect 0 "training data: 7 images" "${train[@]}"
grep -q "; 1 images without a box, left out" err || fail "an image without a box is not counted:" "$(cat err)"
expect 0 "training data: 8 images" "${train[@]}" --keep_empty_images true
grep -q "; 1 of the images without a box, kept as background" err || fail "an image without a box does not train:" "$(cat err)"
expect 3 "four numbers" "${detect[@]}" --annotations data/coco/three.json
expect 3 "cut.json" "${detect[@]}" --annotations data/coco/cut.json
expect 3 "nothing.json" "${detect[@]}" --annotations nothing.json

# Weights.
python3 - <<'END'
import io
import os
import pickle
import tarfile
import zipfile

class Code:
    def __reduce__(self):
        return os.system, ("touch ran",)

def archive(name, root):
    with zipfile.ZipFile(name, "w") as out:
        out.writestr("archive/data.pkl", pickle.dumps(root, 2))
        out.writestr("archive/byteorder", "little")
        out.writestr("archive/version", "3\n")

archive("code.pth", {"model": Code()})
archive("top.pth", Code())
pickle.dump(Code(), open("stream.pth", "wb"), 2)
with tarfile.open("tar.pth", "w") as out:
    out.addfile(tarfile.TarInfo("storages"), io.BytesIO())
good = open("good.pth", "rb").read()
open("half.pth", "wb").write(good[:len(good) // 2])
open("empty.pth", "wb").close()
END
all 3 "code.pth" whole --weights-path code.pth
all 2 "'top.pth' holds an object of the class 'posix.system'" whole --weights-path top.pth
all 3 "stream.pth" whole --weights-path stream.pth
all 2 "'tar.pth' is a tar archive" whole --weights-path tar.pth
all 3 "half.pth" whole --weights-path half.pth
all 3 "empty.pth" whole --weights-path empty.pth
all 3 "is not a RetinaNet of torchvision" whole --weights-path "$root"/tests/golden/pth/archive.pth
all 3 "nowhere.pth" whole --weights-path nowhere.pth
[ ! -e ran ] || fail "a pickle has run code"
finish
