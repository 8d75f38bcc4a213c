#!/bin/bash
# Trackers of a run whose output_dir is in a bucket, with libraries that only record: they get what the files of the bucket
# have, go on in the same run after a kill, and leave nothing on this machine.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
source "$root/tests/tools/fake_trackers.sh"
far=("${train[@]}" --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --learning_rate 1e-2
    --logging_steps 1 --run_name mine --lr_scheduler_type constant)
nothing_left() {
    local left
    left=$(find tmp -mindepth 1 ! -path "tmp/trimtab-unpublished-*")
    [ -z "$left" ] || fail "$1: left on this machine: $left"
}
# seen FOLDER: the small objects below the prefix, as files here.
seen() {
    local object
    for object in $(control list | grep -E "^$1/(trackers/[a-z_]*|metrics|generations|run|adapter_model)\.(json|jsonl|safetensors)\$"); do
        mkdir -p "$(dirname "$object")" && stored "$object" >"$object"
    done
}

# All of them get the rows, the configuration and the completions of the bucket.
expect 0 'done: 4 steps' "${far[@]}" --max_steps 4 --output_dir s3://bucket/plain --report_to none
expect 0 'done: 4 steps' "${far[@]}" --max_steps 4 --output_dir s3://bucket/all --report_to "${all[@]}" tensorboard \
    --eval_dataset rows/train.jsonl --eval_strategy steps --eval_steps 2 --eval_generate 2 --eval_generate_tokens 4
for name in "${all[@]}"; do grep -q "$name: began run" printed err || fail "$name is not announced:" "$(cat printed err)"; done
seen all && seen plain
cmp all/adapter_model.safetensors plain/adapter_model.safetensors || fail "trackers change the weights"
no_secrets all calls
check all "${all[@]}"
nothing_left "a run to its end"

# Weights and checkpoints are not on this machine: a variable that asks for them is one warning.
WANDB_LOG_MODEL=checkpoint expect 0 'WANDB_LOG_MODEL has no effect: the files of this run are in an object store' "${far[@]}" --max_steps 4 \
    --output_dir s3://bucket/artifacts --report_to wandb
grep -q Artifact calls/wandb.jsonl && fail "an artifact without files"
rm -rf calls && mkdir calls

# Killed while a checkpoint is put: the followers say that the run failed, and clear up. The run that goes on is the same
# one of the tracker, with each row once.
control fault "match=PUT+/bucket/again/checkpoint-8/manifest&do=503&times=1000"
"$trimtab" "${far[@]}" --max_steps 12 --save_steps 4 --output_dir s3://bucket/again --report_to "${all[@]}" >killed 2>&1 </dev/null &
run=$!
wait_for 100 grep -q "^PUT /bucket/again/checkpoint-8/manifest" server/log
for name in "${all[@]}"; do
    wait_for 100 grep -q "^PUT /bucket/again/trackers/$name.json" server/log
done
kill -9 $run
wait $run 2>/dev/null
control fault clear=1
ended() { [ "$(cat calls/*.jsonl | grep -cE '"(finish|end_run|start\(\).end)"')" -ge 5 ]; }
wait_for 100 ended || fail "followers of a killed run: $(tail -qn 1 calls/*)"
cleared() { [ -z "$(find tmp -mindepth 1 ! -path 'tmp/trimtab-unpublished-*')" ]; }
wait_for 20 cleared || nothing_left "a killed run"
grep -q '"finish", "words": \[\], "named": {"exit_code": 1}' calls/wandb.jsonl || fail "a killed run: $(tail -n 1 calls/wandb.jsonl)"
expect 0 'wandb: goes on with run' "${far[@]}" --max_steps 12 --save_steps 4 --output_dir s3://bucket/again --report_to "${all[@]}" \
    --resume_from_checkpoint true
grep -q "checkpoint-4" printed err || fail "not resumed from checkpoint-4: $(cat printed err)"
seen again
for name in "${all[@]}"; do
    python3 - "$name" <<'EOT' || fail "$name: another run, or rows twice"
import json, sys
name = sys.argv[1]
calls = [json.loads(line) for line in open("calls/%s.jsonl" % name)]
begin = {"mlflow": "start_run", "comet_ml": "start"}.get(name, "init")
key = {"mlflow": "run_id", "comet_ml": "experiment_key", "trackio": "name"}.get(name, "id")
begins = [number for number, call in enumerate(calls) if call["call"] == begin]
assert len(begins) == 2, begins
kept = json.load(open("again/trackers/%s.json" % name))["id"]
assert calls[begins[1]]["named"][key] == kept, (calls[begins[1]], kept)
def steps(part):
    found = []
    for call in part:
        if call["call"] not in ("log", "log_metrics", "start().log_metrics"):
            continue
        values = call["words"][0]
        if "loss" in values or "train/loss" in values:
            found.append(call["named"].get("step", values.get("train/global_step")))
    return found
assert steps(calls[:begins[1]])[:4] == [1, 2, 3, 4], steps(calls[:begins[1]])
assert steps(calls[begins[1]:]) == list(range(5, 13)), steps(calls[begins[1]:])
EOT
done
nothing_left "a resumed run"

# A tracker that hangs, and a folder for temporary files that cannot be written, change nothing but the lines.
FAKE_TRACKER=hang expect 0 'did not take the last rows within 2 s and was ended' "${far[@]}" --max_steps 4 --output_dir s3://bucket/hang \
    --report_to wandb --tracker_seconds 2
same hang/adapter_model.safetensors plain/adapter_model.safetensors
nothing_left "a tracker that hangs"
finish
