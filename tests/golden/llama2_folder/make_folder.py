#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/llama2_folder/: a model folder as transformers 5 saves it for a Llama-2-type tokenizer.

    model/       config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json: a random
                 model in bfloat16 and the tokenizer of ../tokenizer/llama2, both by save_pretrained
    train.jsonl  rows of prompt and completion
    first.txt    ids of the first row's prompt and completion, with BOS and EOS, by the tokenizer that AutoTokenizer loads

How to run, after make_tokenizers.py, with transformers 5.17.0:

    python tests/golden/llama2_folder/make_folder.py
"""

import json
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, LlamaTokenizerFast

HERE = Path(__file__).resolve().parent
ROWS = [
    {"prompt": f"The king asked number {i}:", "completion": f" {i} ships will come before the {word}."}
    for i, word in enumerate(["night", "queen", "war", "feast", "storm", "morning", "end", "battle"])
]


def main():
    tokenizer = LlamaTokenizerFast(tokenizer_file=str(HERE.parent / "tokenizer/llama2/tokenizer.json"))
    torch.manual_seed(2)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(HERE / "model")
    tokenizer.save_pretrained(HERE / "model")
    (HERE / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    loaded = AutoTokenizer.from_pretrained(HERE / "model")
    ids = loaded(ROWS[0]["prompt"] + ROWS[0]["completion"] + loaded.eos_token)["input_ids"]
    (HERE / "first.txt").write_text(" ".join(map(str, ids)) + "\n")


if __name__ == "__main__":
    main()
