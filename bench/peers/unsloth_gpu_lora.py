#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU peer of `trimtab bench train`: LoRA steps of Unsloth on random weights and tokens, on one GPU.

    PEER=bench/peers/unsloth_gpu_lora.py bench/peers/run_gpu.sh q9b-recipe

Unsloth reads a model folder, so one with random weights in bf16 and a small tokenizer is written first (18 GB for qwen3_5_9b)
and removed at the end; --folder names one that exists. Flags and the JSON line are those of hf_gpu_lora.py. --ckpt 1 is Unsloth's
own checkpointing, which moves kept inputs to the host; 2 recomputes without. --only-folder writes the folder and ends: it needs
no GPU. --compile is taken and ignored: Unsloth compiles what it wants. Unsloth 2026.10 asks for torch below 2.15 and
transformers up to 5.17.
"""

import time

STARTED = time.perf_counter()

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SHAPES = Path(__file__).resolve().parents[1] / "shapes"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="qwen3_5_9b", help="a name of bench/shapes, or a config.json")
    parser.add_argument("--folder", type=Path, help="a model folder; not given: one of random weights is written")
    parser.add_argument("--bs", type=int, default=4, help="sequences of a step")
    parser.add_argument("--seq", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--lora-r", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0, help="on the input of each adapter")
    parser.add_argument("--targets", default="q_proj,k_proj,v_proj,o_proj,in_proj_qkv,in_proj_z,out_proj")
    parser.add_argument("--ckpt", type=int, choices=[0, 1, 2], default=1, help="1: unsloth's, 2: plain recomputation")
    parser.add_argument("--compile", type=int, default=0, help="ignored")
    parser.add_argument("--quant", choices=["none", "nf4"], default="none", help="nf4: load_in_4bit")
    parser.add_argument("--double-quant", type=int, default=1, help="ignored: Unsloth's 4 bits have it")
    parser.add_argument("--steps", type=int, default=6, help="measured steps, after the warmup")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the measured ones, at least 1")
    parser.add_argument("--only-folder", type=Path, help="write the folder of random weights here, and end")
    return parser.parse_args()


def write_tokenizer(folder, vocabulary):
    """Words that nobody reads: Unsloth asks for a tokenizer beside the weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    words.update({f"w{i}": i for i in range(3, min(vocabulary, 1000))})
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>",
                            unk_token="<unk>").save_pretrained(folder)


def write_folder(folder, shape):
    """A folder of random bf16 weights of a shape, made where there is a GPU on it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    path = Path(shape) if shape.endswith(".json") else SHAPES / f"{shape}.json"
    settings = json.loads(path.read_text())
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device=device)
    model.tie_weights()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0) if "norm" in name else parameter.normal_(0.0, 0.02)
    model.save_pretrained(folder)
    write_tokenizer(folder, config.vocab_size)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    return config.vocab_size


def vocabulary_of(folder):
    settings = json.loads((folder / "config.json").read_text())
    return settings.get("vocab_size") or settings["text_config"]["vocab_size"]


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def measure(args, folder):
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
    os.environ["HF_HUB_OFFLINE"] = "1"
    from unsloth import FastLanguageModel  # before torch's users: it replaces parts of them
    import torch

    model, _ = FastLanguageModel.from_pretrained(
        model_name=str(folder), max_seq_length=args.seq, dtype=torch.bfloat16, load_in_4bit=args.quant == "nf4",
        load_in_8bit=False, local_files_only=True)
    model = FastLanguageModel.get_peft_model(
        model, r=args.lora_r, target_modules=args.targets.split(","), lora_alpha=2 * args.lora_r,
        lora_dropout=args.dropout, bias="none", random_state=1,
        use_gradient_checkpointing={0: False, 1: "unsloth", 2: True}[args.ckpt])
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, fused=True)
    generator = torch.Generator(device="cuda").manual_seed(1)
    vocabulary = vocabulary_of(folder)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()

    def step():
        ids = torch.randint(0, vocabulary, (args.bs, args.seq), device="cuda", generator=generator)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    step()
    torch.cuda.synchronize()
    first_step_s = time.perf_counter() - STARTED
    for _ in range(args.warmup - 1):
        step()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(args.steps):
        before = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - before)
    median = statistics.median(seconds)
    names = ("torch", "transformers", "peft", "unsloth", "unsloth_zoo", "triton", "fla-core", "tilelang", "causal-conv1d")
    print(json.dumps({
        "peer": "unsloth", **{key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()},
        "world": 1, "trained_parameters": sum(p.numel() for p in trained),
        "step_s": round(median, 4), "tok_s_gpu": round(args.bs * args.seq / median),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
        "reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
        "first_step_s": round(first_step_s, 1), "loss": round(loss.item(), 3), "device": torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in names}},
    }), flush=True)


def main():
    args = parse_arguments()
    if args.warmup < 1 or args.steps < 1:
        raise SystemExit("error: --warmup and --steps must be at least 1")
    if args.only_folder is not None:
        write_folder(args.only_folder, args.shape)
        return
    if args.folder is not None:
        measure(args, args.folder)
        return
    folder = Path(tempfile.mkdtemp(prefix="unsloth-peer-"))
    try:
        write_folder(folder, args.shape)
        measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
