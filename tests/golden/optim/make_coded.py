#!/usr/bin/env python3
"""Makes coded.safetensors: AdamW and Lion with moments of 8 bits, step by step, by bitsandbytes' kernels on a GPU.

    make_coded.py [--count ELEMENTS] [--output FILE]

Of each rule and step, after the step: `grad`, `param`, and of each moment `codes` and `absmax`; `<rule>.start` is the
parameter before the first step, whose moments are zero. The library's path on processors finds codes by a coarser table,
and makes no goldens. The tables are the library's (create_dynamic_map)."""
import argparse
import json
import os

import numpy as np
import torch
from bitsandbytes import __version__ as version
from bitsandbytes.functional import create_dynamic_map, optimizer_update_8bit_blockwise
from safetensors.numpy import save_file

STEPS, BLOCK = 3, 256
LR, BETA1, BETA2, EPS, DECAY, SCALE = 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5
F = np.float32
MAPS = {"signed": create_dynamic_map(True).numpy(), "unsigned": create_dynamic_map(False).numpy()}


def update_of(rule):
    """A step by the library."""

    def run(step, p, g, state):
        put = lambda x: torch.from_numpy(np.array(x)).to("cuda")
        names = ["signed", "unsigned"][: len(state)]
        tensors = [(put(codes), put(absmax), put(MAPS[name])) for (codes, absmax), name in zip(state, names)]
        second = tensors[1] if len(tensors) > 1 else (None, None, None)
        param = put(p)
        optimizer_update_8bit_blockwise(
            rule, put(g), param, tensors[0][0], second[0], BETA1, BETA2, 0.0, 0.0, EPS, step, LR, tensors[0][2],
            second[2], tensors[0][1], second[1], weight_decay=DECAY, gnorm_scale=SCALE)
        return param.cpu().numpy(), [(codes.cpu().numpy(), absmax.cpu().numpy()) for codes, absmax, _ in tensors]

    return run


def gradients(generator, count):
    g = generator.standard_normal(count) * np.exp(2 * generator.standard_normal(count)) * 1e-3
    g[generator.random(count) < 0.05] = 0
    g[512:768] = 0
    return g.astype(F)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=4396)
    parser.add_argument("--output", default=os.path.join(here, "coded.safetensors"))
    arguments = parser.parse_args()
    count = arguments.count
    tensors, blocks = {}, -(-count // BLOCK)
    for rule, moments, name in (("adamw8", 2, "adam"), ("lion8", 1, "lion")):
        generator = np.random.default_rng(8)
        update = update_of(name)
        state = [(np.zeros(count, np.uint8), np.zeros(blocks, F))] * moments
        p = generator.standard_normal(count).astype(F)
        tensors[rule + ".start"] = p
        for step in range(1, STEPS + 1):
            g = gradients(generator, count)
            p, state = update(step, p, g, state)
            tensors[f"{rule}.{step}.grad"], tensors[f"{rule}.{step}.param"] = g, p
            for k, (codes, absmax) in enumerate(state):
                tensors[f"{rule}.{step}.codes{k + 1}"], tensors[f"{rule}.{step}.absmax{k + 1}"] = codes, absmax
    settings = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "weight_decay": DECAY, "grad_scale": SCALE,
                "steps": STEPS}
    made_by = {"bitsandbytes": version, "device": torch.cuda.get_device_name(), "settings": json.dumps(settings)}
    save_file({name: np.ascontiguousarray(x, dtype=x.dtype) for name, x in tensors.items()}, arguments.output, made_by)


if __name__ == "__main__":
    main()
