#!/usr/bin/env python3
"""Makes map.json: what pycocotools' COCOeval counts on 200 random sets of boxes, which the test makes again.

    python tests/golden/detect/make_map.py

A set is a function of its number: draws of splitmix64, small whole numbers divided by 4, so that both languages have the
same doubles. There are crowds, ties of scores and of IoU, classes without truths or detections, images with more than
100 detections of a class, areas on the borders. A row of map.json has the 12 numbers of COCOeval.stats, then each
class' precision and its recall for 100 detections.
"""
import contextlib
import io
import json
import pathlib

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1


class Draws:
    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def make_box(draws):
    side = [40, 160, 500, 1600][draws.below(4)]
    x, y = draws.below(2000), draws.below(2000)
    return [x / 4, y / 4, (1 + draws.below(side)) / 4, (1 + draws.below(side)) / 4]


def make_set(number):
    """(classes, images, truths, detections): lists of (image, label, box, area, crowd) and of (image, label, box, score)"""
    draws = Draws(number)
    classes, images = 1 + draws.below(4), 1 + draws.below(6)
    truths, detections = [], []
    many = draws.below(20) == 0
    for image in range(1, images + 1):
        for _ in range(draws.below(14)):
            label, box = draws.below(classes), make_box(draws)
            if draws.below(12) == 0:
                box[2] = box[3] = 32.0  # an area on the border of two ranges
            share = 1 + draws.below(4)
            truths.append((image, label, box, box[2] * box[3] * share / 4, draws.below(8) == 0))
        mine = [t for t in truths if t[0] == image]
        for _ in range(draws.below(400 if many else 30)):
            label, box = draws.below(classes), make_box(draws)
            near = draws.below(3)
            if near > 0 and mine:
                _, label, other, _, _ = mine[draws.below(len(mine))]
                box = [other[0] + (draws.below(9) - 4) / 4, other[1] + (draws.below(9) - 4) / 4,
                       other[2] + draws.below(3) / 4, other[3] + draws.below(3) / 4]
            detections.append((image, label, box, draws.below(20 if draws.below(2) == 0 else 1000003) / 1000003))
    return classes, images, truths, detections


def evaluate(number):
    classes, images, truths, detections = make_set(number)
    gt, dt = COCO(), None
    gt.dataset = {
        "images": [{"id": i} for i in range(1, images + 1)],
        "categories": [{"id": k} for k in range(classes)],
        "annotations": [{"id": n + 1, "image_id": i, "category_id": k, "bbox": b, "area": a, "iscrowd": int(c)}
                        for n, (i, k, b, a, c) in enumerate(truths)]}
    gt.createIndex()
    results = [{"image_id": i, "category_id": k, "bbox": list(b), "score": s} for i, k, b, s in detections]
    if results:
        dt = gt.loadRes(results)
    else:
        dt = COCO()
        dt.dataset = {"images": gt.dataset["images"], "categories": gt.dataset["categories"], "annotations": []}
        dt.createIndex()
    run = COCOeval(gt, dt, "bbox")
    run.evaluate()
    run.accumulate()
    run.summarize()
    precision, recall = run.eval["precision"], run.eval["recall"]

    def mean(values):
        values = values[values > -1]
        return float(np.mean(values)) if values.size else -1.0

    per_class = [mean(precision[:, :, k, 0, 2]) for k in range(classes)]
    per_class += [mean(recall[:, k, 0, 2]) for k in range(classes)]
    return [float(v) for v in run.stats] + per_class


def main():
    rows = []
    for number in range(200):
        with contextlib.redirect_stdout(io.StringIO()):
            rows.append(evaluate(number))
    text = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "map.json").write_text("[" + text + "]\n")


if __name__ == "__main__":
    main()
