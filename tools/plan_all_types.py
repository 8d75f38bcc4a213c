#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what `trimtab plan` says of every causal model_type of the installed transformers.

Each gets the configuration that its class has by default, with 2 layers where it takes a number of them. The output is
Markdown: the types that are planned, and the others by what is missing.

    python tools/plan_all_types.py build/trimtab
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import transformers
from transformers.models.auto import modeling_auto

NAMES = sorted({*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES})


def default_config(model_type):
    config = transformers.AutoConfig.for_model(model_type).to_dict()
    text = config.get("text_config")
    if isinstance(text, dict) and not text.get("model_type"):
        text["model_type"] = transformers.AutoConfig.for_model(model_type).get_text_config().model_type
    for part in (config, text):
        if isinstance(part, dict) and part.get("first_k_dense_replace"):
            part["first_k_dense_replace"] = 1  # so that one of two layers is what most are
    return {key: value for key, value in config.items() if key != "architectures"}


def plan(trimtab, config, folder):
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(config))
    words = [trimtab, "plan", "--config_json", path, "--device", "h200", "--max_length", "1024",
             "--lora_target_modules", "all-linear", "--lora_dropout", "0", "--per_device_train_batch_size", "1",
             "--load_in_4bit", "true"]
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode in (0, 5):  # 5: it does not fit, which is an answer too
        return None
    error = next(line for line in result.stderr.splitlines() if line.startswith("error: "))
    return error[len("error: "):].split("config.json: ")[-1]


def main():
    transformers.logging.set_verbosity_error()
    trimtab = Path(sys.argv[1]).resolve()
    planned, others = [], collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            try:
                config = default_config(name)
            except Exception as error:  # a class that has no default
                others[f"transformers makes no default configuration ({type(error).__name__})"].append(name)
                continue
            why = plan(trimtab, config, folder)
            if why is None:
                planned.append(name)
            else:
                why = re.sub(r"^models of model_type '[^']*' are not supported(: | )", "", why)
                others[why].append(name)
    print(f"transformers {transformers.__version__}: {len(planned)} of {len(NAMES)} types are planned.\n")
    print("| what `plan` says | `model_type` |\n|---|---|")
    print("| a plan | " + ", ".join(f"`{name}`" for name in planned) + " |")
    for why, names in sorted(others.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"| {why} | " + ", ".join(f"`{name}`" for name in names) + " |")


if __name__ == "__main__":
    main()
