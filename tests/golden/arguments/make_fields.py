#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes fields.json: every field of the argument classes of transformers and TRL, read from their sources.

    {"versions": {...}, "CLASS": {"NAME": [default, another value], ...}}

A class has the fields that its own body declares; those of TRL's _BaseConfig stand under its name. The other value is
one that the field takes and that differs from its default: that of WORDS, or of the kind of the annotation.

How to run, with the folders of unpacked wheels of transformers 5.24.0 and trl 1.16.0 (nothing is imported):

    python tests/golden/arguments/make_fields.py TRANSFORMERS TRL
"""

import ast
import json
import re
import sys
from pathlib import Path

SOURCES = [
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("trl", "trainer/sft_config.py", "SFTConfig"),
    ("trl", "trainer/dpo_config.py", "DPOConfig"),
    ("trl", "trainer/model_config.py", "ModelConfig"),
    ("trl", "scripts/utils.py", "ScriptArguments"),
]
# A local of the class: what it is with torch 2.8 and later.
LOCALS = {"default_optim": "adamw_torch_fused"}
# Fields of words, of numbers with a range, and of lists.
WORDS = {
    "lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": 2}, "optim": "sgd", "weight_decay": 0.1,
    "optim_args": "a=1", "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "label_smoothing_factor": 0.1,
    "logging_strategy": "epoch", "eval_strategy": "steps", "save_strategy": "epoch", "hub_strategy": "end",
    "include_num_input_tokens_seen": "all", "log_level": "info", "log_level_replica": "info", "report_to": "wandb",
    "include_for_metrics": ["inputs"], "metric_for_best_model": "loss", "train_sampling_strategy": "group_by_length",
    "warmup_steps": 10, "ddp_backend": "gloo", "fsdp": "full_shard", "fsdp_config": {"forward_prefetch": True},
    "debug": "underflow_overflow", "dataloader_multiprocessing_context": "spawn", "resume_from_checkpoint": "true",
    "torch_compile_backend": "eager", "torch_compile_mode": "default", "parallelism_config": {"tp_size": 2},
    "accelerator_config": {"split_batches": False}, "activation_checkpointing_kwargs": {"every": 2},
    "gradient_checkpointing_kwargs": {"use_reentrant": False}, "liger_kernel_config": {"rope": False},
    "dtype": "bfloat16", "attn_implementation": "sdpa", "bnb_4bit_quant_type": "fp4", "bnb_4bit_quant_storage": "bfloat16",
    "lora_task_type": "SEQ_CLS", "lora_target_modules": ["q_proj"], "lora_modules_to_save": ["lm_head"], "lora_dropout": 0.1,
    "lora_target_parameters": ["a.b"], "truncation_mode": "keep_end", "packing_strategy": "wrapped", "eos_token": "</s>",
    "f_divergence_type": "js_divergence", "label_smoothing": 0.1, "discopop_tau": 0.1, "loss_weights": [0.5, 0.5],
    "model_init_kwargs": {"use_cache": False}, "dataset_kwargs": {"skip_prepare_dataset": True}, "pad_to_multiple_of": 8,
    "trackio_static_space_id": "a/b", "optim_target_modules": ["mlp"], "learning_rate": 3e-4, "ld_alpha": 0.5,
}
OF_CLASS = {("_BaseConfig", "bf16"): False, ("SFTConfig", "loss_type"): "dft", ("DPOConfig", "loss_type"): ["ipo"]}


def default(value, where):
    """The default of `= field(default=...)`, of `= field(default_factory=...)` or of a plain value."""
    words = {word.arg: word.value for word in value.keywords} if isinstance(value, ast.Call) else {"default": value}
    node = words.get("default", words.get("default_factory"))
    if isinstance(node, ast.Lambda):
        node = node.body
    if isinstance(node, ast.Name):
        return {"list": [], "dict": {}}[node.id] if node.id in ("list", "dict") else LOCALS[node.id]
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise SystemExit(f"{where}: {ast.unparse(node)}")


def other(owner, name, kind, value):
    if (owner, name) in OF_CLASS:
        return OF_CLASS[owner, name]
    if name in WORDS:
        return WORDS[name]
    if isinstance(value, bool) or (value is None and "bool" in kind):
        return not value
    if "float" in kind:
        return (value or 0) + 0.5
    if "int" in kind:
        return value + 3 if isinstance(value, int) and value > 0 else 3
    if "str" in kind:
        return "other"
    raise SystemExit(f"{owner}.{name}: no other value of {kind}")


def version(folder):
    return re.search(r"^Version: (.*)$", next(folder.parent.glob(folder.name + "-*.dist-info/METADATA")).read_text(), re.M)[1]


folders = {"transformers": Path(sys.argv[1]), "trl": Path(sys.argv[2])}
found = {"versions": {name: version(folder) for name, folder in folders.items()}}
for library, path, owner in SOURCES:
    tree = ast.parse((folders[library] / path).read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner).body
    fields = found[owner] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign):
            name, kind = node.target.id, ast.unparse(node.annotation)
            value = default(node.value, f"{owner}.{name}")
            fields[name] = [value, other(owner, name, kind, value)]
            assert fields[name][0] != fields[name][1], (owner, name)
lines = []
for key, fields in found.items():
    rows = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
    lines.append(f' "{key}": {{\n  {rows}\n }}')
(Path(__file__).parent / "fields.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
