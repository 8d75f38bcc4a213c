#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes offsets.jsonl beside the tokenizers of tests/golden/tokenizer/: what the tokenizers library says each id stands for.

A row per text (every fifth of cases.jsonl, and those of BORDERS):
{"text", "ids" (without special tokens), "offsets": [begin, end, begin, end, ...] in characters}. The post-processor is
taken out first: ByteLevel's cuts white space off the offsets, which says nothing about the text of a token.

    python tests/golden/tokenizer/make_offsets.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
BORDERS = ["👩‍👩‍👧‍👦 naïve e\u0301te\u0301", " two  blanks", "a<s>b</s> c", "İstanbul ﬁne ½", "\u1112\u1161\u11ab 한국어", "q\u0307\u0323x"]


def without_processor(path):
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    data["post_processor"] = None
    return Tokenizer.from_str(json.dumps(data))


def offset_rows(tokenizer, texts):
    rows = []
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
        rows.append({"text": text, "ids": encoding.ids, "offsets": [at for pair in encoding.offsets for at in pair]})
    return rows


def main():
    for folder in sorted(HERE.iterdir()):
        cases = folder / "cases.jsonl"
        if not cases.exists():
            continue
        texts = [json.loads(line)["text"] for line in cases.read_text(encoding="utf-8").split("\n") if line]
        texts = [text for text in texts[::5] if len(text) < 300] + BORDERS
        rows = offset_rows(without_processor(folder / "tokenizer.json"), texts)
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
        (folder / "offsets.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
