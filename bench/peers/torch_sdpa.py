#!/usr/bin/env python3
"""Attention of torch on one GPU: scaled_dot_product_attention with a mask, beside `bench_ops gpu attention`.

    python bench/peers/torch_sdpa.py [--shapes 1x8192:8:2:512:0 ...]

A shape is sequences x length : query heads : key heads : head dimension : window (0: none). The mask is boolean, as
transformers makes it for layers that no fused kernel takes; is_causal is measured beside it where there is no window.
bf16, medians of runs timed by events. FLOPs are those of the pairs that are seen: 4 E a pair forward, 10 E backward.
"""
import argparse

import torch
from torch.nn.functional import scaled_dot_product_attention as attention

SHAPES = ["1x8192:8:2:512:0", "4x4096:8:2:512:0", "1x8192:8:2:256:512", "1x8192:16:8:256:1024"]


def median_ms(function, runs=15):
    for _ in range(3):
        function()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[runs // 2]


def mask_of(length, window):
    rows = torch.arange(length, device="cuda")
    seen = rows[None, :] <= rows[:, None]
    return seen & (rows[None, :] > rows[:, None] - window) if window else seen


def measure(shape):
    of, heads, kv_heads, width, window = shape.split(":")
    sequences, length = (int(n) for n in of.split("x"))
    heads, kv_heads, width, window = int(heads), int(kv_heads), int(width), int(window)
    make = lambda h: torch.randn(sequences, length, h, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
    q, k, v, gradient = make(heads), make(kv_heads), make(kv_heads), make(heads).detach()
    pairs = sequences * (window * length - window * window / 2 if window else length * length / 2)
    ways = {"mask": {"attn_mask": mask_of(length, window)}}
    if not window:
        ways["is_causal"] = {"is_causal": True}
    for name, arguments in ways.items():
        run = lambda: attention(q, k, v, enable_gqa=heads != kv_heads, **arguments)

        def step():
            q.grad = k.grad = v.grad = None
            run().backward(gradient)

        try:
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
            with torch.no_grad():
                forward = median_ms(run)
            both = median_ms(step)
            peak = (torch.cuda.max_memory_allocated() - base) / 2**20
        except RuntimeError as error:
            print(f"{shape:24} {name:9} {str(error).splitlines()[0][:80]}", flush=True)
            continue
        flops = 4e-9 * pairs * heads * width
        print(f"{shape:24} {name:9} forward {forward:8.3f} ms {flops / forward:6.1f} TFLOP/s   "
              f"both {both:8.3f} ms {3.5 * flops / both:6.1f} TFLOP/s   {peak:7.0f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for shape in arguments.shapes:
        measure(shape)


if __name__ == "__main__":
    main()
