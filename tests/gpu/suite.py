"""Programs that are run on a device, and the checks over them that tests/gpu/properties.py and the modules beside it make:
parallel runs, their loss curves, and the distances of curves."""
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
STEPS, SAMPLES = 8, 8  # of a run; of a step, over all ranks
RANKS = (1, 2, 4, 8)  # of checks over several numbers of them
# No run takes longer, unless it hangs. Programs that share a GPU run in turns, and a collective of one needs all its GPUs at
# the same time: with two dozen programs one had not ended after a minute.
RUN_SECONDS = 120
REPEATABLE = {"TRIMTAB_DETERMINISTIC": "1"}
ALL_WEIGHTS = {"use_peft": "false", "learning_rate": 0.001}
SHARDED = {"state_dict_type": "SHARDED_STATE_DICT"}
STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]
LEVELS = ["none", "cheap", "block", "offload"]
TOKENIZER = ROOT / "tests/support/tiny_tokenizer"
# Families with goldens in tests/golden/dense, and the text parts of tests/golden/vision.
MORE_FAMILIES = [f"{kind}/{folder.name}" for kind in ("dense", "vision") for folder in sorted((GOLDEN / kind).iterdir())
                 if (folder / "model/model.safetensors").exists()]


class Failure(Exception):
    pass


class Skip(Exception):
    pass


class Run:
    """One started program; its output goes to a file."""

    def __init__(self, suite, command, settings, env=None, result=None):
        with suite.lock:
            suite.runs += 1
            suite.alive.append(self)
            self.folder = suite.out / "runs" / f"{suite.runs:04d}"
        self.folder.mkdir(parents=True)
        words = [str(suite.trimtab), *map(str, command)]
        for key, value in settings.items():
            words += [f"--{key}", str(value)]
        self.result = result or self.folder / "out"  # of a training
        if command[0] == "train":
            words += ["--output_dir", str(self.result), "--report_to", "none"]
        self.words, self.env, self.seconds = words, {**suite.env, **(env or {})}, RUN_SECONDS
        (self.folder / "command").write_text(" ".join(words) + "\n")
        self.text, self.process = self.folder / "text", None
        with open(self.text, "wb") as stream:
            self.process = subprocess.Popen(words, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env=self.env)

    def wait(self, seconds=0):
        """The exit code; a run that does not end is killed and fails the check."""
        try:
            return self.process.wait(seconds or self.seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"did not end in {seconds or self.seconds} s ({self.folder.name})") from None

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass  # it hangs in the driver, and ends when the driver returns

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


def has_experts(folder):
    """all-linear may mean parameters of experts, which have no dropout."""
    config = json.loads((folder / "model" / "config.json").read_text())
    return any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))


class Suite:
    def __init__(self, args):
        self.trimtab, self.out, self.device = args.trimtab.resolve(), args.out.resolve(), args.device
        self.results = args.results or self.out / "results.tsv"
        self.jobs, self.only, self.checks_at_once = args.jobs, args.only, args.checks_at_once
        self.deadline = time.monotonic() + args.budget
        self.out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.out / "runs", ignore_errors=True)
        self.lock, self.runs, self.failed, self.alive = threading.Lock(), 0, 0, []
        self.checks, self.made = [], {}
        self.slots = threading.BoundedSemaphore(self.jobs)  # parallel runs, over all checks
        self.ports = set()
        launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TRIMTAB_NODE")
        self.env = {key: value for key, value in os.environ.items()
                    if key not in launcher and not key.startswith(("PET_", "SLURM_"))}
        self.env.setdefault("NCCL_NVLS_ENABLE", "0")
        self.gpus = args.gpus if args.gpus is not None else self.count_gpus()
        names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        self.names, self.turn = names or [str(gpu) for gpu in range(self.gpus)], 0
        self.rank_counts = [n for n in RANKS if n <= self.gpus]

    def count_gpus(self):
        """The largest number of ranks: the error for too many names it."""
        if self.device == "cpu":
            return 4
        run = Run(self, ["train"], {**self.base("llama3"), "ranks": 4096})
        run.wait()
        words = run.output().split("sees ")
        if len(words) < 2 or not words[1].split()[0].isdigit():
            raise Failure(f"no GPU can be used: {run.output().strip()[:300]}")
        return int(words[1].split()[0])

    def base(self, family):
        rows = GOLDEN / family / "train.jsonl"  # its own, or those of its neighbours
        return {"model_name_or_path": GOLDEN / family / "model",
                "dataset_name": rows if rows.exists() else GOLDEN / family / "../train.jsonl",
                "device": self.device, "threads": 1, "max_steps": STEPS, "logging_steps": 1, "learning_rate": 0.005,
                "save_strategy": "no", "lora_r": 8, "lora_target_modules": "all-linear",
                "lora_dropout": 0 if has_experts(GOLDEN / family) else 0.1}

    def split(self, family, ranks=1, accumulation=1, **more):
        """Settings of a run whose steps have the same SAMPLES samples for every split."""
        micro = SAMPLES // (ranks * accumulation)
        return {**self.base(family), "ranks": ranks, "per_device_train_batch_size": micro,
                "gradient_accumulation_steps": accumulation, **more}

    def some_gpus(self, count):
        """The environment of a run with `count` ranks: it sees only the next GPUs in turn, and so starts sooner."""
        if self.device == "cpu" or not 0 < count <= len(self.names) // 2:
            return {}
        with self.lock:
            first = self.turn = (self.turn + count - 1) // count * count % (len(self.names) // count * count)
            self.turn += count
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.names[first:first + count])}

    def train(self, settings, env=None, result=None):
        with self.slots:
            return Run(self, ["train"], settings, {**self.some_gpus(settings["ranks"]), **(env or {})}, result).must()

    def together(self, function, items):
        """The function of each item, in parallel; slots limits the number of parallel runs."""
        items = list(items)
        with concurrent.futures.ThreadPoolExecutor(max(1, len(items))) as pool:
            return list(pool.map(function, items))

    def curves(self, many):
        """Loss curves of several runs, some of them in parallel."""
        return self.together(lambda settings: self.train(settings).curve(), many)

    def once(self, key, make):
        """Makes a value that several checks need in the first of them; the others wait for it, and share its failure."""
        with self.lock:
            mine = key not in self.made
            if mine:
                self.made[key] = concurrent.futures.Future()
            future = self.made[key]
        if mine:
            try:
                future.set_result(make())
            except BaseException as reason:
                future.set_exception(reason)
        return future.result()

    def check(self, name, body, *arguments, when=1, **more):
        """`when`: 0 begins first, because its runs are sequential; 2 begins after all others have ended, because it
        checks times. These are times of waits, so such checks may run in parallel."""
        if not self.only or any(word in name for word in self.only):
            self.checks.append((when, name, lambda: body(self, *arguments, **more)))

    def run_checks(self):
        for last in (False, True):
            checks = sorted((check for check in self.checks if (check[0] == 2) == last), key=lambda check: check[0])
            with concurrent.futures.ThreadPoolExecutor(self.checks_at_once) as pool:
                list(pool.map(lambda check: self.run_check(*check[1:]), checks))

    def run_check(self, name, body):
        begin = time.monotonic()
        try:
            if begin > self.deadline:
                raise Skip("not begun: the budget is spent")
            status, detail = "PASS", body() or ""
        except Skip as reason:
            status, detail = "SKIP", str(reason)
        except Failure as reason:
            status, detail = "FAIL", str(reason)
        except Exception as reason:  # an exception is a failed check; the others still run
            status, detail = "FAIL", f"{type(reason).__name__}: {reason}"
        line = f"{status}\t{name}\t{time.monotonic() - begin:.1f}\t{' '.join(detail.split())}"
        with self.lock:
            self.failed += status == "FAIL"
            print(line, flush=True)
            with open(self.results, "a") as stream:
                stream.write(line + "\n")

    def end_at_once(self, *_):
        """Handles a signal: kills all runs."""
        for run in list(self.alive):
            if run.process is not None and run.process.returncode is None:
                run.process.kill()
        os._exit(130)

    def needs_gpus(self, count):
        if self.gpus < count:
            raise Skip(f"needs {count} GPUs, there is {self.gpus}")


def distances(a, b, floor):
    if len(a) != len(b) or not a:
        raise Failure(f"curves of {len(a)} and {len(b)} steps")
    found = [abs(x - y) / max(abs(y), floor) for x, y in zip(a, b)]
    return found if all(map(math.isfinite, found)) else [math.inf]


def furthest(a, b, floor=0):
    """The largest relative distance of two curves; of values below the floor, relative to it."""
    return max(distances(a, b, floor))


def apart(a, b, floor=0):
    """The mean of these distances."""
    found = distances(a, b, floor)
    return sum(found) / len(found)


def within(curves, names, wanted, bound, floor=0, measure=furthest):
    found = [(measure(curve, wanted, floor), name) for curve, name in zip(curves, names)]
    worst, name = max(found)
    if worst > bound:
        beyond = ", ".join(f"{name} {distance:.2e}" for distance, name in sorted(found, reverse=True)[:4])
        raise Failure(f"bound {bound:.2e}; beyond it: {beyond}")
    return f"{len(curves)} runs, furthest {worst:.2e} ({name}), bound {bound:.2e}"


def bf16_noise(suite, family, **more):
    """The plain bf16 curve, and the distance due to rounding alone: bf16 runs with other orders of additions,
    compared with the same run in fp32. Each of two bf16 runs has at most this distance from fp32, so their distance from
    each other is at most twice that."""
    exact, *rounded = suite.curves([suite.split(family, bf16="false", recompute="none", **more)] +
                                   [suite.split(family, accumulation=n, recompute="none", **more) for n in (1, 2, 4)])
    return rounded[0], max(furthest(curve, exact) for curve in rounded)


def rounding_on_the_cpu(suite, key, family, floors, **more):
    """For each number of the log (`floors`: its name and floor) its curve on the CPU in fp32, and the mean distance that
    rounding to bf16 makes there: the largest of bf16 runs with three orders of additions."""

    def make():
        splits = [(1, "false"), (1, "true"), (2, "true"), (4, "true")]
        runs = [{**suite.split(family, accumulation=n, bf16=bf16, recompute="none", **more), "device": "cpu"}
                for n, bf16 in splits]
        exact, *rounded = suite.together(suite.train, runs)
        return {name: (exact.curve(name), max(apart(run.curve(name), exact.curve(name), floor) for run in rounded), floor)
                for name, floor in floors.items()}

    return suite.once(("rounding", key), make)


def within_rounding(runs, names, cpu):
    """Each run is within twice the distance of rounding_on_the_cpu() from the CPU in fp32: another device rounds at other
    places, and no more coarsely. Means over the steps, because single ones vary more."""
    return "; ".join(f"{number}: " + within([run.curve(number) for run in runs], names, exact, 2 * noise, floor, apart)
                     for number, (exact, noise, floor) in cpu.items())


def strategies(ranks):
    """With one rank strategies differ only in whether there is a shard."""
    return STRATEGIES if ranks > 1 else ["FULL_SHARD", "NO_SHARD"]


def free_port(suite):
    """A port that no other check uses."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        with suite.lock:
            if port not in suite.ports:
                suite.ports.add(port)
                return port


def folder_with_tokenizer(suite, model, tokenizer):
    """A copy of the folder of a model without a tokenizer, with that of another folder."""

    def make():
        folder = suite.out / "models" / "-".join(model.relative_to(ROOT).parts)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(model, folder)
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
        return folder

    return suite.once((model, tokenizer), make)


def wait_until(run, holds):
    deadline = time.monotonic() + run.seconds
    while not holds():
        if run.process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            run.end()
            raise Failure(f"waited {run.seconds} s ({run.folder.name}): {run.output()[-300:]}")
        time.sleep(0.002)
    return True
