#!/usr/bin/env python3
"""Makes tests/golden/adapters/kinds/: an adapter of each kind that PEFT saves for a causal model.

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/adapters/make_kinds.py

untied/, tied/      two tiny models, with biases in q, k and v
NAME/               an adapter: one option of LoraConfig by itself, or one value of init_lora_weights, with values that are
                    not special
options.txt         the fields of LoraConfig, and the values of init_lora_weights that have a name
logits.safetensors  ids, and of each NAME the logits of PeftModel.from_pretrained(model, NAME) for them; none where PEFT
                    cannot load what it has saved
"""
import dataclasses
import json
import os
import shutil
import warnings
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, initialize_lora_eva_weights
from peft.tuners.lora.config import (ArrowConfig, BdLoraConfig, CordaConfig, EvaConfig, KasaConfig, LoraGAConfig,
                                     LoraRuntimeConfig, MontecloraConfig, VeloraConfig)
from peft.tuners.lora.corda import preprocess_corda
from peft.tuners.lora.loraga import preprocess_loraga
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).resolve().parent / "kinds"
CONFIG = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
TARGETS = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "down_proj"]}
IDS = torch.tensor([[3, 17, 42, 5, 60, 8]])

# name: LoraConfig beside TARGETS; of the untied model unless the name ends in _tied
OPTIONS = {
    "plain": {},
    "r": {"r": 4},
    "lora_alpha": {"lora_alpha": 3},
    "lora_dropout": {"lora_dropout": 0.1},
    "target_modules": {"target_modules": r".*layers\.1\.(self_attn\.[kv]_proj|mlp\.up_proj)"},
    "target_modules_head": {"target_modules": ["v_proj", "lm_head"]},
    "target_modules_head_tied": {"target_modules": ["v_proj", "lm_head"]},
    "target_modules_embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "exclude_modules": {"exclude_modules": ["layers.0.mlp.down_proj"]},
    "fan_in_fan_out": {"fan_in_fan_out": True},
    "bias_all": {"bias": "all"},
    "bias_lora_only": {"bias": "lora_only"},
    "use_rslora": {"use_rslora": True},
    "modules_to_save": {"modules_to_save": ["embed_tokens"]},
    "modules_to_save_tied": {"modules_to_save": ["embed_tokens"]},
    "modules_to_save_head": {"modules_to_save": ["lm_head", "norm"]},
    "modules_to_save_head_tied": {"modules_to_save": ["lm_head"]},
    "layers_to_transform": {"layers_to_transform": [1]},
    "layers_pattern": {"layers_to_transform": [0], "layers_pattern": "layers"},
    "rank_pattern": {"rank_pattern": {"q_proj": 3}},
    "alpha_pattern": {"alpha_pattern": {"q_proj": 5}},
    "megatron_config": {"megatron_config": {"hidden_size": 16}},
    "trainable_token_indices": {"trainable_token_indices": [3, 5, 8]},
    "trainable_token_indices_tied": {"trainable_token_indices": [3, 5, 8]},
    "trainable_token_indices_head": {"trainable_token_indices": {"embed_tokens": [5], "lm_head": [7, 9]}},
    "loftq_config": {"loftq_config": {"loftq_bits": 4, "loftq_iter": 1}},
    "eva_config": {"eva_config": EvaConfig()},
    "corda_config": {"corda_config": CordaConfig()},
    "lora_ga_config": {"lora_ga_config": LoraGAConfig()},
    "use_dora": {"use_dora": True},
    "alora_invocation_tokens": {"alora_invocation_tokens": [5, 60]},
    "use_qalora": {"use_qalora": True},
    "qalora_group_size": {"qalora_group_size": 8},
    "layer_replication": {"layer_replication": [[0, 2], [1, 2]]},
    "runtime_config": {"runtime_config": LoraRuntimeConfig(ephemeral_gpu_offload=False)},
    "lora_bias": {"lora_bias": True},
    "target_parameters": {"target_parameters": ["layers.0.mlp.up_proj.weight"]},
    "use_bdlora": {"use_bdlora": BdLoraConfig(target_modules_bd_a=["down_proj"], target_modules_bd_b=["q_proj"], nblocks=2)},
    "arrow_config": {"arrow_config": ArrowConfig(top_k=1)},
    "velora_config": {"velora_config": VeloraConfig(num_groups=4)},
    "monteclora_config": {"monteclora_config": MontecloraConfig()},
    "kasa_config": {"kasa_config": KasaConfig()},
    "ensure_weight_tying_tied": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "ensure_weight_tying_tokens_tied": {"trainable_token_indices": [3, 5], "ensure_weight_tying": True},
}
INITS = ["gaussian", "eva", "olora", "pissa", "pissa_niter_4", "corda", "loftq", "orthogonal", "mica", "lora_ga"]


def base_of(name):
    folder = HERE / ("tied" if name.endswith("_tied") else "untied")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def make_base(folder, tied, seed):
    config = AutoConfig.for_model("qwen2", dtype="float32", tie_word_embeddings=tied, **CONFIG)
    model = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, param in model.named_parameters():
            noise = torch.randn(param.shape, generator=generator)
            param.copy_(1.0 + 0.2 * noise if "norm" in name else 0.25 * noise)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def randomise(model):
    """Values as after a training: what PEFT has begun with, and noise on all that trains."""
    with torch.no_grad():
        for _, param in model.named_parameters():
            if param.requires_grad:
                param.add_(0.1 * torch.randn(param.shape))


def adapted(name, config):
    model = base_of(name)
    if config.init_lora_weights == "corda":
        preprocess_corda(model, config, run_model=lambda: model(IDS))
    if config.init_lora_weights == "lora_ga":
        preprocess_loraga(model, config, lambda: model(IDS, labels=IDS).loss.backward())
    peft_model = get_peft_model(model, config)
    if config.init_lora_weights == "eva":
        batches = [{"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}] * 4
        initialize_lora_eva_weights(peft_model, batches)
    return peft_model


def make_kind(name, options):
    shutil.rmtree(HERE / name, ignore_errors=True)
    torch.manual_seed(sum(name.encode()))
    model = adapted(name, LoraConfig(task_type="CAUSAL_LM", **{**TARGETS, **options}))
    randomise(model)
    model.save_pretrained(name, save_embedding_layers="auto")
    (Path(name) / "README.md").unlink()
    path = Path(name) / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "tied" if name.endswith("_tied") else "untied"
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    HERE.mkdir(exist_ok=True)
    os.chdir(HERE)
    make_base(HERE / "untied", False, 900)
    make_base(HERE / "tied", True, 901)
    kinds = {**OPTIONS, **{f"init_{init}": {"init_lora_weights": init} for init in INITS}}
    kinds["init_loftq"]["loftq_config"] = {"loftq_bits": 4, "loftq_iter": 1}
    kinds["init_lora_ga"]["lora_ga_config"] = LoraGAConfig()
    tensors = {"ids": IDS[0]}
    for name, options in kinds.items():
        try:
            make_kind(name, options)
        except Exception as error:  # noqa: BLE001
            shutil.rmtree(HERE / name, ignore_errors=True)
            print(f"{name}: PEFT makes none: {type(error).__name__}: {str(error)[:120]}")
            continue
        try:
            with torch.no_grad():
                tensors[name] = PeftModel.from_pretrained(base_of(name), name).eval()(IDS).logits[0].contiguous()
        except Exception as error:  # noqa: BLE001
            print(f"{name}: PEFT does not load it: {type(error).__name__}: {str(error)[:120]}")
    save_file(tensors, "logits.safetensors", {"format": "pt"})
    fields = [field.name for field in dataclasses.fields(LoraConfig)]
    Path("options.txt").write_text("".join(f"{name}\n" for name in [*fields, *INITS]))


main()
