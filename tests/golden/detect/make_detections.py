#!/usr/bin/env python3
"""Makes detections.json: what torchvision's RetinaNet makes of heads' outputs, which the test makes again.

    python tests/golden/detect/make_detections.py

The outputs are draws of splitmix64 (make_map.py) in the order of the levels, logits before deltas, as float32.
"""
import json
import pathlib

import numpy as np
import torch
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import RetinaNet, _default_anchorgen

from make_map import Draws

HERE = pathlib.Path(__file__).parent
PLACES = 9


class Backbone(torch.nn.Module):
    out_channels = 8

    def forward(self, x):
        return x


def make(number, canvas, size, original, classes, shift):
    draws = Draws(1000 + number)
    height, width = canvas
    grids, h, w = [], height // 4, width // 4
    for _ in range(5):
        h, w = (h + 1) // 2, (w + 1) // 2
        grids.append((h, w))
    model = RetinaNet(Backbone(), classes, anchor_generator=_default_anchorgen()).eval()
    logits, deltas = [], []
    for h, w in grids:
        count = h * w * PLACES
        values = [draws.below(1000003) / 1000003 * 10 - shift for _ in range(count * classes)]
        logits.append(torch.tensor(np.array(values).astype(np.float32)).reshape(1, count, classes))
        values = [draws.below(1000003) / 1000003 * 4 - 2 if i % 4 < 2 else draws.below(1000003) / 1000003 * (8 if number == 2 else 4.5) - 3.5
                  for i in range(count * 4)]
        deltas.append(torch.tensor(np.array(values).astype(np.float32)).reshape(1, count, 4))
    features = [torch.zeros(1, 8, h, w) for h, w in grids]
    anchors = model.anchor_generator(ImageList(torch.zeros(1, 3, height, width), [size]), features)
    split = [list(anchors[0].split([h * w * PLACES for h, w in grids]))]
    with torch.no_grad():
        found = model.postprocess_detections({"cls_logits": logits, "bbox_regression": deltas}, split, [size])
        found = model.transform.postprocess(found, [size], [original])[0]
    rows = [[int(label), float(score)] + [float(v) for v in box]
            for box, score, label in zip(found["boxes"], found["scores"], found["labels"])]
    return {"number": number, "canvas": canvas, "size": size, "original": original, "classes": classes, "shift": shift,
            "detections": rows, "anchors": [float(v) for v in anchors[0][::97].flatten()]}


def main():
    sets = [make(0, (128, 160), (120, 150), (240, 290), 4, 8.5), make(1, (96, 224), (96, 200), (50, 104), 2, 12.5),
            make(2, (160, 160), (133, 160), (266, 320), 3, 6), make(3, (64, 64), (64, 64), (64, 64), 1, 30)]
    (HERE / "detections.json").write_text(json.dumps(sets) + "\n")


if __name__ == "__main__":
    main()
