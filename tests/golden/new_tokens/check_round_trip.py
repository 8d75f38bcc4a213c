#!/usr/bin/env python3
"""Checks that transformers and PEFT read what trimtab saves with new tokens (docs/new-tokens.md). Not a part of the tests.

    HF_HUB_OFFLINE=1 python tests/golden/new_tokens/check_round_trip.py BUILD

For a model with one table and one with two: ids of AutoTokenizer from the adapter's and the merged folder, and the loss of
PEFT's model on a base that was resized, against those of trimtab.
"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[3]
PROMPT, COMPLETION = "<ask>the rain", " in<sum> the main<|done|>"


def run(*words):
    done = subprocess.run([Path(sys.argv[1]).resolve() / "trimtab", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loss_of(model, tokenizer):
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (PROMPT, COMPLETION)]
    ids[1].append(tokenizer.eos_token_id)
    labels = [-100] * len(ids[0]) + ids[1]
    with torch.no_grad():
        return model(torch.tensor([ids[0] + ids[1]]), labels=torch.tensor([labels])).loss.item()


def check(folder, family, more):
    model = folder / family
    shutil.copytree(ROOT / "tests" / "golden" / family / "model", model)
    for file in (ROOT / "tests" / "support" / "tiny_tokenizer").iterdir():
        shutil.copy(file, model / file.name)
    rows = folder / "rows.jsonl"
    rows.write_text((json.dumps({"prompt": PROMPT, "completion": COMPLETION}) + "\n") * 4)
    new = ["--add_tokens", "<ask>", "<sum>", "--add_special_tokens", "<|done|>", *more]
    adapter, merged = folder / f"{family}.adapter", folder / f"{family}.merged"
    run("train", "--model_name_or_path", model, "--dataset_name", rows, "--output_dir", adapter, "--max_steps", 5, "--bf16", "false",
        "--learning_rate", 0.02, "--lora_target_modules", "q_proj", *new)
    run("merge", "--model", model, "--adapter", adapter, "--output_dir", merged)
    ours = float(run("eval", "--model_name_or_path", model, "--adapter_name_or_path", adapter, "--eval_dataset", rows, "--bf16",
                     "false").split()[1])
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (adapter, merged)]
    for tokenizer in tokenizers:
        assert tokenizer.convert_tokens_to_ids(["<ask>", "<sum>", "<|done|>"]) == [259, 260, 261], tokenizer
        assert tokenizer.decode([259, 261, 260], skip_special_tokens=True) == "<ask><sum>"
    with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
        size = next(file.get_tensor(key).shape[0] for key in file.keys() if "embed_tokens" in key and "delta" not in key)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    base.resize_token_embeddings(size)
    losses = [loss_of(PeftModel.from_pretrained(base, adapter).eval(), tokenizers[0]),
              loss_of(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval(), tokenizers[1])]
    print(f"{family}: {size} rows, loss {ours}, with PEFT {losses[0]:.6f}, merged in transformers {losses[1]:.6f}")
    assert all(abs(loss - ours) < 2e-6 * ours + 1e-6 for loss in losses)


def main():
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), "llama2", [])
        check(Path(folder), "qwen2", ["--resize_to_multiple_of", "128"])


main()
