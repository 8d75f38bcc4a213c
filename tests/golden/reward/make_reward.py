#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/reward/: what TRL's RewardTrainer logs.

    train.jsonl     the rows of ../dpo/train.jsonl, with margins
    adapter_init/   LoRA on every linear of ../llama2/model, with a score of one label that trains in full (task_type SEQ_CLS)
    adapter_final/  the same after the run "margin"
    train.json      log_history of 20 steps of AdamW on these rows, 4 a step, with an evaluation of 6 rows in one batch after
                    steps 10 and 20: plain (without the margins), margin, and center (with center_rewards_coefficient)
    defaults.json   the defaults of RewardConfig that SFTConfig does not have, or has otherwise

Each sequence is padded with another token than EOS: transformers takes the score of the last token that is no padding.

How to run, after make_models.py and dpo/make_pairs.py, with trl 1.16.0, transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/reward/make_reward.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import accelerate
import peft
import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, trl, peft, accelerate)}
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=20, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=6,
    learning_rate=0.005,
)
RUNS = {"plain": {}, "margin": {}, "center": {"center_rewards_coefficient": 0.05}}
KEYS = ["loss", "grad_norm", "learning_rate", "accuracy", "margin", "mean_reward"]


def make_rows():
    rows = [json.loads(line) for line in (GOLDEN / "dpo/train.jsonl").read_text().splitlines()]
    rows = [{**row, "margin": (i * 5 % 7) / 4} for i, row in enumerate(rows)]
    (HERE / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def base():
    return AutoModelForSequenceClassification.from_pretrained(GOLDEN / "llama2/model", num_labels=1, attn_implementation="eager")


def make_adapter():
    torch.manual_seed(15)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear",
                             modules_to_save=["score"])
    model = peft.get_peft_model(base(), config)
    with torch.no_grad():
        model.base_model.model.score.modules_to_save.default.weight.normal_(0, 0.2)
    save(model, "adapter_init")


def save(model, name):
    model.peft_config["default"].base_model_name_or_path = "model"
    shutil.rmtree(HERE / name, ignore_errors=True)
    model.save_pretrained(HERE / name)
    (HERE / name / "README.md").unlink()


def config_of(folder, **more):
    return trl.RewardConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
                            gradient_checkpointing=False, save_strategy="no", **more)


def defaults_of(config):
    return {key: value for key, value in vars(config).items() if key not in ("output_dir", "distributed_state") and not key.startswith("_")}


def make_defaults():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (defaults_of(config(output_dir=folder, use_cpu=True)) for config in (trl.RewardConfig, trl.SFTConfig))
    kept = {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}
    (HERE / "defaults.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


def make_run(rows, name):
    model = peft.PeftModel.from_pretrained(base(), HERE / "adapter_init", is_trainable=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(GOLDEN / "dpo/tokenizer")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    if name != "margin":
        rows = [{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        args = config_of(folder, optim="adamw_torch", train_sampling_strategy="sequential", **SETTINGS, **RUNS[name])
        trainer = trl.RewardTrainer(model, args=args, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:6]),
                                    processing_class=tokenizer)
        trainer.train()
    if name == "margin":
        save(model, "adapter_final")
    keys = [*KEYS, *("eval_" + key for key in KEYS)]
    log = [{key: row[key] for key in keys if key in row} for row in trainer.state.log_history]
    return [row for row in log if "loss" in row or "eval_loss" in row]


def main():
    torch.set_num_threads(1)
    rows = make_rows()
    make_defaults()
    make_adapter()
    runs = {name: make_run(rows, name) for name in RUNS}
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
