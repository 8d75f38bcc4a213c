#!/usr/bin/env bash
# Tree crowns in aerial pictures: downloads the pictures of DeepForest's package (MIT, 21 MB) from PyPI, cuts them into
# tiles, trains a small RetinaNet from random weights with batch norm, and shows its precision before and after.
#
#     examples/detection/trees.sh
#
# It needs python3 with pip and Pillow. TRIMTAB=path is the program (build/trimtab); TREES_OUT=folder that of the results
# (build/trees); WHEEL=file a package that is there already; EPOCHS (30). The last line is one JSON object.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${TREES_OUT:-$root/build/trees}
trimtab=${TRIMTAB:-$root/build/trimtab}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
say() { printf '\n== %s\n' "$*"; }
# number FILE KEY: a number of the JSON object in FILE.
number() {
    sed -n "s/.*\"$2\": *\([-+0-9.eE]*\).*/\1/p" "$1"
}
evaluate() {
    "$trimtab" eval --task detection --weights-path "$1" --local-image-dir "$out/tiles/images" --cache-dir "$out/tiles" \
        "${view[@]}" --json
}
view=(--image-size 400 --max_image_size 667 --backend cpu --num-workers 2)
network=(--backbone_width 16 --backbone_blocks 1 --pyramid_width 48 --norm batch)
data=(--task detection --local-image-dir "$out/tiles/images" --cache-dir "$out/tiles")

say "Pictures with boxes of tree crowns"
wheel=${WHEEL:-}
if [ -z "$wheel" ]; then
    "$python" -m pip download --quiet --no-deps --dest "$out" deepforest==2.1.0
    wheel=$(ls "$out"/deepforest-2.1.0-*.whl)
fi
"$python" -m zipfile -e "$wheel" "$out/package"
rm -rf "$out/tiles"
"$python" "$here/tile.py" "$out/tiles" "$out"/package/deepforest/data/*.xml --classes Tree

say "Random weights"
"$trimtab" train "${data[@]}" "${view[@]}" "${network[@]}" --batch-size 4 --max_steps 1 --learning_rate 1e-12 --seed 1 \
    --eval_strategy no --save_strategy no --output_dir "$out/start" --overwrite_output_dir
evaluate "$out/start/model.pth" >"$out/before.json"

say "Training"
"$trimtab" train "${data[@]}" "${view[@]}" "${network[@]}" --batch-size 4 --epochs "${EPOCHS:-30}" --optim adamw \
    --learning_rate 2e-3 --lr_scheduler_type linear --warmup_steps 20 --max_grad_norm 1 --weight_decay 0 --seed 1 \
    --multiscale true --eval_strategy no --save_strategy no --debug-freq 50 --output_dir "$out/trained" --overwrite_output_dir
evaluate "$out/trained/model.pth" >"$out/after.json"
"$trimtab" detect --weights-path "$out/trained/model.pth" --local-image-dir "$out/tiles/images" --cache-dir "$out/tiles" \
    --image-size 400 --max_image_size 667 --output_dir "$out/found" --pictures 8 --picture_score 0.4

printf '\n%-24s %10s %10s\n' "validation tiles" before after
for key in loss map map_50 mar_100; do
    printf '%-24s %10.4f %10.4f\n' "$key" "$(number "$out/before.json" $key)" "$(number "$out/after.json" $key)"
done
printf '{"map_50_before": %s, "map_50_after": %s, "pictures": "%s"}\n' "$(number "$out/before.json" map_50)" \
    "$(number "$out/after.json" map_50)" "$out/found/pictures"
