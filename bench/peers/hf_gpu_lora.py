#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU peer of `trimtab bench train`: LoRA steps of transformers + PEFT on random weights and tokens, sharded by FSDP2.

    python -m torch.distributed.run --standalone --nproc_per_node 2 bench/peers/hf_gpu_lora.py --shape m11b --bs 4 --seq 4096

One JSON line on standard output, of rank 0: tok_s_gpu and tflops_gpu of the median step, peak_gb and reserved_gb of the
allocator, first_step_s from the start of the process, the options and the versions. Frozen weights are bf16, the adapter is
what PEFT makes of it (fp32 masters, which FSDP2 gathers in bf16), attention is PyTorch's SDPA, dropout is off. --ckpt 1
recomputes each layer in backward, --compile 1 compiles each layer; --rows LEAST MOST measures rows of such lengths, padded
to the longest of a batch as data collators do, and counts only what is no padding.
"""

import time

STARTED = time.perf_counter()  # before the imports: they are part of the wait for the first step

import argparse
import json
import os
import platform
import statistics
from pathlib import Path

import peft
import torch
import torch.distributed as dist
import transformers
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

SHAPES = Path(__file__).resolve().parents[1] / "shapes"
PAD_TO = 64  # lengths of padded batches are multiples of this, so that not every batch is a new shape


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="m11b", help="a name of bench/shapes")
    parser.add_argument("--bs", type=int, default=4, help="sequences of one GPU in a step")
    parser.add_argument("--seq", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--rows", type=int, nargs=2, metavar=("LEAST", "MOST"),
                        help="rows of such lengths, as many as fill bs x seq tokens")
    parser.add_argument("--lora-r", type=int, default=8)
    parser.add_argument("--targets", default="q_proj,k_proj,v_proj,o_proj")
    parser.add_argument("--ckpt", type=int, default=1, help="1: recompute each layer in backward")
    parser.add_argument("--compile", type=int, default=0, help="1: torch.compile each layer")
    parser.add_argument("--reshard", type=int, default=1, help="0: keep gathered weights from forward to backward")
    parser.add_argument("--steps", type=int, default=6, help="measured steps, after the warmup")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the measured ones, at least 1")
    return parser.parse_args()


def build_model(args, config, world):
    """Nothing is allocated before it is sharded; then random numbers, drawn where they lie."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        lora = LoraConfig(r=args.lora_r, lora_alpha=2 * args.lora_r, target_modules=args.targets.split(","),
                          lora_dropout=0.0, task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
    if args.ckpt:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    decoder = model.base_model.model.model
    if world > 1:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for layer in decoder.layers:
            fully_shard(layer, mp_policy=policy, reshard_after_forward=bool(args.reshard))
        fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            local.fill_(1.0) if "norm" in name else local.normal_(0.0, 0.02)
    # Its table is a buffer, which to_empty leaves undefined.
    decoder.rotary_emb = type(decoder.rotary_emb)(config).to("cuda")
    if args.compile:
        for layer in decoder.layers:
            layer.compile()
    return model.train()


def make_batches(args, vocabulary, rank):
    """A function that draws a batch: ids, labels, mask (None without padding), tokens that count."""
    generator = torch.Generator(device="cuda").manual_seed(1 + rank)
    lengths_generator = torch.Generator().manual_seed(1 + rank)

    def full():
        ids = torch.randint(0, vocabulary, (args.bs, args.seq), device="cuda", generator=generator)
        return ids, ids, None, ids.numel()

    def padded():
        least, most = args.rows
        count = max(1, round(args.bs * args.seq / ((least + most) / 2)))
        lengths = torch.randint(least, most + 1, (count,), generator=lengths_generator)
        width = -(-int(lengths.max()) // PAD_TO) * PAD_TO
        ids = torch.randint(0, vocabulary, (count, width), device="cuda", generator=generator)
        mask = torch.arange(width, device="cuda")[None, :] < lengths.to("cuda")[:, None]
        return ids, ids.masked_fill(~mask, -100), mask.long(), int(lengths.sum())

    return padded if args.rows else full


def flops_per_token(config, length):
    """Of LoRA: two products a frozen weight (forward, and the gradient of the input), and causal attention forward and
    backward. What is computed twice counts once."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    layer = config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    base = config.num_hidden_layers * layer + config.hidden_size * config.vocab_size
    attention = config.num_hidden_layers * 6 * 2 * queries * length / 2
    return 4 * base + attention


def main():
    args = parse_arguments()
    rank, world, local = (int(os.environ.get(name, default)) for name, default in
                          (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    torch.cuda.set_device(local)
    if world > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    transformers.logging.set_verbosity_error()
    settings = json.loads((SHAPES / f"{args.shape}.json").read_text())
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config.use_cache = False
    model = build_model(args, config, world)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, fused=True)
    draw = make_batches(args, config.vocab_size, rank)

    def step():
        ids, labels, mask, tokens = draw()
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, tokens

    step()
    torch.cuda.synchronize()
    first_step_s = time.perf_counter() - STARTED
    for _ in range(args.warmup - 1):
        step()
    torch.cuda.synchronize()
    seconds, rates = [], []
    for _ in range(args.steps):
        before = time.perf_counter()
        loss, tokens = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - before)
        rates.append(tokens / seconds[-1])
    rate = statistics.median(rates)
    length = sum(args.rows) / 2 if args.rows else args.seq
    if rank == 0:
        print(json.dumps({
            "peer": "transformers+peft+fsdp2", **vars(args), "world": world,
            "params_b": round(sum(p.numel() for p in model.parameters()) / 1e9, 2),
            "trained_parameters": sum(p.numel() for p in trained),
            "step_s": round(statistics.median(seconds), 4), "tok_s_gpu": round(rate),
            "tflops_gpu": round(rate * flops_per_token(config, length) / 1e12, 1),
            "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
            "reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
            "first_step_s": round(first_step_s, 1), "loss": round(loss.item(), 3),
            "device": torch.cuda.get_device_name(),
            "versions": {"python": platform.python_version(), "torch": torch.__version__,
                         "transformers": transformers.__version__, "peft": peft.__version__},
        }), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
