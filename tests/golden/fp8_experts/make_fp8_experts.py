#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny folders in FP8, experts and all: with scales of 128 x 128 weights, as DeepSeek V3 and MiniMax-M2 are published,
and with one scale for each matrix, all experts in one tensor, as Mistral Small 4 is.

    NAME/model/      weights of linears as codes with weight_scale_inv, experts one by one; the router is not quantized.
                     mistral4: the model of ../vision, experts as codes [experts, out, in] with scales in each form of
                     finegrained_fp8.py of transformers, and scales of activations that nobody reads;
                     numbers.safetensors has code * scale of the experts, F32
    losses.json      of each the mean loss of the tokens of train.jsonl of ../dense or ../vision/mistral4, fp32: weights are
                     code * scale, those of single experts rounded to bf16

How to run, after ../dense/make_dense.py and ../vision/make_vision.py: OMP_NUM_THREADS=1 python tests/golden/fp8_experts/make_fp8_experts.py
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "dense")]
import make_dense as dense  # noqa: E402
import make_models as models  # noqa: E402

BLOCK, MOST = 128, 448.0
# The second row of blocks has 8 rows or columns.
WIDE = {"hidden_size": 136, "intermediate_size": 16, "moe_intermediate_size": 12}
FOLDERS = {
    "deepseek_v3": (601, WIDE),
    "minimax_m2": (602, WIDE | {"num_hidden_layers": 1}),
}


def quantize(weight):
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    scale = torch.empty(rows, columns)
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for i in range(rows):
        for j in range(columns):
            part = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
            scale[i, j] = weight[part].abs().max() / MOST
            codes[part] = (weight[part] / scale[i, j]).to(torch.float8_e4m3fn)
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: weight.shape[0], : weight.shape[1]]
    return codes, scale, codes.float() * wide


def make(name):
    seed, changes = FOLDERS[name]
    family = dense.FAMILIES[name]
    config = transformers.AutoConfig.for_model(family.model_type, dtype="float32", **(family.config | changes))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    models.randomise(model, torch.Generator().manual_seed(seed))
    tensors = {}
    model.save_pretrained("whole")  # with a tensor for each linear of an expert
    stored = transformers.modeling_utils.load_state_dict("whole/model.safetensors")
    for key, value in sorted(stored.items()):
        if value.dim() == 2 and key.endswith("weight") and not key.endswith(("embed_tokens.weight", "lm_head.weight", "gate.weight")):
            codes, scale, number = quantize(value.float())
            tensors |= {key: codes, f"{key}_scale_inv": scale}
            stored[key] = number.to(torch.bfloat16).float() if ".experts." in key else number
        else:
            stored[key] = value if value.dim() == 1 else value.to(torch.bfloat16).float()
            tensors[key] = value if value.dim() == 1 else value.to(torch.bfloat16)
    save_file(stored, "whole/model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained("whole", dtype=torch.float32, attn_implementation="eager").eval()
    rows = [json.loads(line) for line in (HERE.parent / "dense" / "train.jsonl").read_text().splitlines()]
    count = sum(label != models.IGNORED for row in rows for label in row["labels"][1:])
    with torch.no_grad():
        loss = sum(models.nll_sum(model, [row]).item() for row in rows) / count
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name / "model").mkdir(parents=True)
    save_file(tensors, HERE / name / "model" / "model.safetensors", {"format": "pt"})
    text = json.loads(Path("whole/config.json").read_text())
    text["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                   "weight_block_size": [BLOCK, BLOCK],
                                   "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]}
    (HERE / name / "model" / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    shutil.rmtree("whole")
    return loss


def one_scale(weight, dims):
    """Codes, one scale for all `dims` of a weight, and the numbers."""
    scale = weight.abs().amax(dims, keepdim=True) / MOST
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return codes, scale, codes.float() * scale


def experts_of(key, value):
    if ".0.mlp." in key and key.endswith("down_proj"):
        codes, scale, number = one_scale(value, (1, 2))
        return codes, scale.flatten(), number
    if ".1.mlp." in key and key.endswith("gate_up_proj"):  # gate and up apart
        codes, scale, number = one_scale(value.unflatten(1, (2, -1)), (2, 3))
        return codes.flatten(1, 2), scale.flatten(1, 2), number.flatten(1, 2)
    return one_scale(value, (1, 2))


def make_mistral4():
    source, folder = HERE.parent / "vision" / "mistral4", HERE / "mistral4" / "model"
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors, whole = {}, transformers.modeling_utils.load_state_dict(str(source / "model" / "model.safetensors"))
    for key, value in sorted(whole.items()):
        inside = key.startswith("language_model.model.layers.")
        if inside and value.dim() == 3:
            codes, scale, whole[key] = experts_of(key, value)
            tensors |= {key: codes, f"{key}_scale_inv": scale.contiguous(), f"{key}_activation_scale": torch.ones(value.shape[0])}
        elif inside and value.dim() == 2 and not key.endswith("gate.weight"):
            codes, scale, whole[key] = one_scale(value, (0, 1))
            module = key.removesuffix(".weight")
            tensors |= {key: codes, f"{key}_scale_inv": scale.reshape(()), f"{module}.activation_scale": torch.tensor(1.0)}
        else:
            tensors[key] = value if value.dim() == 1 else value.to(torch.bfloat16)
            whole[key] = tensors[key].float()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    save_file({key: value for key, value in whole.items() if value.dim() == 3}, folder.parent / "numbers.safetensors")
    text = json.loads((source / "model" / "config.json").read_text())
    Path("whole").mkdir()
    Path("whole/config.json").write_text(json.dumps(text))
    save_file(whole, "whole/model.safetensors", {"format": "pt"})
    model = transformers.Mistral3ForConditionalGeneration.from_pretrained(
        "whole", dtype=torch.float32, attn_implementation="eager").eval()
    shutil.rmtree("whole")
    text["quantization_config"] = {"activation_scheme": "static", "dequantize": False, "quant_method": "fp8",
                                   "weight_block_size": None,
                                   "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head",
                                                              "gate"]}
    (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    rows = [json.loads(line) for line in (source / "train.jsonl").read_text().splitlines()]
    count = sum(label != models.IGNORED for row in rows for label in row["labels"][1:])
    with torch.no_grad():
        return sum(models.nll_sum(model, [row]).item() for row in rows) / count


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.chdir(HERE)
    losses = json.loads(Path("losses.json").read_text()) if sys.argv[1:] else {}
    losses |= {name: make(name) for name in sys.argv[1:] or FOLDERS if name in FOLDERS}
    if not sys.argv[1:] or "mistral4" in sys.argv[1:]:
        losses["mistral4"] = make_mistral4()
    Path("losses.json").write_text(json.dumps(losses) + "\n")


if __name__ == "__main__":
    main()
