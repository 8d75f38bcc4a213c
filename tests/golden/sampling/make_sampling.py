#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/sampling/processors.json: what transformers' logits processors leave of a distribution.

Each case has "logits" (float32), "past" (ids of the prompt and the answer), "settings", and "kept": the ids with a
probability above 0 and their probabilities, the likeliest first. The processors are those that generate() builds from
a GenerationConfig, in its order. How to run, with transformers 5.17.0:

    python tests/golden/sampling/make_sampling.py
"""

import json
import random
from pathlib import Path

import torch
from transformers import GenerationConfig, GenerationMixin

HERE = Path(__file__).resolve().parent
VOCAB = 40
SETTINGS = [
    {},
    {"temperature": 0.3},
    {"temperature": 1.7},
    {"top_k": 1},
    {"top_k": 7},
    {"top_p": 0.2},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"min_p": 0.4},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"temperature": 1.4, "top_k": 12, "top_p": 0.8},
    {"temperature": 0.8, "top_p": 0.95, "min_p": 0.1},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.8},
]


class Builder(GenerationMixin):
    """What _get_logits_processor needs of a model."""

    class config:
        is_encoder_decoder = False

    config = config()


def kept_of(logits, past, settings):
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **settings})
    processors = Builder()._get_logits_processor(
        generation_config=config, input_ids_seq_length=len(past), device="cpu"
    )
    scores = processors(torch.tensor([past]), torch.tensor([logits], dtype=torch.float32))
    shares = torch.softmax(scores[0].double(), -1)
    order = sorted(range(VOCAB), key=lambda v: -shares[v])
    return [[v, float(shares[v])] for v in order if shares[v] > 0]


def main():
    rng = random.Random(5)
    cases = []
    for settings in SETTINGS:
        for _ in range(2):
            logits = torch.tensor([rng.gauss(0, 2.5) for _ in range(VOCAB)], dtype=torch.float32).tolist()
            past = [rng.randrange(VOCAB) for _ in range(12)]
            cases.append({"settings": settings, "logits": logits, "past": past, "kept": kept_of(logits, past, settings)})
    with open(HERE / "processors.json", "w") as out:
        out.write('{"transformers": "5.17.0", "cases": [\n')
        out.write(",\n".join(json.dumps(case) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
