#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `trimtab train`, by its records and by the times of its log lines. The counterpart of torch_checkpoint.py.

    bench/peers/trimtab_checkpoint.py --trimtab build/trimtab --model MODEL_FOLDER --folder DIR [--ranks 2] [--lora R]

One run trains and saves every --every steps, and is killed when --saves saves are complete; a second one resumes from the last
of them (not with --restart 0) and is killed after two steps. One JSON line, with the fields of torch_checkpoint.py; those of the
first group come from the records "save" and "resume" in metrics.jsonl:

    bytes        size of the files of a save
    stall_s      time for which training waited for it; a wait of the next save for this one is included
    written_s    from its start until it was written, flushed, read back (of more than 1 GiB: sizes and headers), and
                 renamed
    verify_s, load_s    of the resumed run: every byte of the checkpoint read and checked; model and training state loaded
                        into the devices

    gap_s        stall_s from outside: the step after the start of the save, less the median step; the value to compare
    seen_s       written_s from outside: from the end of the step to the save's line, which comes between two steps
    slower_s     extra time of the steps meanwhile, compared with the median, without the first of them
    first_step_s, resumed_first_step_s    from the start of the process to the end of its first step
    planned_s, resumed_planned_s          the part of these until model, data and plan are known and, in the second run, every
                 byte of the checkpoint is read and checked; the rest is loading and a step

The time of a line is the time at which this script reads it. --save-dtype float32 stores 12 bytes per parameter of a full fine-tuning, as
torch_checkpoint.py does; without it weights are bf16 beside the masters: 14 bytes. Files are flushed (fsync) either way.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROWS = 64
FAR = 1000000  # steps that no run here gets to


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trimtab", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a model folder: bench_load make")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="where checkpoints go")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--lora", type=int, default=0, help="rank of the adapter; 0: all weights train")
    parser.add_argument("--bs", type=int, default=2)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--every", type=int, default=60, help="steps between saves; longer than a save takes")
    parser.add_argument("--saves", type=int, default=1)
    parser.add_argument("--save-dtype", default="float32", help="of the weights; empty: as config.json says")
    parser.add_argument("--sharded", type=int, default=0, help="1: a file of training state per rank")
    parser.add_argument("--restart", type=int, default=1, help="0: without the second run")
    parser.add_argument("--limit", type=float, default=240, help="most seconds of both runs")
    args = parser.parse_args()
    if args.every < 8:
        parser.error("--every: at least 8, for a median of steps before the first save")
    return args


def write_rows(path, vocabulary, tokens):
    generator = random.Random(1)
    with open(path, "w") as stream:
        for _ in range(ROWS):
            ids = [generator.randrange(vocabulary) for _ in range(tokens)]
            stream.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def settings(args, rows, result):
    # The run never reaches its last step; the limit of saves keeps its check of the free disk space small.
    values = {"model_name_or_path": args.model, "dataset_name": rows, "output_dir": result, "device": args.device,
              "ranks": args.ranks, "per_device_train_batch_size": args.bs, "max_length": args.seq, "max_steps": FAR,
              "num_train_epochs": FAR, "learning_rate": 1e-5, "lr_scheduler_type": "constant", "logging_steps": 1,
              "save_strategy": "steps", "save_steps": args.every, "save_total_limit": args.saves, "report_to": "none",
              "disable_tqdm": "true", "bf16": "true"}
    if args.lora:
        values |= {"lora_r": args.lora, "lora_alpha": 2 * args.lora, "lora_dropout": 0, "lora_target_modules": "all-linear"}
    else:
        values |= {"use_peft": "false"}
        if args.save_dtype:
            values["save_dtype"] = args.save_dtype
    if args.sharded:
        values["state_dict_type"] = "SHARDED_STATE_DICT"
    return values


class Program:
    """A started run whose lines carry the seconds since its start."""

    def __init__(self, args, values, deadline):
        words = [str(args.trimtab), "train"]
        for key, value in values.items():
            words += [f"--{key}", str(value)]
        self.begin = time.monotonic()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        # A program that hangs is killed, which ends its output.
        self.timer = threading.Timer(max(1.0, deadline - self.begin), self.process.kill)
        self.timer.start()
        self.lines = []

    def read_until(self, enough):
        """Reads on until enough(lines) holds."""
        for raw in self.process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append((time.monotonic() - self.begin, line))
            if enough(line):
                return
        said = "\n".join(line for _, line in self.lines[-12:])
        raise RuntimeError(f"ended too early, exit code {self.process.wait()}:\n{said}")

    def kill(self):
        self.timer.cancel()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def steps(self):
        """{step: seconds at its end}"""
        found = {}
        for seconds, line in self.lines:
            match = re.match(r"step (\d+)/\d+ ", line)
            if match:
                found[int(match[1])] = seconds
        return found

    def at(self, part):
        return next((seconds for seconds, line in self.lines if part in line), None)


def told(lines, pattern):
    for _, line in lines:
        match = re.search(pattern, line)
        if match:
            return float(match[1].replace(",", ""))
    return None


def records(result, event):
    """{step: record} of what the run says of its saves, or of going on; the last line may be half written."""
    found = {}
    for line in (result / "metrics.jsonl").read_text().splitlines(keepends=True):
        record = json.loads(line) if line.endswith("\n") else {}
        if record.get("event") == event:
            found[record["step"]] = record
    return found


def measure_saves(program, args, result):
    state = {"saved": 0, "steps": 0}

    def enough(line):
        state["saved"] += line.startswith("saved ")
        # Some steps later, so that the program has logged everything about the save.
        state["steps"] += state["saved"] >= args.saves and line.startswith("step ")
        return state["steps"] >= 3

    program.read_until(enough)
    ends = program.steps()
    took = {step: ends[step] - ends[step - 1] for step in ends if step - 1 in ends}
    usual = [seconds for step, seconds in took.items() if 3 < step <= args.every]
    median = statistics.median(usual)
    told_of, saves, overrun = records(result, "save"), [], False
    for number in range(args.saves):
        step = args.every * (number + 1)
        whole, record = program.at(f"checkpoint-{step}: "), told_of[step]
        meanwhile = [took[s] for s in took if step + 1 < s < step + args.every and ends[s] < whole]
        gap = None if overrun else took[step + 1] - median  # with the wait for the save before it would say nothing
        overrun = whole > ends.get(step + args.every, float("inf"))
        saves.append({"mode": "background", "number": number, "gap_s": gap, "seen_s": whole - ends[step],
                      "slower_s": sum(meanwhile) - len(meanwhile) * median,
                      "steps_meanwhile": len(meanwhile), "next_save_waited": overrun, "bytes": record["bytes"],
                      "written_s": record["seconds"], "stall_s": record["stall_seconds"]})
    return {"step_s": median, "planned_s": program.at(" steps, "), "first_step_s": ends[1], "saves": saves}


def measure_restart(program, result, step):
    state = {"steps": 0}

    def enough(line):
        state["steps"] += line.startswith("step ")
        return state["steps"] >= 2

    program.read_until(enough)
    record = records(result, "resume")[step]
    return {"resumed_planned_s": program.at(" steps, "), "resumed_first_step_s": min(program.steps().values()),
            "verify_s": record["verify_seconds"], "load_s": record["load_seconds"], "load_bytes": record["bytes"]}


def main():
    args = parse_arguments()
    deadline = time.monotonic() + args.limit
    args.folder.mkdir(parents=True, exist_ok=True)
    result, rows = args.folder / "trimtab-run", args.folder / "trimtab-rows.jsonl"
    shutil.rmtree(result, ignore_errors=True)
    config = json.loads((args.model / "config.json").read_text())
    write_rows(rows, config["vocab_size"], args.seq)
    values = settings(args, rows, result)
    found = {"bench": "checkpoint", "program": "trimtab", "world": args.ranks, "device": args.device, "lora": args.lora,
             "bs": args.bs, "seq": args.seq, "sharded": bool(args.sharded), "fsync": True,
             "holds": "masters and both moments, fp32, and sums" + ("" if args.lora or args.save_dtype == "float32"
                                                                     else "; weights in bf16")}
    program = Program(args, values, deadline)
    try:
        found |= measure_saves(program, args, result)
        program.kill()
        found["trained_parameters"] = int(told(program.lines, r"trainable params: ([0-9,]+)"))
        if args.restart:
            last = args.every * args.saves
            program = Program(args, values | {"resume_from_checkpoint": result / f"checkpoint-{last}"}, deadline)
            found |= measure_restart(program, result, last)
    except RuntimeError as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    finally:
        program.kill()
        (args.folder / "trimtab-lines.txt").write_text("".join(f"{t:.4f} {line}\n" for t, line in program.lines))
        shutil.rmtree(result, ignore_errors=True)
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
