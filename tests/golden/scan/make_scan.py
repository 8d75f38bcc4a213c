#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes scan.safetensors: the gated delta rule and Mamba-2's scan with gradients, row by row in fp64 by torch's autograd.

    make_scan.py [--output FILE]

Of each rule `<rule>.<name>` with the names of tests/ops/scan_problem.h, inputs in fp32, results rounded to fp32 once.
Sequences of 66, 1 and 5 rows, one key head with two value heads. The formulas are those of src/backend/ops/scan.h."""
import argparse
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

LENGTHS, KEY_HEADS, HEADS, WIDTH, VALUE_WIDTH = (66, 1, 5), 1, 2, 8, 8
DT_MIN, DT_MAX = 0.05, 2.5


def recur(q, k, v, g, share, delta):
    """One sequence: rows, heads, widths."""
    state, outputs = torch.zeros(HEADS, WIDTH, VALUE_WIDTH, dtype=q.dtype), []
    for t in range(q.shape[0]):
        state = state * g[t].exp()[:, None, None]
        seen = torch.einsum("hew,he->hw", state, k[t]) if delta else 0
        state = state + k[t][:, :, None] * (share[t][:, None] * (v[t] - seen))[:, None, :]
        outputs.append(torch.einsum("hew,he->hw", state, q[t]))
    return torch.stack(outputs)


def scan(x, delta):
    group = HEADS // KEY_HEADS
    norm = lambda y: y / (y.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() if delta else y
    q = (norm(x["q"]) * (WIDTH**-0.5 if delta else 1)).repeat_interleave(group, 1)
    k = norm(x["k"]).repeat_interleave(group, 1)
    dt = F.softplus(x["a"] + x["dt_bias"])
    if not delta:
        dt = dt.clamp(DT_MIN, DT_MAX)
    g, share = -x["a_log"].exp() * dt, x["b"].sigmoid() if delta else dt
    parts = [recur(*rows, delta) for rows in zip(*(y.split(LENGTHS) for y in (q, k, x["v"], g, share)))]
    o = torch.cat(parts)
    return o if delta else o + x["skip"][:, None] * x["v"]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default=os.path.join(here, "scan.safetensors"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, tensors = sum(LENGTHS), {}
    for rule, delta in (("delta", True), ("mamba2", False)):
        generator = torch.Generator().manual_seed(9)
        make = lambda *dims: torch.randn(*dims, generator=generator)
        inputs = {
            "q": make(rows, KEY_HEADS, WIDTH), "k": make(rows, KEY_HEADS, WIDTH), "v": make(rows, HEADS, VALUE_WIDTH),
            "a": 2 * make(rows, HEADS), "a_log": 0.5 * make(HEADS), "dt_bias": make(HEADS),
        }
        inputs["b" if delta else "skip"] = make(rows, HEADS) if delta else make(HEADS)
        d_out = make(rows, HEADS, VALUE_WIDTH)
        x = {name: value.double().requires_grad_() for name, value in inputs.items()}
        o = scan(x, delta)
        (o * d_out.double()).sum().backward()
        tensors |= {f"{rule}.{name}": value for name, value in inputs.items()}
        tensors |= {f"{rule}.d{name}": value.grad.float() for name, value in x.items()}
        tensors |= {f"{rule}.do": d_out, f"{rule}.o": o.detach().float()}
    metadata = {"torch": torch.__version__.split("+")[0]}
    save_file({name: value.contiguous() for name, value in tensors.items()}, arguments.output, metadata)


if __name__ == "__main__":
    main()
