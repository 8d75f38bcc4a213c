#!/usr/bin/env bash
# Trackers of report_to with the libraries themselves, where they are installed: a store of MLflow on this machine,
# Trackio's, wandb and comet_ml offline, swanlab local. TRACKERS_PYTHON names the Python that has them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
export TRIMTAB_PYTHON=${TRACKERS_PYTHON:-python3}
found=()
for name in mlflow wandb trackio comet_ml swanlab; do
    "$TRIMTAB_PYTHON" -I -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$name') is None)" 2>/dev/null &&
        found+=("$name")
done
[ ${#found[@]} -gt 0 ] || { echo "skipped: no library of a tracker is installed (TRACKERS_PYTHON)"; exit 77; }
export HOME=$folder WANDB_MODE=offline SWANLAB_MODE=local COMET_START_ONLINE=0 TRACKIO_DIR=$folder/trackio
export MLFLOW_TRACKING_URI=sqlite:///$folder/mlflow.db MLFLOW_EXPERIMENT_NAME=exp
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --eval_dataset rows.jsonl --eval_strategy steps --eval_steps 2
    --eval_generate 2 --eval_generate_tokens 4 --logging_steps 1 --save_steps 4 --device cpu --run_name mine
    --lr_scheduler_type constant --output_dir out --tracker_seconds 240 --report_to "${found[@]}")
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4
for name in "${found[@]}"; do grep -q "$name: began run" printed err || fail "$name has not begun"; done
grep -E '^warning: .*(failed|ended|did not take)' err && fail "a tracker has failed"
expect 0 'done: 8 steps' "${run[@]}" --max_steps 8 --resume_from_checkpoint true
for name in "${found[@]}"; do grep -q "$name: goes on with run" printed err || fail "$name does not go on:" "$(cat err)"; done
grep -E '^warning: .*(failed|ended|did not take)' err && fail "a tracker has failed after the resume"

cat >check.py <<'PYTHON'
import glob, importlib, json, sqlite3, sys
rows = [json.loads(line) for line in open("out/metrics.jsonl")]
wanted = {key: [(row["step"], row[key]) for row in rows if key in row] for key in ("loss", "eval_loss", "grad_norm")}
assert [step for step, _ in wanted["loss"]] == list(range(1, 9))
def kept(name):
    return json.load(open("out/trackers/%s.json" % name))["id"]
if "mlflow" in sys.argv:
    client = importlib.import_module("mlflow").MlflowClient()
    run = client.get_run(kept("mlflow"))
    assert run.info.status == "FINISHED" and run.info.run_name == "mine" and run.data.params["model_type"] == "qwen2"
    assert client.get_experiment(run.info.experiment_id).name == "exp"
    for key, values in wanted.items():
        history = client.get_metric_history(run.info.run_id, key)
        got = sorted((point.step, point.value) for point in history)
        assert got == values, (key, got, values)
    assert any(entry.path == "completions.json" for entry in client.list_artifacts(run.info.run_id))
    print("mlflow as expected")
if "trackio" in sys.argv:
    (store,) = glob.glob("trackio/huggingface.db")
    lines = sqlite3.connect(store).execute("select metrics from metrics where run_name = 'mine'").fetchall()
    points = [json.loads(line) for (line,) in lines]
    for key, values in wanted.items():
        name = "eval/" + key[5:] if key.startswith("eval_") else "train/" + key
        got = sorted((point["train/global_step"], point[name]) for point in points if name in point)
        assert got == values, (name, got, values)
    print("trackio as expected")
if "wandb" in sys.argv:
    assert len(glob.glob("wandb/offline-run-*-" + kept("wandb"))) == 2
    print("wandb as expected")
PYTHON
"$TRIMTAB_PYTHON" -I check.py "${found[@]}" >checked 2>&1 || fail "what the libraries keep:" "$(tail -n 5 checked)"
cat checked
finish
