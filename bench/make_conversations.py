#!/usr/bin/env python3
"""Writes a JSON Lines file of conversations of at least BYTES bytes, the same one every time.

usage: make_conversations.py FILE BYTES [SEED]

Two to eight messages of 10 to 150 words; about one in eight has a system message. Words are made of syllables, with
capitals, digits, punctuation, line breaks, and some text that is not ASCII.
"""
import json
import random
import sys


def words(rng, count):
    syllables = [c + v + e for c in "bdfgklmnprstvz" for v in "aeiou" for e in ("", "n", "r", "s")]
    made = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(count)]
    return made + ["der", "größer", "naïve", "日本語", "привет", "42", "3.14", "x += 1;", "https://example.org/a?b=c"]


def sentences(rng, count):
    vocabulary = words(rng, 4000)
    made = []
    for _ in range(count):
        text = " ".join(rng.choice(vocabulary) for _ in range(rng.randint(5, 20)))
        made.append(text[:1].upper() + text[1:] + rng.choice([".", ".", ".", "?", "!", ":\n", ".\n\n"]))
    return made


def message(rng, role, lines):
    return {"role": role, "content": " ".join(rng.choice(lines) for _ in range(rng.randint(1, 10)))}


def main():
    path, size = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 16)
    lines, written, rows = sentences(rng, 20000), 0, 0
    with open(path, "wb") as file:
        while written < size:
            messages = [message(rng, "system", lines)] if rng.random() < 0.125 else []
            for _ in range(rng.randint(1, 4)):
                messages += [message(rng, "user", lines), message(rng, "assistant", lines)]
            row = json.dumps({"messages": messages}, ensure_ascii=False).encode() + b"\n"
            file.write(row)
            written += len(row)
            rows += 1
    print(f"{path}: {rows} conversations, {written} bytes")


main()
