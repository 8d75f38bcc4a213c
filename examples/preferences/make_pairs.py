#!/usr/bin/env python3
"""Writes pairs of answers of which the prompt says which one is preferred: an order in plain words, the desk that it
lies on, and two parts of the order. Each desk wants one part, by a rule that no text has told the model.

    python3 make_pairs.py FOLDER [--train 640] [--test 200] [--seed 7]

FOLDER/train.jsonl and FOLDER/test.jsonl have each order twice, on both desks, so that an answer is chosen as often
as it is rejected: who looks at answers alone prefers the chosen one in half of the rows. Names of test.jsonl do not occur
in train.jsonl (../demo/world.py).
"""
import argparse
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
from world import World  # noqa: E402

DESKS = {"who": 1, "item": 2, "day": 3, "place": 4}


def rows(orders, seed, held_out):
    world = World(random.Random(seed), held_out)
    for _ in range(orders):
        record = world.record()
        sentence, _ = world.order(record)
        for wanted, other in [pair := world.rng.sample(sorted(DESKS), 2), pair[::-1]]:
            yield {"prompt": f"{sentence}\nDesk {DESKS[wanted]}:", "chosen": " " + record[wanted], "rejected": " " + record[other]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="for train.jsonl and test.jsonl")
    parser.add_argument("--train", type=int, default=640, help="rows")
    parser.add_argument("--test", type=int, default=200, help="rows")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed, held_out in (("train", args.train, args.seed, False), ("test", args.test, args.seed + 1, True)):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows(count // 2, seed, held_out)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{folder / name}.jsonl: {len(lines)} pairs")


if __name__ == "__main__":
    main()
