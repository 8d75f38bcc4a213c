#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors in MXFP4 as gpt-oss has them, and what transformers makes of them.

    model/                  a folder with P_blocks and P_scales of two experts' matrices, of random codes: all scales from
                            0 to 255 are there
    reference.safetensors   P: the result of transformers' convert_moe_packed_tensors in bfloat16, transposed back

    python tests/golden/mxfp4/make_mxfp4.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = Path(__file__).resolve().parent
NAME = "model.layers.0.mlp.experts.gate_up_proj"


def main():
    generator = torch.Generator().manual_seed(7)
    blocks = torch.randint(0, 256, (2, 26, 5, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randperm(260, generator=generator).remainder(256).to(torch.uint8).view(2, 26, 5)
    decoded = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).transpose(1, 2).contiguous()
    (HERE / "model").mkdir(exist_ok=True)
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    (HERE / "model" / "config.json").write_text(json.dumps(config, sort_keys=True) + "\n")
    save_file({f"{NAME}_blocks": blocks, f"{NAME}_scales": scales}, HERE / "model" / "model.safetensors", {"format": "pt"})
    save_file({NAME: decoded}, HERE / "reference.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
