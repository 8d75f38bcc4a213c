#!/usr/bin/env bash
# /metrics, /healthz and /readyz of a training: both formats, read by promtool and prometheus_client where there are any;
# processes of one machine, ports in use, requests of strangers.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
run=(train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --report_to none --device cpu)

trap "" PIPE # a server may close before it has read all

# ask PORT REQUEST-LINE [HEADER [HOST]]: the answer, with its head
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n' "$2" "${4:-localhost}" "${3:+$3$'\r\n'}" >&3
    cat <&3 | tr -d '\r'
    exec 3>&-
}
body() { sed '1,/^$/d'; }
# wait_for FILE TEXT: until a program has printed it
wait_for() {
    for _ in $(seq 400); do
        grep -q "$2" "$1" && return
        sleep 0.05
    done
    fail "$1 never had '$2':" "$(cat "$1")"
}

"$trimtab" "${run[@]}" --output_dir out --ranks 2 --max_steps 100000 --logging_steps 50 --save_steps 50 \
    --save_total_limit 1 --metrics_port 0 >said 2>&1 &
training=$!
wait_for said '^step 100/'
port=$(sed -nE 's|^metrics at http://127.0.0.1:([0-9]+)/metrics$|\1|p' said)
ask "$port" 'GET /metrics' >answer
grep -q '^HTTP/1.1 200' answer && grep -q '^Content-Type: text/plain; version=0.0.4; charset=utf-8$' answer ||
    fail "the head of /metrics:" "$(head answer)"
body <answer >metrics.txt
ask "$port" 'GET /metrics' 'Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5' >answer
grep -q '^Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8$' answer ||
    fail "the head of OpenMetrics:" "$(head answer)"
body <answer >openmetrics.txt
[ "$(tail -n 1 openmetrics.txt)" = '# EOF' ] || fail "OpenMetrics have no end"
for name in steps_total tokens_total loss learning_rate grad_norm step_seconds_bucket checkpoint_last_step \
    checkpoint_save_seconds last_step_timestamp_seconds restarts_total build_info \
    'phase_seconds_total{rank="1",phase="compute"}' 'rank_wait_seconds_total{rank="1"}' \
    'device_memory_bytes{rank="0",kind="weights"}'; do
    grep -qF "trimtab_$name" metrics.txt && grep -qF "trimtab_$name" openmetrics.txt || fail "no trimtab_$name"
done
grep -Eq '^process_resident_memory_bytes [1-9]' metrics.txt || fail "no memory of the process"
# The kinds of a rank's memory add up to its peak and to the plan.
awk -F'[ }]+' '/^trimtab_device_memory_bytes.rank="1"/ { sum += $NF } /^trimtab_device_memory_peak_bytes.rank="1"/ { peak = $NF }
    /^trimtab_planned_memory_bytes / { plan = $NF } END { exit !(sum > 0 && sum == peak && sum == plan) }' metrics.txt ||
    fail "the kinds of memory do not add up:" "$(grep memory metrics.txt)"
for path in healthz readyz readyz/step; do
    ask "$port" "GET /$path" | grep -q '^HTTP/1.1 200' || fail "/$path"
done
ask "$port" 'GET /' | grep -q '^HTTP/1.1 404' || fail "/ is there"
ask "$port" 'DELETE /metrics' | grep -q '^HTTP/1.1 405' || fail "DELETE"
ask "$port" 'HEAD /metrics' | grep -q '^HTTP/1.1 200' || fail "HEAD"
ask "$port" "GET /$(head -c 5000 /dev/zero | tr '\0' a)" | grep -q '^HTTP/1.1 414' || fail "a long path"
ask "$port" 'GET /metrics' '' evil.example | grep -q '^HTTP/1.1 403' || fail "another name is answered"
ask "$port" 'GET /healthz' '' evil.example | grep -q '^HTTP/1.1 200' || fail "a probe by another name is not answered"
ask "$port" $'\001nonsense' >/dev/null # whatever the answer, the next one is right
ask "$port" 'GET /healthz' | grep -q '^ok: ' || fail "after nonsense"
expect 5 "cannot listen at 127.0.0.1 port $port" "${run[@]}" --output_dir other --metrics_port "$port"
grep -q -- '--metrics_port N' err || fail "no hint about metrics_port:" "$(cat err)"
[ ! -e other/metrics.jsonl ] || fail "a run without its port trained"
kill -INT $training
ended=0
wait $training || ended=$?
[ $ended -eq 11 ] || fail "the training ended with $ended"
# Attempts of one run: killed before its first checkpoint, stopped after one, resumed; then another run in its folder.
for attempt in 0 1 2 3; do
    again=(--resume_from_checkpoint true)
    [ $attempt -lt 3 ] || again=(--overwrite_output_dir true)
    saves=(--save_strategy no)
    [ $attempt -eq 0 ] || saves=(--save_steps 100000)
    "$trimtab" "${run[@]}" --output_dir again --max_steps 100000 --logging_steps 50 "${saves[@]}" --metrics_port 0 \
        "${again[@]}" >said 2>&1 &
    training=$!
    wait_for said '^step [0-9]*0/'
    port=$(sed -nE 's|^metrics at http://127.0.0.1:([0-9]+)/metrics$|\1|p' said)
    wanted=$((attempt == 3 ? 0 : attempt))
    ask "$port" 'GET /metrics' | grep -qx "trimtab_restarts_total $wanted" || fail "attempt $attempt: not $wanted restarts"
    grep -q "\"restarts\": ${wanted}[,}]*\$" again/run.json || fail "attempt $attempt: run.json:" "$(grep restarts again/run.json)"
    [ $attempt -eq 0 ] && kill -KILL $training || kill -INT $training
    wait $training 2>/dev/null
done
expect 2 "is no address to listen at" "${run[@]}" --output_dir other --metrics_port 0 --metrics_host nowhere.example
expect 2 "metrics_port" "${run[@]}" --output_dir other --metrics_port 70000
expect 2 "allowed_hosts: 'http://a.example' is no host name" "${run[@]}" --output_dir other --metrics_port 0 \
    --allowed_hosts http://a.example

# Two processes of one machine: one port each; the totals of the run are those of rank 0.
base=$((20000 + RANDOM % 12000))
for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((base + 7)) "$trimtab" "${run[@]}" \
        --output_dir two --max_steps 100000 --logging_steps 50 --save_strategy no --metrics_port $base >said$rank 2>&1 &
    pids[rank]=$!
    [ $rank = 1 ] && break
    wait_ready=0
    for _ in $(seq 200); do
        ask $base 'GET /readyz' >answer 2>/dev/null && wait_ready=1 && break
        sleep 0.05
    done
    [ $wait_ready = 1 ] && grep -q '^HTTP/1.1 503' answer && grep -q 'not yet: waiting for the other ranks' answer ||
        fail "rank 0 is ready before rank 1 came:" "$(cat answer said0)"
    ask $base 'GET /healthz' | grep -q '^HTTP/1.1 200' || fail "a process that waits for others is ill"
done
wait_for said0 '^step 50/'
ask $base 'GET /readyz' | grep -q '^HTTP/1.1 200' || fail "never ready"
ask $base 'GET /metrics' >zero
ask $((base + 1)) 'GET /metrics' >one
grep -q 'trimtab_steps_total' zero && ! grep -q 'rank="1"' zero || fail "rank 0's process:" "$(cat zero)"
grep -q 'rank="1"' one && ! grep -q 'trimtab_steps_total\|rank="0"' one || fail "rank 1's process:" "$(cat one)"
kill -INT "${pids[0]}"
wait "${pids[0]}" "${pids[1]}"

skipped=()
if command -v promtool >/dev/null; then
    promtool check metrics <metrics.txt >lint 2>&1 || fail "promtool:" "$(cat lint)"
else
    skipped+=("promtool")
fi
if /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null; then
    /usr/bin/python3 - <<'PYTHON' || fail "prometheus_client"
from prometheus_client.openmetrics.parser import text_string_to_metric_families as newer
from prometheus_client.parser import text_string_to_metric_families as older
a = {family.name: family.type for family in newer(open("openmetrics.txt").read())}
b = {family.name: family.type for family in older(open("metrics.txt").read())}
assert a["trimtab_steps"] == "counter" and a["trimtab_step_seconds"] == "histogram" and a["trimtab_build"] == "info", a
assert len(a) == len(b) > 15, (a, b)
PYTHON
else
    skipped+=("prometheus_client's parsers")
fi
[ ${#skipped[@]} -eq 0 ] || echo "without ${skipped[*]}: not installed"
finish
