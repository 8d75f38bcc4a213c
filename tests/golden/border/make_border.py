#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/border/: where TRL's SFTTrainer lets the completion of a prompt/completion row begin.

    rows.jsonl       200 rows: 100 prompts and completions, each with and without a blank at the end of the prompt
    <name>.jsonl     one line per row, [first, ids]: the ids of SFTTrainer.train_dataset, and how many labels at the
                     start are -100 (the script fails where the labels are anything but -100 up to there and the ids
                     from there on). <name> is a tokenizer of ../tokenizer; shared-<name> one of --shared, which is too
                     large to be committed.

How to run, after make_tokenizers.py, with trl 1.16.0, transformers 5.17.0, tokenizers 0.23.3:

    python tests/golden/border/make_border.py [--shared ../shared/data]
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import transformers
import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
# Name: the end token, or the end and the begin token where the post-processor adds one.
COMMITTED = {
    "gpt2": ("<|endoftext|>", None),
    "llama2": ("</s>", "<s>"),
    "llama3": ("<|end_of_text|>", "<|begin_of_text|>"),
    "mistral": ("</s>", "<s>"),
    "qwen2": ("<|im_end|>", None),
    "gemma": ("</s>", "<s>"),
}
SHARED = {"gpt2-tokenizer": ("<|endoftext|>", None), "llama-spm-tokenizer": ("</s>", "<s>")}

HEADS = ["Review: The film was {}. Sentiment:", "Q: What is {}?\nA:", "{} =", "Translate '{}':", "### {}\n",
         "{}", "Name: {}\tAge:", "Say \"{}\"", "({}", "Überschrift: {} –"]
WORDS = ["great", "a bore", "7 + 12", "the capital of France", "naïve café", "東京", "1234567", "don't", "x_i", "🙂 ok"]
COMPLETIONS = ["positive", "19", "Paris.", " yes", "\nno", "", "  two blanks", "'s", "ing", "\u0301 accent", "京都", "🙃",
               "0", ")", "\t", "lower UPPER", "</s>", "<|endoftext|>", ".", "é"]


def make_rows():
    rng = random.Random(12)
    rows = []
    for i in range(100):
        prompt = HEADS[i % 10].format(WORDS[i // 10])
        completion = COMPLETIONS[rng.randrange(len(COMPLETIONS))] if i >= 20 else COMPLETIONS[i]
        rows.append({"prompt": prompt, "completion": completion})
        rows.append({"prompt": prompt + " ", "completion": completion})
    return rows


def prepare(tokenizer_file, eos, bos, rows):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), eos_token=eos, bos_token=bos, pad_token=eos)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1)
    with tempfile.TemporaryDirectory() as folder:
        args = trl.SFTConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", max_length=1024)
        trainer = trl.SFTTrainer(LlamaForCausalLM(config), args=args, train_dataset=Dataset.from_list(rows),
                                 processing_class=tokenizer)
        return [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]


def write(name, samples):
    with open(HERE / f"{name}.jsonl", "w") as file:
        for ids, labels in samples:
            first = next((i for i, label in enumerate(labels) if label != -100), len(ids))
            assert labels == [-100] * first + ids[first:], (name, ids, labels)
            file.write(json.dumps([first, ids], separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path)
    shared = parser.parse_args().shared
    print("trl", trl.__version__, "transformers", transformers.__version__)
    rows = make_rows()
    with open(HERE / "rows.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    for name, (eos, bos) in COMMITTED.items():
        write(name, prepare(HERE.parent / "tokenizer" / name / "tokenizer.json", eos, bos, rows))
    for name, (eos, bos) in SHARED.items() if shared else ():
        write(f"shared-{name}", prepare(shared / name / "tokenizer.json", eos, bos, rows))


if __name__ == "__main__":
    main()
