#!/usr/bin/env python3
"""Whole runs of the trimtab program on GPUs: one loss curve for every split, the curve of the CPU, the same bits twice,
inference, processes, and failures. Needs Python alone.

    tests/gpu/properties.py --trimtab build/trimtab --out FOLDER [--device cuda] [--only WORD] [--jobs N]

Each check is one line of FOLDER/results.tsv: PASS, FAIL or SKIP, its name, its seconds, and what was measured or went
wrong. The output of every run stays in FOLDER. --device cpu runs what does not need a GPU, to try the checks themselves.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
STEPS, SAMPLES = 8, 8  # of a run; of a step, over all ranks
RUN_SECONDS = 120      # no run here takes longer, unless it hangs
END_SECONDS = 30       # from the death of a rank to the end of the others
QUANTIZED = [
    ("nf4, double", "llama2", {"load_in_4bit": "true", "bnb_4bit_use_double_quant": "true"}),
    ("fp4", "qwen2", {"load_in_4bit": "true", "bnb_4bit_quant_type": "fp4"}),
    ("int8", "mistral", {"load_in_8bit": "true"}),
    ("stored nf4", "llama2", {"model_name_or_path": GOLDEN / "qlora/nf4_double"}),
]
STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]
LEVELS = ["none", "cheap", "block", "offload"]
EXIT_USAGE, EXIT_DATA, EXIT_MEMORY, EXIT_DEVICE = 2, 3, 4, 10


class Failure(Exception):
    pass


class Skip(Exception):
    pass


class Run:
    """One started program; its output goes to a file."""

    def __init__(self, suite, command, settings, env=None, result=None):
        with suite.lock:
            suite.runs += 1
            self.folder = suite.out / "runs" / f"{suite.runs:04d}"
        self.folder.mkdir(parents=True)
        words = [str(suite.trimtab), *command]
        for key, value in settings.items():
            words += [f"--{key}", str(value)]
        self.result = result or self.folder / "out"  # of a training
        if command[0] == "train":
            words += ["--output_dir", str(self.result), "--report_to", "none"]
        self.words, self.env = words, {**suite.env, **(env or {})}
        (self.folder / "command").write_text(" ".join(words) + "\n")
        self.text = self.folder / "text"
        with open(self.text, "wb") as stream:
            self.process = subprocess.Popen(words, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env=self.env)

    def wait(self, seconds=RUN_SECONDS):
        """The exit code; a run that does not end is killed and fails the check."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"did not end in {seconds} s ({self.folder.name})") from None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def output(self):
        return self.text.read_text(errors="replace")

    def must(self):
        code = self.wait()
        if code != 0:
            lines = [line for line in self.output().splitlines() if "error" in line or "hint" in line or "while" in line]
            raise Failure(f"exit code {code} ({self.folder.name}): {' | '.join(lines)[:600]}")
        return self

    def curve(self, name="loss"):
        state = json.loads((self.result / "trainer_state.json").read_text())
        return [row[name] for row in state["log_history"] if name in row]


class Suite:
    def __init__(self, args):
        self.trimtab, self.out, self.device = args.trimtab.resolve(), args.out.resolve(), args.device
        self.jobs, self.only = args.jobs, args.only
        self.out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.out / "runs", ignore_errors=True)
        self.lock, self.runs, self.failed = threading.Lock(), 0, 0
        launcher = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
        self.env = {key: value for key, value in os.environ.items() if key not in launcher}
        self.env.setdefault("NCCL_NVLS_ENABLE", "0")
        self.gpus = args.gpus if args.gpus is not None else self.count_gpus()
        self.rank_counts = [n for n in (1, 2, 4) if n <= self.gpus]

    def count_gpus(self):
        """As many ranks as a run may have: asking for too many says how many there are."""
        if self.device == "cpu":
            return 4
        run = Run(self, ["train"], {**self.base("llama3"), "ranks": 4096})
        run.wait()
        words = run.output().split("sees ")
        if len(words) < 2 or not words[1].split()[0].isdigit():
            raise Failure(f"no GPU can be used: {run.output().strip()[:300]}")
        return int(words[1].split()[0])

    def base(self, family):
        return {"model_name_or_path": GOLDEN / family / "model", "dataset_name": GOLDEN / family / "train.jsonl",
                "device": self.device, "threads": 1, "max_steps": STEPS, "logging_steps": 1, "learning_rate": 0.005,
                "save_strategy": "no", "lora_r": 4, "lora_target_modules": "all-linear", "lora_dropout": 0.1}

    def split(self, family, ranks=1, accumulation=1, **more):
        """Settings of a run whose steps have the same SAMPLES samples whatever the split."""
        micro = SAMPLES // (ranks * accumulation)
        return {**self.base(family), "ranks": ranks, "per_device_train_batch_size": micro,
                "gradient_accumulation_steps": accumulation, **more}

    def train(self, settings, env=None):
        return Run(self, ["train"], settings, env).must()

    def curves(self, many):
        """Loss curves of several runs, some of which run at the same time."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda settings: self.train(settings).curve(), many))

    def check(self, name, body):
        if self.only and not any(word in name for word in self.only):
            return
        begin = time.monotonic()
        try:
            status, detail = "PASS", body() or ""
        except Skip as reason:
            status, detail = "SKIP", str(reason)
        except Failure as reason:
            status, detail = "FAIL", str(reason)
        except Exception as reason:  # a check that breaks is a failed one, and the others still run
            status, detail = "FAIL", f"{type(reason).__name__}: {reason}"
        self.failed += status == "FAIL"
        line = f"{status}\t{name}\t{time.monotonic() - begin:.1f}\t{' '.join(detail.split())}"
        print(line, flush=True)
        with open(self.out / "results.tsv", "a") as stream:
            stream.write(line + "\n")

    def needs_gpus(self, count):
        if self.gpus < count:
            raise Skip(f"needs {count} GPUs, there is {self.gpus}")


def furthest(a, b):
    """The largest relative distance of two curves."""
    if len(a) != len(b) or not a:
        raise Failure(f"curves of {len(a)} and {len(b)} steps")
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def within(curves, names, wanted, bound):
    distances = [(furthest(curve, wanted), name) for curve, name in zip(curves, names)]
    worst, name = max(distances)
    if worst > bound:
        beyond = ", ".join(f"{name} {distance:.2e}" for distance, name in sorted(distances, reverse=True)[:4])
        raise Failure(f"bound {bound:.2e}; beyond it: {beyond}")
    return f"{len(curves)} runs, furthest {worst:.2e} ({name}), bound {bound:.2e}"


def bf16_noise(suite, family, **more):
    """The plain bf16 curve, and how far rounding alone takes a curve: bf16 runs whose additions come in other orders
    against the same run in fp32. Each of two bf16 runs is that far from fp32 at most, so they are at most twice that far
    from each other."""
    exact, *rounded = suite.curves([suite.split(family, bf16="false", recompute="none", **more)] +
                                   [suite.split(family, accumulation=n, recompute="none", **more) for n in (1, 2, 4)])
    return rounded[0], max(furthest(curve, exact) for curve in rounded)


def one_curve_bf16(suite, ranks, packing):
    suite.needs_gpus(ranks)
    family, more = ("mistral", {"packing": "true", "max_length": 64, "lora_dropout": 0}) if packing else ("llama3", {})
    wanted, noise = bf16_noise(suite, family, **more)
    runs, names = [], []
    for s, strategy in enumerate(STRATEGIES):
        for l, level in enumerate(LEVELS):
            for offload in ("false", "true"):
                accumulation = 1 if (s + l) % 2 == 0 or ranks == 4 else 2
                if packing and (offload == "true") != (l % 2 == 1):
                    continue  # half of them
                runs.append(suite.split(family, ranks, accumulation, sharding_strategy=strategy, recompute=level,
                                        offload_params=offload, **more))
                names.append(f"{strategy} {level}{' offloaded' if offload == 'true' else ''} {accumulation} micro")
    return within(suite.curves(runs), names, wanted, 2 * noise)


def one_curve_fp32(suite, ranks):
    suite.needs_gpus(ranks)
    wanted = suite.train(suite.split("qwen3", bf16="false", recompute="none")).curve()
    runs, names = [], []
    for strategy in STRATEGIES:
        for level in ("none", "block"):
            runs.append(suite.split("qwen3", ranks, bf16="false", sharding_strategy=strategy, recompute=level,
                                    offload_params="true" if level == "block" else "false"))
            names.append(f"{strategy} {level}")
    return within(suite.curves(runs), names, wanted, 1e-4)


def one_curve_quantized(suite, ranks, offload):
    """Over 4 and 8 bits, made while loading or stored: the same base on any number of ranks, on the CPU too."""
    suite.needs_gpus(ranks)
    runs, wanted, names = [], [], []
    for name, family, more in QUANTIZED:
        settings = {"bf16": "false", "offload_params": offload, **more}
        cpu = {key: value for key, value in settings.items() if key != "offload_params"}
        wanted.append(suite.train({**suite.split(family, **cpu), "device": "cpu"}).curve())
        runs.append(suite.split(family, ranks, recompute="block" if ranks > 1 else "none", **settings))
        names.append(name)
    return "; ".join(within([curve], [name], one, 1e-4)
                     for curve, name, one in zip(suite.curves(runs), names, wanted))


def as_on_the_cpu(suite, family, **more):
    runs = [suite.split(family, bf16="false", device=device, **more) for device in (suite.device, "cpu")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours, cpu = pool.map(suite.train, runs)
    text = within([ours.curve()], ["loss"], cpu.curve(), 1e-4)
    norms = furthest(ours.curve("grad_norm"), cpu.curve("grad_norm"))
    if norms > 1e-3:
        raise Failure(f"gradient norms differ by {norms:.2e}; {text}")
    return f"{text}; gradient norms {norms:.1e}"


def same_bits(suite, ranks):
    suite.needs_gpus(ranks)
    settings = suite.split("llama3", ranks, bf16="true", recompute="block")
    files = []
    for _ in range(2):
        run = suite.train(settings, {"TRIMTAB_DETERMINISTIC": "1"})
        files.append((run.result / "adapter_model.safetensors").read_bytes())
    if files[0] != files[1]:
        different = sum(x != y for x, y in zip(*files))
        raise Failure(f"{different} of {len(files[0])} bytes of the adapters differ")
    return f"{len(files[0])} bytes of adapter"


def model_with_tokenizer(suite):
    folder = suite.out / "model"
    if not folder.exists():
        shutil.copytree(GOLDEN / "qwen2/model", folder)
        shutil.copytree(ROOT / "tests/support/tiny_tokenizer", folder, dirs_exist_ok=True)
    return folder


def generates(suite):
    texts = []
    for device, bf16 in ((suite.device, "false"), ("cpu", "false"), (suite.device, "true")):
        run = Run(suite, ["generate"], {"model_name_or_path": model_with_tokenizer(suite), "device": device, "bf16": bf16,
                                        "prompt": "The quick brown fox", "max_new_tokens": 40, "json": "true",
                                        "ignore_eos": "true"}).must()
        texts.append(json.loads([line for line in run.output().splitlines() if line.startswith("{")][0])["completion"])
    if texts[0] != texts[1]:
        raise Failure(f"fp32 here and on the CPU: {texts[0]!r} and {texts[1]!r}")
    if not texts[2]:
        raise Failure("nothing in bf16")
    return f"{len(texts[0])} characters as on the CPU"


def evaluates(suite):
    losses = []
    for device, bf16, ranks in ((suite.device, "false", 1), ("cpu", "false", 1), (suite.device, "true", 1),
                                (suite.device, "false", max(suite.rank_counts))):
        run = Run(suite, ["eval"], {"model_name_or_path": GOLDEN / "qwen2/model", "device": device, "bf16": bf16,
                                    "eval_dataset": GOLDEN / "qwen2/train.jsonl", "json": "true", "ranks": ranks}).must()
        losses.append(json.loads([line for line in run.output().splitlines() if line.startswith("{")][0])["loss"])
    for loss, bound, what in zip(losses, (1e-4, 1, 1e-2, 1e-4), ("fp32", "", "bf16", "fp32 on all ranks")):
        if abs(loss / losses[1] - 1) > bound:
            raise Failure(f"{what}: loss {loss}, on the CPU {losses[1]}")
    return f"loss {losses[0]:.6f}, CPU {losses[1]:.6f}, bf16 {losses[2]:.6f}"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_processes(suite, ranks, settings, env=None):
    """One process for each rank, as a launcher would start them."""
    port = free_port()
    runs = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), **(env or {})}
        runs.append(Run(suite, ["train"], settings, own, runs[0].result if runs else None))
    return runs


def process_settings(suite, ranks, **more):
    settings = suite.split("llama3", ranks, bf16="false", **more)
    settings["ranks"] = 0
    return settings


def processes(suite):
    suite.needs_gpus(2)
    ranks = max(suite.rank_counts)
    wanted = suite.train(suite.split("llama3", ranks, bf16="false")).curve()
    runs = start_processes(suite, ranks, process_settings(suite, ranks))
    for run in runs:
        run.must()
    return f"{ranks} processes: " + within([runs[0].curve()], ["processes"], wanted, 1e-4)


def wait_for_training(runs):
    """Until all processes have been loading and stepping for a while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(run.process.poll() is not None for run in runs):
            raise Failure(f"ended by itself: {runs[0].output()[-400:]}")
        if "loss" in runs[0].output():
            return
        time.sleep(0.2)
    raise Failure("no step in 60 s")


def a_rank_goes(suite, what):
    """A rank that is killed, or stopped without dying, ends the others."""
    suite.needs_gpus(2)
    ranks = max(suite.rank_counts)
    settings = process_settings(suite, ranks, max_steps=1000000, num_train_epochs=1000000, disable_tqdm="true")
    runs = start_processes(suite, ranks, settings, {"TRIMTAB_HANG_SECONDS": "10"})
    try:
        wait_for_training(runs)
        begin = time.monotonic()
        runs[-1].process.send_signal(what)
        codes = [run.wait(END_SECONDS) for run in runs[:-1]]
        seconds = time.monotonic() - begin
        if any(code != EXIT_DEVICE for code in codes):
            raise Failure(f"exit codes {codes} instead of {EXIT_DEVICE}")
        said = [line for run in runs[:-1] for line in run.output().splitlines() if line.startswith("error")]
        return f"{ranks - 1} others ended after {seconds:.1f} s: {said[0] if said else 'without a word'}"
    finally:
        for run in runs:
            run.end()


def damaged_model(suite):
    folder = suite.out / "damaged"
    if folder.exists():
        return folder
    shutil.copytree(GOLDEN / "llama2/model", folder)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    (header_bytes,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + header_bytes])
    entry = header["model.layers.1.mlp.down_proj.weight"]
    assert entry["dtype"] == "F32"
    struct.pack_into("<f", content, 8 + header_bytes + entry["data_offsets"][0] + 12, float("nan"))
    path.write_bytes(content)
    return folder


def nan_weights(suite, with_processes):
    ranks = max(suite.rank_counts)
    if with_processes:
        suite.needs_gpus(2)
    settings = {**suite.split("llama2", ranks), "model_name_or_path": damaged_model(suite)}
    if with_processes:
        settings["ranks"] = 0
        runs = start_processes(suite, ranks, settings)
    else:
        runs = [Run(suite, ["train"], settings)]
    codes = [run.wait() for run in runs]
    lines = [line for run in runs for line in run.output().splitlines()]
    errors = [line for line in lines if line.startswith("error")]
    if any(code != EXIT_DATA for code in codes):
        raise Failure(f"exit codes {codes} instead of {EXIT_DATA}: {errors}")
    if len(errors) != 1:
        raise Failure(f"{len(errors)} messages: {errors}")
    if not any("model.layers.1" in line for line in lines):
        raise Failure(f"the layer is not named: {errors}")
    return errors[0]


def refusal(suite, more, env, code, part):
    if suite.device == "cpu":
        raise Skip("about GPUs")
    run = Run(suite, ["train"], {**suite.base("llama3"), **more}, env)
    got = run.wait()
    if got != code or part not in run.output():
        raise Failure(f"exit code {got} instead of {code}, or without '{part}': {run.output()[-300:]}")
    return next((line for line in run.output().splitlines() if part in line), "")


REFUSALS = [
    ("no GPU to be seen", {}, {"CUDA_VISIBLE_DEVICES": ""}, EXIT_DEVICE, "no GPU can be used"),
    ("auto without a GPU is the CPU", {"device": "auto"}, {"CUDA_VISIBLE_DEVICES": ""}, 0, ""),
    ("no plugin", {}, {"TRIMTAB_CUDA_PLUGIN": "/nonexistent.so"}, EXIT_DEVICE, "no GPU can be used"),
    ("more ranks than GPUs", {"ranks": 64}, {}, EXIT_USAGE, "64 ranks"),
    ("too little device memory", {"device_memory": "1MiB"}, {}, EXIT_MEMORY, "error"),
    ("fp16", {"fp16": "true"}, {}, EXIT_USAGE, "fp16"),
]


def all_checks(suite):
    for family in ("llama2", "llama3", "mistral", "qwen2", "qwen3"):
        suite.check(f"fp32 as on the CPU, {family}", lambda: as_on_the_cpu(suite, family))
    suite.check("fp32 as on the CPU, all weights",
                lambda: as_on_the_cpu(suite, "llama3", use_peft="false", learning_rate=0.001))
    for ranks in (1, 2, 4):
        suite.check(f"one curve, fp32, ranks {ranks}", lambda: one_curve_fp32(suite, ranks))
        suite.check(f"one curve, bf16, ranks {ranks}", lambda: one_curve_bf16(suite, ranks, False))
        suite.check(f"one curve, bf16 packed, ranks {ranks}", lambda: one_curve_bf16(suite, ranks, True))
        suite.check(f"same command, same bits, ranks {ranks}", lambda: same_bits(suite, ranks))
        for offload in ("false", "true"):
            suite.check(f"one curve, quantized base, ranks {ranks}, offload_params {offload}",
                        lambda: one_curve_quantized(suite, ranks, offload))
    suite.check("generate", lambda: generates(suite))
    suite.check("eval", lambda: evaluates(suite))
    suite.check("a process for each rank", lambda: processes(suite))
    suite.check("a rank is killed", lambda: a_rank_goes(suite, signal.SIGKILL))
    suite.check("a rank is stopped", lambda: a_rank_goes(suite, signal.SIGSTOP))
    suite.check("NaN in the weights, ranks of one process", lambda: nan_weights(suite, False))
    suite.check("NaN in the weights, a process for each rank", lambda: nan_weights(suite, True))
    for name, more, env, code, part in REFUSALS:
        suite.check(f"refusal: {name}", lambda: refusal(suite, more, env, code, part))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trimtab", type=pathlib.Path, default=ROOT / "build/trimtab", help="the program")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for results and outputs of runs")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--gpus", type=int, help="ranks to use at most; default: as many as there are")
    parser.add_argument("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) // 3)), help="runs at a time")
    parser.add_argument("--only", nargs="*", help="checks whose name holds one of these words")
    args = parser.parse_args()
    try:
        suite = Suite(args)
    except Failure as reason:
        sys.exit(f"error: {reason}")
    all_checks(suite)
    sys.exit(1 if suite.failed else 0)


if __name__ == "__main__":
    main()
