#!/usr/bin/env python3
"""Convolutions of a RetinaNet's training step on one processor or GPU, compared with torch (oneDNN, cuDNN), in one run.

    python bench/peers/torch_conv.py [--bench build/bench/bench_conv] [--pixels 800] [--dtype f32|bf16] [--images 1]
        [--device cpu|cuda]

Channels-last on both sides. On a processor one thread, processor time, the least of a few runs; on a GPU runs that are
queued behind each other, with cuDNN's benchmark mode in torch. Each convolution is measured here and
there in turn; the last line adds them up, each as often as a step has it.
"""
import argparse
import json
import resource
import subprocess
import time

import torch

DEVICE = "cpu"


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def least_queued(function):
    function()
    best = float("inf")
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            function()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / 20)
    return best


def least(function):
    if DEVICE == "cuda":
        return least_queued(function)
    best, spent, runs = float("inf"), 0.0, 0
    while runs < 2 or (spent < 0.2 and runs < 20):
        start = cpu_seconds()
        function()
        took = cpu_seconds() - start
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def peer(row, dtype):
    torch.manual_seed(0)
    kernel, padding = row["kernel"], row["kernel"] // 2
    x = torch.randn(row["images"], row["in"], row["side"], row["side"]).to(DEVICE, dtype, memory_format=torch.channels_last)
    w = (torch.randn(row["out"], row["in"], kernel, kernel) * 0.02).to(DEVICE, dtype, memory_format=torch.channels_last)
    stride = [row["stride"]] * 2
    y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
    if row["pass"] == "forward":
        return least(lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=padding))
    mask = [row["pass"] == "input", row["pass"] == "weight", False]
    return least(lambda: torch.ops.aten.convolution_backward(
        y, x, w, None, stride, [padding] * 2, [1, 1], False, [0, 0], 1, mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/bench/bench_conv")
    parser.add_argument("--pixels", type=int, default=800)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    global DEVICE
    DEVICE = args.device
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    ours = theirs = 0.0
    command = [args.bench, str(args.pixels), args.dtype, str(args.images), "cuda" if DEVICE == "cuda" else "auto"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = list(process.stdout) if DEVICE == "cuda" else process.stdout  # one at a time on a GPU
        for line in lines:
            row = json.loads(line)
            if row["layer"] == "all":
                break
            row["torch_seconds"] = peer(row, dtype)
            row["speedup"] = round(row["torch_seconds"] / row["seconds"], 2)
            ours += row["count"] * row["seconds"]
            theirs += row["count"] * row["torch_seconds"]
            print(json.dumps(row), flush=True)
    print(json.dumps({"layer": "all", "pixels": args.pixels, "dtype": args.dtype, "images": args.images,
                      "seconds": round(ours, 3), "torch_seconds": round(theirs, 3),
                      "speedup": round(theirs / ours, 3), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
