#!/usr/bin/env bash
# deploy/: the Grafana dashboard and the alerts name only metrics that a training has; every expression is read by
# promtool, and the alerts fire when they should, where promtool is installed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
# collect FILE words...: /metrics of a training after its step 40, and its evaluation
collect() {
    local training port
    "$trimtab" train "${@:2}" --report_to none --device cpu --max_steps 100000 --logging_steps 10 --eval_strategy steps \
        --eval_steps 20 --metrics_port 0 >said 2>&1 &
    training=$!
    for _ in $(seq 1200); do
        grep -q '^step 50/' said && break
        kill -0 $training 2>/dev/null || break
        sleep 0.05
    done
    port=$(sed -nE 's|^metrics at http://127.0.0.1:([0-9]+)/metrics$|\1|p' said)
    exec 3<>"/dev/tcp/127.0.0.1/$port" || { fail "${*:2}: $(cat said)"; return; }
    printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    cat <&3 | tr -d '\r' >"$1"
    exec 3>&-
    kill -INT $training
    wait $training
}
collect metrics.txt --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --output_dir out \
    --save_steps 20 --save_total_limit 1 --eval_dataset "$golden/train.jsonl"
# A detection counts images, and has a precision.
python3 "$root"/examples/detection/make_shapes.py shapes --train 4 --validation 2 --size 64 || exit 1
probe=$("$trimtab" detect --weights-path "$root/tests/golden/detect/retinanet/weights.pth" --local-image-dir shapes/images \
    --evaluate false --image-size 64 2>&1)
if grep -q 'this build has no' <<<"$probe"; then
    echo "without a detection: ${probe#error: }"
    printf 'trimtab_images_total 1\ntrimtab_eval_map 1\n' >images.txt
else
    collect images.txt --task detection --local_image_dir shapes/images --output_dir images --image_size 64 --backbone_width 4 \
        --backbone_blocks 1 --pyramid_width 8 --batch-size 1 --save_strategy no --threads 1 --score_threshold 0
    grep -Eq '^trimtab_images_total [1-9]' images.txt && grep -Eq '^trimtab_eval_map [0-9]' images.txt || fail "images: $(cat images.txt)"
    grep -q tokens images.txt && fail "a detection has tokens: $(grep tokens images.txt)"
    sed '1,/^$/d' images.txt >lint.txt
    command -v promtool >/dev/null && { promtool check metrics <lint.txt >lint 2>&1 || fail "promtool:" "$(cat lint)"; }
fi
cat images.txt >>metrics.txt
python3 "$root/tests/tools/check_deploy.py" "$root/deploy/grafana/trimtab.json" metrics.txt panels.yaml \
    "$root/deploy/prometheus/trimtab.rules.yaml" || fail "the dashboard or the alerts"
command -v promtool >/dev/null || { echo "without promtool: not installed"; finish; }
promtool check rules panels.yaml >lint 2>&1 || fail "an expression of the dashboard:" "$(cat lint)"
promtool check rules "$root/deploy/prometheus/trimtab.rules.yaml" >lint 2>&1 || fail "the alerts:" "$(cat lint)"
(cd "$root/deploy/prometheus" && promtool test rules trimtab.rules.test.yaml) >lint 2>&1 || fail "when alerts fire:" "$(cat lint)"
sed 's/> clamp_min(5/> clamp_min(500/' "$root/deploy/prometheus/trimtab.rules.yaml" >trimtab.rules.yaml
cp "$root/deploy/prometheus/trimtab.rules.test.yaml" .
promtool test rules trimtab.rules.test.yaml >lint 2>&1 && fail "an alert that never fires passes"
finish
