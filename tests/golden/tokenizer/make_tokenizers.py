#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference tokenizers of tests/golden/tokenizer/ with the Hugging Face tokenizers library.

Every tokenizer is a small BPE trained on tiny Shakespeare and multilingual.txt. Each has a folder:

    tokenizer.json   as the library writes it (some with the older "left right" merge strings)
    cases.jsonl      a row per text of texts.py: {"text", "ids" (with special tokens),
                     "ids_plain" (add_special_tokens=False), "decoded" (skip_special_tokens=False,
                     of ids), "decoded_skip" (skip_special_tokens=True, of ids)}
    decode.jsonl     {"ids", "decoded", "decoded_skip"} for id sequences that no text gives: each id
                     alone for a sample of ids, and random runs, which break UTF-8 sequences apart

The lines are UTF-8 without escapes, so only "\\n" ends a line (texts hold U+0085, U+2028 and the like).
FAMILIES at the end says which tokenizers there are and what each is for.

How to run, in a virtual environment with tokenizers:

    python tests/golden/tokenizer/make_tokenizers.py --corpus path/to/tinyshakespeare/input.txt [name ...]

The committed files were made with the tokenizers version of tests/golden/VERSIONS.md and a corpus with
the SHA-256 sum CORPUS_SHA256.
"""

import argparse
import collections
import hashlib
import json
import random
import shutil
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from texts import BORDER_TEXTS, TEXTS

HERE = Path(__file__).resolve().parent
CORPUS_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

# The Split patterns of the model families, as their tokenizer.json files have them.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


def plain(content, **options):
    return AddedToken(content, special=False, **options)


# ---------------------------------------------------------------------------------------------
# Training


def byte_level(use_regex, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def train_bytes(corpus, vocab_size, pre_tokenizer, normalizer=None, first_tokens=(), **model_options):
    """Byte-level BPE: the alphabet is the 256 bytes, so nothing is unknown."""
    tokenizer = Tokenizer(models.BPE(**model_options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    suffix = model_options.get("end_of_word_suffix")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=list(first_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **({"end_of_word_suffix": suffix} if suffix else {}),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return without_added(tokenizer)


def frequent_characters(corpus, count):
    """Chosen here because the trainer's limit_alphabet breaks ties differently in every run."""
    seen = collections.Counter("".join(corpus))
    return sorted((c for c in seen if not c.isspace()), key=lambda c: (-seen[c], c))[:count]


def train_characters(corpus, vocab_size, first_tokens, alphabet, pre_tokenizer=None, **model_options):
    """BPE over the characters of alphabet; first_tokens come first in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **model_options))
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="never")
    prefix = model_options.get("continuing_subword_prefix")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=list(first_tokens),
        initial_alphabet=alphabet, limit_alphabet=len(alphabet), **({"continuing_subword_prefix": prefix} if prefix else {}),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return without_added(tokenizer)


def without_added(tokenizer):
    """The trainer also declares all first tokens special; the callers say which ones are."""
    return edit(tokenizer, lambda data: data.update(added_tokens=[]))


def edit(tokenizer, change):
    """Changes what the Python interface cannot reach, by way of the JSON text."""
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def add(tokenizer, *tokens):
    """In this order, so that the ids are too."""
    for token in tokens:
        if token.special:
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])
    return tokenizer


def template(tokenizer, single, *names):
    """A post-processor; single and pair are spelt in the language of TemplateProcessing."""
    pair = single + " " + single.replace("$A", "$B").replace(":0", ":1")
    ids = [(name, tokenizer.token_to_id(name)) for name in names]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


# ---------------------------------------------------------------------------------------------
# The large families


def gpt2(corpus):
    tokenizer = train_bytes(corpus, 1500, byte_level(use_regex=True), continuing_subword_prefix="", end_of_word_suffix="")
    add(tokenizer, AddedToken("<|endoftext|>", special=True, normalized=True))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta(corpus):
    tokenizer = train_bytes(corpus, 600, byte_level(use_regex=True, add_prefix_space=True))
    add(tokenizer, special("<s>"), special("</s>"), special("<unk>"), special("<mask>", lstrip=True))
    ends = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=True)
    return tokenizer


def llama3(corpus):
    steps = pre_tokenizers.Sequence([split(LLAMA3_PATTERN), byte_level(use_regex=False)])
    tokenizer = train_bytes(corpus, 1500, steps)

    def unreachable(data):
        """Words without merges: only ignore_merges finds them."""
        data["model"]["ignore_merges"] = True
        for word in ("Ġantidisestablishmentarianism", "ĠRawCase", "hahahahahahahahaha", "ĠÄ±lÄ±k"):
            data["model"]["vocab"][word] = len(data["model"]["vocab"])

    tokenizer = edit(tokenizer, unreachable)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    add(tokenizer, *[special(name) for name in names])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(tokenizer, "<|begin_of_text|>:0 $A:0", "<|begin_of_text|>")]
    )
    return tokenizer


def qwen2(corpus):
    steps = pre_tokenizers.Sequence([split(QWEN2_PATTERN), byte_level(use_regex=False)])
    tokenizer = train_bytes(corpus, 1500, steps, normalizer=normalizers.NFC())
    add(tokenizer, *[special(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    add(tokenizer, *[plain(name, normalized=False) for name in ("<tool_call>", "</tool_call>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def sentencepiece_normalizer():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def sentencepiece_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def train_sentencepiece(corpus):
    first = ["<unk>", "<s>", "</s>", *BYTE_TOKENS, "▁▁", "▁▁▁▁"]
    alphabet = ["▁", *frequent_characters(corpus, 90)]
    tokenizer = train_characters(corpus, 1500, first, alphabet, fuse_unk=True, byte_fallback=True)

    def space_merges(data):
        """Runs of spaces are merged in the real vocabularies too."""
        data["model"]["merges"] += [["▁", "▁"], ["▁▁", "▁▁"]]

    return edit(tokenizer, space_merges)


def llama2(corpus):
    tokenizer = train_sentencepiece(corpus)
    tokenizer.normalizer = sentencepiece_normalizer()
    tokenizer = edit(tokenizer, lambda data: data.update(pre_tokenizer=None))
    tokenizer.decoder = sentencepiece_decoder()
    add(tokenizer, special("<unk>"), special("<s>"), special("</s>"), plain("<tool_call>", normalized=True))
    tokenizer.post_processor = template(tokenizer, "<s>:0 $A:0", "<s>")
    return tokenizer


def mistral(corpus):
    tokenizer = train_sentencepiece(corpus)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder()
    add(tokenizer, *[special(name) for name in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")])
    tokenizer.post_processor = template(tokenizer, "<s>:0 $A:0", "<s>")
    return tokenizer


def gemma(corpus):
    tokenizer = train_sentencepiece(corpus)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    add(tokenizer, special("<unk>"), special("<s>"), special("</s>"), plain("\n\n", normalized=False))
    tokenizer.post_processor = template(tokenizer, "<s>:0 $A:0 </s>:0", "<s>", "</s>")
    return tokenizer


# ---------------------------------------------------------------------------------------------
# Rarer parts, one small tokenizer for each


def gpt4o(corpus):
    steps = pre_tokenizers.Sequence([split(GPT4O_PATTERN), byte_level(use_regex=False)])
    return add(train_bytes(corpus, 500, steps), special("<|endoftext|>"))


def digits_cjk(corpus):
    """Several Splits one after the other, as DeepSeek has them."""
    words = r"[^\s\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    splits = [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(words)]
    steps = pre_tokenizers.Sequence([*splits, byte_level(use_regex=False)])
    return add(train_bytes(corpus, 500, steps), special("<|endoftext|>"))


def clip(corpus):
    """End-of-word suffix, a Split that is inverted and removed, and a normalizer with a regex."""
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    steps = pre_tokenizers.Sequence([split(CLIP_PATTERN, "removed", invert=True), byte_level(use_regex=False)])
    last = [byte + "</w>" for byte in sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = train_bytes(corpus, 700, steps, normalizer=normalizer, first_tokens=last, end_of_word_suffix="</w>")
    add(tokenizer, special("<s>"), special("</s>"))
    ends = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    return tokenizer


def wordpiece_style(corpus):
    """Continuing-subword prefix and unknown characters, each one by itself."""
    alphabet = frequent_characters(corpus, 90)
    first = ["<unk>", *("##" + character for character in alphabet)]
    splitter = pre_tokenizers.WhitespaceSplit()
    tokenizer = train_characters(corpus, 700, first, alphabet, pre_tokenizer=splitter, continuing_subword_prefix="##")
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return add(tokenizer, special("<unk>"), special("<pad>"))


def whitespace(corpus):
    """Unknown characters in a row become one token."""
    alphabet = frequent_characters(corpus, 60)
    tokenizer = train_characters(corpus, 700, ["<unk>"], alphabet, pre_tokenizer=pre_tokenizers.Whitespace(), fuse_unk=True)
    return add(tokenizer, special("<unk>"), special("<pad>"))  # no decoder: tokens are joined by spaces


def metaspace(corpus):
    """Metaspace that splits and always prepends, and its own decoder."""
    tokenizer = train_characters(corpus, 700, ["<unk>", "</s>"], ["▁", *frequent_characters(corpus, 90)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    add(tokenizer, special("<unk>"), special("</s>"))
    tokenizer.post_processor = template(tokenizer, "$A:0 </s>:0", "</s>")
    return tokenizer


def with_normalizer(*steps):
    def make(corpus):
        normalizer = normalizers.Sequence(list(steps))
        return add(train_bytes(corpus, 450, byte_level(use_regex=True), normalizer=normalizer), special("<|endoftext|>"))

    return make


def with_behavior(behavior):
    """Split by a string, Split by a pattern and Punctuation, all with one behaviour."""

    def make(corpus):
        steps = [pre_tokenizers.Split(",", behavior), split(r"\s+", behavior), pre_tokenizers.Punctuation(behavior)]
        return train_bytes(corpus, 450, pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)]))

    return make


def with_digits(individual):
    def make(corpus):
        steps = [pre_tokenizers.Digits(individual_digits=individual), byte_level(use_regex=True)]
        return train_bytes(corpus, 450, pre_tokenizers.Sequence(steps))

    return make


def added_bytes(corpus):
    """Every kind of added token over a normalizer, so that matching before and after it differ."""
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer = train_bytes(corpus, 450, byte_level(use_regex=True), normalizer=normalizer)
    return add(
        tokenizer,
        special("<s>"), special("</s>"), special("<mask>", lstrip=True),
        plain("<word>", single_word=True, normalized=False),
        plain("<left>", lstrip=True, normalized=False),
        plain("<right>", rstrip=True, normalized=False),
        plain("<both>", lstrip=True, rstrip=True, normalized=False),
        plain("<a>", normalized=False), plain("<a><b>", normalized=False),
        plain("New York", normalized=True), plain("RawCase", normalized=False), plain("École", normalized=True),
        plain("ing", single_word=False, normalized=True),
        plain(" two words", normalized=True, rstrip=True),
    )


def added_characters(corpus):
    """The same over a SentencePiece-style normalizer, which also changes the pieces between added tokens."""
    tokenizer = train_sentencepiece(corpus)
    tokenizer.normalizer = sentencepiece_normalizer()
    tokenizer = edit(tokenizer, lambda data: data.update(pre_tokenizer=None))
    tokenizer.decoder = sentencepiece_decoder()
    return add(
        tokenizer,
        special("<unk>"), special("<s>"), special("</s>", rstrip=True),
        AddedToken("<mask>", special=True, normalized=True, lstrip=True),
        plain("<word>", single_word=True, normalized=True),
        plain("<left>", lstrip=True, normalized=True),
        plain("<right>", rstrip=True, normalized=True),
        plain("<both>", lstrip=True, rstrip=True, normalized=True),
        plain("<a>", normalized=True), plain("<a><b>", normalized=True),
        plain("New York", normalized=True), plain("two words", normalized=False),
    )


def pieces(pre_tokenizer=None, normalizer=None, decoder=None):
    """Nothing but bytes, and the end of each piece marked: ids show every border and every byte."""

    def make(_corpus):
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {token: index for index, token in enumerate(alphabet + [byte + "</w>" for byte in alphabet])}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], end_of_word_suffix="</w>"))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        steps = [] if pre_tokenizer is None else [pre_tokenizer]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)])
        tokenizer.decoder = decoder or decoders.ByteLevel()
        return tokenizer

    return make


def metaspace_prepend(corpus):
    """Prepend, and a Metaspace that prepends to the first piece only, of which Prepend's character is a part."""
    tokenizer = mistral(corpus)
    tokenizer.normalizer = sentencepiece_normalizer()
    return tokenizer


FAMILIES = {
    "gpt2": gpt2,
    "roberta": roberta,
    "llama3": llama3,
    "qwen2": qwen2,
    "llama2": llama2,
    "mistral": mistral,
    "gemma": gemma,
    "gpt4o": gpt4o,
    "digits_cjk": digits_cjk,
    "clip": clip,
    "wordpiece_style": wordpiece_style,
    "whitespace": whitespace,
    "metaspace": metaspace,
    "nfkc": with_normalizer(normalizers.NFKC(), normalizers.Strip(left=True, right=True)),
    "nfd": with_normalizer(normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()),
    "nfkd": with_normalizer(
        normalizers.NFKD(), normalizers.Replace(Regex(r"[0-9]{2,}"), "#"), normalizers.Strip(left=False, right=True)
    ),
    "removed": with_behavior("removed"),
    "isolated": with_behavior("isolated"),
    "merged_with_previous": with_behavior("merged_with_previous"),
    "merged_with_next": with_behavior("merged_with_next"),
    "contiguous": with_behavior("contiguous"),
    "digits": with_digits(individual=True),
    "digit_runs": with_digits(individual=False),
    "added_bytes": added_bytes,
    "added_characters": added_characters,
    "class_alpha": pieces(split("[[:alpha:]]+")),
    "class_lower": pieces(split("[[:lower:]]+")),
    "class_emoji": pieces(split(r"\p{Emoji}+")),
    "class_marks": pieces(split(r"[\p{Mn}a]+|[^\P{Mc}b]+")),
    "class_other": pieces(split(r"\p{C}+|\p{LC}+")),
    "class_script": pieces(split(r"\p{Latin}+|[\p{Cyrillic}\p{Han}]+|\p{Common}+")),
    "case_ignored": pieces(split(r"(?i:'s|'LL|[k-m]+|[^\s\p{L}0-9]+|\p{Lu}+)")),
    "empty_matches": pieces(split("x*", "merged_with_next"), normalizers.Replace(Regex("e*"), ""), decoders.Replace(Regex("t*"), "-")),
    "bert_normalizer": pieces(None, normalizers.BertNormalizer()),
    "metaspace_prepend": metaspace_prepend,
}
BORDERS = ("class_", "case_", "bert_")  # these have BORDER_TEXTS and a part of the others
OLD_MERGES = ("gpt2", "mistral")  # written as "left right" strings, as files older than 2024 have them


# ---------------------------------------------------------------------------------------------
# Writing


def write_tokenizer(path, tokenizer, old_merges):
    data = json.loads(tokenizer.to_str())
    if old_merges:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8", newline="\n")


def write_rows(path, rows):
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def decodings(tokenizer, ids):
    return {"decoded": tokenizer.decode(ids, skip_special_tokens=False), "decoded_skip": tokenizer.decode(ids)}


def encode_row(tokenizer, text):
    ids = tokenizer.encode(text).ids
    ids_plain = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "ids_plain": ids_plain, **decodings(tokenizer, ids)}


def decode_rows(tokenizer):
    rng = random.Random(5)
    size = tokenizer.get_vocab_size()
    runs = [[rng.randrange(size)] for _ in range(40)]
    runs += [[rng.randrange(size) for _ in range(rng.randint(2, 12))] for _ in range(40)]
    # Ids below 259 are bytes in all vocabularies that have bytes: sequences that are mostly broken UTF-8.
    runs += [[rng.randrange(min(size, 259)) for _ in range(rng.randint(2, 8))] for _ in range(40)]
    return [{"ids": ids, **decodings(tokenizer, ids)} for ids in runs]


def make(name, corpus):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_tokenizer(folder / "tokenizer.json", FAMILIES[name](corpus), name in OLD_MERGES)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))  # what was written is what is measured
    texts = TEXTS[::5] + BORDER_TEXTS if name.startswith(BORDERS) else TEXTS
    write_rows(folder / "cases.jsonl", [encode_row(tokenizer, text) for text in texts])
    write_rows(folder / "decode.jsonl", decode_rows(tokenizer))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="tiny Shakespeare, input.txt")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(FAMILIES)}")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in FAMILIES]
    if unknown:
        parser.error(f"no such tokenizer: {', '.join(unknown)}")
    raw = args.corpus.read_bytes()
    if hashlib.sha256(raw).hexdigest() != CORPUS_SHA256:
        sys.exit(f"{args.corpus} is not the corpus of the committed files")
    multilingual = (HERE / "multilingual.txt").read_text(encoding="utf-8")
    corpus = raw.decode().splitlines(keepends=True) + 20 * multilingual.splitlines(keepends=True)
    for name in args.names or FAMILIES:
        make(name, corpus)


if __name__ == "__main__":
    main()
