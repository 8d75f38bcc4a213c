#!/usr/bin/env bash
# report_to: mlflow with a server of MLflow on this machine, over HTTP: rows, parameters, completions and the end of a
# run and of a resumed one, as the server answers them; a server that ends within a run. Where mlflow is installed:
# TRACKERS_PYTHON names the Python that has it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
export TRIMTAB_PYTHON=${TRACKERS_PYTHON:-python3}
"$TRIMTAB_PYTHON" -I -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('mlflow') is None)" 2>/dev/null ||
    { echo "skipped: mlflow is not installed (TRACKERS_PYTHON)"; exit 77; }
port=$("$TRIMTAB_PYTHON" -I -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
export HOME=$folder MLFLOW_EXPERIMENT_NAME=exp MLFLOW_TRACKING_URI=http://127.0.0.1:$port
MLFLOW_TRACKING_URI='' setsid "$TRIMTAB_PYTHON" -m mlflow server --host 127.0.0.1 --port "$port" --workers 1 \
    --backend-store-uri "sqlite:///$folder/mlflow.db" --artifacts-destination "$folder/artifacts" >server 2>&1 &
server=$!
trap 'kill -- -$server 2>/dev/null; rm -rf "$folder"' EXIT
answers() {
    "$TRIMTAB_PYTHON" -I -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2>/dev/null
}
for _ in $(seq 240); do answers && break; sleep 0.5; done
answers || fail "the server does not answer:" "$(tail -n 5 server)"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --eval_dataset rows.jsonl --eval_strategy steps --eval_steps 2
    --eval_generate 2 --eval_generate_tokens 4 --logging_steps 1 --save_steps 4 --device cpu --run_name mine
    --lr_scheduler_type constant --tracker_seconds 240 --report_to mlflow)
expect 0 'done: 4 steps' "${run[@]}" --output_dir out --max_steps 4
grep -E '^warning: .*(failed|ended|did not take)' err && fail "the tracker has failed"
expect 0 'mlflow: goes on with run' "${run[@]}" --output_dir out --max_steps 8 --resume_from_checkpoint true
grep -E '^warning: .*(failed|ended|did not take)' err && fail "the tracker has failed after the resume"
cat >check.py <<'PYTHON'
import json, mlflow
rows = [json.loads(line) for line in open("out/metrics.jsonl")]
client = mlflow.MlflowClient()
run = client.get_run(json.load(open("out/trackers/mlflow.json"))["id"])
assert run.info.status == "FINISHED" and run.info.run_name == "mine", run.info
assert run.data.params["model_type"] == "qwen2" and run.data.params["learning_rate"] == "2e-05", run.data.params
assert client.get_experiment(run.info.experiment_id).name == "exp"
for key in ("loss", "eval_loss", "grad_norm"):
    wanted = [(row["step"], row[key]) for row in rows if key in row]
    got = sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, key))
    assert got == wanted and len(got) > 3, (key, got, wanted)
table = json.load(open(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="completions.json")))
assert table["columns"][0] == "step" and len(table["data"]) >= 4, table
print("mlflow", mlflow.__version__, "as expected")
PYTHON
"$TRIMTAB_PYTHON" -I check.py >checked 2>&1 || fail "what the server keeps:" "$(tail -n 5 checked)"
tail -n 1 checked

# Without its server the run trains on, and no byte of its result differs.
expect 0 'done: 4 steps' "${run[@]}" --output_dir alone --max_steps 4 --report_to none
kill -- -$server
wait $server 2>/dev/null
MLFLOW_HTTP_REQUEST_MAX_RETRIES=0 expect 0 'done: 4 steps' "${run[@]}" --output_dir gone --max_steps 4 --tracker_seconds 5
grep -q '^warning: mlflow' err || fail "a server that is gone is no warning:" "$(cat err)"
cmp alone/adapter_model.safetensors gone/adapter_model.safetensors || fail "a server that is gone changes the weights"
finish
