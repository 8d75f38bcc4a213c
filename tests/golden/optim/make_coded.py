#!/usr/bin/env python3
"""Makes coded.safetensors: AdamW and Lion with moments of 8 bits, step by step.

    make_coded.py [--device cuda] [--count ELEMENTS] [--output FILE]

Of each rule and step, after the step: `grad`, `param`, and of each moment `codes` and `absmax`; `<rule>.start` is the
parameter before the first step, whose moments are zero.

On the CPU the arithmetic is that of bitsandbytes' kernels, written from their description in fp32 with numpy, because
the library's own path on processors finds codes by a coarser table: its results are only compared. With
--device cuda the kernels of the installed library make the file themselves; the test reads both alike. The tables are
the library's (create_dynamic_map)."""
import argparse
import json
import os

import numpy as np
import torch
from bitsandbytes import __version__ as version
from bitsandbytes.functional import create_dynamic_map
from safetensors.numpy import save_file

STEPS, BLOCK = 3, 256
LR, BETA1, BETA2, EPS, DECAY, SCALE = 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5
F = np.float32
MAPS = {"signed": create_dynamic_map(True).numpy(), "unsigned": create_dynamic_map(False).numpy()}


def decode(codes, absmax, name):
    return MAPS[name][codes] * np.repeat(absmax, BLOCK)[: codes.size]


def encode(x, name):
    """The nearest entry of x / absmax of its block; the neighbour on x's side where the sign bits differ."""
    table = MAPS[name]
    borders = (table[:-1] + table[1:]) * F(0.5)
    blocks = -(-x.size // BLOCK)
    absmax = np.array([np.abs(x[b * BLOCK:(b + 1) * BLOCK]).max() for b in range(blocks)], F)
    size = np.repeat(absmax, BLOCK)[: x.size]
    scaled = np.divide(x, size, out=np.zeros_like(x), where=size > 0)
    codes = np.searchsorted(borders, scaled, side="left")
    if name == "signed":
        wrong = np.signbit(table[codes]) != np.signbit(x)
        codes = np.where(wrong, codes + np.where(x > 0, 1, -1), codes)
    return codes.astype(np.uint8), absmax


def adamw(step, p, g, state):
    root = np.sqrt(1 - BETA2 ** step)
    g = g * F(SCALE)
    m = decode(*state[0], "signed") * F(BETA1) + (F(1) - F(BETA1)) * g
    v = decode(*state[1], "unsigned") * F(BETA2) + (F(1) - F(BETA2)) * g * g
    p = p - F(LR * root / (1 - BETA1 ** step)) * (m / (np.sqrt(v) + F(EPS * root)))
    return p * F(1 - LR * DECAY), [encode(m, "signed"), encode(v, "unsigned")]


def lion(_, p, g, state):
    g = g * F(SCALE)
    m = decode(*state[0], "signed")
    ahead = m * F(BETA1) + (F(1) - F(BETA1)) * g
    p = p * F(1 - LR * DECAY) - F(LR) * np.sign(ahead)
    return p, [encode(m * F(BETA2) + (F(1) - F(BETA2)) * g, "signed")]


def library(rule, device):
    """The same step by the library."""
    from bitsandbytes.functional import optimizer_update_8bit_blockwise

    def run(step, p, g, state):
        put = lambda x: torch.from_numpy(np.array(x)).to(device)
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


def check(ours, theirs, before):
    """The library's path on processors: the same moments to the coarseness of its table."""
    for k, name in enumerate(["signed", "unsigned"][: len(ours[1])]):
        a, b = decode(*ours[1][k], name), decode(*theirs[1][k], name)
        size = np.repeat(ours[1][k][1], BLOCK)[: a.size]
        assert np.all(np.abs(a - b) <= 0.02 * size), name
    assert np.all(np.abs(ours[0] - theirs[0]) <= 1e-6 + 1e-4 * np.abs(ours[0] - before))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=4396)
    parser.add_argument("--output", default=os.path.join(here, "coded.safetensors"))
    arguments = parser.parse_args()
    count = arguments.count
    tensors, blocks = {}, -(-count // BLOCK)
    for rule, moments, own in (("adamw8", 2, adamw), ("lion8", 1, lion)):
        generator = np.random.default_rng(8)
        theirs = library("adam" if rule == "adamw8" else "lion", arguments.device)
        state = [(np.zeros(count, np.uint8), np.zeros(blocks, F))] * moments
        p = generator.standard_normal(count).astype(F)
        tensors[rule + ".start"] = p
        for step in range(1, STEPS + 1):
            g = gradients(generator, count)
            if arguments.device == "cpu":
                made, reference = own(step, p, g, state), theirs(step, p, g, state)
                check(made, reference, p)
            else:
                made = theirs(step, p, g, state)
            p, state = made
            tensors[f"{rule}.{step}.grad"], tensors[f"{rule}.{step}.param"] = g, p
            for k, (codes, absmax) in enumerate(state):
                tensors[f"{rule}.{step}.codes{k + 1}"], tensors[f"{rule}.{step}.absmax{k + 1}"] = codes, absmax
    settings = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "weight_decay": DECAY, "grad_scale": SCALE,
                "steps": STEPS}
    made_by = {"bitsandbytes": version, "device": arguments.device, "settings": json.dumps(settings)}
    save_file({name: np.ascontiguousarray(x, dtype=x.dtype) for name, x in tensors.items()}, arguments.output, made_by)


if __name__ == "__main__":
    main()
