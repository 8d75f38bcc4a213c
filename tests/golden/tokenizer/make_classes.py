#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes classes.jsonl: which class transformers takes for a folder, and whether its steps and ids are tokenizer.json's.

A row per tokenizer of this folder, model_type and tokenizer_class: "loads" (the class; null: it fails), "steps" (normalizer
and pre-tokenizer are those of the file), "texts" (how many of TEXTS get other ids than the tokenizers library gives).

    python tests/golden/tokenizer/make_classes.py
"""

import json
import tempfile
from pathlib import Path

import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer

HERE = Path(__file__).resolve().parent
TOKENIZERS = ["gpt2", "llama3", "qwen2", "llama2", "gemma", "mistral"]
MODELS = [None, "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "smollm3"]
CLASSES = [None, "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend", "GPT2TokenizerFast", "Qwen2TokenizerFast",
           "GemmaTokenizerFast"]
TEXTS = ["1 + 2 =", "Hello world, it's 1234567 o'clock\n\n  two blanks\tand a tab", "naïve café — 你好", "e\u0301 A\u030a", " leading", "a\n\n\nb   c  "]


def row_of(name, model, tokenizer_class):
    source = HERE / name / "tokenizer.json"
    want = Tokenizer.from_file(str(source))
    row = {"tokenizer": name, "model_type": model, "tokenizer_class": tokenizer_class}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_bytes(source.read_bytes())
        if model:
            Path(folder, "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
        config = {"tokenizer_class": tokenizer_class} if tokenizer_class else {}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            got = AutoTokenizer.from_pretrained(folder)
            ids = [got(text)["input_ids"] for text in TEXTS]
        except Exception as error:  # the tokenizers library raises nothing narrower
            if "not found in the vocabulary" not in str(error):
                raise
            return {**row, "loads": None}
    steps = [json.loads(x.to_str())[part] for x in (want, got.backend_tokenizer) for part in ("normalizer", "pre_tokenizer")]
    texts = sum(mine != want.encode(text).ids for mine, text in zip(ids, TEXTS, strict=True))
    return {**row, "loads": type(got).__name__, "steps": steps[:2] == steps[2:], "texts": texts}


def main():
    transformers.logging.set_verbosity_error()
    rows = [row_of(name, model, c) for name in TOKENIZERS for model in MODELS for c in CLASSES]
    (HERE / "classes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


main()
