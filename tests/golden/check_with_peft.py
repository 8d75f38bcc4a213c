#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets PEFT and transformers load what trimtab wrote, and compares logits.

For every family of tests/golden and for unusual LoRA settings: trimtab trains a few steps, then

    adapters    PeftModel loads the folder with warnings as errors, its logits are compared with those that trimtab
                computes from the same folder; adapter_config.json and the tensors are compared with what PEFT itself
                writes when it saves the adapter it has just loaded; PEFT's own evaluation loss with `trimtab eval`
    models      (full fine-tuning) AutoModelForCausalLM loads the folder, nothing missing, nothing unexpected

A manual tool: it needs torch, transformers, peft and safetensors, and a build of trimtab and dump_logits:

    ninja -C build trimtab dump_logits
    python tests/golden/check_with_peft.py build [--markdown]

It ends with exit code 1 when a comparison fails. docs/measurements/peft-roundtrip.md keeps an output (--markdown).
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
import peft
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent
FAMILIES = ["llama2", "llama3", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma3", "gemma2"]
LOGITS_BOUND = 1e-5  # ||a - b|| / ||b||, fp32
LOSS_BOUND = 1e-5
# What PEFT decides anew at each save, or what is a Python set there.
UNORDERED = ["target_modules", "target_parameters", "modules_to_save", "exclude_modules", "layers_pattern"]

LORA = {"lora_r": 4, "lora_target_modules": "all-linear", "lora_dropout": 0.05, "learning_rate": 0.01}
CASES = [(family, "LoRA on all linears", LORA) for family in FAMILIES] + [
    ("llama2", "2 ranks, bf16", {**LORA, "bf16": "true", "ranks": 2}),
    ("llama2", "patterns, rsLoRA, lm_head saved", {
        **LORA, "lora_target_modules": '["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]',
        "use_rslora": "true", "lora_modules_to_save": '["lm_head"]', "exclude_modules": '["v_proj"]',
        "rank_pattern": '{"down_proj": 2, "layers\\\\.1\\\\.self_attn\\\\.q_proj": 6}',
        "alpha_pattern": '{"gate_proj": 3, "self_attn\\\\..*": 5}', "layers_to_transform": "[1]"}),
    ("qwen2", "regular expressions, gaussian, embed_tokens saved, tied", {
        **LORA, "lora_target_modules": ".*\\.(q_proj|up_proj|down_proj)", "exclude_modules": ".*layers\\.0\\.mlp.*",
        "init_lora_weights": "gaussian", "lora_modules_to_save": '["embed_tokens"]'}),
    ("mistral", "embeddings and head saved", {**LORA, "lora_modules_to_save": '["embed_tokens", "lm_head"]'}),
    ("qwen3", "keys of rank_pattern that overlap", {
        **LORA, "rank_pattern": '{"mlp.up_proj": 2, "up_proj": 7, "layers\\\\.0\\\\..*": 3}'}),
    ("llama3", "two targets by name", {**LORA, "lora_target_modules": '["q_proj", "v_proj"]'}),
    ("mistral", "trained on from PEFT's adapter", {"adapter_name_or_path": "adapter_random", "learning_rate": 0.001}),
    ("llama2", "trained on from PEFT's variety", {"adapter_name_or_path": "variety", "learning_rate": 0.001}),
] + [(family, "full fine-tuning", {"use_peft": "false", "learning_rate": 0.001}) for family in FAMILIES] + [
    ("llama3", "full, saved as bfloat16", {"use_peft": "false", "learning_rate": 0.001, "save_dtype": "bfloat16"}),
]


def run(words, **kwargs):
    result = subprocess.run([str(word) for word in words], capture_output=True, **kwargs)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stderr.decode()}")
    return result.stdout


def train(build, family, settings, output):
    flags = {
        "model_name_or_path": GOLDEN / family / "model", "dataset_name": GOLDEN / family / "train.jsonl",
        "output_dir": output, "bf16": "false", "max_steps": 8, "per_device_train_batch_size": 4, "threads": 1,
        "save_strategy": "no", "report_to": "none", "logging_steps": 4, **settings,
    }
    if "adapter_name_or_path" in flags:
        flags["adapter_name_or_path"] = GOLDEN / family / flags["adapter_name_or_path"]
    words = [build / "trimtab", "train"]
    for name, value in flags.items():
        words += [f"--{name}", value]
    run(words)


def trimtab_logits(build, model, adapter, ids):
    data = run([build / "tests" / "dump_logits", model, adapter or "-", *ids])
    return torch.from_numpy(numpy.frombuffer(data, dtype=numpy.float32).reshape(len(ids), -1).copy())


def trimtab_loss(build, model, adapter, data):
    words = [build / "trimtab", "eval", "--model_name_or_path", model, "--eval_dataset", data, "--bf16", "false",
             "--threads", 1, "--json"]
    return json.loads(run(words + (["--adapter_name_or_path", adapter] if adapter else [])))["loss"]


def torch_loss(model, rows):
    """Mean over all supervised tokens, row by row."""
    total, count = 0.0, 0
    for row in rows:
        logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1].double()
        labels = torch.tensor(row.get("labels", row["input_ids"]))[1:]
        total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
        count += (labels != -100).sum().item()
    return total / count


def relative(a, b):
    return (torch.linalg.norm(a.double() - b.double()) / torch.linalg.norm(b.double())).item()


def read_config(folder):
    config = json.loads((folder / "adapter_config.json").read_text())
    for key in UNORDERED:
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    return config


def compare_with_resaved(model, folder, saved):
    """Faults between the folder that trimtab wrote and the one that PEFT writes of the same adapter."""
    model.save_pretrained(saved)
    faults = []
    ours, theirs = read_config(folder), read_config(saved)
    for key, value in theirs.items():
        # Keys of methods that are off may be left out: PEFT fills in the same default.
        if key in ours and ours[key] != value:
            faults.append(f"{key} is {ours[key]!r}, PEFT says {value!r}")
    faults += [f"{key} is no key of PEFT's" for key in ours if key not in theirs]
    ours, theirs = (load_file(path / "adapter_model.safetensors") for path in (folder, saved))
    if set(ours) != set(theirs):
        faults.append(f"tensors differ: {sorted(set(ours) ^ set(theirs))}")
    faults += [f"{name} differs" for name in set(ours) & set(theirs) if not torch.equal(ours[name], theirs[name])]
    return faults


@torch.no_grad()
def check(build, family, settings, folder):
    base_folder, data = GOLDEN / family / "model", GOLDEN / family / "train.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    ids = rows[0]["input_ids"] + rows[1]["input_ids"]
    train(build, family, settings, folder)
    base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32, attn_implementation="eager").eval()
    before = base(input_ids=torch.tensor([ids])).logits[0]
    faults = []
    if settings.get("use_peft") == "false":
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        faults += [f"{key}: {value}" for key, value in info.items() if value]
        got, loss = trimtab_logits(build, folder, None, ids), trimtab_loss(build, folder, None, data)
        model.eval()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", FutureWarning)  # of PEFT calling transformers, about no adapter
            warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings")  # PEFT's own variety says so too
            model = PeftModel.from_pretrained(base, folder).eval()
        faults += compare_with_resaved(model, folder, folder / "resaved")
        got, loss = trimtab_logits(build, base_folder, folder, ids), trimtab_loss(build, base_folder, folder, data)
    want, want_loss = model(input_ids=torch.tensor([ids])).logits[0], torch_loss(model, rows)
    error, moved, loss_error = relative(got, want), relative(want, before), abs(loss - want_loss) / want_loss
    if not error < LOGITS_BOUND:
        faults.append(f"logits are off by {error:.2e}")
    if not loss_error < LOSS_BOUND:
        faults.append(f"the loss is {loss:.7f}, wanted {want_loss:.7f}")
    if not moved > 0.01:
        faults.append("the training changed nothing")
    return error, moved, loss_error, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="build folder with trimtab and tests/dump_logits")
    parser.add_argument("--markdown", action="store_true", help="print the page docs/measurements/peft-roundtrip.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    lines = []
    for family, what, settings in CASES:
        with tempfile.TemporaryDirectory() as folder:
            error, moved, loss_error, faults = check(arguments.build.resolve(), family, settings, Path(folder))
        failed += bool(faults)
        lines.append((family, what, f"{error:.1e}", f"{moved:.2f}", f"{loss_error:.1e}", "; ".join(faults) or "ok"))
        if not arguments.markdown:
            print("  ".join(lines[-1]), flush=True)
    if arguments.markdown:
        print_page(lines)
    sys.exit(failed > 0)


def print_page(lines):
    print(f"""# What trimtab wrote, loaded by PEFT and transformers

`tests/golden/check_with_peft.py` on {datetime.date.today()}: torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, peft {peft.__version__},
Python {platform.python_version()}, Linux {platform.machine()}; fp32 unless said otherwise. Each row is a training of 8 steps by trimtab on a
tiny model of tests/golden, then loaded with warnings as errors (but for transformers' FutureWarning about a call that PEFT
makes, and PEFT's remark that a saved layer is a tied one).

- logits: ‖trimtab − reference‖ / ‖reference‖ of one sequence, both in fp32 from the same folder (bound {LOGITS_BOUND:.0e})
- moved: the same measure between the trained model and the one before training, so that an adapter that is ignored shows
- loss: relative difference of `trimtab eval` and the reference's mean over all supervised tokens (bound {LOSS_BOUND:.0e})
- adapters: `adapter_config.json` and every tensor equal what PEFT writes when it saves what it has loaded

| model | training | logits | moved | loss | result |
|---|---|---|---|---|---|""")
    for line in lines:
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
