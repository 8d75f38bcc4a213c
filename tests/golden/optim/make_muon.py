#!/usr/bin/env python3
"""Makes tests/golden/optim/muon.json, muon.safetensors and muon_model.safetensors: steps of torch.optim.Muon.

    OMP_NUM_THREADS=1 python tests/golden/optim/make_muon.py

cases         20 steps of one matrix each, whose start and gradients are functions of the element (noise below, as in
              tests/golden/muon.c); muon.safetensors has the matrices after them, NAME.bfloat16 as torch computes them
              and NAME.float32 by the same source with float32 in the place of bfloat16
steps         20 steps of llama2 that train every parameter with the settings of make_models.py: Muon (in float32) for
              the matrices of the layers, AdamW for embeddings, head and norms: loss, gradient norm, learning rate;
              muon_model.safetensors has the parameters after them
"""
import inspect
import json
import pathlib
import sys

import numpy
import torch
import torch.optim._muon as muon
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from make_models import TRAIN, nll_sum  # noqa: E402

STEPS = 20
CASES = {
    "wide": {"rows": 24, "columns": 40, "lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True},
    "tall": {"rows": 40, "columns": 24, "lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True},
    "square": {"rows": 32, "columns": 32, "lr": 0.01, "weight_decay": 0.0, "momentum": 0.9, "nesterov": False},
    "rms": {"rows": 130, "columns": 70, "lr": 0.003, "weight_decay": 0.05, "momentum": 0.95, "nesterov": True,
            "adjust_lr_fn": "match_rms_adamw"},
    "spectral": {"rows": 16, "columns": 64, "lr": 0.02, "weight_decay": 0.1, "momentum": 0.3, "nesterov": True,
                 "adjust_lr_fn": "spectral_unclamped"},
    "vector": {"rows": 1, "columns": 48, "lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True},
    "steps": {"rows": 20, "columns": 28, "lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True,
              "ns_steps": 4, "ns_coefficients": [2.0, -1.5, 0.5]},
}
source = inspect.getsource(muon._zeropower_via_newtonschulz)
in_bfloat16 = muon._zeropower_via_newtonschulz


def in_float32():
    names = dict(vars(muon))
    exec(source.replace("torch.bfloat16", "torch.float32"), names)
    return names["_zeropower_via_newtonschulz"]


def noise(count, seed):
    """Numbers in [-1, 1) of 24 bits."""
    x = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(seed * 0x9E3779B9 & 0xFFFFFFFF)
    mask = numpy.uint64(0xFFFFFFFF)
    x &= mask
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> numpy.uint64(shift)
        x = x * numpy.uint64(factor) & mask
    x ^= x >> numpy.uint64(16)
    return torch.tensor((x >> numpy.uint64(8)).astype(numpy.float64) / 2**23 - 1, dtype=torch.float32)


def run_case(index, case):
    shape = case["rows"], case["columns"]
    count = shape[0] * shape[1]
    param = torch.nn.Parameter(0.1 * noise(count, index * 1000).reshape(shape))
    optimizer = torch.optim.Muon([param], **{k: v for k, v in case.items() if k not in ("rows", "columns")})
    for step in range(STEPS):
        param.grad = noise(count, index * 1000 + 1 + step).reshape(shape)
        optimizer.step()
    return param.detach().clone()


def is_matrix(name, param):
    return param.ndim == 2 and "embed_tokens" not in name and "lm_head" not in name


def train(folder):
    model = AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="eager", dtype=torch.float32)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    named = list(model.named_parameters())
    rest = [(n, p) for n, p in named if not is_matrix(n, p)]
    optimizers = [
        torch.optim.Muon([p for n, p in named if is_matrix(n, p)], lr=0.005, weight_decay=TRAIN["weight_decay"]),
        torch.optim.AdamW([{"params": [p for _, p in rest if p.ndim == 2], "weight_decay": TRAIN["weight_decay"]},
                           {"params": [p for _, p in rest if p.ndim == 1], "weight_decay": 0.0}], lr=0.005)]
    schedulers = [transformers.get_linear_schedule_with_warmup(o, TRAIN["warmup_steps"], TRAIN["max_steps"])
                  for o in optimizers]
    count = TRAIN["per_device_train_batch_size"] * TRAIN["gradient_accumulation_steps"]
    steps = []
    for step in range(TRAIN["max_steps"]):
        picked = [rows[(step * count + i) % len(rows)] for i in range(count)]
        tokens = sum(label != -100 for row in picked for label in row["labels"][1:])
        loss = nll_sum(model, picked) / tokens
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in named], TRAIN["max_grad_norm"]).item()
        steps.append({"loss": loss.item(), "grad_norm": norm, "learning_rate": schedulers[0].get_last_lr()[0]})
        for thing in optimizers + schedulers:
            thing.step()
        model.zero_grad()
    return steps, {n: p.detach().clone() for n, p in named}


def main():
    torch.set_num_threads(1)
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        for dtype, function in (("bfloat16", in_bfloat16), ("float32", in_float32())):
            muon._zeropower_via_newtonschulz = function
            tensors[f"{name}.{dtype}"] = run_case(index, case)
    steps, final = train(HERE.parent / "llama2")
    save_file(tensors, HERE / "muon.safetensors")
    save_file(final, HERE / "muon_model.safetensors")
    found = {"torch": torch.__version__, "cases": CASES, "steps": steps}
    (HERE / "muon.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
