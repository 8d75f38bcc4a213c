#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trainer/patience.json: after which evaluation transformers' EarlyStoppingCallback stops a run.

Each case is {"patience", "threshold", "greater", "metrics", "stops"}: `stops` is the number of evaluations after which
should_training_stop is set, 0 when it never is. Some metrics are NaN or infinite. A Trainer sets best_metric after its callbacks, as _determine_best_metric
does. How to run, with transformers 5.17.0:

    python tests/golden/trainer/make_patience.py
"""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState

HERE = Path(__file__).resolve().parent


def stops(patience, threshold, greater, metrics):
    callback = EarlyStoppingCallback(patience, threshold)
    state, control = TrainerState(), TrainerControl()
    args = SimpleNamespace(greater_is_better=greater, metric_for_best_model="loss")
    for count, metric in enumerate(metrics, 1):
        callback.on_evaluate(args, state, control, {"eval_loss": metric})
        if control.should_training_stop:
            return count
        better = np.greater if greater else np.less
        if state.best_metric is None:
            state.best_metric = float("-inf") if greater else float("inf")
        if better(metric, state.best_metric):
            state.best_metric = metric
    return 0


def main():
    rng = random.Random(1)
    cases = []
    for _ in range(200):
        patience, threshold, greater = rng.randint(1, 4), rng.choice([0.0, 0.0, 0.01, 0.1]), rng.random() < 0.5
        level, metrics = rng.uniform(1, 3), []
        for _ in range(rng.randint(1, 12)):
            level += rng.choice([-0.1, -0.05, -0.01, -0.005, 0, 0.005, 0.02, 0.1])
            metrics.append(round(level, 6))
        for _ in range(rng.choice([0, 0, 0, 1, 3])):
            metrics[rng.randrange(len(metrics))] = rng.choice([float("nan"), float("nan"), float("inf"), -float("inf")])
        cases.append({"patience": patience, "threshold": threshold, "greater": greater, "metrics": metrics, "stops": stops(patience, threshold, greater, metrics)})
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "patience.json").write_text(f"[\n{text}\n]\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
