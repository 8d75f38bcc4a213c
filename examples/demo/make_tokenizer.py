#!/usr/bin/env python3
"""Trains the base model's tokenizer: byte-level BPE, written as tokenizer.json and tokenizer_config.json.

    python3 make_tokenizer.py --corpus corpus.jsonl --out model [--vocab 1280] [--megabytes 8]

Text is first cut by PATTERN. It keeps the space before a capital letter by itself, so that a name is the same tokens
in a sentence and in quotes, and every digit by itself: what is copied then reads the same on both sides. Inside the
pieces the most frequent pair of neighbours is joined, again and again; ties go to the pair that sorts first, so the
same corpus always gives the same tokenizer.
"""
import argparse
import collections
import heapq
import json
import pathlib
import re
import unicodedata

PATTERN = (r"\p{Lu}\p{Ll}*| ?\p{Ll}+| ?[\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+"
           r"|\s+(?!\S)|\s+")
SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>"]


def python_pattern(characters):
    """PATTERN for the module re, which knows no \\p{...}: its classes spelled out for the characters that occur."""
    def members(category):
        found = "".join(re.escape(c) for c in sorted(characters) if unicodedata.category(c).startswith(category))
        return found or "\0"

    out, inside, i = [], False, 0
    while i < len(PATTERN):
        if PATTERN.startswith(r"\p{", i):
            end = PATTERN.index("}", i)
            found = members(PATTERN[i + 3:end])
            out.append(found if inside else f"[{found}]")
            i = end + 1
            continue
        inside = PATTERN[i] == "[" or (inside and PATTERN[i] != "]")
        out.append(PATTERN[i])
        i += 1
    return re.compile("".join(out))


def byte_characters():
    """The printable character that stands for each byte, as in GPT-2's byte-level BPE: printable Latin-1 characters
    stand for themselves, the others take the code points from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {byte: chr(byte) for byte in printable}, 256
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(extra)
            extra += 1
    return table


def count_pieces(path, limit_bytes):
    texts, size = [], 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            texts.append(row["prompt"] + row["completion"])
            size += len(line.encode())
            if size >= limit_bytes:
                break
    pattern = python_pattern(set().union(*map(set, texts)))
    pieces = collections.Counter()
    for text in texts:
        pieces.update(pattern.findall(text))
    return pieces


class Merger:
    """Pieces as lists of symbols, with the count of every pair of neighbours and where it occurs."""

    def __init__(self, pieces):
        table = byte_characters()
        self.words = [[table[byte] for byte in piece.encode()] for piece in sorted(pieces)]
        self.counts = [pieces[piece] for piece in sorted(pieces)]
        self.pair_count = collections.Counter()
        self.pair_words = collections.defaultdict(set)
        for index in range(len(self.words)):
            self.add(index, 1)
        self.heap = [(-count, pair) for pair, count in self.pair_count.items()]
        heapq.heapify(self.heap)

    def add(self, index, sign):
        word, count = self.words[index], self.counts[index] * sign
        for pair in zip(word, word[1:]):
            self.pair_count[pair] += count
            if sign > 0:
                self.pair_words[pair].add(index)

    def best(self):
        """The most frequent pair; entries of the heap that have aged are put right on the way."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            now = self.pair_count[pair]
            if now <= 0:
                continue
            if -count == now:
                return pair
            heapq.heappush(self.heap, (-now, pair))
        return None

    def merge(self, pair):
        changed = set()
        for index in sorted(self.pair_words.pop(pair)):
            word = self.words[index]
            self.add(index, -1)
            changed.update(zip(word, word[1:]))
            joined, i = [], 0
            while i < len(word):
                if tuple(word[i:i + 2]) == pair:
                    joined.append(pair[0] + pair[1])
                    i += 2
                else:
                    joined.append(word[i])
                    i += 1
            self.words[index] = joined
            self.add(index, 1)
            changed.update(zip(joined, joined[1:]))
        for other in changed:
            if self.pair_count[other] > 0:
                heapq.heappush(self.heap, (-self.pair_count[other], other))


def train(pieces, vocab_size):
    vocab = {token: index for index, token in enumerate(SPECIAL)}
    for _, character in sorted(byte_characters().items()):
        vocab[character] = len(vocab)
    merger, merges = Merger(pieces), []
    while len(vocab) < vocab_size:
        pair = merger.best()
        if pair is None:
            raise SystemExit(f"the corpus has pairs for {len(vocab)} tokens only")
        merger.merge(pair)
        merges.append(list(pair))
        vocab.setdefault(pair[0] + pair[1], len(vocab))
    return vocab, merges


def tokenizer_json(vocab, merges):
    added = [{"id": vocab[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for token in SPECIAL]
    begin = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [vocab["<|bos|>"]], "tokens": ["<|bos|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True, help="JSON Lines of prompt and completion")
    parser.add_argument("--out", required=True, help="model folder")
    parser.add_argument("--vocab", type=int, default=1280)
    parser.add_argument("--megabytes", type=float, default=8, help="how much of the corpus to count")
    args = parser.parse_args()
    vocab, merges = train(count_pieces(args.corpus, args.megabytes * 1e6), args.vocab)
    folder = pathlib.Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
              "pad_token": "<|pad|>", "model_max_length": 512, "clean_up_tokenization_spaces": False}
    for name, value in (("tokenizer.json", tokenizer_json(vocab, merges)), ("tokenizer_config.json", config)):
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    print(f"{folder / 'tokenizer.json'}: {len(vocab)} tokens")


if __name__ == "__main__":
    main()
