#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/cpo/: what the losses of TRL's CPOTrainer make of logits, and what the trainer logs.

    cpo.json      TRL's own method on a model that returns given logits. Per case: loss_type and settings; the pairs, each
                  with log p of every token of the answer and the gradient of the loss by that log p, for its chosen and
                  its rejected answer; the loss, and the metrics that TRL logs, but the means of logits, which are over
                  prompts and padding there
    train.json    log_history of 8 steps of AdamW on the rows of ../dpo/train.jsonl, 4 pairs a step in one micro batch,
                  from ../llama2/adapter_init, with an evaluation of 6 rows in one batch after steps 4 and 8: cpo with
                  the defaults, and SimPO
    defaults.json the defaults of CPOConfig that SFTConfig does not have, or has otherwise

How to run, after make_models.py and dpo/make_pairs.py, with trl 1.16.0, transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/cpo/make_cpo.py
"""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import accelerate
import peft
import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl.experimental.cpo import CPOConfig, CPOTrainer

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, trl, peft, accelerate)}
WORDS, PROMPT = 7, 3
DEFAULTS = dict(beta=0.1, label_smoothing=0.0, cpo_alpha=1.0, simpo_gamma=0.5, alpha=0.0)
CASES = [  # loss_type, settings, tokens of chosen and rejected answers, size of the logits
    ("sigmoid", {}, [(5, 3), (1, 7), (4, 4)], 1.0),
    ("sigmoid", {"beta": 0.7, "label_smoothing": 0.2, "cpo_alpha": 0.3}, [(6, 6), (2, 5)], 2.0),
    ("hinge", {"beta": 0.4}, [(6, 2), (3, 9), (4, 4)], 1.5),
    ("ipo", {"cpo_alpha": 0.0}, [(5, 3), (8, 8)], 1.0),
    ("simpo", {"beta": 2.0, "simpo_gamma": 1.0, "cpo_alpha": 0.0}, [(5, 3), (1, 7), (4, 4)], 1.0),
    ("simpo", {"beta": 2.5, "label_smoothing": 0.1}, [(1, 1), (2, 1)], 2.0),
    ("sigmoid", {"alpha": 0.25}, [(3, 2), (2, 4)], 0.5),
    ("alphapo", {"beta": 2.5, "alpha": -0.5}, [(5, 3), (1, 7)], 1.0),
]
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected",
           "nll_loss"]
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=8, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=6,
    learning_rate=0.01,
)
RUNS = {"cpo": {"beta": 0.3}, "simpo": {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 1.0, "cpo_alpha": 0.0}}


class Accelerator:
    device = torch.device("cpu")

    @staticmethod
    def gather_for_metrics(tensor):
        return tensor


class Losses(CPOTrainer):
    """The methods of the loss, with what they read of a trainer."""

    def __init__(self, loss_type, settings):
        self.accelerator = Accelerator()
        self.is_encoder_decoder = self.aux_loss_enabled = False
        self.pad_token_id = 0
        self.loss_type = "simpo" if loss_type == "alphapo" else loss_type
        for name, value in settings.items():
            setattr(self, name, value)
        if loss_type == "alphapo":  # CPOConfig.__post_init__
            self.cpo_alpha = 0.0


def make_case(loss_type, given, lengths, size):
    settings = DEFAULTS | given
    counts = [chosen for chosen, _ in lengths] + [rejected for _, rejected in lengths]  # TRL's order of a batch
    width = PROMPT + max(counts)
    ids = torch.randint(0, WORDS, (len(counts), width))
    logits = (size * torch.randn(len(counts), width, WORDS)).requires_grad_(True)
    batch = {}
    for name, first in ("chosen", 0), ("rejected", len(lengths)):
        own = counts[first:first + len(lengths)]
        most = PROMPT + max(own)
        here = ids[first:first + len(lengths), :most].clone()
        attention, labels = torch.zeros_like(here), torch.full_like(here, -100)
        for row, count in enumerate(own):
            attention[row, :PROMPT + count] = 1
            labels[row, PROMPT:PROMPT + count] = here[row, PROMPT:PROMPT + count]
        batch |= {f"{name}_input_ids": here, f"{name}_attention_mask": attention, f"{name}_labels": labels}
    loss, metrics = Losses(loss_type, settings).get_batch_loss_metrics(lambda *_, **__: SimpleNamespace(logits=logits), batch)
    loss.backward()
    log_probs = logits.detach().log_softmax(-1)

    def side(row):
        result = {"logp": [], "gradient": []}
        for t in range(PROMPT - 1, PROMPT + counts[row] - 1):
            label = ids[row, t + 1]
            logp = log_probs[row, t, label]
            # The loss depends on the logits by log p of the label alone, whose derivative by the label's logit is 1 - p.
            result["logp"].append(logp.item())
            result["gradient"].append((logits.grad[row, t, label] / -torch.expm1(logp)).item())
        return result

    # Without its weight TRL does not compute the cross entropy, and logs 0.
    kept = METRICS if Losses(loss_type, settings).cpo_alpha > 0 else METRICS[:-1]
    return {"loss_type": loss_type, **settings,
            "pairs": [{"chosen": side(i), "rejected": side(len(lengths) + i)} for i in range(len(lengths))],
            "loss": loss.item(), "metrics": {name: metrics[name] for name in kept}}


def config_of(folder, **more):
    return CPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
                      gradient_checkpointing=False, save_strategy="no", **more)


def defaults_of(config):
    return {key: value for key, value in vars(config).items() if key not in ("output_dir", "distributed_state") and not key.startswith("_")}


def make_defaults():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (defaults_of(config(output_dir=folder, use_cpu=True)) for config in (CPOConfig, trl.SFTConfig))
    kept = {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}
    (HERE / "defaults.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


def make_run(more):
    rows = [json.loads(line) for line in (GOLDEN / "dpo/train.jsonl").read_text().splitlines()]
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "llama2/model", attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, GOLDEN / "llama2/adapter_init", is_trainable=True)
    with tempfile.TemporaryDirectory() as folder:
        args = config_of(folder, optim="adamw_torch", train_sampling_strategy="sequential", **SETTINGS, **more)
        trainer = CPOTrainer(model, args=args, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:6]),
                              processing_class=PreTrainedTokenizerFast.from_pretrained(GOLDEN / "dpo/tokenizer"))
        trainer.train()
    keys = ["loss", "grad_norm", "learning_rate", *(METRICS if more.get("cpo_alpha") != 0 else METRICS[:-1])]
    keys += ["eval_" + key for key in keys]
    log = [{key: row[key] for key in keys if key in row} for row in trainer.state.log_history]
    return [row for row in log if "loss" in row or "eval_loss" in row]


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    cases = [make_case(*case) for case in CASES]
    (HERE / "cpo.json").write_text(json.dumps({"versions": VERSIONS, "cases": cases}, indent=1) + "\n")
    make_defaults()
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": {name: make_run(more) for name, more in RUNS.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
