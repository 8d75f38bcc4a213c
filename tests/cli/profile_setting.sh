#!/usr/bin/env bash
# --profile and callbacks: [LLMStepProfiler]: time by op in the rows of every rank, a trace of three steps that is JSON and
# whose phases make the steps; results keep their bits.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
run=(train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --report_to none --device cpu --ranks 2
    --max_steps 8 --logging_steps 2 --save_strategy no)
"$trimtab" "${run[@]}" --output_dir plain >said 2>&1 || fail "without: $(cat said)"
"$trimtab" "${run[@]}" --output_dir profiled --profile true >said 2>&1 || fail "with: $(cat said)"
cmp -s plain/adapter_model.safetensors profiled/adapter_model.safetensors || fail "profiling changes the result"
grep -q '"op_' plain/metrics.jsonl && fail "ops without profile"
[ ! -e plain/trace.json ] || fail "a trace without profile"
for file in profiled/metrics.jsonl profiled/ranks/rank-1.jsonl; do
    for op in gemm_lora rmsnorm_forward cross_entropy adamw gather reduce; do
        [ "$(grep -cE "\"op_${op}[a-z_]*_seconds\": [0-9.e-]*[1-9]" "$file")" = 4 ] || fail "$file: not four rows with $op"
    done
done
echo 'callbacks: [LLMStepProfiler]' >sft.yaml
"$trimtab" "${run[@]}" --config sft.yaml --output_dir called >said 2>&1 || fail "callbacks: $(cat said)"
[ -e called/trace.json ] && grep -q 'profile: true' called/trimtab_config.yaml || fail "LLMStepProfiler does not profile"
expect 2 "callbacks: 'WandbCallback' is not supported" "${run[@]}" --output_dir other --callbacks '[WandbCallback]'
expect 2 "callbacks: 'EarlyStoppingCallback' is not supported" "${run[@]}" --output_dir other --callbacks '["EarlyStoppingCallback"]'
grep -q early_stopping_patience err || fail "no hint about early stopping"
expect 2 "profile" "${run[@]}" --output_dir other --config sft.yaml --profile maybe

# A run too short for a trace has none; one that ends inside it has what there was.
"$trimtab" "${run[@]}" --max_steps 2 --output_dir short --profile true >said 2>&1 || fail "two steps: $(cat said)"
[ ! -e short/trace.json ] || fail "a trace of no step"
"$trimtab" "${run[@]}" --max_steps 3 --output_dir three --profile true >said 2>&1 || fail "three steps: $(cat said)"
[ -e three/trace.json ] || fail "no trace of the step that there was"
mkdir -p far && cp profiled/metrics.jsonl far/
"$trimtab" profile far >out 2>&1 || fail "profile: $(cat out)"
grep -q '  by op' out && grep -Eq '^    [a-z_]+ +[0-9.]+ [mu]?s +[0-9.]+ % of the step$' out || fail "no ops:" "$(cat out)"
echo '{"step": 1, "loss": 1, "step_seconds": 1.0, "wall_seconds": 1.0, "clock_mhz": 700, "clock_max_mhz": 1980, "watts": 699.6,
"op_x_seconds": 0.5}' | tr -d '\n' >far/metrics.jsonl
"$trimtab" profile far >out 2>&1
grep -q 'device: 700 W, 700 MHz of 1980 MHz (last row)' out && grep -q '^change: the clock is far below' out ||
    fail "sensors:" "$(cat out)"
command -v python3 >/dev/null || { echo "without the checks of the traces: no python3"; finish; }
python3 - <<'PYTHON' || fail "a trace"
import json
for name, rank in (("profiled/trace.json", 0), ("profiled/ranks/trace-1.json", 1), ("three/trace.json", 0)):
    events = json.load(open(name))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["pid"] == rank and event["dur"] >= 0 for event in spans), name
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert set(lanes) == {0, 1, 2}
    phases = [event for event in spans if event["tid"] == 0]
    assert {"data", "forward", "backward", "optimizer"} <= {event["name"] for event in phases}
    steps = 1 if name.startswith("three") else 3
    assert sum(event["name"] == "wait for ranks" for event in phases) == steps, name
    assert any(event["name"].startswith("gemm") for event in spans if event["tid"] == 1)
    phases.sort(key=lambda event: event["ts"])
    for before, after in zip(phases, phases[1:]):
        assert after["ts"] >= before["ts"] + before["dur"] - 0.01, (before, after)
    # Each op runs inside a phase of its step.
    first, last = phases[0]["ts"], phases[-1]["ts"] + phases[-1]["dur"]
    inside = sum(first - 50 <= event["ts"] and event["ts"] + event["dur"] <= last + 50 for event in spans)
    assert inside == len(spans), (name, inside, len(spans))
PYTHON
finish
