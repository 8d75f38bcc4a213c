#!/usr/bin/env python3
"""Makes tests/golden/adapters/curves/: 20 steps of each kind of adapter as PEFT trains it in fp32 on the CPU.

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/adapters/make_curves.py [name ...]

For each name:
    adapter_init/          the adapter with which the curve begins
    adapter_final/         the adapter after the steps
    train_reference.json   base (a folder of make_models.py), settings, loss, gradient norm and learning rate of each step
    merged.safetensors     some tensors of merge_and_unload() of adapter_final

make_models.py says how a step is computed.
"""
import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from make_models import LINEARS, reference_curve, save_adapter  # noqa: E402

# In the rows of every family, and in no order.
TOKENS = [217, 48, 107, 9]
# base, LoraConfig, learning rate, merged tensors
CURVES = {
    "dora": ("llama2", {"r": 4, "lora_alpha": 8, "target_modules": LINEARS, "use_dora": True}, 1e-2,
             ["layers.1.self_attn.o_proj.weight", "layers.0.mlp.up_proj.weight"]),
    # q, k and v have biases, k and up have no adapter
    "dora_some": ("qwen2", {"r": 3, "lora_alpha": 5, "use_dora": True, "use_rslora": True,
                            "target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj"],
                            "rank_pattern": {"down_proj": 2}}, 1e-2,
                  ["layers.0.self_attn.q_proj.weight", "layers.1.mlp.down_proj.weight"]),
    # two of the three biases of a layer, and all of them
    "bias_lora_only": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], "bias": "lora_only"}, 1e-2,
                       ["layers.0.self_attn.q_proj.bias"]),
    "bias_all": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "up_proj"], "bias": "all"}, 2e-3,
                 ["layers.1.self_attn.k_proj.bias", "layers.0.self_attn.v_proj.bias"]),
    # rows of tokens: of the embeddings; of both tables, each its own; of one table for both; of one table, but each its own
    "tokens": ("llama2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"],
                          "trainable_token_indices": TOKENS}, 1e-2, ["layers.0.self_attn.q_proj.weight"]),
    "tokens_head": ("llama2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"],
                               "trainable_token_indices": {"embed_tokens": TOKENS[:2], "lm_head": TOKENS[1:]}}, 1e-2,
                    ["lm_head.weight"]),
    "tokens_tied": ("gemma3", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"],
                               "trainable_token_indices": TOKENS}, 1e-2, ["embed_tokens.weight"]),
    "tokens_apart": ("gemma2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"],
                                "trainable_token_indices": {"embed_tokens": TOKENS[:3], "lm_head": TOKENS[2:]}}, 1e-2,
                     ["layers.0.self_attn.q_proj.weight"]),
}


def base_of(family):
    return AutoModelForCausalLM.from_pretrained(HERE.parent / family / "model", dtype=torch.float32, attn_implementation="eager")


def make_init(family, lora, seed):
    """PEFT's own initialisation, and then values that are not special."""
    torch.manual_seed(seed)
    model = get_peft_model(base_of(family), LoraConfig(task_type="CAUSAL_LM", **lora))
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "lora_B" in name:
                param.normal_(0.0, 0.05)
            elif "lora_magnitude_vector" in name:
                param.mul_(1.0 + 0.1 * torch.randn(param.shape))
            elif "trainable_tokens_delta" in name:
                param.add_(0.1 * param.std() * torch.randn(param.shape))
    save_adapter(model, "adapter_init")


def clean_config(folder, family):
    path = Path(folder) / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = family
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_curve(name, seed):
    family, lora, rate, merged = CURVES[name]
    folder = HERE / "curves" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    make_init(family, lora, seed)
    rows = [json.loads(line) for line in (HERE.parent / family / "train.jsonl").read_text().splitlines()]

    def adapted():
        return PeftModel.from_pretrained(base_of(family), "adapter_init", is_trainable=True)

    save_adapter(reference_curve(adapted, rows, rate, "train_reference.json"), "adapter_final")
    reference = json.loads(Path("train_reference.json").read_text())
    text = Path("train_reference.json").read_text()
    Path("train_reference.json").write_text(text.replace("{\n", '{\n "base": "%s",\n' % family, 1))
    assert json.loads(Path("train_reference.json").read_text()) == {"base": family, **reference}
    model = PeftModel.from_pretrained(base_of(family), "adapter_final").merge_and_unload()
    tensors = dict(model.named_parameters())
    names = [key if key in tensors else f"model.{key}" for key in merged]
    save_file({name: tensors[name].detach().clone() for name in names}, "merged.safetensors")
    for adapter in ("adapter_init", "adapter_final"):
        clean_config(adapter, family)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for seed, name in enumerate(CURVES):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        make_curve(name, 500 + seed)


main()
