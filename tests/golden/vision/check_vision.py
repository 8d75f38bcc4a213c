#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets PEFT and transformers load what trimtab wrote over the folders of tests/golden/vision.

For each class: trimtab trains an adapter over the text part and merges it, trains the text part in full, and quantizes
the folder to nf4. Then

    adapter     PeftModel loads it over the folder's class with warnings as errors; every adapted module is of the text
                model; the loss of the rows is that of `trimtab eval`.
    merged      the folder loads in the folder's class, nothing missing, nothing unexpected; the loss is the adapter's
    full        the same; and the tower and projector equal the base's, byte for byte
    eval        of the quantized folder ends well, and config.json lists the other parts as not quantized

A manual tool: it needs torch, transformers, peft and safetensors, and a build of trimtab:

    python tests/golden/vision/check_vision.py build [class ...]
"""

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForImageTextToText

VISION = Path(__file__).resolve().parent
CLASSES = {"gemma3": "language_model", "mistral3": "language_model", "ministral3": "language_model", "mistral4": "language_model",
           "qwen2_5_vl": "language_model",
           "qwen3_vl": "language_model", "qwen3_5": "language_model", "qwen3_5_moe": "language_model", "lfm2_vl": "language_model",
           "smolvlm": "text_model", "muse_glimmer": "language_model", "gemma4": "language_model"}
FLAGS = ["--bf16", "false", "--threads", "1"]


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stderr.decode()}")
    return result.stdout


def our_loss(trimtab, model, data, adapter=None):
    words = [trimtab, "eval", "--model_name_or_path", model, "--eval_dataset", data, *FLAGS, "--json"]
    return json.loads(run(*words, *(["--adapter_name_or_path", adapter] if adapter else [])))["loss"]


@torch.no_grad()
def their_loss(model, rows):
    total, count = 0.0, 0
    for row in rows:
        logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1].double()
        labels = torch.tensor(row["labels"])[1:]
        total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
        count += (labels != -100).sum().item()
    return total / count


def load(folder):
    model, info = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    faults = [f"{key}: {value}" for key, value in info.items() if value]
    return model.eval(), faults


def check_loss(what, ours, theirs, faults):
    if not abs(ours - theirs) < 1e-5 * theirs:
        faults.append(f"{what}: the loss is {ours:.7f}, the reference's {theirs:.7f}")


def check(trimtab, name, folder):
    base, data, faults = VISION / name / "model", VISION / name / "train.jsonl", []
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    train = [trimtab, "train", "--model_name_or_path", base, "--dataset_name", data, *FLAGS, "--max_steps", 8,
             "--learning_rate", 0.01, "--save_strategy", "no", "--report_to", "none"]
    run(*train, "--output_dir", folder / "adapter", "--lora_target_modules", "all-linear", "--lora_r", 4)
    ours = our_loss(trimtab, base, data, folder / "adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FutureWarning)
        model = PeftModel.from_pretrained(load(base)[0], folder / "adapter").eval()
    adapted = [key for key, module in model.named_modules() if hasattr(module, "lora_A") and len(module.lora_A)]
    faults += [f"PEFT adapts {key}" for key in adapted if f".{CLASSES[name]}." not in key]
    if len(adapted) != {"muse_glimmer": 16, "gemma4": 13}.get(name, 14):
        faults.append(f"PEFT adapts {len(adapted)} modules")
    check_loss("adapter", ours, their_loss(model, rows), faults)

    run(trimtab, "merge", "--model_name_or_path", base, "--adapter_name_or_path", folder / "adapter",
        "--output_dir", folder / "merged")
    model, more = load(folder / "merged")
    faults += more
    check_loss("merged", ours, their_loss(model, rows), faults)

    run(*train, "--output_dir", folder / "full", "--use_peft", "false")
    model, more = load(folder / "full")
    faults += more
    check_loss("full", our_loss(trimtab, folder / "full", data), their_loss(model, rows), faults)
    before = load(base)[0].state_dict()
    for key, value in model.state_dict().items():
        other = f".{CLASSES[name]}." not in key and "lm_head" not in key
        if other and not torch.equal(value, before[key]):
            faults.append(f"{key} changed")

    run(trimtab, "quantize", "--model_name_or_path", base, "--output_dir", folder / "nf4")
    skipped = json.loads((folder / "nf4" / "config.json").read_text())["quantization_config"]["llm_int8_skip_modules"]
    if not any("vis" in entry for entry in skipped or []):
        faults.append(f"llm_int8_skip_modules is {skipped}")
    ours = our_loss(trimtab, folder / "nf4", data)
    if not ours < 10:
        faults.append(f"the loss in nf4 is {ours}")
    return faults


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    trimtab = Path(sys.argv[1]).resolve() / "trimtab"
    failed = 0
    for name in sys.argv[2:] or CLASSES:
        with tempfile.TemporaryDirectory() as folder:
            faults = check(trimtab, name, Path(folder))
        failed += bool(faults)
        print(name, "; ".join(faults) or "ok", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
