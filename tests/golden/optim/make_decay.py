#!/usr/bin/env python3
"""Makes tests/golden/optim/decay.json: the trainable parameters to which transformers' Trainer applies weight decay.

    python tests/golden/optim/make_decay.py

For each model folder of make_models.py, trained in full and with LoRA on all linear layers and modules_to_save: the
names of Trainer.get_decay_parameter_names that train, and those of all others that train. Names are those of the model
folder or the adapter, without PEFT's prefix and the name of the adapter.
"""
import json
import pathlib

from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, Trainer

HERE = pathlib.Path(__file__).resolve().parent
FAMILIES = "llama2 llama3 mistral qwen2 qwen3 smollm3 phi3 gemma2 gemma3".split()
SAVED = ["embed_tokens", "norm", "input_layernorm"]


def plain(name):
    return name.removeprefix("base_model.model.").replace(".default", "").replace(".modules_to_save", "")


def groups(model):
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return {"decay": sorted(plain(name) for name in trained if name in decayed),
            "no_decay": sorted(plain(name) for name in trained if name not in decayed)}


def main():
    found = {}
    for family in FAMILIES:
        config = AutoConfig.from_pretrained(HERE.parent / family / "model")
        found[family] = {"full": groups(AutoModelForCausalLM.from_config(config))}
        lora = LoraConfig(r=2, target_modules="all-linear", modules_to_save=SAVED)
        found[family]["lora"] = groups(get_peft_model(AutoModelForCausalLM.from_config(config), lora))
    (HERE / "decay.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
