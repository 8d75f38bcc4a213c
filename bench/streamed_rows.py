#!/usr/bin/env python3
"""Memory of a run over files that are larger than it: N files of 1 GB (hard links of one), read and tokenized into
dataset_prepared_path, a second run from there, and one that reads all of them while it trains (streaming). Prints a JSON
line for each.

    bench/streamed_rows.py [--memory BYTES] TRIMTAB MODEL [N ...]        MODEL: a model folder with a chat template

Each row is a conversation of 24 words beside a column of 66 KB that nobody reads, so that 50 GB take a minute of a
processor; the run that streams cuts them at 16 tokens, and trains on every row. "anonymous_MB" is the most memory that is
not a mapped file, "resident_MB" with the pages of mapped files, which the system takes back when it needs them; every run
has a limit of 300 MB (RLIMIT_DATA). With --memory each run is in a control group that may have so much memory, the pages of
the files that it reads and writes among it, and no swap; "group_MB" is the most that it had. That needs root.
Files are made in TMPDIR and removed.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time

FILE_BYTES = 1_000_000_000
LIMIT = 300_000_000


def make_rows(path):
    random.seed(1)
    words = ["".join(random.choices("abcdefghijklmnop", k=random.randint(2, 9))) for _ in range(3000)]
    filler = " ".join(random.choices(words, k=11000))
    written = 0
    with open(path, "w") as rows:
        while written < FILE_BYTES:
            user, assistant = (" ".join(random.choices(words, k=12)) for _ in range(2))
            row = {"raw": filler[written % 499:], "messages": [{"role": "user", "content": user},
                                                               {"role": "assistant", "content": assistant}]}
            written += rows.write(json.dumps(row) + "\n")


def forget(path):
    """Takes the pages of a file out of the system's cache: they belong to the control group that reads them again."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak_while(process):
    """The most anonymous and resident memory of a process in MB, looked up every 50 ms until it ends."""
    peak, resident = 0, 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        peak = max([peak] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")])
        resident = max([resident] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")])
        time.sleep(0.05)
    return peak / 1024, resident / 1024


STREAM = ["--streaming", "true", "--buffer_size", "1000", "--max_length", "16", "--per_device_train_batch_size", "64"]


class Group:
    """A control group with a limit, of version 2 or 1. One that cannot be made ends the program."""

    def __init__(self, limit):
        second = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self.folder = pathlib.Path("/sys/fs/cgroup" if second else "/sys/fs/cgroup/memory") / f"trimtab-rows-{os.getpid()}"
        self.peak = "memory.peak" if second else "memory.max_usage_in_bytes"
        self.folder.mkdir()
        (self.folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(limit))
        swap = self.folder / ("memory.swap.max" if second else "memory.memsw.limit_in_bytes")
        if swap.exists():
            swap.write_text("0" if second else str(limit))

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self):
        """The most bytes that it had."""
        peak = int((self.folder / self.peak).read_text())
        self.folder.rmdir()
        return peak


def run(trimtab, model, work, files, memory, rows=0):
    """`rows`: of the files, which are then read while they train."""
    words = [trimtab, "train", "--model_name_or_path", model, "--dataset_name", f"{work}/rows", "--device", "cpu",
             "--threads", "1", "--output_dir", f"{work}/out", "--overwrite_output_dir", "--report_to", "none",
             "--save_strategy", "no"]
    words += STREAM + ["--max_steps", str(rows // 64)] if rows else [
        "--dataset_prepared_path", f"{work}/prepared", "--max_steps", "1", "--per_device_train_batch_size", "1"]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    group = Group(memory) if memory else None
    if group:
        forget(f"{work}/part.jsonl")

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
        if group:
            group.enter()

    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr))
    reader.start()
    peak, resident = peak_while(process)
    reader.join()
    most = {"group_MB": round(group.leave() / 1e6, 1), "group_limit_MB": round(memory / 1e6, 1)} if group else {}
    if process.returncode != 0:
        sys.exit(f"exit {process.returncode}\n" + "".join(lines))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    trained = rows // 64 * 64 if rows else int(next(line.split()[2] for line in lines if line.startswith("training data:")))
    print(json.dumps({"files": files, "rows": trained, "streams": rows > 0,
                      "from_prepared_rows": any("tokenized rows from" in line for line in lines),
                      "seconds": round(time.perf_counter() - start, 1),
                      "processor_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
                      "anonymous_MB": round(peak, 1), "resident_MB": round(resident, 1), "limit_MB": LIMIT // 1_000_000} | most), flush=True)
    return trained


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("trimtab", type=os.path.abspath)
    parser.add_argument("model", type=os.path.abspath)
    parser.add_argument("files", type=int, nargs="*", default=[1, 10, 50])
    options = parser.parse_args()
    trimtab, model = options.trimtab, options.model
    with tempfile.TemporaryDirectory() as work:
        make_rows(f"{work}/part.jsonl")
        for files in options.files:
            os.mkdir(f"{work}/rows")
            for i in range(files):
                os.link(f"{work}/part.jsonl", f"{work}/rows/train-{i:05d}.jsonl")
            rows = run(trimtab, model, work, files, options.memory)
            run(trimtab, model, work, files, options.memory)
            run(trimtab, model, work, files, options.memory, rows)
            for folder in ("rows", "prepared", "out"):
                subprocess.run(["rm", "-r", f"{work}/{folder}"], check=True)


main()
