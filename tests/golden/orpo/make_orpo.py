#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/orpo/: what the loss of TRL's ORPOTrainer makes of logits, and what the trainer logs.

    orpo.json     TRL's own method on a model that returns given logits. Per case: beta; the pairs, each with log p and
                  mean of the logits of every token of prompt and answer but the first, "is of the answer", and the
                  gradient of the loss by that log p, for its chosen and its rejected answer; the loss, and the metrics
                  that TRL logs. Those of the logits are means over padding, too: they are there where no row is padded
    train.json    log_history of 8 steps of AdamW on the rows of ../dpo/train.jsonl, 4 pairs a step in one micro batch,
                  from ../llama2/adapter_init, with an evaluation of 6 rows in one batch after steps 4 and 8
    defaults.json the defaults of ORPOConfig that SFTConfig does not have, or has otherwise

How to run, after make_models.py and dpo/make_pairs.py, with trl 1.16.0, transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/orpo/make_orpo.py
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
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, trl, peft, accelerate)}
WORDS, PROMPT = 7, 3
CASES = [  # beta, tokens of chosen and rejected answers, size of the logits
    (0.1, [(4, 4)], 1.0),
    (0.1, [(5, 3), (1, 7), (4, 4)], 1.0),
    (0.1, [(6, 6), (6, 6)], 2.0),
    (2.5, [(6, 2), (3, 9)], 1.5),
    (0.3, [(1, 1), (2, 1)], 4.0),
    (1.0, [(8, 8)], 0.1),
]
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected",
           "nll_loss", "log_odds_ratio", "log_odds_chosen"]
LOGITS = ["logits/chosen", "logits/rejected"]
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=8, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=6,
    learning_rate=0.01, beta=0.3,
)


class Accelerator:
    device = torch.device("cpu")

    @staticmethod
    def gather_for_metrics(tensor):
        return tensor


class Losses(ORPOTrainer):
    """The methods of the loss, with what they read of a trainer."""

    def __init__(self, beta):
        self.accelerator, self.beta = Accelerator(), beta
        self.is_encoder_decoder = self.aux_loss_enabled = False
        self.padding_value = 0


def make_case(beta, lengths, size):
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
    loss, metrics = Losses(beta).get_batch_loss_metrics(lambda *_, **__: SimpleNamespace(logits=logits), batch)
    loss.backward()
    log_probs = logits.detach().log_softmax(-1)

    def side(row):
        end, result = PROMPT + counts[row] - 1, {"logp": [], "gradient": [], "mean_logits": [], "answer": []}
        for t in range(end):
            label = ids[row, t + 1]
            logp = log_probs[row, t, label]
            # The loss depends on the logits by log p of the label alone, whose derivative by the label's logit is 1 - p.
            result["logp"].append(logp.item())
            result["gradient"].append((logits.grad[row, t, label] / -torch.expm1(logp)).item())
            result["mean_logits"].append(logits[row, t].mean().item())
            result["answer"].append(int(t + 1 >= PROMPT))
        return result

    kept = METRICS + (LOGITS if len(set(counts)) == 1 else [])
    return {"beta": beta, "pairs": [{"chosen": side(i), "rejected": side(len(lengths) + i)} for i in range(len(lengths))],
            "loss": loss.item(), "metrics": {name: metrics[name] for name in kept}}


def config_of(folder, **more):
    return ORPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
                      gradient_checkpointing=False, save_strategy="no", **more)


def defaults_of(config):
    return {key: value for key, value in vars(config).items() if key not in ("output_dir", "distributed_state") and not key.startswith("_")}


def make_defaults():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (defaults_of(config(output_dir=folder, use_cpu=True)) for config in (ORPOConfig, trl.SFTConfig))
    kept = {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}
    (HERE / "defaults.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


def make_run():
    rows = [json.loads(line) for line in (GOLDEN / "dpo/train.jsonl").read_text().splitlines()]
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "llama2/model", attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, GOLDEN / "llama2/adapter_init", is_trainable=True)
    with tempfile.TemporaryDirectory() as folder:
        args = config_of(folder, optim="adamw_torch", train_sampling_strategy="sequential", **SETTINGS)
        trainer = ORPOTrainer(model, args=args, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:6]),
                              processing_class=PreTrainedTokenizerFast.from_pretrained(GOLDEN / "dpo/tokenizer"))
        trainer.train()
    keys = ["loss", "grad_norm", "learning_rate", *METRICS]
    keys += ["eval_" + key for key in keys]
    log = [{key: row[key] for key in keys if key in row} for row in trainer.state.log_history]
    return [row for row in log if "loss" in row or "eval_loss" in row]


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    cases = [make_case(*case) for case in CASES]
    (HERE / "orpo.json").write_text(json.dumps({"versions": VERSIONS, "cases": cases}, indent=1) + "\n")
    make_defaults()
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": {"orpo": make_run()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
