#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the losses of conversations with TRL as it is installed: the first steps of LoRA in fp32 on the CPU.

For each family of compare_trl.py, a small Llama with random weights and 1,000 generated conversations (or --count)
under TRL's own training template: the losses of --steps steps with assistant_only_loss and without it, by SFTTrainer
and by `trimtab train`. With --model FOLDER the same for a real model folder with a chat template of its own; there
assistant_only_loss needs a template with {% generation %} (--template FILE).

    python tests/golden/chat/compare_losses.py --trimtab build/trimtab
    python tests/golden/chat/compare_losses.py --trimtab build/trimtab --model smollm2 --count 16 --steps 2

A learning rate of (almost) 0 makes every step a first step. The log of a run is in docs/measurements/conversations.md.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
import trl
from compare_trl import FAMILIES, TEMPLATES, conversation, make_tokenizer, write_lines
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

BATCH = 4


def theirs(folder, rows, template, assistant, steps, out):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if template is not None:
        tokenizer.chat_template = template
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = SFTConfig(output_dir=str(out), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=0.0, logging_steps=1, report_to="none", use_cpu=True,
                       assistant_only_loss=assistant, max_length=None, dataset_num_proc=1, save_strategy="no", train_sampling_strategy="sequential",
                       gradient_checkpointing=False, bf16=False, disable_tqdm=True)
    trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
                         peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], [float(x) for x in exact_losses(trainer, steps)]


def exact_losses(trainer, steps):
    """The loss of each batch as the trainer computes it, unrounded."""
    loader = iter(trainer.get_train_dataloader())
    for _ in range(steps):
        with torch.no_grad():
            yield trainer.compute_loss(trainer.model, next(loader))


def ours(trimtab, folder, rows, template, assistant, steps, out):
    write_lines(out / "rows.jsonl", rows)
    command = [trimtab, "train", "--model_name_or_path", folder, "--dataset_name", out / "rows.jsonl", "--output_dir", out / "adapter", "--max_steps", steps,
               "--per_device_train_batch_size", BATCH, "--learning_rate", 1e-20, "--logging_steps", 1, "--report_to", "none", "--device", "cpu", "--bf16", "false",
               "--assistant_only_loss", "true" if assistant else "false", "--max_length", 1 << 20, "--save_strategy", "no", "--lora_r", 4,
               "--lora_target_modules", "q_proj,v_proj", "--train_sampling_strategy", "sequential", "--gradient_checkpointing", "false", "--ranks", 1,
               "--special_tokens_in_messages", "true"]
    if template is not None:
        (out / "t.jinja").write_text(template, encoding="utf-8")
        command += ["--chat_template_path", out / "t.jinja"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stderr)
    lines = (out / "adapter" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


def compare(name, args, folder, rows, template, assistant):
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        logged, exact = theirs(folder, rows, template, assistant, args.steps, out / "trl")
        mine = ours(args.trimtab, folder, rows, template, assistant, args.steps, out)
    furthest = max(abs(a - b) / abs(b) for a, b in zip(mine, exact, strict=True))
    print(f"{name}, assistant_only_loss {assistant}: TRL {' '.join(f'{x:.6f}' for x in exact)} (logged {logged}); "
          f"trimtab {' '.join(f'{x:.6f}' for x in mine)}; furthest {furthest:.1e}", flush=True)
    return furthest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trimtab", type=Path, default=Path("build/trimtab"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--template", type=Path)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print(f"trl {trl.__version__}, transformers {transformers.__version__}, torch {torch.__version__}; {args.count} conversations each")
    worst = 0.0
    if args.model:
        rng = random.Random("model")
        rows = [conversation(rng, "system") for _ in range(args.count)]
        worst = compare(args.model.name, args, args.model, rows, None, False)
        if args.template:
            worst = max(worst, compare(args.model.name, args, args.model, rows, args.template.read_text(encoding="utf-8"), True))
    for name in [] if args.model else args.families:
        end, begin, others, features = FAMILIES[name]
        rng = random.Random(name)
        rows = [conversation(rng, features.replace("calls", "").replace("think", "")) for _ in range(args.count)]
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            tokenizer = make_tokenizer(folder, end, begin, others)
            torch.manual_seed(1)
            LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=8192, initializer_range=0.1)).save_pretrained(folder)
            for assistant in (False, True):
                template = (TEMPLATES / (f"{name}_training.jinja" if assistant else f"{name}.jinja")).read_text(encoding="utf-8")
                worst = max(worst, compare(name, args, folder, rows, template, assistant))
    print(f"furthest of all: {worst:.1e}")
    return worst > 1e-5


if __name__ == "__main__":
    sys.exit(main())
