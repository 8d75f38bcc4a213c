#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/kto/: what TRL's KTOTrainer logs.

    train.jsonl   the answers of ../dpo/train.jsonl as rows with a label, chosen and rejected ones in turn
    train.json    log_history of 8 steps of AdamW on these rows, 4 a step in one micro batch, from ../llama2/adapter_init,
                  with an evaluation of 4 rows in one batch after steps 4 and 8: kto, kto with weights, apo_zero_unpaired
    defaults.json the defaults of KTOConfig that SFTConfig does not have, or has otherwise

A row of the log has no number of a label that its rows do not have.

How to run, after make_models.py and dpo/make_pairs.py, with trl 1.16.0, transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/kto/make_kto.py
"""

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
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, trl, peft, accelerate)}
METRICS = ["entropy", "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "logits/chosen",
           "logits/rejected"]
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=8, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=4,
    learning_rate=0.01,
)
RUNS = {
    "kto": {"beta": 0.3},
    "weights": {"beta": 0.2, "desirable_weight": 1.5, "undesirable_weight": 0.5},
    "apo_zero_unpaired": {"beta": 0.3, "loss_type": "apo_zero_unpaired"},
}


def make_rows():
    rows = []
    for i, line in enumerate((GOLDEN / "dpo/train.jsonl").read_text().splitlines()):
        pair = json.loads(line)
        for label in (True, False) if i % 3 else (False, True):
            rows.append({"prompt": pair["prompt"], "completion": pair["chosen" if label else "rejected"], "label": label})
    rows = [row for i, row in enumerate(rows) if i % 5 != 1]  # so that labels are not balanced in each step
    (HERE / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def config_of(folder, **more):
    return trl.KTOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
                         gradient_checkpointing=False, save_strategy="no", **more)


def defaults_of(config):
    return {key: value for key, value in vars(config).items() if key not in ("output_dir", "distributed_state") and not key.startswith("_")}


def make_defaults():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (defaults_of(config(output_dir=folder, use_cpu=True)) for config in (trl.KTOConfig, trl.SFTConfig))
    kept = {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}
    (HERE / "defaults.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


def make_run(rows, more):
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "llama2/model", attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, GOLDEN / "llama2/adapter_init", is_trainable=True)
    with tempfile.TemporaryDirectory() as folder:
        args = config_of(folder, optim="adamw_torch", **SETTINGS, **more)
        trainer = trl.KTOTrainer(model, args=args, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:4]),
                                 processing_class=PreTrainedTokenizerFast.from_pretrained(GOLDEN / "dpo/tokenizer"))
        trainer.train()
    keys = ["loss", "grad_norm", "learning_rate", *METRICS]
    keys += ["eval_" + key for key in keys]
    log = [{key: row[key] for key in keys if key in row} for row in trainer.state.log_history]
    return [row for row in log if "loss" in row or "eval_loss" in row]


def main():
    torch.manual_seed(14)
    torch.set_num_threads(1)
    rows = make_rows()
    make_defaults()
    runs = {name: make_run(rows, more) for name, more in RUNS.items()}
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
