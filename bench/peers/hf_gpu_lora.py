#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU peer of `trimtab bench train`: LoRA steps of transformers + PEFT on random weights and tokens, sharded by FSDP2.

    python -m torch.distributed.run --standalone --nproc_per_node 2 bench/peers/hf_gpu_lora.py --shape m11b --bs 4 --seq 4096

One JSON line on standard output, of rank 0: tok_s_gpu and tflops_gpu of the median step, peak_gb and reserved_gb of the
allocator, first_step_s from the start of the process, the options and the versions. Frozen weights are bf16, the adapter has
PEFT's types (fp32 masters, which FSDP2 gathers in bf16), attention is PyTorch's SDPA. --ckpt 1
recomputes each layer in backward, --compile 1 compiles each layer; --rows LEAST MOST uses rows of such lengths, padded
to the longest of a batch as data collators do, and counts no padding.

--quant nf4 (one GPU) keeps the linears of the layers as bitsandbytes' Linear4bit computing in bf16, quantized from random
numbers on the GPU; peak_gb does not include this. The types of the rest of the model follow a recipe:

    --recipe trl    as TRL's SFTTrainer does for QLoRA: embeddings, head and norms stay bf16, the adapter is made bf16
    --recipe peft   PEFT's prepare_model_for_kbit_training: all of those, and the adapter, are fp32

--quant fp8 (one GPU) keeps these linears as codes in E4M3 with a scale a row, and their transposes quantized on their own for
the gradient of the input; activations and gradients are quantized by rows before torch._scaled_mm. The recipe is trl's.

--delta says who computes the scans of Qwen3.5's kind: fla, flash-linear-attention, which must be there; torch, transformers' own
code although it is; auto, whatever transformers picks. fla-core 0.6 refuses Hopper with Triton from 3.4 to below 3.7.1 unless tilelang
is installed, whose kernel it then takes.

The first recipe takes less memory and casts less, so it is what a measurement is held against. --autocast says whether the
forward pass runs under bf16 autocast, which Trainer turns on with bf16=True; not given: only where there is something in fp32 for it.
"""

import time

STARTED = time.perf_counter()  # before the imports: they are part of the wait for the first step

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import peft
import torch
import torch.distributed as dist
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

try:
    import bitsandbytes
except ImportError:
    bitsandbytes = None

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
    parser.add_argument("--dropout", type=float, default=0.0, help="on the input of each adapter")
    parser.add_argument("--targets", default="q_proj,k_proj,v_proj,o_proj")
    parser.add_argument("--ckpt", type=int, default=1, help="1: recompute each layer in backward")
    parser.add_argument("--compile", type=int, default=0, help="1: torch.compile each layer")
    parser.add_argument("--experts", default="", help="transformers' implementation of experts: eager, batched_mm, grouped_mm")
    parser.add_argument("--delta", choices=["auto", "torch", "fla"], default="auto", help="the code of gated delta rules")
    parser.add_argument("--reshard", type=int, default=1, help="0: keep gathered weights from forward to backward")
    parser.add_argument("--steps", type=int, default=6, help="measured steps, after the warmup")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the measured ones, at least 1")
    parser.add_argument("--quant", choices=["none", "nf4", "fp8"], default="none",
                        help="nf4: a 4-bit base, fp8: products in FP8; on one GPU")
    parser.add_argument("--double-quant", type=int, default=1, help="1: the scales of a 4-bit base in 8 bits")
    parser.add_argument("--recipe", choices=["trl", "peft"], default="trl", help="types of what is not quantized")
    parser.add_argument("--autocast", type=int, choices=[0, 1], help="of a 4-bit base: 1: bf16 autocast")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    args = parser.parse_args()
    if args.quant == "none" or args.autocast is None:
        args.autocast = int(args.quant != "none" and args.recipe == "peft")
    return args


def lora_of(args):
    return LoraConfig(r=args.lora_r, lora_alpha=2 * args.lora_r, target_modules=args.targets.split(","),
                      lora_dropout=args.dropout, task_type="CAUSAL_LM")


def build_model(args, config, world):
    """Shards the model on the meta device, then allocates the shards and fills them with random numbers."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        model = get_peft_model(model, lora_of(args))
    if args.ckpt:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    decoder = model.base_model.model.model
    if world > 1:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for layer in decoder.layers:
            fully_shard(layer, mp_policy=policy, reshard_after_forward=bool(args.reshard))
        fully_shard(model, mp_policy=policy)
    model.to_empty(device=args.device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            local.fill_(1.0) if "norm" in name else local.normal_(0.0, 0.02)
    # The table of the rotary embedding is a buffer, which to_empty leaves undefined.
    decoder.rotary_emb = type(decoder.rotary_emb)(config).to(args.device)
    if args.compile:
        for layer in decoder.layers:
            layer.compile()
    return model.train()


def rows_in_fp8(x):
    """Codes of E4M3, whose largest number is 448, and a scale for each row."""
    scale = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / torch.finfo(torch.float8_e4m3fn).max
    return (x / scale).to(torch.float8_e4m3fn), scale


class FrozenProduct(torch.autograd.Function):
    """x w^T in FP8; the gradient of x is the product with the codes of w^T. w has no gradient."""

    @staticmethod
    def multiply(x, codes, scale):
        x_codes, x_scale = rows_in_fp8(x.reshape(-1, x.shape[-1]))
        y = torch._scaled_mm(x_codes, codes.t(), scale_a=x_scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True)
        return y.reshape(*x.shape[:-1], -1)

    @staticmethod
    def forward(ctx, x, codes, scale, codes_t, scale_t):
        ctx.save_for_backward(codes_t, scale_t)
        return FrozenProduct.multiply(x, codes, scale)

    @staticmethod
    def backward(ctx, dy):
        return FrozenProduct.multiply(dy, *ctx.saved_tensors), None, None, None, None


class FrozenLinear(torch.nn.Linear):
    """A linear without bias that multiplies codes. `weight` is empty: PEFT reads its device and type."""

    def __init__(self, weight):
        with torch.device("meta"):
            super().__init__(weight.shape[1], weight.shape[0], bias=False)
        self.weight = torch.nn.Parameter(weight.new_empty(0), requires_grad=False)
        for name, matrix in (("", weight), ("_t", weight.t().contiguous())):
            codes, scale = rows_in_fp8(matrix)
            self.register_buffer("codes" + name, codes, persistent=False)
            self.register_buffer("scale" + name, scale.t().contiguous(), persistent=False)

    def forward(self, x):
        return FrozenProduct.apply(x, self.codes, self.scale, self.codes_t, self.scale_t)


def quantize_linears(layers, args):
    """Replaces the linears of layers on the meta device by quantized ones over random weights; one at a time is bf16."""
    for name, linear in [pair for pair in layers.named_modules() if type(pair[1]) is torch.nn.Linear]:
        weight = torch.empty(linear.weight.shape, dtype=torch.bfloat16, device=args.device).normal_(0.0, 0.02)
        if args.quant == "fp8":
            layers.set_submodule(name, FrozenLinear(weight))
            continue
        double = bool(args.double_quant)
        with torch.device("meta"):
            packed = bitsandbytes.nn.Linear4bit(linear.in_features, linear.out_features, linear.bias is not None,
                                                compute_dtype=torch.bfloat16, compress_statistics=double, quant_type="nf4")
        packed.weight = bitsandbytes.nn.Params4bit(weight, compress_statistics=double, quant_type="nf4",
                                                   module=packed).to(args.device)
        if linear.bias is not None:
            packed.bias = torch.nn.Parameter(linear.bias.detach(), requires_grad=False)
        layers.set_submodule(name, packed)


def fill_meta(module, device):
    """Fills the tensors that are still on the meta device with random numbers of their type."""
    for name, parameter in list(module.named_parameters()):
        if parameter.is_meta:
            owner, _, leaf = name.rpartition(".")
            value = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            value.fill_(1.0) if "norm" in name else value.normal_(0.0, 0.02)
            setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(value, requires_grad=False))


def build_quantized_model(args, config):
    """The model of from_pretrained with load_in_4bit, or with linears in FP8, without a folder of weights, with the adapter
    of a recipe."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    quantize_linears(model.model.layers, args)
    fill_meta(model, args.device)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(args.device)  # a buffer, which was on the meta device
    model.is_loaded_in_4bit = args.quant == "nf4"  # PEFT looks for this
    keeping = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    if args.recipe == "peft":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=bool(args.ckpt), **keeping)
    elif args.ckpt:
        model.gradient_checkpointing_enable(**keeping)
        model.enable_input_require_grads()
    with torch.device(args.device):
        model = get_peft_model(model, lora_of(args))
    for parameter in model.parameters():
        if parameter.requires_grad and args.recipe == "trl":
            parameter.data = parameter.data.to(torch.bfloat16)
    if args.compile:
        for layer in model.base_model.model.model.layers:
            layer.compile()
    return model.train()


def choose_delta(args):
    """Before transformers imports a model: it takes flash-linear-attention where it can be imported."""
    if args.delta == "torch":
        sys.modules["fla"] = sys.modules["causal_conv1d"] = None
    if args.delta == "fla":
        try:
            import fla.ops.gated_delta_rule  # noqa: F401
        except Exception as error:
            raise SystemExit(f"error: --delta fla: flash-linear-attention cannot be imported: {error}") from None


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def make_batches(args, vocabulary, rank):
    """A function that draws a batch: ids, labels, mask (None without padding), tokens that count."""
    generator = torch.Generator(device=args.device).manual_seed(1 + rank)
    lengths_generator = torch.Generator().manual_seed(1 + rank)

    def full():
        ids = torch.randint(0, vocabulary, (args.bs, args.seq), device=args.device, generator=generator)
        return ids, ids, None, ids.numel()

    def padded():
        least, most = args.rows
        count = max(1, round(args.bs * args.seq / ((least + most) / 2)))
        lengths = torch.randint(least, most + 1, (count,), generator=lengths_generator)
        width = -(-int(lengths.max()) // PAD_TO) * PAD_TO
        ids = torch.randint(0, vocabulary, (count, width), device=args.device, generator=generator)
        mask = torch.arange(width, device=args.device)[None, :] < lengths.to(args.device)[:, None]
        return ids, ids.masked_fill(~mask, -100), mask.long(), int(lengths.sum())

    return padded if args.rows else full


def flops_per_token(config, length):
    """Of LoRA: two products a frozen weight (forward, and the gradient of the input), and causal attention forward and
    backward. What is computed twice counts once. None: layers differ or have experts, and are not counted here."""
    values = config.to_dict()
    if values.get("per_layer_config") or values.get("num_experts") or "linear_attention" in (values.get("layer_types") or []):
        return None
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    layer = config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    base = config.num_hidden_layers * layer + config.hidden_size * config.vocab_size
    attention = config.num_hidden_layers * 6 * 2 * queries * length / 2
    return 4 * base + attention


def parameter_count(model):
    """Weights and not bytes: two of a 4-bit matrix lie in a byte. Of two copies in FP8 one counts."""
    in_fp8 = sum(module.codes.numel() for module in model.modules() if isinstance(module, FrozenLinear))
    return in_fp8 + sum(p.numel() * (2 if p.__class__.__name__ == "Params4bit" else 1) for p in model.parameters())


def main():
    args = parse_arguments()
    rank, world, local = (int(os.environ.get(name, default)) for name, default in
                          (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    if args.quant != "none" and world > 1:
        raise SystemExit("error: --quant is for one GPU")
    if args.quant == "nf4" and bitsandbytes is None:
        raise SystemExit("error: --quant nf4 needs bitsandbytes")
    if args.quant == "fp8" and args.recipe == "peft":
        raise SystemExit("error: --quant fp8 has the recipe trl")
    if args.device == "cuda":
        torch.cuda.set_device(local)
    if world > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    transformers.logging.set_verbosity_error()
    choose_delta(args)
    settings = json.loads((SHAPES / f"{args.shape}.json").read_text())
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config.use_cache = False
    if args.experts:
        config._experts_implementation = args.experts
    model = build_quantized_model(args, config) if args.quant != "none" else build_model(args, config, world)
    if args.device == "cuda":
        # Training has not begun: bf16 matrices that are being quantized are not part of its memory.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, fused=True)
    draw = make_batches(args, config.vocab_size, rank)
    autocast = torch.autocast(args.device, torch.bfloat16) if args.autocast else contextlib.nullcontext()
    synchronize = torch.cuda.synchronize if args.device == "cuda" else torch.cpu.synchronize

    def step():
        ids, labels, mask, tokens = draw()
        with autocast:
            loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, tokens

    step()
    synchronize()
    first_step_s = time.perf_counter() - STARTED
    for _ in range(args.warmup - 1):
        step()
    synchronize()
    seconds, rates = [], []
    for _ in range(args.steps):
        before = time.perf_counter()
        loss, tokens = step()
        synchronize()
        seconds.append(time.perf_counter() - before)
        rates.append(tokens / seconds[-1])
    rate = statistics.median(rates)
    flops = flops_per_token(config, sum(args.rows) / 2 if args.rows else args.seq)
    if rank == 0:
        print(json.dumps({
            "peer": "transformers+peft+" + {"none": "fsdp2", "nf4": "bitsandbytes", "fp8": "_scaled_mm"}[args.quant],
            **vars(args), "world": world,
            "delta_used": "fla" if sys.modules.get("fla") is not None else "torch",
            "params_b": round(parameter_count(model) / 1e9, 2),
            "trained_parameters": sum(p.numel() for p in trained),
            "step_s": round(statistics.median(seconds), 4), "tok_s_gpu": round(rate),
            "tflops_gpu": None if flops is None else round(rate * flops / 1e12, 1),
            "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
            "reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
            "first_step_s": round(first_step_s, 1), "loss": round(loss.item(), 3),
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
            "versions": {"python": platform.python_version(), "torch": torch.__version__,
                         "transformers": transformers.__version__, "peft": peft.__version__,
                         "bitsandbytes": getattr(bitsandbytes, "__version__", None),
                         **{name: installed(name) for name in ("triton", "fla-core", "tilelang", "causal-conv1d")}},
        }), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
