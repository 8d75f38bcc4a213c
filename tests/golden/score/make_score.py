#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the references of models whose head gives scores, with transformers on the CPU, in fp32 and on one thread:

    NAME/model/                  a tiny random model of class ...ForSequenceClassification, its weights in fp32
    NAME/reference.safetensors   seq_lens, input_ids, and scores: the logits of all sequences as one batch that is
                                 padded at its end, fp32

`labels` has three labels; `plain` has transformers' two, which its config.json does not name, in a family that ties
embeddings and head and caps logits: neither reaches the scores.

How to run, in a virtual environment with torch, transformers and safetensors:

    OMP_NUM_THREADS=1 python tests/golden/score/make_score.py
"""

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
LENGTHS = (5, 1, 12)
SHAPE = {"vocab_size": 48, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}


def make(name, config, model_class, seed):
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.2)
    rows = [torch.randint(3, SHAPE["vocab_size"], (length,)) for length in LENGTHS]
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.no_grad():
        scores = model(input_ids=batch, attention_mask=mask).logits
    folder = HERE / name
    model.save_pretrained(folder / "model")
    save_file({"seq_lens": torch.tensor(LENGTHS), "input_ids": torch.cat(rows), "scores": scores},
              folder / "reference.safetensors")


def main():
    torch.set_num_threads(1)
    labels = {0: "bad", 1: "fair", 2: "good"}
    make("labels", transformers.LlamaConfig(**SHAPE, id2label=labels, label2id={v: k for k, v in labels.items()}),
         transformers.LlamaForSequenceClassification, 1)
    make("plain", transformers.Gemma2Config(**SHAPE, final_logit_softcapping=0.3, sliding_window=4,
                                            tie_word_embeddings=True),
         transformers.Gemma2ForSequenceClassification, 2)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}))


main()
