#!/usr/bin/env bash
# The cost of data parallelism for a detector's step: a run on each GPU alone, independent runs on all GPUs at the same time,
# and one run on all GPUs, as threads and as processes. The independent runs show a slower GPU and the effects of shared host
# memory, processors and power; the difference between them and the joint run is the sum of gradients and the wait for it.
#
#     bench/detector_gpus.sh [TRIMTAB [GPUS [PIXELS [IMAGES [STEPS]]]]]
#
# Default: build/trimtab, 2 GPUs, 800 pixels, 16 images a GPU, 60 steps; the whole RetinaNet with random weights and 91
# classes, or CLASSES. BACKEND=cpu WIDTH=16 tries the script without GPUs. LIMIT: seconds of a training (240); MORE: more
# settings of all of them. PREPARED: a folder that keeps images and weights for the next call. A line of JSON for each training:
# medians of the steps behind the first ten, in milliseconds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
trimtab=$(realpath "${1:-$root/build/trimtab}") gpus=${2:-2} pixels=${3:-800} images=${4:-16} steps=${5:-60}
backend=${BACKEND:-cuda} classes=${CLASSES:-91} limit=${LIMIT:-240}
read -ra more <<<"${MORE:-}"
case ${WIDTH:-64} in
64) network=(--width 64 --pyramid 256 --blocks 3 4 6 3) ;;
*) network=(--width "$WIDTH") ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prepared=$(realpath "${PREPARED:-$folder}")
cd "$folder"
data=$prepared/shapes_$pixels weights=$prepared/weights_${WIDTH:-64}_$classes.pth
[ -e "$data" ] || python3 "$root/examples/detection/make_shapes.py" "$data" --size "$pixels" --train 128 --validation 4 >/dev/null
[ -e "$weights" ] || python3 "$root/examples/detection/make_weights.py" "$weights" --classes "$classes" "${network[@]}" >/dev/null

# train NAME [settings]: a training run; its metrics go to NAME/metrics.jsonl, its output to NAME.log.
train() {
    local name=$1
    shift
    timeout -k 5 "$limit" "$trimtab" train --task detection --weights-path "$weights" --local-image-dir "$data/images" --cache-dir "$data" \
        --image-size "$pixels" --max-image-size "$pixels" --backend "$backend" --batch-size "$images" \
        --trainable_layers 3 --bf16 true --num-workers 6 --epochs 100000 --max_steps "$steps" --logging_steps 1 --lr 1e-5 \
        --eval_strategy no --save_strategy no --report_to none --output_dir "${OUTPUT:-$name}" "${more[@]}" "$@" >"$name.log" 2>&1 ||
        { tail -n 5 "$name.log" >&2; echo "error: training '$name' failed" >&2; return 1; }
}
# show NAME: the medians of a training.
show() {
    python3 - "$1" "$1/metrics.jsonl" <<'END'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[2])]
rows = [row for row in rows if "images_per_second" in row][10:]
if not rows:
    sys.exit(f"error: training '{sys.argv[1]}' has no step behind the first ten")
middle = lambda key: statistics.median(row[key] for row in rows)
out = {"training": sys.argv[1], "images_per_second": round(middle("images_per_second"), 1)}
# On a GPU the work is queued, and then the host waits for it.
for key in ("step", "data", "queue", "forward", "backward", "reduce", "rank_wait", "device_wait", "optimizer"):
    if key + "_seconds" in rows[0]:
        out[key + "_ms"] = round(1000 * middle(key + "_seconds"), 3)
print(json.dumps(out), flush=True)
END
}

train warm --ranks 1 --max_steps 3 # the plans of cuDNN, which are stored
for ((gpu = 0; gpu < gpus; gpu++)); do
    CUDA_VISIBLE_DEVICES=$gpu train "alone_$gpu" --ranks 1
    show "alone_$gpu"
done
running=()
for ((gpu = 0; gpu < gpus; gpu++)); do
    CUDA_VISIBLE_DEVICES=$gpu train "beside_$gpu" --ranks 1 &
    running+=($!)
done
for process in "${running[@]}"; do wait "$process"; done
for ((gpu = 0; gpu < gpus; gpu++)); do show "beside_$gpu"; done
train threads --ranks "$gpus"
show threads
running=()
for ((rank = 0; rank < gpus; rank++)); do
    name=processes
    [ "$rank" = 0 ] || name=processes_$rank
    OUTPUT=processes RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$gpus LOCAL_WORLD_SIZE=$gpus MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) \
        train "$name" &
    running+=($!)
done
for process in "${running[@]}"; do wait "$process"; done
show processes
