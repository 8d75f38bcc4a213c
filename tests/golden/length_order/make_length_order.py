#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes cases.json: what transformers' get_length_grouped_indices makes of permutations.

    [{"batch": B, "lengths": [...], "permutation": [...], "order": [...]}, ...]

`permutation` is torch.randperm of the generator that the function gets.

How to run, with transformers 5.24.0 and torch 2.15.0:

    python tests/golden/length_order/make_length_order.py
"""

import json
import random
from pathlib import Path

import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

CASES = [(1, 1, 9), (3, 8, 9), (64, 4, 50), (500, 2, 30), (1000, 1, 1000), (257, 8, 3), (31, 4, 12)]

random.seed(5)
lines = []
for seed, (count, batch, longest) in enumerate(CASES):
    lengths = [random.randint(1, longest) for _ in range(count)]
    permutation = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    order = get_length_grouped_indices(lengths, batch, generator=torch.Generator().manual_seed(seed))
    assert sorted(order) == list(range(count))
    lines.append(json.dumps({"batch": batch, "lengths": lengths, "permutation": permutation, "order": order}))
(Path(__file__).parent / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
