#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU peer of `trimtab bench train`: LoRA steps of transformers + PEFT on random weights and tokens.

    OMP_NUM_THREADS=2 python bench/peers/hf_cpu_lora.py --config-json bench/shapes/q05b.json --threads 2

One JSON line on standard output: tokens_per_second of the median step, peak_bytes (largest resident size of
the process), first_step_seconds (from the start of the process, imports and initialisation included), the
seconds of every step, the options and the versions. One process measures one setting, because the peak of a
process never falls; compare runs with and without --gradient-checkpointing, and take the better peer.

Frozen weights are bf16, the adapter stays fp32 as PEFT keeps it, and the forward pass runs under autocast, as
in Trainer with bf16=True. On a CPU without bf16 instructions only --dtype fp32 is meaningful: on one
AVX2-only core q05b ran at 0.7 tokens/s in bf16 and at 27 in fp32 (torch 2.15).
"""

import time

STARTED = time.perf_counter()  # before the imports: they are part of the wait for the first step

import argparse
import json
import platform
import resource
import statistics
import sys
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config-json", type=Path, required=True, help="config.json of the model to build")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step")
    parser.add_argument("--seq", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--lora-r", type=int, default=16, help="rank of the LoRA")
    parser.add_argument("--target-modules", default="all-linear", help="names with commas between")
    parser.add_argument("--experts", default=None, help="experts_implementation of transformers, of a mixture: eager, grouped_mm")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, after the warmup")
    parser.add_argument("--warmup", type=int, default=1, help="steps before the measured ones, at least 1")
    parser.add_argument("--threads", type=int, default=None, help="default: what torch picks")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16", help="of the frozen weights and the activations")
    parser.add_argument("--attention", default="sdpa", help="attn_implementation of transformers")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="recompute each decoder layer in backward")
    args = parser.parse_args()
    if args.warmup < 1 or args.steps < 1:
        parser.error("--warmup and --steps must be at least 1")
    return args


def build_model(args):
    """Random frozen weights in the chosen type, initialised by transformers, with a new adapter."""
    settings = json.loads(args.config_json.read_text())
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[args.dtype], attn_implementation=args.attention)
    if args.experts is not None:
        model.set_experts_implementation(args.experts)
    targets = args.target_modules if args.target_modules == "all-linear" else args.target_modules.split(",")
    lora = LoraConfig(r=args.lora_r, lora_alpha=2 * args.lora_r, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return model.train()


def make_step(model, args):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-5)
    generator = torch.Generator().manual_seed(0)

    def step():
        ids = torch.randint(0, model.config.vocab_size, (args.batch, args.seq), generator=generator)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def peak_bytes():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def main():
    args = parse_arguments()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    model = build_model(args)
    step = make_step(model, args)
    loss = step()
    first_step_seconds = time.perf_counter() - STARTED
    for _ in range(args.warmup - 1):
        step()
    seconds = []
    for _ in range(args.steps):
        before = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - before)
    result = {
        "peer": "transformers+peft",
        "config": args.config_json.stem,
        **{key: getattr(args, key) for key in ("batch", "seq", "lora_r", "target_modules", "dtype", "attention", "experts",
                                             "gradient_checkpointing")},
        "threads": torch.get_num_threads(),
        "tokens_per_second": round(args.batch * args.seq / statistics.median(seconds), 2),
        "peak_bytes": peak_bytes(),
        "first_step_seconds": round(first_step_seconds, 2),
        "step_seconds": [round(value, 3) for value in seconds],
        "loss": round(loss, 4),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "parameters": sum(p.numel() for p in model.parameters()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "peft": peft.__version__,
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
