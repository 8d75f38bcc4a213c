#!/usr/bin/env python3
"""The peer of bench_detect_loader: torchvision's reference path, PIL -> to_tensor -> GeneralizedRCNNTransform.

    python bench/peers/detect_loader.py FOLDER    (made by bench_detect_loader make)

One thread, one image at a time as a DataLoader's worker does, and the batch of the model's transform.
"""
import json
import pathlib
import resource
import sys
import time

import torch
from PIL import Image
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.transforms.functional import hflip, to_tensor

torch.set_num_threads(1)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    paths = sorted((pathlib.Path(sys.argv[1]) / "images").glob("*.jpg"))
    transform = GeneralizedRCNNTransform(800, 1333, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.manual_seed(0)
    for name in ("warm-up", "measured"):
        start, cpu = time.time(), cpu_seconds()
        for at in range(0, len(paths), 16):
            images = []
            for path in paths[at:at + 16]:
                image = to_tensor(Image.open(path).convert("RGB"))
                images.append(hflip(image) if torch.rand(1) < 0.5 else image)
            transform(images)
        count = len(paths)
        print(json.dumps({"pass": name, "peer": "torchvision " + torch.__version__, "images": count,
                          "images_per_second": round(count / (time.time() - start), 1),
                          "cpu_ms_per_image": round(1000 * (cpu_seconds() - cpu) / count, 2)}))


if __name__ == "__main__":
    main()
