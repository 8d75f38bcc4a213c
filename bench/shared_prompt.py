#!/usr/bin/env python3
"""Training on pairs whose prompt is a share of the row, with the prompt computed once and for each answer (shared_prompt).
Prints a JSON line for each share: seconds of a step, median of those behind the first two, of runs in alternating order,
and the largest relative difference of a loss.

    bench/shared_prompt.py [--rounds 3] [--steps 6] [--length 512] [--shares 0.5,0.75] [--processor] TRIMTAB CONFIG_JSON [--key value ...]

Every row is a prompt and two answers of random letters, each of which is a token; prompt and answer have --length tokens
together. With --processor the seconds are those that processors worked, also on a busy machine: of a run less one of two
steps. The weights are random. Settings behind CONFIG_JSON are those of `trimtab train`; objective is dpo,
per_device_train_batch_size 4 unless they say otherwise. Files are made in TMPDIR and removed."""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "tests/golden/dpo/tokenizer"


def letters(count):
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=count))


def make_rows(path, rows, length, share):
    """An answer ends with the end token, and the two begin with different letters."""
    random.seed(1)
    prompt = int(length * share)
    answer = length - prompt - 2
    with open(path, "w") as out:
        for _ in range(rows):
            out.write(json.dumps({"prompt": letters(prompt), "chosen": "y" + letters(answer),
                                  "rejected": "n" + letters(answer)}) + "\n")


def make_model(folder, config):
    folder.mkdir()
    shutil.copy(config, folder / "config.json")
    for name in os.listdir(TOKENIZER):
        shutil.copy(TOKENIZER / name, folder / name)


def run(options, folder, shared, more, steps):
    output = folder / "output"
    command = [options.trimtab, "train", "--objective", "dpo", "--model_name_or_path", str(folder / "model"),
               "--init", "random", "--dataset_name", str(folder / "rows.jsonl"), "--output_dir", str(output),
               "--overwrite_output_dir", "true", "--max_steps", str(steps), "--logging_steps", "1",
               "--save_strategy", "no", "--learning_rate", "1e-5", "--max_length", str(options.length),
               "--per_device_train_batch_size", "4", "--shared_prompt", shared, *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    rows = json.loads((output / "trainer_state.json").read_text())["log_history"]
    rows = [row for row in rows if "tokens_per_second" in row and "loss" in row]
    tokens = [row["num_tokens"] for row in rows]
    each = [b - a for a, b in zip([0] + tokens, tokens)]
    seconds = [n / row["tokens_per_second"] for n, row in zip(each, rows)]
    return [row["loss"] for row in rows], statistics.median(seconds[2:] or seconds), used.ru_utime + used.ru_stime


def measure(options, folder, shared, more):
    """The losses, and the seconds of a step."""
    losses, seconds, worked = run(options, folder, shared, more, options.steps)
    if options.processor:
        seconds = (worked - run(options, folder, shared, more, 2)[2]) / (options.steps - 2)
    return losses, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--shares", default="0.5,0.75")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("trimtab")
    parser.add_argument("config")
    options, more = parser.parse_known_args()
    for share in (float(word) for word in options.shares.split(",")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            make_model(folder / "model", options.config)
            make_rows(folder / "rows.jsonl", 64, options.length, share)
            seconds = {"true": [], "false": []}
            worst = 0.0
            for _ in range(options.rounds):
                losses = {}
                for shared in seconds:
                    losses[shared], step = measure(options, folder, shared, more)
                    seconds[shared].append(step)
                for a, b in zip(losses["true"], losses["false"]):
                    worst = max(worst, abs(a - b) / abs(b))
            shared, alone = (statistics.median(seconds[key]) for key in ("true", "false"))
            print(json.dumps({"share": share, "length": options.length, "shared_seconds": round(shared, 4),
                              "alone_seconds": round(alone, 4), "times_faster": round(alone / shared, 3),
                              "of_each_round": [round(a / b, 3) for a, b in zip(seconds["false"], seconds["true"])],
                              "loss_difference": worst}), flush=True)


if __name__ == "__main__":
    main()
