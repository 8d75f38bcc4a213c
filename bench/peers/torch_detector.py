#!/usr/bin/env python3
"""Training steps of a RetinaNet ResNet-50 FPN on one processor, compared with torchvision, in one run.

    python bench/peers/torch_detector.py FOLDER [--trimtab build/trimtab] [--pixels 320] [--images 2] [--steps 3]
        [--dtype f32|bf16]

FOLDER is made by examples/detection/make_shapes.py --size PIXELS. Random weights with frozen norms, three trained stages,
SGD with momentum, no augmentation; one thread, processor time. A step is the difference of runs of STEPS + 1 steps and of
one, here and there; memory is the most of a process (on torch's side with its libraries). Bf16 is torch's autocast with
weights and images in channels-last order.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PEER = r"""
import json, pathlib, sys
import torch, torchvision
from PIL import Image
folder, steps, pixels, images, dtype = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
torch.set_num_threads(1)
torch.manual_seed(0)
norm = torchvision.ops.misc.FrozenBatchNorm2d
model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4,
    trainable_backbone_layers=5, norm_layer=norm, min_size=pixels, max_size=1333).train()
for name, parameter in model.backbone.body.named_parameters():
    parameter.requires_grad_(name.startswith(("layer2", "layer3", "layer4")))
model = model.to(memory_format=torch.channels_last)
coco = json.loads((folder / "coco" / "train.json").read_text())
boxes = {image["id"]: [] for image in coco["images"]}
for a in coco["annotations"]:
    x, y, w, h = a["bbox"]
    boxes[a["image_id"]].append((x, y, x + w, y + h, a["category_id"]))
data = []
for image in coco["images"]:
    rows = torch.tensor(boxes[image["id"]], dtype=torch.float32)
    picture = Image.open(folder / "images" / "train" / image["file_name"]).convert("RGB")
    data.append((torchvision.transforms.functional.to_tensor(picture), {"boxes": rows[:, :4], "labels": rows[:, 4].long()}))
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-4, momentum=0.9, weight_decay=1e-4)
for step in range(steps):
    batch = [data[(step * images + i) % len(data)] for i in range(images)]
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
        losses = model([x for x, _ in batch], [t for _, t in batch])
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
"""


def measure(command):
    """Processor seconds and the most memory, in bytes, of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(said)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def step(commands, steps):
    one, _ = measure(commands(1))
    all_, memory = measure(commands(steps + 1))
    return (all_ - one) / steps, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--trimtab", default="build/trimtab")
    parser.add_argument("--pixels", type=int, default=320)
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        def ours(steps):
            return [args.trimtab, "train", "--task", "detection", "--local-image-dir", args.folder / "images", "--cache-dir",
                    args.folder, "--image-size", str(args.pixels), "--batch-size", str(args.images), "--max_steps",
                    str(steps), "--threads", "1", "--bf16", str(args.dtype == "bf16").lower(), "--learning_rate", "1e-4",
                    "--trainable_layers", "3", "--hflip", "0", "--eval_strategy", "no", "--save_strategy", "no",
                    "--report_to", "none", "--output_dir", f"{scratch}/out{steps}"]

        def theirs(steps):
            return [sys.executable, "-c", PEER, args.folder, str(steps), str(args.pixels), str(args.images), args.dtype]
        seconds, memory = step(ours, args.steps)
        torch_seconds, torch_memory = step(theirs, args.steps)
    print(json.dumps({"pixels": args.pixels, "images": args.images, "dtype": args.dtype, "seconds": round(seconds, 3),
                      "torch_seconds": round(torch_seconds, 3), "speedup": round(torch_seconds / seconds, 2),
                      "memory_gib": round(memory / 2**30, 2), "torch_memory_gib": round(torch_memory / 2**30, 2),
                      "memory_ratio": round(memory / torch_memory, 2)}))


if __name__ == "__main__":
    main()
