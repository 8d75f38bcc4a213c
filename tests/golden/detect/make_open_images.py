#!/usr/bin/env python3
"""Makes open_images.json: the average precision of each class by TensorFlow's object detection library, as its evaluator of
the Open Images challenge counts (groups weigh 1), on the random sets of make_map.py.

    python tests/golden/detect/make_open_images.py

It needs that library's per_image_evaluation and metrics, which compute with numpy alone. Scores are replaced by distinct
ones, because the library's sort is not stable. In every second set a third of the classes of an image are verified beside
those that have boxes, and detections of others are left out, as the evaluator does; in the other sets all are verified.
A row has each class' precision, null where it has no truth.
"""
import json
import pathlib

import numpy as np

np.float, np.bool = float, bool  # names that the library, of 2019, still uses

from make_map import Draws, make_set  # noqa: E402
from object_detection.utils import metrics, per_image_evaluation  # noqa: E402

HERE = pathlib.Path(__file__).parent
SETS, PRIME = 200, 2503


def corners(boxes):
    boxes = np.array(boxes, float).reshape(-1, 4)
    return np.stack([boxes[:, 1], boxes[:, 0], boxes[:, 1] + boxes[:, 3], boxes[:, 0] + boxes[:, 2]], 1)


def evaluate(number):
    classes, images, truths, detections = make_set(number)
    detections = [(i, k, b, (n * 7919 % PRIME + 1) / (PRIME + 1)) for n, (i, k, b, _) in enumerate(detections)]
    draws = Draws(number + 1000)
    one = per_image_evaluation.PerImageEvaluation(classes, 0.5, 1.0, 10000, group_of_weight=1.0)
    scores, labels = [[] for _ in range(classes)], [[] for _ in range(classes)]
    for image in range(1, images + 1):
        verified = {k for k in range(classes) if draws.below(3) == 0 or number % 2 == 1}
        mine = [t for t in truths if t[0] == image]
        verified |= {t[1] for t in mine}
        found = [d for d in detections if d[0] == image and d[1] in verified]
        got = one.compute_object_detection_metrics(
            corners([d[2] for d in found]), np.array([d[3] for d in found], float), np.array([d[1] for d in found], int),
            corners([t[2] for t in mine]), np.array([t[1] for t in mine], int), np.zeros(len(mine), bool),
            np.array([t[4] for t in mine], bool))
        for k in range(classes):
            scores[k].append(got[0][k])
            labels[k].append(np.asarray(got[1][k], float))
    row = []
    for k in range(classes):
        count = sum(t[1] == k for t in truths)
        if count == 0:
            row.append(None)
            continue
        curve = metrics.compute_precision_recall(np.concatenate(scores[k]), np.concatenate(labels[k]), float(count))
        row.append(float(metrics.compute_average_precision(*curve)))
    return row


def main():
    text = ",\n".join(json.dumps(evaluate(number)) for number in range(SETS))
    (HERE / "open_images.json").write_text("[" + text + "]\n")


if __name__ == "__main__":
    main()
