#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trainer/: what transformers' Trainer writes beside the weights.

A real Trainer runs the training of ../llama2/train_reference.json (LoRA from adapter_init, rows in file
order), evaluates every 10 steps on rows of its own file and saves every 10; this script fails when the
Trainer's losses are not those of the explicit loop. From that run come

    trainer_state.json        of the last checkpoint (keys, types, log_history)
    final_trainer_state.json  of output_dir, by save_state: log_history ends with the summary of the run
    eval_loss.json            what eval_loss means: per batch, as the Trainer averages it, and per token
    train_results.json, eval_results.json, all_results.json   by save_metrics
    train_metrics.txt, eval_metrics.txt                       what log_metrics prints
    checkpoint_files.txt      the names in the checkpoint folder and in output_dir
    trainable_parameters.txt  PEFT's line for the LoRA of each family, "family: line"

Times and speeds in them differ in each run; names, types and everything else do not. Computed without training:

    schedules.json            learning rate / base rate of steps 0..29 for every lr_scheduler_type that needs
                              no metric, with and without its kwargs, and how many steps a warmup ratio gives

How to run, after make_models.py, in the same environment (and accelerate):

    OMP_NUM_THREADS=1 python tests/golden/trainer/make_trainer.py
"""

import contextlib
import io
import json
import math
import os
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
FAMILIES = ["llama2", "llama3", "mistral", "qwen2", "qwen3"]
IGNORED = -100
EVAL_ROWS = 6
WARMUP_STEPS, TOTAL_STEPS = 5, 30

SCHEDULES = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.25}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"power": 2.0, "lr_end": 1e-5}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("inverse_sqrt", {"timescale": 20}),
    ("cosine_with_min_lr", {"min_lr": 1e-4}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.25, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", {"min_lr": 1e-4, "warmup_lr_rate": 0.05}),
    ("warmup_stable_decay", {"num_decay_steps": 10}),
    ("warmup_stable_decay", {"num_decay_steps": 10, "min_lr_ratio": 0.1, "warmup_type": "cosine", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 12, "num_stable_steps": 8, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"}),
]


def load_adapted(family, adapter="adapter_init"):
    os.chdir(GOLDEN / family)
    model = AutoModelForCausalLM.from_pretrained("model", attn_implementation="eager")
    return PeftModel.from_pretrained(model, adapter, is_trainable=True)


def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)

    def batch(key, filler):
        return torch.tensor([row[key] + [filler] * (width - len(row[key])) for row in rows])

    mask = [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in rows]
    return {"input_ids": batch("input_ids", 0), "labels": batch("labels", IGNORED), "attention_mask": torch.tensor(mask)}


def arguments(output_dir, settings):
    names = [
        "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "lr_scheduler_type", "warmup_steps", "max_steps",
        "max_grad_norm", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
    ]
    return TrainingArguments(
        output_dir=output_dir, use_cpu=True, optim="adamw_torch", train_sampling_strategy="sequential", report_to="none",
        disable_tqdm=True, logging_steps=1, eval_strategy="steps", eval_steps=10, save_steps=10, save_total_limit=1,
        per_device_eval_batch_size=4, **{name: settings[name] for name in names},
    )


def check_losses(log_history, reference):
    """The explicit loop of make_models.py and the Trainer have to be one and the same training."""
    logged = [entry for entry in log_history if "loss" in entry]
    assert len(logged) == len(reference["steps"])
    for entry, step in zip(logged, reference["steps"]):
        assert abs(entry["learning_rate"] - step["learning_rate"]) < 1e-12, (entry, step)
        for key in ("loss", "grad_norm"):
            assert math.isclose(entry[key], step[key], rel_tol=1e-5), (key, entry, step)


def save_metrics(trainer, split, metrics):
    trainer.save_metrics(split, metrics)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trainer.log_metrics(split, metrics)
    (HERE / f"{split}_metrics.txt").write_text(printed.getvalue())


@torch.no_grad()
def make_eval_loss(model, rows, batch_size, eval_loss):
    """The Trainer's eval_loss is the mean of the batches' mean losses, weighted by rows and not by tokens."""
    model.eval()
    batches = []
    for start in range(0, len(rows), batch_size):
        batch = collate(rows[start : start + batch_size])
        tokens = (batch["labels"][:, 1:] != IGNORED).sum().item()
        batches.append({"rows": len(batch["labels"]), "tokens": tokens, "loss": model(**batch).loss.item()})

    def mean(weight):
        return sum(batch["loss"] * batch[weight] for batch in batches) / sum(batch[weight] for batch in batches)

    assert math.isclose(eval_loss, mean("rows"), rel_tol=1e-5)
    data = {"eval_loss": eval_loss, "loss_per_token": mean("tokens"), "batches": batches}
    (HERE / "eval_loss.json").write_text(json.dumps(data, indent=1) + "\n")


def make_run(output_dir):
    model = load_adapted("llama2")
    reference = json.loads(Path("train_reference.json").read_text())
    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    trainer = Trainer(
        model=model, args=arguments(output_dir, reference["settings"]), data_collator=collate,
        train_dataset=rows, eval_dataset=rows[:EVAL_ROWS],
    )
    result = trainer.train()
    check_losses(trainer.state.log_history, reference)
    save_metrics(trainer, "train", {**result.metrics, "train_samples": len(rows)})
    save_metrics(trainer, "eval", {**trainer.evaluate(), "eval_samples": EVAL_ROWS})
    eval_loss = trainer.state.log_history[-1]["eval_loss"]
    make_eval_loss(model, rows[:EVAL_ROWS], trainer.args.per_device_eval_batch_size, eval_loss)
    trainer.save_state()
    shutil.copy(Path(output_dir) / "trainer_state.json", HERE / "final_trainer_state.json")
    last = Path(output_dir) / f"checkpoint-{trainer.state.global_step}"
    shutil.copy(last / "trainer_state.json", HERE)
    for name in ("train_results.json", "eval_results.json", "all_results.json"):
        shutil.copy(Path(output_dir) / name, HERE)
    names = [f"checkpoint/{path.name}" for path in last.iterdir()]
    names += [f"output_dir/{path.name}" for path in Path(output_dir).iterdir()]
    (HERE / "checkpoint_files.txt").write_text("".join(name + "\n" for name in sorted(names)))


def make_trainable_parameters():
    lines = []
    for family in FAMILIES:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            load_adapted(family).print_trainable_parameters()
        lines.append(f"{family}: {printed.getvalue()}")
    (HERE / "trainable_parameters.txt").write_text("".join(lines))


def schedule_factors(name, kwargs, base_rate):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=base_rate)
    scheduler = transformers.get_scheduler(name, optimizer, WARMUP_STEPS, TOTAL_STEPS, scheduler_specific_kwargs=kwargs)
    factors = []
    for _ in range(TOTAL_STEPS):
        factors.append(scheduler.get_last_lr()[0] / base_rate)
        optimizer.step()
        scheduler.step()
    return factors


def spread(value):
    """A list with one item per line, anything else on one line."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"


def make_schedules():
    base_rate = 1e-3
    ratios = [(0.03, 30), (0.1, 30), (0.1, 25), (0.05, 1000), (0.5, 7), (0.99, 10), (0.0, 30), (1, 30), (1.0, 30), (7.9, 30)]
    data = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "learning_rate": base_rate,
        "warmup_steps": WARMUP_STEPS,
        "max_steps": TOTAL_STEPS,
        "schedules": [
            {"lr_scheduler_type": name, "lr_scheduler_kwargs": kwargs, "factors": schedule_factors(name, kwargs, base_rate)}
            for name, kwargs in SCHEDULES
        ],
        "warmup_ratios": [
            {"warmup_steps": ratio, "max_steps": steps, "steps": TrainingArguments(warmup_steps=ratio).get_warmup_steps(steps)}
            for ratio, steps in ratios
        ],
    }
    lines = [f" {json.dumps(key)}: {spread(value)}" for key, value in data.items()]
    (HERE / "schedules.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as output_dir:
        make_run(output_dir)
    make_trainable_parameters()
    make_schedules()


if __name__ == "__main__":
    main()
