#!/usr/bin/env python3
"""Makes tests/golden/new_tokens/: tokens that a model's folder lacks, as transformers adds and PEFT trains them.

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 python tests/golden/new_tokens/make_new_tokens.py

ids.json            tests/support/tiny_tokenizer with new tokens: those, their entries in tokenizer.json, texts and their ids
train.jsonl         rows with the new tokens 61 and 62 of the models in adapters/kinds, which have 61 rows
NAME/               one way to train their rows, on a model that resize_token_embeddings has brought to 64 rows
    adapter_init/           as PEFT saves it, with embeddings and head (save_embedding_layers "auto")
    adapter_final/          after 20 steps, without these
    train_reference.json    loss, gradient norm and learning rate of each step (make_models.py)
    merged.safetensors      embeddings, and the head where it is another table, of merge_and_unload() of adapter_init,
                            where rows of them train
"""
import json
import os
import random
import shutil
import sys
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AddedToken, AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
KINDS = HERE.parent / "adapters" / "kinds"
sys.path.insert(0, str(HERE.parent))
from make_models import reference_curve, save_adapter  # noqa: E402

ROWS, NEW = 64, [61, 62]
BOTH = {"embed_tokens": NEW, "lm_head": NEW}
# base, LoraConfig
CURVES = {
    "rows": ("untied", {"trainable_token_indices": BOTH}),
    "rows_tied": ("tied", {"trainable_token_indices": NEW}),
    "saved": ("untied", {"modules_to_save": ["embed_tokens", "lm_head"]}),
    "rows_and_head": ("untied", {"trainable_token_indices": {"embed_tokens": NEW}, "modules_to_save": ["lm_head"]}),
    "frozen": ("untied", {}),
}
PLAIN, SPECIAL = ["<think>", "</think>", "caf\u00e9"], ["<|tool|>", "<s>"]
TEXTS = ["a<think>b</think> c", "<|tool|> <think>\n\n</think><|tool|>", "the caf\u00e9 and caf\u00e9s", "no new token", "<s><think></s>",
         "<think", " <|tool|>x"]


def make_ids():
    tokenizer = AutoTokenizer.from_pretrained(HERE.parent.parent / "support" / "tiny_tokenizer")
    before = len(tokenizer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in PLAIN])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL], special_tokens=True)
    added = json.loads(tokenizer.backend_tokenizer.to_str())["added_tokens"]
    texts = [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]
    content = {"versions": {"transformers": transformers.__version__}, "before": before, "after": len(tokenizer), "plain": PLAIN,
               "special": SPECIAL, "added_tokens": added, "texts": texts}
    (HERE / "ids.json").write_text(json.dumps(content, indent=1) + "\n")


def make_rows():
    draw = random.Random(9)
    rows = []
    for length in (9, 17, 12, 20, 7, 15, 11, 18):
        ids = [draw.choice(NEW) if draw.random() < 0.3 else draw.randrange(3, 61) for _ in range(length)]
        ids[1], ids[-1] = NEW
        prompt = length // 3
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    (HERE / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def base_of(name, rows=ROWS):
    model = AutoModelForCausalLM.from_pretrained(KINDS / name, dtype=torch.float32, attn_implementation="eager")
    if rows:
        torch.manual_seed(3)
        model.resize_token_embeddings(rows)
    return model


def clean_config(folder, base):
    path = Path(folder) / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = base
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_curve(name, rows, seed):
    base, more = CURVES[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    torch.manual_seed(seed)
    model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules=["q_proj"], **more))
    with torch.no_grad():
        for key, param in model.named_parameters():
            if "lora_B" in key:
                param.normal_(0.0, 0.05)
            elif "trainable_tokens_delta" in key:
                param.add_(0.3 * torch.randn(param.shape) * param.std())
    save_adapter(model, "adapter_init")

    def adapted():
        return PeftModel.from_pretrained(base_of(base), "adapter_init", is_trainable=True)

    final = reference_curve(adapted, rows, 1e-2, "train_reference.json")
    final.save_pretrained("adapter_final", save_embedding_layers=False)
    (Path("adapter_final") / "README.md").unlink()
    merged = dict(adapted().merge_and_unload().named_parameters())
    if "trainable_token_indices" not in more:
        merged = {}  # the tables are those of adapter_init
    keys = [key for key in ("model.embed_tokens.weight", "lm_head.weight") if key in merged]
    if keys:
        save_file({key: merged[key].detach().clone() for key in keys}, "merged.safetensors")
    for adapter in ("adapter_init", "adapter_final"):
        clean_config(adapter, base)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    make_ids()
    rows = make_rows()
    for seed, name in enumerate(CURVES):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make_curve(name, rows, 700 + seed)


main()
