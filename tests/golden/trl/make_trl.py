#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trl/: what TRL's SFTTrainer logs, and the defaults of TRL, transformers and PEFT.

    full.json, lora.json   log_history of 12 steps of AdamW on the rows of ../llama2/train.jsonl, 4 a step in one micro
                           batch (so that TRL's means over micro batches are means over tokens), with an evaluation of
                           6 rows in one batch after steps 6 and 12; weight decay 1.0, so that what it acts on shows
    defaults.json          names and defaults of SFTConfig (with what it inherits from TrainingArguments), ModelConfig,
                           ScriptArguments and LoraConfig

How to run, after make_models.py, with trl 1.16.0, transformers 5.17.0, peft 0.21.0:

    OMP_NUM_THREADS=1 python tests/golden/trl/make_trl.py
"""

import dataclasses
import enum
import json
import tempfile
from pathlib import Path

import accelerate
import peft
import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__ for m in (torch, transformers, trl, peft, accelerate)}
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=12, weight_decay=1.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=6, per_device_eval_batch_size=6,
)
KEYS = ["loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy", "eval_loss", "eval_entropy",
        "eval_mean_token_accuracy", "step"]


def run(name, learning_rate):
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "llama2/model", attn_implementation="eager")
    if name == "lora":
        model = peft.PeftModel.from_pretrained(model, GOLDEN / "llama2/adapter_init", is_trainable=True)
    rows = [json.loads(line) for line in (GOLDEN / "llama2/train.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        args = trl.SFTConfig(
            output_dir=folder, use_cpu=True, bf16=False, report_to="none", optim="adamw_torch", max_length=None,
            gradient_checkpointing=False, train_sampling_strategy="sequential", save_strategy="no", disable_tqdm=True,
            learning_rate=learning_rate, **SETTINGS,
        )
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "tokenizer/llama2/tokenizer.json"),
                                            eos_token="</s>", pad_token="</s>")
        trainer = trl.SFTTrainer(model, args=args, train_dataset=Dataset.from_list(rows),
                                 eval_dataset=Dataset.from_list(rows[:6]), processing_class=tokenizer)
        trainer.train()
    log = [{key: row[key] for key in KEYS if key in row} for row in trainer.state.log_history]
    log = [row for row in log if "loss" in row or "eval_loss" in row]
    data = {"versions": VERSIONS, "settings": {**SETTINGS, "learning_rate": learning_rate}}
    text = json.dumps(data, indent=1)[:-2] + ',\n "log": [\n  ' + ",\n  ".join(map(json.dumps, log)) + "\n ]\n}\n"
    (HERE / f"{name}.json").write_text(text)


def plain(value):
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, (set, tuple)):
        value = sorted(value)
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)


def defaults(config, **required):
    """As an instance has them after __post_init__, where one can be made without a device."""
    made = config(**required)
    return {field.name: plain(getattr(made, field.name)) for field in dataclasses.fields(config) if field.init}


def make_defaults():
    data = {
        "versions": VERSIONS,
        "SFTConfig": {field.name: plain(field.default if field.default is not dataclasses.MISSING else
                                        field.default_factory() if field.default_factory is not dataclasses.MISSING
                                        else None)
                      for field in dataclasses.fields(trl.SFTConfig) if field.init},
        "ModelConfig": defaults(trl.ModelConfig),
        "ScriptArguments": defaults(trl.ScriptArguments),
        "LoraConfig": defaults(peft.LoraConfig),
    }
    (HERE / "defaults.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    make_defaults()
    run("full", 0.01)
    run("lora", 0.01)
