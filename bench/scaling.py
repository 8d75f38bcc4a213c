#!/usr/bin/env python3
"""Training steps over the GPUs of one host, beside each GPU alone: one table, logs kept.

    python3 bench/scaling.py --trimtab build/trimtab --out LOGS [--gpus N] [--steps 8] [--budget 540] CASE ...

A case is SHAPE-BASE:FORM[:SETTING=VALUE ...]:

    SHAPE      11b (4 x 4096 tokens, r 8 on the linears of attention), 8b (2 x 4096, r 16), 70b (1 x 8192, r 16),
               30b (Qwen3-30B-A3B, 4 x 4096, r 16), 119b (Mistral-Small-4, 4 x 4096, r 8), tiny (to try it)
    BASE       bf16, fp8, nf4
    FORM       alone: a process on each GPU, all at the same time, each a run of its own
               threads: all GPUs in one process; processes: a process a GPU, as torchrun starts them
               fsdp2: bench/peers/hf_gpu_lora.py under torchrun, compiled
    SETTING    any setting of trimtab bench train: 11b-bf16:threads:sharding_strategy=NO_SHARD

`alone` comes first for its column of shares. A share is the mean of a GPU of the case over the mean of the GPUs alone.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {  # config, batch, sequence, rank
    "11b": ("m11b", 4, 4096, 8),
    "8b": ("l8b", 2, 4096, 16),
    "70b": ("l70b", 1, 8192, 16),
    "30b": ("qwen3_30b_a3b", 4, 4096, 16),
    "119b": ("mistral_small_4", 4, 4096, 8),
    "tiny": ("tiny", 2, 64, 8),
}
ATTENTION = {"mistral_small_4": "q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj"}  # others: as Llama names them
BASES = {"bf16": [], "fp8": ["--base_dtype", "fp8"],
         "nf4": ["--load_in_4bit", "true", "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_use_double_quant", "true"]}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Runner:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.rows = []
        self.alone = {}

    def left(self):
        return self.options.budget - (time.monotonic() - self.begin)

    def flags(self, shape, base, settings):
        config, batch, sequence, rank = SHAPES[shape]
        flags = ["bench", "train", "--device", self.options.device, "--config_json", str(ROOT / f"bench/shapes/{config}.json"),
                 "--per_device_train_batch_size", str(batch), "--sequence_length", str(sequence), "--lora_r", str(rank),
                 "--lora_alpha", str(2 * rank), "--lora_dropout", "0", "--lora_target_modules",
                 ATTENTION.get(config, "q_proj,k_proj,v_proj,o_proj"),
                 "--steps", str(self.options.steps), "--warmup", str(self.options.warmup), *BASES[base]]
        for setting in settings:
            name, value = setting.split("=", 1)
            flags += [f"--{name}", value]
        return flags

    def commands(self, shape, base, form, settings):
        """[(command, variables)] of the processes of a case."""
        gpus, trimtab = self.options.gpus, [self.options.trimtab]
        flags = self.flags(shape, base, settings)
        if form == "alone":
            return [(trimtab + flags + ["--ranks", "1"], {"CUDA_VISIBLE_DEVICES": str(gpu)}) for gpu in range(gpus)]
        if form == "threads":
            return [(trimtab + flags + ["--ranks", str(gpus)], {})]
        if form == "processes":
            port = str(free_port())
            return [(trimtab + flags, {"RANK": str(gpu), "LOCAL_RANK": str(gpu), "WORLD_SIZE": str(gpus),
                                       "LOCAL_WORLD_SIZE": str(gpus), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                    for gpu in range(gpus)]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(gpus)]
        config, batch, sequence, rank = SHAPES[shape]
        if form == "fsdp2":
            return [(launcher + [str(ROOT / "bench/peers/hf_gpu_lora.py"), "--shape", config, "--bs", str(batch), "--seq",
                                 str(sequence), "--lora-r", str(rank), "--targets", "q_proj,k_proj,v_proj,o_proj", "--ckpt", "0",
                                 "--compile", "1", "--steps", str(self.options.steps), "--warmup", str(self.options.warmup)], {})]
        sys.exit(f"error: there is no form '{form}'")

    def run(self, case):
        name, *settings = case.split(":")
        shape, base = name.split("-")
        form, settings = settings[0], settings[1:]
        limit = min(self.left(), self.options.limit)
        if limit < 5:
            print(f"{case}: not run, the budget is spent", flush=True)
            return
        label = case.replace(":", ".").replace("=", "-").replace("/", "_")
        begin, processes = time.monotonic(), []
        for number, (command, variables) in enumerate(self.commands(shape, base, form, settings)):
            log = self.options.out / f"{label}.{number}"
            with open(f"{log}.out", "w") as out, open(f"{log}.err", "w") as err:
                processes.append((log, subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **variables})))
        for log, process in processes:
            try:
                process.wait(max(1.0, limit - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                process.kill()
        lines = []
        for log, process in processes:
            rows = [line for line in pathlib.Path(f"{log}.out").read_text().splitlines() if line.startswith("{")]
            if rows:
                lines.append(json.loads(rows[-1]))
            elif process.returncode != 0:
                said = pathlib.Path(f"{log}.err").read_text().splitlines()
                errors = [line for line in said if line.startswith("error")] or said[-3:]
                print(f"{case}: exit code {process.returncode}: {' | '.join(errors)[:400]}", flush=True)
        if lines:
            self.record(case, name, form, lines)
        print(f"{case}: {time.monotonic() - begin:.0f} s, {self.left():.0f} s left", flush=True)

    def record(self, case, name, form, lines):
        gpus, first = self.options.gpus, lines[0]
        if form == "fsdp2":
            rates = [first["tok_s_gpu"]]
        elif form == "alone":
            rates = [line["tokens_per_second"] for line in lines]
        else:
            rates = [first["tokens_per_second"] / gpus]
        mean = sum(rates) / len(rates)
        if form == "alone" and len(lines) == gpus:
            self.alone[name] = mean
        gathers = first.get("gathers", {})
        self.rows.append({
            "case": case, "tokens_per_second": mean, "least": min(rates),
            "share": mean / self.alone[name] if name in self.alone else None,
            "peak_gb": first.get("device_peak_bytes", 0) / 1e9 or first.get("peak_gb"),
            "used_gb": first.get("device_used_bytes", 0) / 1e9 or None,
            "step": first.get("step_seconds") if isinstance(first.get("step_seconds"), float) else None,
            "planned": first.get("planned_step_seconds"), "plan_s": first.get("plan_seconds"),
            "load_s": first.get("load_seconds"), "first_s": first.get("first_step_seconds", first.get("first_step_s")),
            "median_ms": gathers.get("median_seconds", 0) * 1e3 or None,
            "longest_ms": gathers.get("longest_seconds", 0) * 1e3 or None,
            "wait_ms": first.get("seconds_by_op", {}).get("gather_wait", 0) * 1e3 or None,
            "recompute": first.get("recompute", "")})

    def report(self):
        columns = [("case", "", 44), ("tokens_per_second", ".0f", 8), ("least", ".0f", 8), ("share", ".3f", 6), ("peak_gb", ".1f", 8),
                   ("used_gb", ".1f", 8), ("step", ".4f", 7), ("planned", ".4f", 8), ("plan_s", ".2f", 7), ("load_s", ".1f", 7),
                   ("first_s", ".1f", 8), ("median_ms", ".2f", 10), ("longest_ms", ".2f", 11), ("wait_ms", ".2f", 8)]
        print("\n" + " ".join(f"{'tokens/s' if key == 'tokens_per_second' else key:>{width}}" for key, _, width in columns)
              + " recompute")
        for row in self.rows:
            cells = ["-" if row[key] is None else format(row[key], form) for key, form, _ in columns]
            print(" ".join(f"{cell:>{width}}" for cell, (_, _, width) in zip(cells, columns)) + " " + row["recompute"])
        (self.options.out / "scaling.json").write_text(json.dumps(self.rows, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trimtab", default=str(ROOT / "build/trimtab"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("scaling-logs"))
    parser.add_argument("--gpus", type=int, default=0, help="0: all that nvidia-smi lists")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--budget", type=float, default=540.0, help="seconds of all cases")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of a case")
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if options.gpus == 0:
        options.gpus = len(subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True).stdout.splitlines())
    runner = Runner(options)
    for case in options.cases:
        runner.run(case)
    runner.report()


main()
