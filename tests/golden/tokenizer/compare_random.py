#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares trimtab's tokenizers with the Hugging Face tokenizers library on random texts.

Tokenizers: every folder below the given ones that has a tokenizer.json, and for each of PATTERNS, which are the
patterns of published models, one that shows every border of its Split. The texts mix words, contractions, digits,
white space, scripts, combining marks, emoji, code points of all planes (new, unassigned, private) and long runs.
For each tokenizer the library's answers go to a folder of rows as make_tokenizers.py writes them, and
test_golden_tokenizer_cases compares trimtab with them: ids with and without special tokens, decoded text; and
test_golden_tokenizer_ranges the bytes that each id stands for.

    python tests/golden/tokenizer/compare_random.py --build build --count 120000 tests/golden/tokenizer [folder ...]

The log of a run stands in docs/measurements/tokenizers.md.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from make_offsets import offset_rows, without_processor  # noqa: E402
from make_tokenizers import CLIP_PATTERN, GPT4O_PATTERN, LLAMA3_PATTERN, QWEN2_PATTERN, pieces, split, write_rows  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
HAN = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
STARCODER = r"\p{N}|[^\s\p{L}\p{N}]+|\s?\p{L}+|\s+"
PATTERNS = {
    "gpt2": GPT2, "cl100k": CL100K, "o200k": GPT4O_PATTERN, "llama3": LLAMA3_PATTERN, "qwen2": QWEN2_PATTERN, "clip": CLIP_PATTERN,
    "kimi_k2": HAN, "deepseek_v3": DEEPSEEK, "deepseek_cjk": "[一-龥\u3040-ゟ゠-ヿ]+", "bloom": BLOOM, "starcoder": STARCODER,
    "digits": r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)", "lines": r"^\s*.*$", "posix": r"[[:alpha:]]+|[[:digit:]]+|[[:punct:]]+|[[:space:]]",
    "word": r"\b\w+\b|\W", "lower": r"(?<=[[:lower:]])[[:upper:]]+|[[:lower:]]+", "emoji": r"\p{Emoji}\uFE0F?(?:\u200D\p{Emoji}\uFE0F?)*",
    "ignore_case": r"(?i)'s|'t|'re|'ve|'m|'ll|'d|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s+",
}

WORDS = "the The THE I'm you'RE he's DON'T we'Ve they'll 'S 'T ſtraße ß ẞ İstanbul ıŞIK ﬁne naïve e\u0301te\u0301 Å ǅ".split()
WORDS += ["New York", "http://a.b/c?d=e&f", "x = y[3:7];", "1,234,567.89", "٣٤٥", "½²Ⅷ⑩", "<s>", "</s>", "<|endoftext|>", "▁", "<unk>"]
WORDS += ["日本語のテスト", "汉字和漢字", "한국어 테스트", "\u1112\u1161\u11ab", "สวัสดีครับ", "नमस्ते", "مرحبا", "שלום", "Ελλάδα ὄφις", "Привет", "ქართული"]
WORDS += ["👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽", "❤️", "1️⃣", "☃", "🤔🤔", "e\u0301\u0323\u0308", "q\u0307\u0323", "\u0301", "\u200b", "\ufeff", "\u00ad", "a\u200db"]
SPACES = [" ", "  ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\v", "\f", " \n ", "\u180e", "\u1680"]
PLANES = [(0, 0x7F), (0x80, 0x24F), (0x250, 0x5FF), (0x600, 0xDFF), (0xE00, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFF),
          (0x10000, 0x11FFF), (0x12000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x323FF), (0xE0000, 0x10FFFF)]


def part(rng):
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(WORDS)
    if kind < 0.65:
        return rng.choice(SPACES)
    if kind < 0.85:
        return "".join(chr(rng.randint(*rng.choice(PLANES))) for _ in range(rng.randint(1, 4)))
    if kind < 0.98:
        return "".join(rng.choice("absStTlLmdvre'’.,-_/#0123456789 \n") for _ in range(rng.randint(1, 8)))
    return rng.choice(["a", " ", "\n", "7", "ab", "!", "\u0301", "字", "🙂", " \n", "'s"]) * rng.randint(20, 400)


def random_text(rng):
    text = "".join(part(rng) for _ in range(rng.randint(1, 12)))
    return "".join("?" if 0xD800 <= ord(c) < 0xE000 else c for c in text).replace("\0", "?")


def rows(tokenizer, texts):
    with_special = [e.ids for e in tokenizer.encode_batch(texts)]
    plain = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    decoded = tokenizer.decode_batch(with_special, skip_special_tokens=False)
    skipped = tokenizer.decode_batch(with_special, skip_special_tokens=True)
    keys = ("text", "ids", "ids_plain", "decoded", "decoded_skip")
    return [dict(zip(keys, values)) for values in zip(texts, with_special, plain, decoded, skipped)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--count", type=int, default=120000, help="texts over all tokenizers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("folders", nargs="*", type=Path)
    args = parser.parse_args()
    subjects = {f"pattern-{name}": pieces(split(pattern))(None) for name, pattern in PATTERNS.items()}
    for folder in args.folders:
        for file in sorted(folder.rglob("tokenizer.json")):
            subjects[f"{file.parent.parent.name}-{file.parent.name}"] = Tokenizer.from_file(str(file))
    each = -(-args.count // len(subjects))
    print(f"tokenizers {tokenizers.__version__}; {len(subjects)} tokenizers, {each} texts each, seed {args.seed}", flush=True)
    failed = []
    for name, tokenizer in subjects.items():
        rng = random.Random(f"{args.seed} {name}")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "rows" / name
            folder.mkdir(parents=True)
            tokenizer.save(str(folder / "tokenizer.json"))
            texts = [random_text(rng) for _ in range(each)]
            write_rows(folder / "cases.jsonl", rows(tokenizer, texts))
            write_rows(folder / "offsets.jsonl", offset_rows(without_processor(folder / "tokenizer.json"), texts))
            tests = [str(args.build / "tests/test_golden_tokenizer_cases"), str(args.build / "tests/test_golden_tokenizer_ranges")]
            results = [subprocess.run([test, str(folder.parent)], capture_output=True, text=True, check=False) for test in tests]
            result = next((r for r in results if r.returncode != 0), results[1])
            same = result.returncode == 0
            print(f"{name}: {each} texts, {sum(map(len, texts))} characters: {'same' if same else 'DIFFERENT'}", flush=True)
            if not same:
                failed.append(name)
                print(result.stdout + result.stderr)
                shutil.copytree(folder, Path(tempfile.gettempdir()) / f"different-{name}", dirs_exist_ok=True)
    print(f"{len(subjects) * each} texts; different: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
