#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/dpo/dpo.json: what the loss of TRL's DPOTrainer makes of log-probabilities.

TRL's own method runs on a model that returns the given numbers. Per case: beta, label_smoothing and loss_type, a name or a
list; where they are not TRL's defaults loss_weights, f_divergence_type, f_alpha_divergence_coef and ld_alpha; the pairs,
each with log p, reference, entropy, mean of the logits and "is the likeliest" of every completion token of its chosen and
rejected answer; the loss, its gradient by every log p, and the metrics that TRL logs.

Run with trl and torch installed: python tests/golden/dpo/make_dpo.py
"""

import collections
import json
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from trl.trainer.dpo_trainer import DPOTrainer

CASES = [
    # loss_type, beta, label_smoothing, tokens of chosen and rejected, deviation of log p from the reference
    ("sigmoid", 0.1, 0.0, [(5, 3)], 0.0),
    ("sigmoid", 0.1, 0.0, [(5, 3), (1, 7), (4, 4)], 1.0),
    ("sigmoid", 2.5, 0.0, [(6, 2), (3, 9)], 4.0),
    ("sigmoid", 0.5, 0.0, [(8, 8), (7, 1)], 60.0),
    ("robust", 0.1, 0.1, [(5, 3), (2, 6)], 1.0),
    ("robust", 1.0, 0.45, [(1, 1), (3, 2), (4, 8)], 3.0),
    ("robust", 0.3, 0.0, [(2, 5)], 2.0),
] + [(loss, beta, 0.01 if loss == "exo_pair" else 0.0, lengths, deviation)
     for loss in ("hinge", "ipo", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "discopop", "sigmoid_norm")
     for beta, lengths, deviation in ((0.1, [(5, 3), (1, 7), (4, 4)], 1.0), (1.5, [(6, 2), (3, 9)], 2.0))]
MIXED = [(5, 3), (1, 7), (4, 4)]
CASES += [(loss, 0.3, 0.1 if loss == "robust" else 0.0, MIXED[:2], 1.0, {"f_divergence_type": divergence})
          for divergence in ("forward_kl", "js_divergence", "alpha_divergence") for loss in ("sigmoid", "ipo", "robust")]
CASES += [
    ("sigmoid", 0.3, 0.0, MIXED, 1.0, {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 1.0}),
    ("sigmoid", 0.3, 0.0, MIXED, 1.0, {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 2.0}),
    ("sigmoid", 0.01, 0.0, [(8, 8), (7, 1)], 40.0, {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 1.5}),
    ("sigmoid", 0.3, 0.0, MIXED, 1.0, {"ld_alpha": 0.25}),
    ("ipo", 0.3, 0.0, MIXED, 1.0, {"ld_alpha": 0.0}),
    ("nca_pair", 0.3, 0.0, MIXED, 1.0, {"ld_alpha": 0.5}),
    ("sft", 0.3, 0.0, MIXED, 1.0, {}),
    (["sigmoid", "sft"], 0.3, 0.0, MIXED, 1.0, {}),
    (["sigmoid", "sft"], 0.3, 0.0, MIXED, 1.0, {"loss_weights": [0.8, 0.2], "ld_alpha": 0.5}),
    (["bco_pair", "robust", "sft"], 0.2, 0.1, MIXED, 1.0, {"loss_weights": [1.0, 0.0, 2.5]}),
    (["hinge", "exo_pair", "sigmoid_norm", "discopop"], 0.2, 0.01, MIXED, 1.0, {"f_divergence_type": "js_divergence"}),
]
MANY = [(5, 3), (1, 7), (4, 4), (2, 6), (3, 1)]
CASES += [
    ("aot", 0.3, 0.0, MANY, 1.0, {}),
    ("aot", 0.1, 0.2, MANY[:4], 2.0, {"ld_alpha": 0.5}),
    ("aot_unpaired", 0.3, 0.0, MANY, 1.0, {}),
    ("aot_unpaired", 1.5, 0.1, MANY[:3], 2.0, {}),
    (["aot", "sft", "aot_unpaired"], 0.2, 0.0, MANY, 1.0, {"loss_weights": [0.7, 0.5, 1.2]}),
]
METRICS = ["entropy", "logits/chosen", "logits/rejected", "mean_token_accuracy", "rewards/chosen", "rewards/rejected", "rewards/accuracies",
           "rewards/margins", "logps/chosen", "logps/rejected"]


class Accelerator:
    device = torch.device("cpu")

    @staticmethod
    def gather(tensor):
        return tensor

    gather_for_metrics = gather


def trainer_of(loss_type, beta, label_smoothing, more):
    """What DPOTrainer._compute_loss reads of its trainer, with TRL's defaults."""
    losses = [loss_type] if isinstance(loss_type, str) else loss_type
    own = dict(f_divergence_type="reverse_kl", f_alpha_divergence_coef=0.5, ld_alpha=None, loss_weights=[1.0] * len(losses)) | more
    return SimpleNamespace(
        **own, accelerator=Accelerator(), model=SimpleNamespace(training=True), aux_loss_enabled=False,
        precompute_ref_logps=True, loss_types=losses,
        beta=beta, label_smoothing=label_smoothing, args=SimpleNamespace(discopop_tau=0.05), use_weighting=False, _total_train_tokens=0, _tp_size=1,
        _metrics={"train": collections.defaultdict(list)})


def weights_of(shifted, ld_alpha):
    """Of each answer's tokens: 1 as far as the shorter answer of the pair has any."""
    chosen, rejected = shifted.sum(dim=1).chunk(2)
    shared = torch.minimum(chosen, rejected).repeat(2).unsqueeze(1)
    return torch.where(shifted.cumsum(dim=1) <= shared, 1.0, 1.0 if ld_alpha is None else ld_alpha)


def make_case(loss_type, beta, label_smoothing, lengths, deviation, more={}):
    answers = [chosen for chosen, _ in lengths] + [rejected for _, rejected in lengths]  # TRL's order of a batch
    prompt, width = 2, max(answers)
    mask = torch.zeros(len(answers), prompt + width, dtype=torch.long)
    for row, count in enumerate(answers):
        mask[row, prompt:prompt + count] = 1
    shifted = mask[:, 1:]
    reference = -torch.rand(shifted.shape) * 4
    log_probs = (reference + deviation * torch.randn(shifted.shape)).clamp(max=-1e-3) * shifted
    reference = reference * shifted
    log_probs.requires_grad_(True)
    entropy, is_top1 = torch.rand(shifted.shape) * 3, torch.rand(shifted.shape) < 0.4
    mean_logits = torch.randn(shifted.shape, generator=torch.Generator().manual_seed(len(answers)))
    outputs = SimpleNamespace(log_probs=log_probs, entropy=entropy, is_top1=is_top1,
                              mean_logits=mean_logits)
    chosen_reference, rejected_reference = (reference * weights_of(shifted, more.get("ld_alpha"))).sum(dim=1).chunk(2)
    inputs = {"input_ids": torch.ones_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask,
              "ref_chosen_logps": chosen_reference, "ref_rejected_logps": rejected_reference}
    trainer = trainer_of(loss_type, beta, label_smoothing, more)
    loss = DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, return_outputs=False)
    loss.backward()

    def answer(row):
        kept = shifted[row].bool()
        return {"logp": log_probs[row][kept].tolist(), "reference": reference[row][kept].tolist(),
                "entropy": entropy[row][kept].tolist(), "mean_logits": mean_logits[row][kept].tolist(),
                "correct": is_top1[row][kept].int().tolist(),
                "gradient": log_probs.grad[row][kept].tolist()}

    pairs = [{"chosen": answer(i), "rejected": answer(len(lengths) + i)} for i in range(len(lengths))]
    return {"loss_type": loss_type, "beta": beta, "label_smoothing": label_smoothing, **more, "pairs": pairs,
            "loss": loss.item(), "metrics": {name: trainer._metrics["train"][name][0] for name in METRICS}}


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    versions = json.dumps({"trl": trl.__version__, "torch": torch.__version__.split("+")[0]})
    cases = ",\n".join(json.dumps(make_case(*case)) for case in CASES)
    path = Path(__file__).resolve().parent / "dpo.json"
    path.write_text(versions[:-1] + ', "cases": [\n' + cases + "\n]}\n")


if __name__ == "__main__":
    main()
