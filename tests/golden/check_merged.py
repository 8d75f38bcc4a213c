#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merges with trimtab and loads the result with transformers; run by hand:

    python tests/golden/check_merged.py BUILD

For every reference model and adapter: the merged folder loads without a warning, has the tensors that transformers
expects, and gives the logits of base + adapter in PEFT. Prints one line each.
"""

import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent
CASES = [(f, "adapter_random") for f in ("llama2", "llama3", "mistral", "qwen2", "qwen3")]
CASES += [("llama2", "variety"), ("qwen2", "variety")]


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def load(folder, **kwargs):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **kwargs)


@torch.no_grad()
def logits(model, family):
    batch = load_file(GOLDEN / family / "reference.safetensors")
    parts = batch["input_ids"].split(batch["seq_lens"].tolist())
    return torch.cat([model(input_ids=ids[None]).logits[0].float() for ids in parts])


def main():
    trimtab, failures = Path(sys.argv[1]) / "trimtab", 0
    complaints = Complaints()
    transformers.utils.logging.get_logger("transformers").addHandler(complaints)
    for family, adapter in CASES:
        for words in ([], ["--save_dtype", "bfloat16"], ["--max_shard_size", "100KB"]):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "merged"
                base = GOLDEN / family / "model"
                command = [trimtab, "merge", "--model_name_or_path", base, "--adapter_name_or_path", GOLDEN / family / adapter]
                subprocess.run([*command, "--output_dir", out, *words], check=True, capture_output=True)
                complaints.lines.clear()
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    ours, info = load(out, output_loading_info=True)
                problems = [name for name, value in info.items() if value] + complaints.lines
                both = PeftModel.from_pretrained(load(base), GOLDEN / family / adapter).eval()
                reference = logits(both, family)
                error = ((logits(ours.eval(), family) - reference).norm() / reference.norm()).item()
                bound = 3e-2 if "bfloat16" in words else 1e-5
                ok = not problems and error <= bound
                failures += not ok
                said = "ok" if ok else problems or "FAILED"
                print(f"{family:8} {adapter:16} {' '.join(words):24} {error:.2e} {ours.dtype} {said}", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
