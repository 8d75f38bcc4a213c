#!/usr/bin/env python3
"""Rendering and tokenizing conversations on one core, compared with transformers' apply_chat_template.

    python bench/peers/hf_conversations.py --bench build/bench/bench_conversations ROWS.jsonl FOLDER...

Each FOLDER holds a tokenizer with a chat template. Both sides parse each row's JSON, render and tokenize it, on one thread;
the ids of all rows must be the same. The best of the rounds counts. Prints one JSON line for each folder.
"""
import argparse
import json
import os
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import transformers  # noqa: E402  (after the environment)


def crc64_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0xC96C5795D7870F42 if byte & 1 else 0)
        table.append(byte)
    return table


def crc64(data):
    table, crc = crc64_table(), 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFFFFFFFFFF


def read_all(tokenizer, path):
    ids = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            ids.append(tokenizer.apply_chat_template(json.loads(line)["messages"], return_dict=False))
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="the program bench_conversations")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("rows")
    parser.add_argument("folders", nargs="+")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ours, peer = None, None
        for _ in range(arguments.rounds):  # in turns, so that both meet the same machine
            output = subprocess.check_output([arguments.bench, arguments.rows, folder, "1"], text=True)
            one = json.loads(output)
            ours = one if ours is None or one["seconds"] < ours["seconds"] else ours
            start = time.perf_counter()
            ids = read_all(tokenizer, arguments.rows)
            seconds = time.perf_counter() - start
            peer = seconds if peer is None else min(peer, seconds)
        sum_of_ids = crc64(b"".join(b"".join(i.to_bytes(4, "little") for i in row) for row in ids))
        if ours["sum"] != f"{sum_of_ids:016x}":
            raise SystemExit(f"{folder}: other ids than transformers")
        print(json.dumps({
            "folder": os.path.basename(os.path.normpath(folder)),
            "peer": f"transformers {transformers.__version__}",
            "rows": ours["rows"],
            "ids": ours["ids"],
            "ids_per_second": ours["ids_per_second"],
            "peer_ids_per_second": round(ours["ids"] / peer),
            "ratio": round(peer / ours["seconds"], 1),
        }), flush=True)


if __name__ == "__main__":
    main()
