#!/usr/bin/env python3
"""Loss curves of an adapter over a base in FP8, and over the same base in bfloat16: trimtab beside PEFT with torchao.

    python bench/peers/torch_fp8_curve.py --trimtab build/trimtab [--steps 300] [--batch 8] [--rate 2e-3] [--seeds 1 2 3]

The model and the rows are those of examples/demo, the settings those of its run (LoRA of rank 16 on all linears, learning
rate --rate with 5 % of warm-up, then linearly to 0). Rows are tokenized once. Each seed makes one adapter with PEFT, and all
runs begin with it and read the same rows in the same order. The linears of the base are in bfloat16; in torchao's FP8 with
one scale a row (convert_to_float8_training, recipe "rowwise"), and with one a tensor ("tensorwise"); in Trimtab's
`base_dtype: fp8` with each of `fp8_products`. Prints, for each, the mean loss of the last fifth of the steps less that of
bfloat16 on the same side, and the mean and the greatest of all steps' absolute differences; one JSON line a run, and a
table last. A GPU with FP8 products is needed: torchao has no other path.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARMUP = 0.05
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tokenized_rows(args, count):
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    rows = []
    with open(args.rows) as file:
        for line in file:
            row = json.loads(line)
            prompt = [tokenizer.bos_token_id] + tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
            answer = tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            rows.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    return [rows[i % len(rows)] for i in range(count)]


def rate_at(step, steps):
    """As transformers' linear schedule has it, for a step that counts from 0."""
    warmup = int(-(-steps * WARMUP // 1))
    return step / warmup if step < warmup else (steps - step) / (steps - warmup)


def batch_of(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    longest = (longest + 15) // 16 * 16  # torchao's products take multiples of 16
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        n = len(row["input_ids"])
        ids[i, :n], labels[i, :n], mask[i, :n] = torch.tensor(row["input_ids"]), torch.tensor(row["labels"]), 1
    return {"input_ids": ids.cuda(), "labels": labels.cuda(), "attention_mask": mask.cuda()}


def peer_losses(args, kind, adapter, rows):
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).cuda()
    if kind != "bf16":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        convert_to_float8_training(model.model, config=Float8LinearConfig.from_recipe_name(kind))
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True).train()
    trained = [parameter for name, parameter in model.named_parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data = parameter.data.float()
    optimizer = torch.optim.AdamW(trained, lr=args.rate, weight_decay=0.0)
    losses = []
    for step in range(args.steps):
        optimizer.param_groups[0]["lr"] = args.rate * rate_at(step, args.steps)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**batch_of(rows[step * args.batch:(step + 1) * args.batch])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def trimtab_losses(args, kind, adapter, folder, data):
    out = pathlib.Path(folder) / "out"
    words = [args.trimtab, "train", "--model_name_or_path", args.model, "--adapter_name_or_path", adapter,
             "--dataset_name", data, "--output_dir", out, "--overwrite_output_dir", "true", "--max_steps", args.steps,
             "--per_device_train_batch_size", args.batch, "--learning_rate", args.rate, "--lr_scheduler_type", "linear",
             "--warmup_ratio", WARMUP, "--weight_decay", 0, "--max_grad_norm", 1, "--logging_steps", 1, "--bf16", "true",
             "--save_strategy", "no", "--report_to", "none", "--ranks", 1, "--train_sampling_strategy", "sequential", "--max_length", 512]
    if kind != "bf16":
        words += ["--base_dtype", "fp8", "--fp8_products", kind]
    words += args.trimtab_settings
    log = pathlib.Path(folder) / "log"
    with open(log, "w") as file:
        status = subprocess.run([str(word) for word in words], stdout=file, stderr=file).returncode
    if status != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{log.read_text()[-3000:]}")
    with open(out / "metrics.jsonl") as file:
        rows = [json.loads(line) for line in file]
    return [row["loss"] for row in rows if "loss" in row and "event" not in row][:args.steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trimtab", default="build/trimtab")
    parser.add_argument("--model", default=str(ROOT / "examples/demo/model"))
    parser.add_argument("--rows", default=str(ROOT / "examples/demo/data/train.jsonl"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--peer", nargs="*", default=["rowwise", "tensorwise"])
    parser.add_argument("--products", nargs="*", default=["all", "single"])
    parser.add_argument("--trimtab_settings", nargs=argparse.REMAINDER, default=[])
    args = parser.parse_args()
    found = {}
    last = args.steps // 5
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            rows = tokenized_rows(args, args.steps * args.batch)
            data = os.path.join(folder, "rows.jsonl")
            with open(data, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            torch.manual_seed(seed)
            adapter = os.path.join(folder, "adapter")
            base = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
            get_peft_model(base, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=TARGETS,
                                            task_type="CAUSAL_LM")).save_pretrained(adapter)
            sides = [("torch", kind) for kind in ["bf16"] + args.peer] if args.peer else []
            sides += [("trimtab", kind) for kind in ["bf16"] + args.products]
            for side, kind in sides:
                losses = (peer_losses(args, kind, adapter, rows) if side == "torch" else
                          trimtab_losses(args, kind, adapter, folder, data))
                assert len(losses) == args.steps, (side, kind, len(losses))
                if kind == "bf16":
                    reference = losses
                distances = [abs(a - b) for a, b in zip(losses, reference)]
                result = {"side": side, "kind": kind, "seed": seed, "first": losses[0],
                          "last": statistics.mean(losses[-last:]),
                          "last_less_bf16": statistics.mean(losses[-last:]) - statistics.mean(reference[-last:]),
                          "mean_distance": statistics.mean(distances), "greatest_distance": max(distances)}
                print(json.dumps(result), flush=True)
                found.setdefault((side, kind), []).append(result)
    print(f"\n| side | base | last {last} steps, less bf16: each seed | mean of their sizes | mean distance of a step |\n"
          "|---|---|---|---|---|")
    for (side, kind), results in found.items():
        less = [result["last_less_bf16"] for result in results]
        print(f"| {side} | {kind} | {' '.join(f'{value:+.5f}' for value in less)} | "
              f"{statistics.mean(map(abs, less)):.5f} | {statistics.mean(r['mean_distance'] for r in results):.5f} |")


if __name__ == "__main__":
    main()
