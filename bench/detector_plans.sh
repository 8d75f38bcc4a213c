#!/usr/bin/env bash
# The time for cuDNN's plans of a detector's convolutions: the first process on a GPU with one thread and with more, and the
# next process, which finds them stored. The plans are those of a step and of an evaluation.
#
#     bench/detector_plans.sh [TRIMTAB [THREADS ...]]
#
# Default: build/trimtab, threads 1, 4 and 16; the whole RetinaNet with random weights, 91 classes, 16 images of 800 pixels.
# PIXELS, IMAGES, WIDTH, BACKEND=cpu: a smaller run, or one without a GPU. LIMIT: seconds of a training (150). PREPARED: a
# folder that keeps images and weights for the next call. A line of JSON for each training: seconds of its first step, plans stored at its end, those made at once, seconds and threads, and losses.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
trimtab=$(realpath "${1:-$root/build/trimtab}")
shift
[ $# -gt 0 ] || set -- 1 4 16
pixels=${PIXELS:-800} images=${IMAGES:-16} backend=${BACKEND:-cuda}
case ${WIDTH:-64} in
64) network=(--width 64 --pyramid 256 --blocks 3 4 6 3) ;;
*) network=(--width "$WIDTH") ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prepared=$(realpath "${PREPARED:-$folder}")
cd "$folder" || exit 1
data=$prepared/shapes_$pixels weights=$prepared/weights_${WIDTH:-64}_91.pth
[ -e "$data" ] || python3 "$root/examples/detection/make_shapes.py" "$data" --size "$pixels" --train $((4 * images)) \
    --validation 4 >/dev/null || exit 1
[ -e "$weights" ] || python3 "$root/examples/detection/make_weights.py" "$weights" --classes 91 "${network[@]}" >/dev/null || exit 1

# train NAME THREADS CACHE
train() {
    XDG_CACHE_HOME=$PWD/$3 timeout -k 5 "${LIMIT:-150}" "$trimtab" train --task detection --weights-path "$weights" \
        --local-image-dir "$data/images" --cache-dir "$data" --image-size "$pixels" --max-image-size "$pixels" --backend "$backend" \
        --batch-size "$images" --trainable_layers 3 --bf16 true --num-workers 4 --threads "$2" --max_steps 3 \
        --logging_steps 1 --lr 1e-3 --warmup_steps 0 --hflip 0 --seed 1 --eval_strategy steps --eval_steps 3 --save_strategy no \
        --report_to none --output_dir "$1" >"$1.log" 2>&1 || { tail -n 5 "$1.log" >&2; return 1; }
    python3 - "$1" "$(find "$3" -name '*.plan' 2>/dev/null | wc -l)" <<'END'
import json, re, sys
name, stored = sys.argv[1:]
log = open(name + ".log").read()
rows = [json.loads(line) for line in open(name + "/metrics.jsonl")]
steps = [row for row in rows if "images_per_second" in row]
print(json.dumps({"training": name, "first_step_seconds": round(steps[0]["step_seconds"], 2),
                  "later_step_seconds": round(steps[-1]["step_seconds"], 3), "stored_plans": int(stored),
                  "made": re.findall(r"(\d+) plans of convolutions made in ([0-9.]+) s by (\d+) thread", log),
                  "losses": [row["loss"] for row in steps]}), flush=True)
END
}
failed=0
for threads in "$@"; do
    train "first_$threads" "$threads" "cache_$threads" || failed=1
    last=$threads
done
train next "$last" "cache_$last" || failed=1
exit $failed
