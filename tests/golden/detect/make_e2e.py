#!/usr/bin/env python3
"""Makes e2e.json: torchvision's detections by the narrow RetinaNet of make_retinanet.py in images of tests/golden/images.

    python tests/golden/detect/make_e2e.py    (after make_retinanet.py and images/make_images.py)
"""
import json
import pathlib

import torch
from PIL import Image
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.transforms.functional import to_tensor

from make_retinanet import HERE as RETINANET
from make_retinanet import make_model

HERE = pathlib.Path(__file__).parent
NAMES = ["rgb.png", "palette.png", "grey.png"]


def main():
    torch.set_num_threads(1)
    model = make_model().eval()
    model.load_state_dict(torch.load(RETINANET / "weights.pth", weights_only=True))
    model.transform = GeneralizedRCNNTransform(128, 213, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).eval()
    out = {}
    for name in NAMES:
        image = to_tensor(Image.open(HERE.parent / "images" / name).convert("RGB"))
        with torch.no_grad():
            found = model([image])[0]
        out[name] = [[int(label), float(score)] + [float(v) for v in box]
                     for box, score, label in zip(found["boxes"], found["scores"], found["labels"])]
        print(name, len(out[name]), out[name][:2])
    (HERE / "e2e.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
