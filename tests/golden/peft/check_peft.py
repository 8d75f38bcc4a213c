#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets PEFT load the adapters that tests/golden/peft.sh has made, in the folder where it runs.

For each CASE, a folder below tests/golden: CASE/adapter is loaded with warnings as errors over the class of CASE/model.
Every tensor is used, every adapted module is of the text model, PEFT writes the same tensors and settings again, and its
logits are those of trimtab, and of CASE/merged. Needs torch, transformers, peft and safetensors:

    python tests/golden/peft/check_peft.py BUILD CASE ...
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import check_with_peft  # noqa: E402

START = Path.cwd()
LOGITS_BOUND = 1e-5  # ||a - b|| / ||b||, fp32


def text_path(name):
    """Of the text model inside the folder's class."""
    return "text_model" if name.endswith("smolvlm") else "language_model"


@torch.no_grad()
def check(build, name):
    os.chdir(START / name)  # base_model_name_or_path is relative
    folder, vision, faults = Path(), name.startswith("vision/"), []
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    base = auto.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager").eval()
    rows = [json.loads(line)["input_ids"] for line in (folder / "train.jsonl").read_text().splitlines()[:2]]
    ids = rows[0] + rows[1]
    before = base(input_ids=torch.tensor([ids])).logits[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FutureWarning)  # of PEFT calling transformers, about no adapter
        # PEFT 0.21 looks for the keys of patterns among modules, also those that it writes for parameters itself
        warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys did not match")
        model = PeftModel.from_pretrained(base, folder / "adapter").eval()
    adapted = [key for key, module in model.named_modules() if hasattr(module, "lora_A") and len(module.lora_A)]
    faults += [f"PEFT adapts {key}" for key in adapted if vision and f".{text_path(name)}." not in key]
    tensors = load_file(folder / "adapter" / "adapter_model.safetensors")
    if 2 * len(adapted) != len(tensors) or not adapted:
        faults.append(f"PEFT adapts {len(adapted)} modules, of {len(tensors)} tensors")
    faults += check_with_peft.compare_with_resaved(model, folder / "adapter", folder / "resaved")
    want = model(input_ids=torch.tensor([ids])).logits[0]
    got = check_with_peft.trimtab_logits(build, folder / "model", folder / "adapter", ids)
    error, moved = check_with_peft.relative(got, want), check_with_peft.relative(want, before)
    if not error < LOGITS_BOUND:
        faults.append(f"logits are off by {error:.2e}")
    if not moved > 1e-3:
        faults.append(f"the adapter moves the logits by {moved:.2e} only")
    merged = auto.from_pretrained(folder / "merged", dtype=torch.float32, attn_implementation="eager").eval()
    apart = check_with_peft.relative(merged(input_ids=torch.tensor([ids])).logits[0], want)
    if not apart < LOGITS_BOUND:
        faults.append(f"logits of the merged model are off by {apart:.2e}")
    print(f"{name}: {len(adapted)} modules, logits {error:.1e}, merged {apart:.1e}, moved {moved:.2f}", *faults, sep="; ", flush=True)
    return faults


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    build = Path(sys.argv[1]).resolve()
    sys.exit(sum(bool(check(build, name)) for name in sys.argv[2:]) > 0)


if __name__ == "__main__":
    main()
