#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trainer/stops.tsv: what a run of transformers' Trainer with EarlyStoppingCallback leaves. Each row: the
settings; the last step; the checkpoints; the steps of log rows of training and of evaluation; the step of the best metric;
the callback's counter in trainer_state.json of the last checkpoint; the control's should_training_stop there. An epoch has
four steps; eval_loss falls by less than the threshold, so every evaluation after the first waits. How to run, with
transformers 5.17.0:

    python tests/golden/trainer/make_stops.py
"""

import json
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

OUT = Path(__file__).resolve().parent / "stops.tsv"
CASES = [
    "eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 load_best_model_at_end=true",
    "eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=2",
    "eval_strategy=steps eval_steps=1 save_strategy=epoch metric_for_best_model=loss",
    "eval_strategy=steps eval_steps=1 save_strategy=epoch logging_strategy=epoch metric_for_best_model=loss",
    "eval_strategy=steps eval_steps=2 save_strategy=steps save_steps=2 load_best_model_at_end=true save_total_limit=1",
    "eval_strategy=steps eval_steps=1 save_strategy=best metric_for_best_model=loss",
    "eval_strategy=steps eval_steps=1 save_strategy=no metric_for_best_model=loss",
    "eval_strategy=epoch save_strategy=epoch load_best_model_at_end=true logging_strategy=epoch",
    "eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 load_best_model_at_end=true greater_is_better=true",
    "eval_strategy=steps eval_steps=3 save_strategy=steps save_steps=3 metric_for_best_model=eval_loss logging_steps=2",
]


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight * x.float()).mean()}


class Falling(Trainer):
    """eval_loss 2.0, 1.99, 1.98, ..."""

    count = 0

    def evaluate(self, *_, **__):
        metrics = {"eval_loss": 2.0 - 0.01 * self.count}
        self.count += 1
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def run(case, folder):
    words = dict(word.split("=") for word in case.split())
    settings = {k: v == "true" if v in ("true", "false") else int(v) if v.isdigit() else v for k, v in words.items()}
    settings = {"metric_for_best_model": "loss", "logging_steps": 1} | settings
    args = TrainingArguments(folder, max_steps=20, per_device_train_batch_size=4, report_to="none", use_cpu=True, **settings)
    rows = [{"x": float(i)} for i in range(16)]
    trainer = Falling(Line(), args, train_dataset=rows, eval_dataset=rows, callbacks=[EarlyStoppingCallback(2, 10.0)])
    trainer.train()
    state = trainer.state
    checkpoints = sorted(int(path.name.split("-")[1]) for path in Path(folder).glob("checkpoint-*"))
    counter, stops = "-", "-"
    if checkpoints:
        saved = json.loads((Path(folder) / f"checkpoint-{checkpoints[-1]}" / "trainer_state.json").read_text())
        callbacks = saved["stateful_callbacks"]
        counter = callbacks["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"]
        stops = str(callbacks["TrainerControl"]["args"]["should_training_stop"]).lower()
    rows = {key: ",".join(str(row["step"]) for row in state.log_history if key in row) for key in ("loss", "eval_loss")}
    return [case, state.global_step, ",".join(map(str, checkpoints)) or "-", rows["loss"] or "-", rows["eval_loss"],
            state.best_global_step or "-", counter, stops]


def main():
    assert transformers.__version__ == "5.17.0"
    lines = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            lines.append("\t".join(map(str, run(case, folder))))
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
