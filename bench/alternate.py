#!/usr/bin/env python3
"""Two builds in turns, on the same commands: their medians and the ratio.

    python3 bench/alternate.py --builds A B [--turns 3] [--out LOGS] CASE ...

A and B are folders with `trimtab`, and `libtrimtab_cuda.so` where they have the plugin. A case is NAME=ARGUMENTS: the
arguments of `trimtab bench train` without the word, "l8b=--config_json bench/shapes/l8b.json --steps 8". In odd turns B is
first. Figures: medians of step_seconds and of the processors' seconds in the program's own code (of the whole call), and of
the last turn the bytes of the device and the seconds to the end of the first step.
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(build, arguments, log):
    plugin = build / "libtrimtab_cuda.so"
    environment = {**os.environ, **({"TRIMTAB_CUDA_PLUGIN": str(plugin)} if plugin.exists() else {})}
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with open(log, "w") as err:
        done = subprocess.run([str(build / "trimtab"), "bench", "train", *arguments], cwd=ROOT, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=err)
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        sys.exit(f"error: {build}/trimtab ended with {done.returncode}; its messages are in {log}")
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {**json.loads(rows[-1]), "user_seconds": user}


def seconds_of(row):
    step = row["step_seconds"]
    return step["median"] if isinstance(step, dict) else step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", nargs=2, type=pathlib.Path, required=True)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("alternate-logs"))
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    builds = [build.resolve() for build in options.builds]
    print(f"{'case':<16} {'A s':>9} {'B s':>9} {'B/A':>7} {'A user':>8} {'B user':>8} {'A GB':>7} {'B GB':>7} {'A first':>8} "
          f"{'B first':>8}", flush=True)
    for case in options.cases:
        name, arguments = case.split("=", 1)
        rows = ([], [])
        for turn in range(options.turns):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                log = options.out / f"{name}.{'AB'[side]}{turn}.err"
                rows[side].append(run(builds[side], shlex.split(arguments), log))
        (options.out / f"{name}.json").write_text(json.dumps(rows) + "\n")
        a, b = (statistics.median(map(seconds_of, side)) for side in rows)
        user = [statistics.median(row["user_seconds"] for row in side) for side in rows]
        gb = [side[-1].get("device_peak_bytes", 0) / 1e9 for side in rows]
        first = [side[-1].get("first_step_seconds", 0.0) for side in rows]
        print(f"{name:<16} {a:9.4f} {b:9.4f} {b / a:7.4f} {user[0]:8.2f} {user[1]:8.2f} {gb[0]:7.2f} {gb[1]:7.2f} {first[0]:8.2f} "
              f"{first[1]:8.2f}", flush=True)


main()
