#!/usr/bin/env bash
# deploy/: the Grafana dashboard and the alerts name only metrics that a training has; every expression is read by
# promtool, and the alerts fire when they should, where promtool is installed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
"$trimtab" train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --report_to none --device cpu \
    --output_dir out --max_steps 100000 --logging_steps 10 --save_steps 20 --save_total_limit 1 \
    --eval_dataset "$golden/train.jsonl" --eval_strategy steps --eval_steps 20 --metrics_port 0 >said 2>&1 &
training=$!
for _ in $(seq 400); do
    grep -q '^step 80/\|no HTTP server' said && break
    sleep 0.05
done
if grep -q 'no HTTP server' said; then
    echo "skipped: this build has no HTTP server"
    exit 77
fi
port=$(sed -nE 's|^metrics at http://127.0.0.1:([0-9]+)/metrics$|\1|p' said)
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3
cat <&3 | tr -d '\r' >metrics.txt
kill -INT $training
wait $training
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
