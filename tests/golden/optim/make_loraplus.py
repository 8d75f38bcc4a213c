#!/usr/bin/env python3
"""Makes tests/golden/optim/loraplus.json and .safetensors: LoRA+ as create_loraplus_optimizer of PEFT groups and trains it.

    OMP_NUM_THREADS=1 python tests/golden/optim/make_loraplus.py

groups   for each model folder of make_models.py with LoRA on all linear layers and modules_to_save: of each parameter
         that trains the learning rate over the run's and the weight decay, as the groups of the optimizer have them.
         Names are those of the adapter, without PEFT's prefix and the name of the adapter
steps    20 steps of llama3 from adapter_init, with the settings of make_models.py and a ratio of 16: loss, gradient norm
         and learning rate; loraplus.safetensors is the adapter after them
"""
import json
import pathlib
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from make_models import TRAIN, nll_sum  # noqa: E402
from make_decay import FAMILIES, SAVED, plain  # noqa: E402

LR, RATIO, DECAY = 0.002, 16.0, 0.01


def optimizer_of(model):
    return create_loraplus_optimizer(model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=RATIO, betas=(0.9, 0.999),
                                     eps=1e-8, loraplus_weight_decay=DECAY)


def groups_of(model):
    names = {id(parameter): plain(name) for name, parameter in model.named_parameters()}
    return {names[id(p)]: [group["lr"] / LR, group["weight_decay"]]
            for group in optimizer_of(model).param_groups for p in group["params"]}


def train(folder):
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder / "adapter_init", is_trainable=True)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    optimizer = optimizer_of(model)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, TRAIN["warmup_steps"], TRAIN["max_steps"])
    trained = [p for p in model.parameters() if p.requires_grad]
    count = TRAIN["per_device_train_batch_size"] * TRAIN["gradient_accumulation_steps"]
    steps = []
    for step in range(TRAIN["max_steps"]):
        picked = [rows[(step * count + i) % len(rows)] for i in range(count)]
        tokens = sum(label != -100 for row in picked for label in row["labels"][1:])
        loss = nll_sum(model, picked) / tokens
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, TRAIN["max_grad_norm"]).item()
        steps.append({"loss": loss.item(), "grad_norm": norm, "learning_rate": scheduler.get_last_lr()[0]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    save_file({n.replace(".default", ""): p.detach() for n, p in model.named_parameters() if p.requires_grad},
              HERE / "loraplus.safetensors")
    return steps


def main():
    torch.set_num_threads(1)
    groups = {}
    for family in FAMILIES:
        config = AutoConfig.from_pretrained(HERE.parent / family / "model")
        lora = LoraConfig(r=2, target_modules="all-linear", modules_to_save=SAVED)
        groups[family] = groups_of(get_peft_model(AutoModelForCausalLM.from_config(config), lora))
    found = {"learning_rate": LR, "ratio": RATIO, "weight_decay": DECAY, "groups": groups,
             "steps": train(HERE.parent / "llama3")}
    (HERE / "loraplus.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


main()
