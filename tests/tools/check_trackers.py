"""Checks what the recording libraries of fake_tracker.py got against the files of the run.

    check_trackers.py RECORD OUTPUT_DIR TRACKER... [--resumed]
"""

import json
import math
import pathlib
import sys

SINGLE = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def slashed(row):
    return {("eval/" + key[5:]) if key.startswith("eval_") else "train/" + key: value for key, value in row.items()}


def without(row):
    return {key: value for key, value in row.items() if key not in SINGLE}


def same(a, b):
    def plain(value):
        return "nan" if value is None or (isinstance(value, float) and math.isnan(value)) else value
    return {key: plain(value) for key, value in a.items()} == {key: plain(value) for key, value in b.items()}


class Calls:
    def __init__(self, record, name):
        self.all = rows_of(record / (name + ".jsonl"))

    def of(self, path):
        return [call for call in self.all if call["call"] == path]


def points(name, calls):
    """(step, values) of each row, as the tracker got it, and the figures of the whole training."""
    if name == "mlflow":
        return [(call["named"]["step"], call["words"][0]) for call in calls.of("log_metrics")], None
    if name == "comet_ml":
        return [(call["named"]["step"], call["words"][0]) for call in calls.of("start().log_metrics")], None
    logged = [call for call in calls.of("log") if "completions" not in call["words"][0]]
    totals = {}
    if name == "wandb":
        totals = dict(call["words"] for call in calls.of("init().summary[]"))
    if name == "swanlab":
        for call in logged:
            totals.update({key[13:]: value for key, value in call["words"][0].items() if key.startswith("single_value/")})
        logged = [call for call in logged if "train/global_step" in call["words"][0]]
        assert all(call["named"]["step"] == call["words"][0]["train/global_step"] for call in logged)
    got = []
    for call in logged:
        values = dict(call["words"][0])
        got.append((values.pop("train/global_step"), values))
    return got, totals if name != "trackio" else None


def check_rows(name, calls, rows):
    got, totals = points(name, calls)
    wanted = []
    for row in rows:
        values = {key: value for key, value in row.items() if key != "step"}
        if name in ("wandb", "swanlab", "trackio"):
            values = without(values)
        wanted.append((row["step"], values if name == "mlflow" else slashed(values)))
    assert [step for step, _ in got] == [step for step, _ in wanted], (name, got)
    for (step, a), (_, b) in zip(got, wanted):
        assert same(a, b), (name, step, a, b)
    if totals is not None:
        last = {key: value for key, value in rows[-1].items() if key in SINGLE}
        assert last and totals == last, (name, totals, last)


def check_config(name, calls, out):
    settings = json.loads((out / "trackers" / "config.json").read_text())
    model = settings["model_config"]
    assert settings["args"]["learning_rate"] == 0.01 and model["model_type"] == "qwen2" and settings["peft_config"]["r"]
    if name == "mlflow":
        got = {key: value for call in calls.of("log_params") for key, value in call["words"][0].items()}
        assert all(len(call["words"][0]) <= 100 for call in calls.of("log_params"))
    elif name == "comet_ml":
        got = calls.of("start().log_parameters")[0]["words"][0]
        assert got["config.model_type"] == "qwen2" and got["peft_config.default.r"] == settings["peft_config"]["r"]
        got = {key[5:]: value for key, value in got.items() if key.startswith("args.")}
        got["model_type"] = "qwen2"
    else:
        got = {key: value for call in calls.of("config.update") for key, value in call["words"][0].items()}
        assert got["peft_config"]["default"]["r"] == settings["peft_config"]["r"]
        assert got["model_num_parameters" if name == "swanlab" else "model/num_parameters"] > 1000
    assert got["learning_rate"] == 0.01 and got["model_type"] == "qwen2" and got["run_name"] == "mine", (name, got)


def check_texts(name, calls, texts):
    if name == "mlflow":
        data = calls.of("log_dict")[-1]["words"][0]["data"]
    elif name == "comet_ml":
        data = calls.of("start().log_table")[-1]["named"]["tabular_data"]
    elif name == "swanlab":
        assert len(calls.of("Text")) == len(texts)
        return
    elif name == "wandb":
        data = calls.of("Table")[-1]["named"]["data"]
    else:
        return  # a table of Trackio needs pandas
    wanted = [[text["step"], text["prompt"], text["completion"], text["reference"]] for text in texts]
    assert data == wanted, (name, data, wanted)


def check_run(name, calls, resumed):
    begin = {"mlflow": "start_run", "comet_ml": "start"}.get(name, "init")
    begins = calls.of(begin)
    assert len(begins) == 1 + resumed, (name, begins)
    words = begins[0]["named"]
    key = {"mlflow": "run_id", "comet_ml": "experiment_key", "trackio": "name"}.get(name, "id")
    if name == "wandb":
        assert words == {"project": "proj", "name": "mine"}, words
        assert calls.of("define_metric")[0]["words"] == ["train/global_step"]
    if name == "trackio":
        assert words["project"] == "huggingface" and words["resume"] == "allow" and words["name"] == "mine", words
    if name == "mlflow":
        assert calls.of("set_experiment")[0]["words"] == ["exp"] and words["run_name"] == "mine", words
    end = {"mlflow": "end_run", "comet_ml": "start().end"}.get(name, "finish")
    assert len(calls.of(end)) == 1 + resumed, (name, calls.of(end))
    if name == "mlflow":
        assert calls.of(end)[-1]["named"] == {"status": "FINISHED"}
    if name == "wandb":
        assert calls.of(end)[-1]["named"] == {"exit_code": 0}
    if resumed:
        kept = json.loads((OUT / "trackers" / (name + ".json")).read_text())["id"]
        assert begins[1]["named"][key] == kept, (name, begins[1], kept)
        assert name == "trackio" or key not in begins[0]["named"]


words = [word for word in sys.argv[1:] if word != "--resumed"]
RECORD, OUT = pathlib.Path(words[0]), pathlib.Path(words[1])
resumed = "--resumed" in sys.argv
for name in words[2:]:
    calls = Calls(RECORD, name)
    rows = [row for row in rows_of(OUT / "metrics.jsonl") if "event" not in row]
    check_run(name, calls, resumed)
    if not resumed:
        check_config(name, calls, OUT)
        check_rows(name, calls, rows)
        check_texts(name, calls, rows_of(OUT / "generations.jsonl"))
    else:
        # Rows of the earlier part are sent once; its own last row with the totals is not in the resumed run's file.
        steps = [(step, "train/loss" in values or "loss" in values) for step, values in points(name, calls)[0]]
        trained = [step for step, trains in steps if trains]
        assert trained == [1, 2, 3, 4, 5, 6, 7, 8], (name, trained)
    print(name, "as expected")
