#!/usr/bin/env python3
"""Training steps of a RetinaNet ResNet-50 FPN, compared with torchvision, in one run.

    python bench/peers/torch_detector.py FOLDER [--trimtab build/trimtab] [--pixels 320] [--images 2] [--steps 3]
        [--dtype f32|bf16] [--device cpu|cuda] [--variants eager,compiled] [--num-workers 8]

FOLDER is made by examples/detection/make_shapes.py --size PIXELS. Random weights with frozen norms, three trained stages,
SGD with momentum, no augmentation. Bf16 is torch's autocast with weights and images in channels-last order.

On a processor: one thread, processor time. A step is the difference of runs of STEPS + 1 steps and of one, here and
there; memory is the most of a process (on torch's side with its libraries); neither side keeps room for a checkpoint.

On a GPU: steps by the clock. Torch's data are one batch that is on the GPU already, normalised; the backbone and the heads
run as torch does, or compiled, cuDNN chooses by measuring, and the step is the median by CUDA events; the faster variant
counts. Trimtab trains from files whose pixels its cache holds, and its step is
the median of those behind the first third. Memory is the most in use on the GPU: torch's allocator, our buffers and context.
"""
import argparse
import json
import os
import pathlib
import subprocess
import statistics
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

GPU_PEER = r"""
import json, pathlib, statistics, sys
import torch, torchvision
from torchvision.models.detection.image_list import ImageList
folder, steps, pixels, images, dtype, variant = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:5]), *sys.argv[5:7]
classes = int(sys.argv[7])
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes,
    trainable_backbone_layers=5, norm_layer=torchvision.ops.misc.FrozenBatchNorm2d, min_size=pixels, max_size=1333).train()
for name, parameter in model.backbone.body.named_parameters():
    parameter.requires_grad_(name.startswith(("layer2", "layer3", "layer4")))
model = model.to("cuda", memory_format=torch.channels_last)
coco = json.loads((folder / "coco" / "train.json").read_text())
boxes = {image["id"]: [] for image in coco["images"]}
for a in coco["annotations"]:
    x, y, w, h = a["bbox"]
    boxes[a["image_id"]].append((x, y, x + w, y + h, a["category_id"]))
rows = [torch.tensor(list(boxes.values())[i % len(boxes)], dtype=torch.float32, device="cuda") for i in range(images)]
targets = [{"boxes": r[:, :4], "labels": r[:, 4].long()} for r in rows]
x = torch.randn(images, 3, pixels, pixels, device="cuda").to(memory_format=torch.channels_last)
sizes = ImageList(x, [(pixels, pixels)] * images)

def network(x):
    features = list(model.backbone(x).values())
    return features, model.head(features)

if variant != "eager":
    network = torch.compile(network)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)
anchors = model.anchor_generator(sizes, network(x)[0])

def step():
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bf16"):
        losses = model.compute_loss(targets, network(x)[1], anchors)
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()

for _ in range(5):
    step()
torch.cuda.reset_peak_memory_stats()
marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
marks[0].record()
for mark in marks[1:]:
    step()
    mark.record()
torch.cuda.synchronize()
took = statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
print(json.dumps({"seconds": took / 1e3, "memory": torch.cuda.max_memory_allocated()}))
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


def options(args):
    return ["--task", "detection", "--local-image-dir", args.folder / "images", "--cache-dir", args.folder, "--image-size",
            str(args.pixels), "--batch-size", str(args.images), "--bf16", str(args.dtype == "bf16").lower(),
            "--learning_rate", "1e-4", "--trainable_layers", "3", "--hflip", "0", "--eval_strategy", "no",
            "--save_strategy", "no", "--report_to", "none", "--save_only_model", "true"]


def gpu_rows(args, folder):
    """Seconds of a step and memory of trimtab."""
    command = [args.trimtab, "train", *options(args), "--backend", "cuda", "--num-workers", str(args.num_workers),
               "--max_steps", str(3 * args.steps), "--logging_steps", "1", "--output_dir", folder]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    rows = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "images_per_second" in row][args.steps:]
    speed = statistics.median(row["images_per_second"] for row in rows)
    return args.images / speed, max(row["device_bytes"] for row in rows)


def classes_of(folder):
    """The classes of the data set, and the one of the background."""
    return len((folder / "class-descriptions-boxable.csv").read_text().splitlines()) + 1


def on_gpu(args):
    variants = {}
    with tempfile.TemporaryDirectory() as scratch:
        seconds, memory = gpu_rows(args, f"{scratch}/out")
    for variant in args.variants.split(","):
        done = subprocess.run([sys.executable, "-c", GPU_PEER, args.folder, str(args.steps), str(args.pixels),
                               str(args.images), args.dtype, variant, str(args.classes)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            variants[variant] = json.loads(done.stdout.splitlines()[-1])
            print(json.dumps({"torch": variant, "seconds": round(variants[variant]["seconds"], 5),
                              "images_per_second": round(args.images / variants[variant]["seconds"], 1)}), flush=True)
        else:
            print(f"{variant}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
    best = min(variants.values(), key=lambda row: row["seconds"])
    print(json.dumps({"pixels": args.pixels, "images": args.images, "dtype": args.dtype, "classes": args.classes,
                      "seconds": round(seconds, 5), "images_per_second": round(args.images / seconds, 1),
                      "torch_seconds": round(best["seconds"], 5),
                      "torch_images_per_second": round(args.images / best["seconds"], 1),
                      "speedup": round(best["seconds"] / seconds, 2), "memory_gib": round(memory / 2**30, 2),
                      "torch_memory_gib": round(best["memory"] / 2**30, 2)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--trimtab", default="build/trimtab")
    parser.add_argument("--pixels", type=int, default=320)
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--variants", default="eager,compiled", help="of torch on a GPU")
    parser.add_argument("--num-workers", type=int, default=8, help="trimtab's, on a GPU")
    args = parser.parse_args()
    if args.device == "cuda":
        args.classes = classes_of(args.folder)
        return on_gpu(args)
    with tempfile.TemporaryDirectory() as scratch:
        def ours(steps):
            return [args.trimtab, "train", *options(args), "--max_steps", str(steps), "--threads", "1", "--output_dir",
                    f"{scratch}/out{steps}"]

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
