#!/usr/bin/env python3
"""Speed per core of this project's tokenizers and of the Hugging Face tokenizers library, side by side in one run.

    python bench/peers/hf_tokenizers.py --bench build/bench/bench_tokenizer TEXT FOLDER...

Each FOLDER holds a tokenizer.json. Needs `tokenizers`; both sides run on one thread, the ids must be the same in number,
and each side's best of five rounds counts. Prints one JSON line per tokenizer with both speeds in MB/s and their ratio.
"""
import argparse
import json
import os
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402  (after the environment)

ROUNDS = 5


def best(function):
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(folder, text):
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    lines = text.splitlines(keepends=True)
    megabytes = len(text.encode()) / 1e6
    ids = tokenizer.encode(text).ids
    return {
        "ids": len(ids),
        "whole": megabytes / best(lambda: tokenizer.encode(text)),
        "lines": megabytes / best(lambda: [tokenizer.encode(line) for line in lines]),
        "batch": megabytes / best(lambda: tokenizer.encode_batch_fast(lines)),
        "decode": megabytes / best(lambda: tokenizer.decode(ids, skip_special_tokens=False)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="the program bench_tokenizer")
    parser.add_argument("text")
    parser.add_argument("folders", nargs="+")
    arguments = parser.parse_args()
    # newline="": the text must reach both sides byte for byte.
    with open(arguments.text, encoding="utf-8", newline="") as file:
        text = file.read()
    for folder in arguments.folders:
        ours = json.loads(subprocess.check_output([arguments.bench, arguments.text, folder], text=True))
        peer = measure(folder, text)
        if ours["ids"] != peer["ids"]:
            raise SystemExit(f"{folder}: {ours['ids']} ids here, {peer['ids']} in the reference library")
        fastest = max(peer["lines"], peer["batch"])
        print(json.dumps({
            "tokenizer": os.path.basename(os.path.normpath(folder)),
            "peer": f"tokenizers {tokenizers.__version__}",
            "bytes": ours["bytes"],
            "lines_MB_per_s": ours["lines_MB_per_s"],
            "peer_lines_MB_per_s": round(peer["lines"], 2),
            "peer_batch_MB_per_s": round(peer["batch"], 2),
            "lines_ratio": round(ours["lines_MB_per_s"] / fastest, 2),
            "whole_MB_per_s": ours["whole_MB_per_s"],
            "peer_whole_MB_per_s": round(peer["whole"], 2),
            "whole_ratio": round(ours["whole_MB_per_s"] / peer["whole"], 2),
            "decode_MB_per_s": ours["decode_MB_per_s"],
            "peer_decode_MB_per_s": round(peer["decode"], 2),
        }))


if __name__ == "__main__":
    main()
