#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes beside.jsonl: what transformers makes of tokens that only the files beside a tokenizer.json name.

A row per set of files: {"files" (name: content, beside tests/support/tiny_tokenizer/tokenizer.json), "ids" (of TEXT),
"kept" (the text of the ids without special tokens), "named" (ids of bos, eos and pad, -1: none)}.

    python tests/golden/tokenizer/make_beside.py
"""

import json
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

HERE = Path(__file__).resolve().parent
TINY = HERE.parent.parent / "support" / "tiny_tokenizer"
TEXT = "a <t1> b<t2>c <T3> <t1>"
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
PLAIN = {"lstrip": False, "rstrip": False, "single_word": False}


def token(content, **members):
    return {"content": content, **PLAIN, "normalized": False, "special": True, **members}


def marked(content, **members):
    return {"__type": "AddedToken", **token(content, **members)}


NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
END = len(json.loads((TINY / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])
CASES = [
    {CONFIG: NAMES},
    {CONFIG: {**NAMES, "additional_special_tokens": ["<t1>", "<t2>"]}},
    {CONFIG: {**NAMES, "extra_special_tokens": ["<t2>", "<t1>"]}},
    {CONFIG: {**NAMES, "additional_special_tokens": ["<t1>"], "extra_special_tokens": ["<t2>"]}},
    {CONFIG: {**NAMES, "additional_special_tokens": ["<t1>"], "extra_special_tokens": []}},
    {CONFIG: {**NAMES, "additional_special_tokens": [marked("<t1>", lstrip=True), marked("<t2>", rstrip=True)]}},
    {CONFIG: {**NAMES, "extra_special_tokens": {"tool_token": "<t1>", "image_token": "<t2>"}}},
    {CONFIG: {**NAMES, "tool_token": "<t2>", "image_token": marked("<t1>")}},
    {CONFIG: {**NAMES, "pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "pad_token": "a"}},
    {CONFIG: {**NAMES, "eos_token": marked("<t2>", special=False), "pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {}, "additional_special_tokens": ["<t1>"]}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {str(END + 1): token("<t1>"), str(END): token("<t2>")}}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {str(END + 7): token("<t1>"), str(END + 3): token("<t2>", special=False, normalized=True)}}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {str(END): token("<t1>", lstrip=True)}, "pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {str(END): token("<t1>", special=False)}, "pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {"1": token("<s>", special=False, normalized=True)}}},
    {CONFIG: NAMES, ADDED: {"<t1>": END + 1, "<t2>": END}},
    {CONFIG: {**NAMES, "extra_special_tokens": ["<t2>"]}, ADDED: {"<t1>": END + 1, "<t2>": END}},
    {CONFIG: {**NAMES, "pad_token": "<t1>"}, ADDED: {"<t1>": END}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {str(END): token("<t2>")}}, ADDED: {"<t1>": END}},
    {CONFIG: NAMES, MAP: {"pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "pad_token": "<t1>"}, MAP: {"pad_token": token("<t2>", special=True)}},
    {CONFIG: NAMES, MAP: {"additional_special_tokens": ["<t1>", "<t2>"]}},
    {CONFIG: {**NAMES, "extra_special_tokens": ["<t1>"]}, MAP: {"extra_special_tokens": ["<t2>"]}},
    {CONFIG: {**NAMES, "additional_special_tokens": ["<t1>"]}, MAP: {"additional_special_tokens": ["<t2>"]}},
    {CONFIG: {**NAMES, "added_tokens_decoder": {}}, MAP: {"pad_token": "<t1>"}},
    {CONFIG: {**NAMES, "tokenizer_class": "GPT2Tokenizer", "additional_special_tokens": ["<t1>"]}},
    {CONFIG: {"additional_special_tokens": ["<t1>"]}},
    {MAP: {"eos_token": "<t1>"}, ADDED: {"<t2>": END}},
]


def row(files):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text((TINY / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8")
        for name, content in files.items():
            Path(folder, name).write_text(json.dumps(content), encoding="utf-8")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(TEXT)["input_ids"]
        named = [-1 if i is None else i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)]
        kept = tokenizer._tokenizer.decode(ids, skip_special_tokens=True)
        return {"files": files, "text": TEXT, "ids": ids, "kept": kept, "named": named}


def main():
    rows = []
    for files in CASES:
        try:
            rows.append(row(files))
        except Exception as error:
            print("left out:", files, type(error).__name__, error)
    (HERE / "beside.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


main()
