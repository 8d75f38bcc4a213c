#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the merged weights of tests/golden/merge/: what PEFT's merge_and_unload gives.

    llama2_variety.safetensors   llama2/model with llama2/variety (rslora, patterns, lm_head saved), fp32
    qwen3_bf16.safetensors       qwen3/model cast to bfloat16 with qwen3/adapter_random (fp32)

Only tensors that merging changes are kept. How to run, after make_models.py, in an environment with torch,
transformers, peft and safetensors:

    OMP_NUM_THREADS=1 python tests/golden/merge/make_merge.py
"""

from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent.parent


def merged(family, adapter, dtype):
    def load():
        return AutoModelForCausalLM.from_pretrained(GOLDEN / family / "model", dtype=dtype)

    before = load().state_dict()
    after = PeftModel.from_pretrained(load(), GOLDEN / family / adapter).merge_and_unload().state_dict()
    assert before.keys() == after.keys()
    return {name: value.contiguous() for name, value in after.items() if not torch.equal(value, before[name])}


def main():
    torch.set_num_threads(1)
    out = GOLDEN / "merge"
    save_file(merged("llama2", "variety", torch.float32), out / "llama2_variety.safetensors", {"format": "pt"})
    save_file(merged("qwen3", "adapter_random", torch.bfloat16), out / "qwen3_bf16.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
