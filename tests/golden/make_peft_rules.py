#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/peft_rules.json: what PEFT makes of LoraConfigs on a 12-layer Qwen2 model.

Per case: the arguments; the adapter_config.json that PEFT writes; every adapted module with its rank and scaling; the
parameters of modules_to_save; the counts of print_trainable_parameters. A case that PEFT refuses has "error" instead.

Run with torch, transformers and peft installed: PYTHONHASHSEED=0 python tests/golden/make_peft_rules.py
"""

import json
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 12, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}

CASES = [
    {},
    {"target_modules": ["q_proj", "v_proj"]},
    {"target_modules": ["self_attn.k_proj"]},
    {"target_modules": ["model.layers.1.mlp.up_proj", "o_proj"]},
    {"target_modules": ["layers.1.self_attn.q_proj"]},
    {"target_modules": "all-linear"},
    {"target_modules": "ALL-LINEAR", "exclude_modules": ["down_proj"]},
    {"target_modules": r".*\.(q|v)_proj"},
    {"target_modules": r"model\.layers\.(1|10)\..*_proj"},
    {"target_modules": r".*layers\.1.*q_proj"},
    {"target_modules": "q_proj"},
    {"target_modules": ["proj"]},
    {"target_modules": ["_proj"]},
    {"target_modules": ["mlp"]},
    {"target_modules": ["norm"]},
    {"target_modules": ["nothing"]},
    {"target_modules": ["nothing", "q_proj"]},
    {"target_modules": []},
    {"target_modules": ["lm_head", "q_proj"]},
    {"target_modules": ["q_proj", "k_proj"], "exclude_modules": ["layers.3.self_attn.q_proj"]},
    {"target_modules": ["q_proj", "k_proj"], "exclude_modules": r".*\.1\d?\..*"},
    {"target_modules": ["q_proj"], "exclude_modules": ["q_proj"]},
    {"target_modules": ["q_proj"], "layers_to_transform": 1},
    {"target_modules": ["q_proj", "model.layers.5.mlp.up_proj"], "layers_to_transform": [0, 11]},
    {"target_modules": ["q_proj"], "layers_to_transform": [1, 2], "layers_pattern": "layers"},
    {"target_modules": ["q_proj"], "layers_to_transform": [1, 2], "layers_pattern": ["h", "layers"]},
    {"target_modules": ["q_proj"], "layers_to_transform": [1, 2], "layers_pattern": "h"},
    {"target_modules": "all-linear", "layers_to_transform": [1]},
    {"target_modules": ["q_proj"], "layers_pattern": "layers"},
    {"target_modules": ["q_proj", "v_proj"], "r": 4, "lora_alpha": 6, "use_rslora": True},
    {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"q_proj": 3, r"layers\.1\.self_attn\.v_proj": 5}},
    {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"proj": 3, "model.layers.1.self_attn.q_proj": 2}},
    {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {".*_proj": 4, "q_proj": 9}, "use_rslora": True},
    {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"v_proj": 1.5}, "rank_pattern": {"layers.1.*": 2}},
    {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["norm"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["mlp"]},
    {"target_modules": ["q_proj", "up_proj"], "modules_to_save": ["layers.3.mlp"]},
    {"target_modules": "all-linear", "modules_to_save": ["down_proj"]},
]


def tiny(tied):
    config = AutoConfig.for_model("qwen2", tie_word_embeddings=tied, **SIZES)
    return AutoModelForCausalLM.from_config(config)


def run(arguments, tied):
    case = {"arguments": arguments, "tied": tied}
    try:
        model = get_peft_model(tiny(tied), LoraConfig(task_type="CAUSAL_LM", **arguments))
    except ValueError as error:
        return {**case, "error": str(error).splitlines()[0][:160]}
    adapted = {}
    for name, module in model.base_model.model.named_modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            adapted[name] = [module.r["default"], module.scaling["default"]]
    marker = ".modules_to_save.default."
    named = [name.removeprefix("base_model.model.") for name, _ in model.named_parameters(remove_duplicate=False)]
    saved = sorted(name.replace(marker, ".") for name in named if marker in name)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        written = json.loads((Path(folder) / "adapter_config.json").read_text())
    trainable, total = model.get_nb_trainable_parameters()
    return {**case, "adapter_config": written, "adapted": adapted, "saved": saved, "trainable": trainable, "all": total}


def main():
    transformers.logging.set_verbosity_error()
    cases = [run(arguments, tied) for arguments in CASES for tied in (False,)]
    cases += [run(arguments, True) for arguments in ({}, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
                                                     {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]})]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    head = f'{{\n "versions": {json.dumps(versions)},\n "model_type": "qwen2",\n "config": {json.dumps(SIZES)},\n "cases": [\n  '
    text = head + ",\n  ".join(json.dumps(case) for case in cases) + "\n ]\n}\n"
    (Path(__file__).resolve().parent / "peft_rules.json").write_text(text)


if __name__ == "__main__":
    main()
