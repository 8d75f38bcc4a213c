#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/classification/: what transformers' Trainer logs of a classifier of sequences.

    train.jsonl     texts with the names of three labels
    adapter_init/   LoRA on every linear of ../llama2/model, with scores of three labels that train in full (task_type SEQ_CLS)
    adapter_final/  the same after the run
    train.json      log_history of 20 steps of AdamW on these rows, 4 a step, with an evaluation of 9 rows in batches of 5 after
                    steps 10 and 20: loss, accuracy and the macro average of F1 (sklearn.metrics.f1_score's, written out)

Texts get no EOS: they are tokenized as transformers' text-classification pipeline does it. Each sequence is padded with a
token that ends none: transformers takes the scores of the last token that is no padding.

How to run, after make_models.py and dpo/make_pairs.py, with transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/classification/make_classification.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import accelerate
import peft
import torch
import transformers
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast, Trainer, TrainingArguments

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, peft, accelerate)}
LABELS = ["small", "middle", "large"]
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=20, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=5,
    learning_rate=0.003,
)
KEYS = ["loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "eval_f1"]


def make_rows():
    rows = [{"text": f"Number {n} of {n * 7 % 23}" + " and more" * (n % 3), "label": LABELS[(n * 7 % 23) // 8]} for n in range(1, 19)]
    (HERE / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def base():
    return AutoModelForSequenceClassification.from_pretrained(GOLDEN / "llama2/model", num_labels=3, attn_implementation="eager")


def make_adapter():
    torch.manual_seed(16)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear")
    model = peft.get_peft_model(base(), config)
    with torch.no_grad():
        model.base_model.model.score.modules_to_save.default.weight.normal_(0, 0.2)
    save(model, "adapter_init")


def save(model, name):
    model.peft_config["default"].base_model_name_or_path = "model"
    shutil.rmtree(HERE / name, ignore_errors=True)
    model.save_pretrained(HERE / name)
    (HERE / name / "README.md").unlink()


def f1_of(label, predicted, wanted):
    hits = ((predicted == label) & (wanted == label)).sum()
    return 2 * hits / ((predicted == label).sum() + (wanted == label).sum())


def metrics(evaluation):
    predicted, wanted = evaluation.predictions.argmax(-1), evaluation.label_ids
    present = sorted(set(predicted) | set(wanted))
    return {"accuracy": float((predicted == wanted).mean()),
            "f1": float(sum(f1_of(label, predicted, wanted) for label in present) / len(present))}


def main():
    torch.set_num_threads(1)
    rows = make_rows()
    make_adapter()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(GOLDEN / "dpo/tokenizer")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    model = peft.PeftModel.from_pretrained(base(), HERE / "adapter_init", is_trainable=True)
    model.config.pad_token_id = model.base_model.model.config.pad_token_id = tokenizer.pad_token_id
    data = Dataset.from_list([{**tokenizer(row["text"]), "labels": LABELS.index(row["label"])} for row in rows])
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
                                 optim="adamw_torch", train_sampling_strategy="sequential", **SETTINGS)
        trainer = Trainer(model, args=args, train_dataset=data, eval_dataset=data.select(range(9)), compute_metrics=metrics,
                          data_collator=DataCollatorWithPadding(tokenizer), processing_class=tokenizer)
        trainer.train()
    save(model, "adapter_final")
    log = [{key: row[key] for key in KEYS if key in row} for row in trainer.state.log_history]
    log = [row for row in log if "loss" in row or "eval_loss" in row]
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": {"plain": log}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
