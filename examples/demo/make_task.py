#!/usr/bin/env python3
"""Writes the demo's task: orders in plain words (prompt) and the record that a shop keeps of them (completion).

    python3 make_task.py --out data [--train 3000] [--test 200] [--seed 7]

data/train.jsonl and data/test.jsonl share no first name, no last name, no street and no goods; this is checked.
"""
import argparse
import json
import pathlib
import random

from world import World, clock, price


def record_json(record):
    """The record: keys in this order, one spelling for each value."""
    text = json.dumps(
        {"name": record["who"], "item": record["item"], "count": record["count"], "day": record["day"][:3],
         "time": clock(record["minutes"]), "place": record["place"]},
        ensure_ascii=False, separators=(",", ":"))
    return text[:-1] + f',"price":{price(record["cents"])}}}'


def rows(count, seed, held_out):
    world = World(random.Random(seed), held_out)
    facts, lines, seen = [], [], set()
    while len(lines) < count:
        record = world.record()
        sentence, _ = world.order(record)
        if sentence in seen:
            continue
        seen.add(sentence)
        facts.append(record)
        completion = record_json(record)
        json.loads(completion)
        lines.append(json.dumps({"prompt": sentence + "\n", "completion": completion}, ensure_ascii=False))
    return facts, lines


def names(facts):
    """Everything in the records that is a name."""
    found = set()
    for record in facts:
        first, last = record["who"].split()
        found |= {("first", first), ("last", last), ("street", record["place"].split(" ")[1]),
                  ("item", record["item"])}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder for train.jsonl and test.jsonl")
    parser.add_argument("--train", type=int, default=3000)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    train_facts, train = rows(args.train, args.seed, False)
    test_facts, test = rows(args.test, args.seed + 1, True)
    shared = names(train_facts) & names(test_facts)
    if shared:
        raise SystemExit(f"training and held-out rows share names: {sorted(shared)[:5]}")
    folder = pathlib.Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train.jsonl", train), ("test.jsonl", test)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{folder / name}: {len(lines)} rows")


if __name__ == "__main__":
    main()
