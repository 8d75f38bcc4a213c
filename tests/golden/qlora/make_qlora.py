#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the references of tests/golden/qlora/: LoRA over a base that bitsandbytes has quantized.

For each case below, with the model, rows and adapter of tests/golden/<family>/ (make_models.py), in
fp32 on the CPU and on one thread:

    <case>.json             20 steps of LoRA: settings, quantization, loss, gradient norm before
                            clipping, learning rate of each step
    <case>/                 for some cases the quantized model as save_pretrained writes it

How to run, in a virtual environment with torch, transformers, peft, bitsandbytes and safetensors:

    OMP_NUM_THREADS=1 python tests/golden/qlora/make_qlora.py
"""

import json
import os
import shutil
import sys
from pathlib import Path

import bitsandbytes
import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import make_models  # noqa: E402

# name: family, arguments of BitsAndBytesConfig, whether the folder is kept
CASES = {
    "nf4_double": ("llama2", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, True),
    "nf4": ("llama3", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False}, False),
    "fp4": ("qwen3", {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False}, True),
}


def load_quantized(quantization):
    config = BitsAndBytesConfig(bnb_4bit_compute_dtype=torch.float32, **quantization)
    return AutoModelForCausalLM.from_pretrained(
        "model", attn_implementation="eager", dtype=torch.float32, quantization_config=config, device_map={"": "cpu"}
    )


def make_case(name, family, quantization, keep_folder):
    os.chdir(HERE.parent / family)
    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]

    def lora():
        return PeftModel.from_pretrained(load_quantized(quantization), "adapter_init", is_trainable=True)

    print(name)
    out = HERE / f"{name}.json"
    make_models.reference_curve(lora, rows, 1e-2, str(out))
    if keep_folder:
        shutil.rmtree(HERE / name, ignore_errors=True)
        load_quantized(quantization).save_pretrained(HERE / name)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = make_models.versions
    make_models.versions = lambda: {**versions(), "bitsandbytes": bitsandbytes.__version__}
    for name, (family, quantization, keep_folder) in CASES.items():
        make_case(name, family, quantization, keep_folder)


if __name__ == "__main__":
    main()
