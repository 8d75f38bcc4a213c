#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes flags.jsonl: what transformers makes of add_bos_token and add_eos_token of tokenizer_config.json beside a tokenizer.json.

A row per class, post-processor and flags: {"config" (tokenizer_config.json), "post_processor" (in place of that of
tests/support/tiny_tokenizer/tokenizer.json), "text", "ids"}.

    python tests/golden/tokenizer/make_flags.py
"""

import json
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

HERE = Path(__file__).resolve().parent
TINY = HERE.parent.parent / "support" / "tiny_tokenizer"
CLASSES = ["PreTrainedTokenizerFast", "TokenizersBackend", "GPT2TokenizerFast"]
FLAGS = [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True}, {"add_eos_token": False},
         {"add_bos_token": True, "add_eos_token": True}, {"add_bos_token": False, "add_eos_token": False}]
TEXT = "1 + 2 ="


def special(token):
    return {"SpecialToken": {"id": token, "type_id": 0}}


def template(before, after):
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    single = [special(t) for t in before] + [sequence] + [special(t) for t in after]
    tokens = {t: {"id": t, "ids": [{"<s>": 1, "</s>": 2}[t]], "tokens": [t]} for t in before + after}
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


def ids_of(tokenizer, config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]


def main():
    tokenizer = json.loads((TINY / "tokenizer.json").read_text(encoding="utf-8"))
    own = json.loads((TINY / "tokenizer_config.json").read_text(encoding="utf-8"))
    rows = []
    for name in CLASSES:
        for processor in (None, template(["<s>"], []), template(["<s>"], ["</s>"])):
            for flags in FLAGS:
                config = {**own, "tokenizer_class": name, **flags}
                ids = ids_of({**tokenizer, "post_processor": processor}, config)
                rows.append({"config": config, "post_processor": processor, "text": TEXT, "ids": ids})
    (HERE / "flags.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


main()
