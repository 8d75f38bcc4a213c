#!/usr/bin/env python3
"""Makes tests/golden/detect/train.json: a training of a narrow RetinaNet by torchvision, from files to losses.

    python tests/golden/detect/make_train.py

The data and the starting weights are those that tests/golden/detect_train.sh makes with the scripts of
examples/detection: all images in one batch, no flips, SGD as torchvision's references set it, fp32. The file has the two
losses of every step, and COCO's precision of the trained network on the validation images by pycocotools.
"""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.retinanet import RetinaNet, _default_anchorgen
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d
from torchvision.transforms.functional import to_tensor

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parents[2] / "examples" / "detection"
SHAPES = ["--train", "8", "--validation", "6", "--size", "96", "--mixed"]
WEIGHTS = ["--width", "8", "--pyramid", "16"]
WIDTH, PYRAMID, CLASSES, STEPS = 8, 16, 4, 8


class Narrow(ResNet):
    def __init__(self):
        super().__init__(Bottleneck, [1, 1, 1, 1], norm_layer=FrozenBatchNorm2d)
        self.inplanes = WIDTH
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = FrozenBatchNorm2d(WIDTH)
        for stage in range(4):
            layer = self._make_layer(Bottleneck, WIDTH << stage, 1, stride=1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", layer)
        del self.avgpool, self.fc


def make_model():
    channels = [4 * WIDTH << stage for stage in (1, 2, 3)]
    layers = {"layer2": "0", "layer3": "1", "layer4": "2"}
    backbone = BackboneWithFPN(Narrow(), layers, channels, PYRAMID, LastLevelP6P7(PYRAMID, PYRAMID))
    return RetinaNet(backbone, CLASSES, anchor_generator=_default_anchorgen(), min_size=96, max_size=160)


def read(folder, split):
    labels = json.loads((folder / "coco" / f"{split}.json").read_text())
    images, targets, ids = [], [], []
    for image in labels["images"]:
        boxes = [a for a in labels["annotations"] if a["image_id"] == image["id"]]
        corners = [[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in boxes)]
        images.append(to_tensor(Image.open(next(folder.rglob(image["file_name"]))).convert("RGB")))
        targets.append({"boxes": torch.tensor(corners, dtype=torch.float32),
                        "labels": torch.tensor([a["category_id"] for a in boxes])})
        ids.append(image["id"])
    return images, targets, ids


def measure(model, folder):
    images, _, ids = read(folder, "validation")
    model.eval()
    found = []
    for image, number in zip(images, ids):
        with torch.no_grad():
            out = model([image])[0]
        for box, label, score in zip(out["boxes"].tolist(), out["labels"].tolist(), out["scores"].tolist()):
            found.append({"image_id": number, "category_id": label, "score": score,
                          "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]]})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "coco" / "validation.json"))
        evaluation = COCOeval(truth, truth.loadRes(found), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats.tolist()


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, EXAMPLE / "make_shapes.py", folder, *SHAPES], check=True)
        subprocess.run([sys.executable, EXAMPLE / "make_weights.py", folder / "start.pth", *WEIGHTS], check=True)
        model = make_model()
        model.load_state_dict(torch.load(folder / "start.pth", weights_only=True))
        model.score_thresh = 0.0
        images, targets, _ = read(folder, "train")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        model.train()
        losses = []
        for _ in range(STEPS):
            loss = model(images, targets)
            losses.append({key: value.item() for key, value in loss.items()})
            optimizer.zero_grad()
            sum(loss.values()).backward()
            optimizer.step()
        stats = measure(model, folder)
    result = {"steps": losses, "stats": stats}
    (HERE / "train.json").write_text(json.dumps(result, indent=1) + "\n")


main()
