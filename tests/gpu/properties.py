#!/usr/bin/env python3
"""Whole runs of the trimtab program on GPUs: one loss curve for every split, the curve of the CPU, the same bits twice,
inference, processes, resuming from checkpoints, and failures. Needs Python alone.

    tests/gpu/properties.py --trimtab build/trimtab --out FOLDER [--device cuda] [--only WORD] [--jobs N]
                            [--checks-at-once N] [--budget SECONDS] [--results FILE]

Each check is one line of FOLDER/results.tsv, or FILE: PASS, FAIL or SKIP, its name, its seconds, and the measurement or the
failure. The output of every run stays in FOLDER. --device cpu runs the checks that do not need a GPU, to try them. Lines
are in the order in which checks end; checks of times run after all others.

Almost all of the time is spent on starting some hundred programs, over a second each on a GPU. So several run in parallel:
--jobs in all, of --checks-at-once checks; those that need few GPUs use each of them in turn; and checks with runs in
sequence begin first.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time

import properties_fp8
import properties_preferences
import properties_serve
from suite import (ALL_WEIGHTS, GOLDEN, LEVELS, MORE_FAMILIES, RANKS, REPEATABLE, ROOT, SHARDED, STEPS, TOKENIZER, Failure, Run,
                   Skip, Suite, bf16_noise, folder_with_tokenizer, free_port, furthest, strategies, wait_until, within)

# Families whose tiny model turns differences of rounding into others at the usual rate.
SLOW_FAMILIES = {"dense/gemma4_e": {"learning_rate": 1e-5}, "dense/qwen3_next": {"learning_rate": 0.001}}
END_SECONDS = 30       # from the death of a rank to the end of the others
QUANTIZED = [
    ("nf4, double", "llama2", {"load_in_4bit": "true", "bnb_4bit_use_double_quant": "true"}),
    ("fp4", "qwen2", {"load_in_4bit": "true", "bnb_4bit_quant_type": "fp4"}),
    ("int8", "mistral", {"load_in_8bit": "true"}),
    ("stored nf4", "llama2", {"model_name_or_path": GOLDEN / "qlora/nf4_double"}),
]
EXIT_USAGE, EXIT_DATA, EXIT_MEMORY, EXIT_DEVICE, EXIT_STOPPED = 2, 3, 4, 10, 11
ADAPTERS = [  # kinds that have ops of their own
    ("DoRA", "llama3", {"use_dora": "true"}),
    ("DoRA over NF4", "qwen2", {"use_dora": "true", "load_in_4bit": "true"}),
    ("DoRA over int8", "mistral", {"use_dora": "true", "load_in_8bit": "true"}),
    ("biases of all", "qwen2", {"bias": "all"}),
    ("rows of tokens", "llama3", {"trainable_token_indices": "1,5,9"}),
    ("experts alone", "dense/qwen3_moe", {"lora_target_modules": "q_proj",
                                          "lora_target_parameters": "mlp.experts.gate_up_proj,mlp.experts.down_proj"}),
]
# Experts that stay in codes, decoded for their products.
CODED_EXPERTS = [
    ("NF4", "dense/qwen3_moe", {"load_in_4bit": "true", "quantize_moe_experts": "true"}),
    ("int8", "dense/gpt_oss", {"load_in_8bit": "true", "quantize_moe_experts": "true"}),
    ("FP8", "dense/qwen3_moe", {"base_dtype": "fp8", "fp8_products": "none", "quantize_moe_experts": "true"}),
    ("stored MXFP4", "dense/gpt_oss", {"model_name_or_path": GOLDEN / "dense/gpt_oss/mxfp4/model",
                                       "quantize_moe_experts": "true"}),
]
# Settings with which a run resumes bit for bit. With weights in bf16 the state has the masters too.
SAVED = [
    ("LoRA", "llama3", {}),
    ("LoRA, file per rank", "qwen3", SHARDED),
    ("LoRA, NO_SHARD", "llama3", {"sharding_strategy": "NO_SHARD"}),
    ("LoRA, HYBRID_SHARD", "mistral", {"sharding_strategy": "HYBRID_SHARD", **SHARDED}),
    ("LoRA, offloaded", "llama3", {"offload_params": "true", "recompute": "offload"}),
    ("all weights", "llama3", {**ALL_WEIGHTS, "save_dtype": "bfloat16"}),
    ("all weights, file per rank", "qwen2", {**ALL_WEIGHTS, **SHARDED}),
    ("all weights, file per rank, offloaded", "llama2", {**ALL_WEIGHTS, **SHARDED, "save_dtype": "bfloat16",
                                                         "offload_params": "true"}),
]
MACHINES = 2
LONG = 300   # steps of a run that is stopped or killed
KILLS = 3    # in the middle of a save


def plain_fp32(suite):
    return suite.train(suite.split("qwen3", bf16="false", recompute="none")).curve()


def one_curve_bf16(suite, ranks, packing):
    suite.needs_gpus(ranks)
    family, more = ("mistral", {"packing": "true", "max_length": 64, "lora_dropout": 0}) if packing else ("llama3", {})
    wanted, noise = suite.once(("bf16", packing), lambda: bf16_noise(suite, family, **more))
    runs, names = [], []
    for s, strategy in enumerate(strategies(ranks)):
        for l, level in enumerate(LEVELS):
            for offload in ("false", "true"):
                accumulation = 1 if (s + l) % 2 == 0 or ranks >= 4 else 2
                if packing and (offload == "true") != (l % 2 == 1):
                    continue  # half of them
                runs.append(suite.split(family, ranks, accumulation, sharding_strategy=strategy, recompute=level,
                                        offload_params=offload, **more))
                names.append(f"{strategy} {level}{' offloaded' if offload == 'true' else ''} {accumulation} micro")
    return within(suite.curves(runs), names, wanted, 2 * noise)


def one_curve_fp32(suite, ranks):
    suite.needs_gpus(ranks)
    wanted = suite.once("fp32", lambda: plain_fp32(suite))
    runs, names = [], []
    for strategy in strategies(ranks):
        for level in ("none", "block"):
            runs.append(suite.split("qwen3", ranks, bf16="false", sharding_strategy=strategy, recompute=level,
                                    offload_params="true" if level == "block" else "false"))
            names.append(f"{strategy} {level}")
    return within(suite.curves(runs), names, wanted, 1e-4)


def one_curve_muon(suite, ranks):
    """Each matrix is turned by one rank."""
    suite.needs_gpus(ranks)
    muon = {"bf16": "false", "optim": "muon", "ns_dtype": "float32", **ALL_WEIGHTS}
    wanted = suite.once("muon", lambda: suite.curves([suite.split("qwen3", 1, **muon)])[0])
    names = strategies(ranks)
    return within(suite.curves([suite.split("qwen3", ranks, sharding_strategy=s, **muon) for s in names]), names, wanted,
                  1e-4)


def one_curve_quantized(suite, ranks, offload):
    """Over 4 and 8 bits, quantized during loading or stored: the same base on any number of ranks, on the CPU too."""
    suite.needs_gpus(ranks)

    def on_the_cpu(base):
        name, family, more = base
        settings = {**suite.split(family, bf16="false", **more), "device": "cpu"}
        return suite.once(("quantized", name), lambda: suite.train(settings).curve())

    runs = [suite.split(family, ranks, recompute="block" if ranks > 1 else "none", bf16="false", offload_params=offload,
                        **more) for _, family, more in QUANTIZED]
    wanted = suite.together(on_the_cpu, QUANTIZED)
    return "; ".join(within([curve], [base[0]], one, 1e-4)
                     for curve, base, one in zip(suite.curves(runs), QUANTIZED, wanted))


def as_on_the_cpu(suite, family, **more):
    runs = [suite.split(family, bf16="false", device=device, **more) for device in (suite.device, "cpu")]
    ours, cpu = suite.together(suite.train, runs)
    text = within([ours.curve()], ["loss"], cpu.curve(), 1e-4)
    norms = furthest(ours.curve("grad_norm"), cpu.curve("grad_norm"))
    if norms > 1e-3:
        raise Failure(f"gradient norms differ by {norms:.2e}; {text}")
    return f"{text}; gradient norms {norms:.1e}"


def experts_over_ranks(suite, ranks, family, **more):
    """Ranks that share the experts of a mixture, at two levels of recomputation: the curve of the CPU with one rank."""
    suite.needs_gpus(ranks)
    alone = {**suite.split(family, bf16="false", **more), "device": "cpu"}
    runs = [suite.split(family, ranks, bf16="false", expert_parallel=ranks, recompute=level, device=suite.device, **more)
            for level in ("none", "block")]
    cpu, *ours = suite.together(suite.train, [alone, *runs])
    return within([run.curve() for run in ours], ["none", "block"], cpu.curve(), 1e-4)


DETECTORS = [
    ("frozen norms", {"weights_path": GOLDEN / "detect/retinanet/weights.pth"}),
    ("batch norm", {"norm": "batch", "backbone_width": 8, "backbone_blocks": 1, "pyramid_width": 32}),
    ("second version", {"architecture": "retinanet_resnet50_fpn_v2", "backbone_width": 8, "backbone_blocks": 1,
                        "pyramid_width": 64}),
]


def make_shapes(suite):
    folder = suite.out / "shapes"
    subprocess.run([sys.executable, ROOT / "examples/detection/make_shapes.py", folder, "--train", "16", "--validation", "4",
                    "--size", "128", "--mixed"], check=True, stdout=subprocess.DEVNULL)
    return folder


def detector_as_on_the_cpu(suite, more):
    """Losses and gradients of four steps, and the loss of an evaluation: rounding moves few of the kinks of such a net."""
    folder = suite.once("shapes", lambda: make_shapes(suite))
    runs = [{"task": "detection", "local_image_dir": folder / "images", "annotations": folder / "coco/train.json",
             "eval_annotations": folder / "coco/validation.json", "image_size": 128, "max_image_size": 192, "ranks": 1,
             "per_device_train_batch_size": 4, "max_steps": 4, "logging_steps": 1, "eval_strategy": "epoch",
             "save_strategy": "no", "learning_rate": 0.001, "lr_scheduler_type": "constant", "bf16": "false", "threads": 1,
             "device": device, **more} for device in (suite.device, "cpu")]
    ours, cpu = suite.together(suite.train, runs)
    text = within([ours.curve()], ["loss"], cpu.curve(), 2e-3)
    text += "; " + within([ours.curve("eval_loss")], ["eval_loss"], cpu.curve("eval_loss"), 5e-3)
    return text + "; " + within([ours.curve("grad_norm")], ["grad_norm"], cpu.curve("grad_norm"), 1e-2)


def same_bits(suite, ranks, **more):
    suite.needs_gpus(ranks)
    settings = suite.split("llama3", ranks, bf16="true", recompute="block", **more)
    runs = suite.together(lambda _: suite.train(settings, REPEATABLE), range(2))
    files = [(run.result / "adapter_model.safetensors").read_bytes() for run in runs]
    if files[0] != files[1]:
        different = sum(x != y for x, y in zip(*files))
        raise Failure(f"{different} of {len(files[0])} bytes of the adapters differ")
    return f"{len(files[0])} bytes of adapter"


def same_bits_over_transports(suite, family, **more):
    """Threads add over the links between GPUs, processes over NCCL; `deterministic` makes it the same sums."""
    suite.needs_gpus(2)
    ranks = max(suite.rank_counts)
    settings = suite.split(family, ranks, bf16="true", recompute="block", **more)
    threads = suite.train(settings, REPEATABLE)
    with suite.slots:
        run = all_must(start_processes(suite, ranks, {**settings, "ranks": 0}, REPEATABLE))
    files = [(each.result / "adapter_model.safetensors").read_bytes() for each in (threads, run)]
    if files[0] != files[1]:
        different = sum(x != y for x, y in zip(*files))
        raise Failure(f"{different} of {len(files[0])} bytes of the adapters of {ranks} threads and processes differ")
    return f"{ranks} ranks, {len(files[0])} bytes of adapter"


def generates(suite):
    model, texts = folder_with_tokenizer(suite, GOLDEN / "qwen2/model", TOKENIZER), []
    for device, bf16 in ((suite.device, "false"), ("cpu", "false"), (suite.device, "true")):
        run = Run(suite, ["generate"], {"model_name_or_path": model, "device": device, "bf16": bf16, "json": "true",
                                        "prompt": "The quick brown fox", "max_new_tokens": 40, "ignore_eos": "true"}).must()
        texts.append(json.loads([line for line in run.output().splitlines() if line.startswith("{")][0])["completion"])
    if texts[0] != texts[1]:
        raise Failure(f"fp32 here and on the CPU: {texts[0]!r} and {texts[1]!r}")
    if not texts[2]:
        raise Failure("nothing in bf16")
    return f"{len(texts[0])} characters as on the CPU"


def generates_in_batches(suite):
    """Answers do not depend on the batch, or on where they are computed; also drawn ones."""
    found = []
    for temperature in (0, 1):
        sums = {}
        for device, batch in ((suite.device, 1), (suite.device, 3), (suite.device, 8), ("cpu", 8)):
            run = Run(suite, ["bench", "generate"], {"config_json": ROOT / "bench/shapes/tiny.json", "device": device,
                                                     "bf16": "false", "prompt_tokens": 20, "new_tokens": 40, "rows": 8,
                                                     "temperature": temperature,
                                                     "per_device_train_batch_size": batch}).must()
            line = [line for line in run.output().splitlines() if line.startswith("{")][0]
            sums[f"{device}, batch {batch}"] = json.loads(line)["sum"]
        if len(set(sums.values())) != 1:
            raise Failure(f"temperature {temperature}: sums of tokens {sums}")
        found += set(sums.values())
    if found[0] == found[1]:
        raise Failure("nothing was drawn")
    return "the same tokens in batches of 1, 3 and 8 and on the CPU"


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


def all_must(runs):
    """Processes of one run. All are ended, whichever fails."""
    try:
        codes = [run.wait() for run in runs]
        for run, code in zip(runs, codes):
            if code not in (0, EXIT_DEVICE):  # this one reports the cause; the others, its loss
                run.must()
        for run in runs:
            run.must()
    finally:
        for run in runs:
            run.end()
    return runs[0]


def start_processes(suite, ranks, settings, env=None):
    """One process for each rank, as a launcher would start them."""
    port = free_port(suite)
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
    with suite.slots:
        run = all_must(start_processes(suite, ranks, process_settings(suite, ranks)))
    return f"{ranks} processes: " + within([run.curve()], ["processes"], wanted, 1e-4)


def start_machines(suite, ranks, how, settings):
    """Two simulated machines with half of the GPUs each. `how`: started by flags or as pods, each one process with a
    thread for each rank, or as processes of one rank."""
    each, port, starts = ranks // MACHINES, str(free_port(suite)), []
    for machine in range(MACHINES):
        env = {"CUDA_VISIBLE_DEVICES": ",".join(suite.names[machine * each:(machine + 1) * each])}
        if how == "flags":
            starts.append(({"ranks": each, "num_machines": MACHINES, "machine_rank": machine, "main_process_ip": "127.0.0.1",
                            "main_process_port": port}, env))
        elif how == "pods":
            env |= {"PET_NNODES": str(MACHINES), "PET_NODE_RANK": str(machine), "PET_NPROC_PER_NODE": str(each),
                    "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port}
            starts.append(({}, env))
        else:
            starts += [({}, {**env, "GROUP_RANK": str(machine), "RANK": str(machine * each + local), "LOCAL_RANK": str(local),
                             "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                       for local in range(each)]
    runs = []
    for more, env in starts:
        runs.append(Run(suite, ["train"], {**settings, "ranks": 0, **more}, env, runs[0].result if runs else None))
    return runs


def machines(suite, strategy):
    """Shards inside of machines and replicas across them, or shards across them; their checkpoints are resumed elsewhere."""
    suite.needs_gpus(2)
    ranks = max(suite.rank_counts)
    kinds = [("flags", {"recompute": "none"}), ("pods", {"recompute": "block", "offload_params": "true"}),
             ("processes", {"recompute": "none"})]
    saving = {"save_strategy": "steps", "save_steps": STEPS // 2, **SHARDED}

    def one(kind):
        settings = suite.split("qwen3", ranks, bf16="false", sharding_strategy=strategy, **saving, **kind[1])
        with suite.slots:
            run = all_must(start_machines(suite, ranks, kind[0], settings))
        if f"on {ranks} ranks" not in run.output() or f", {strategy})" not in run.output():
            raise Failure(f"not {strategy} on {ranks} ranks ({run.folder.name}): {run.output()[-300:]}")
        return run

    runs = suite.together(one, kinds)
    wanted = suite.once("fp32", lambda: plain_fp32(suite))
    text = within([run.curve() for run in runs], [kind[0] for kind in kinds], wanted, 1e-4)
    after = suite.train(suite.split("qwen3", bf16="false", resume_from_checkpoint=runs[0].result / "checkpoint-4"))
    went_on(after, STEPS // 2)
    rest = within([after.curve()[STEPS // 2:]], ["gone on with on one rank"], wanted[STEPS // 2:], 1e-4)
    return f"{MACHINES} of {ranks // MACHINES} ranks: {text}; {rest}"


def wait_for_training(runs):
    """Waits until all processes have been loading and stepping for a while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(run.process.poll() is not None for run in runs):
            raise Failure(f"ended by itself: {runs[0].output()[-400:]}")
        if "loss" in runs[0].output():
            return
        time.sleep(0.2)
    raise Failure("no step in 60 s")


def a_rank_goes(suite, what):
    """A rank that is killed, or stopped by a signal, ends the others."""
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


def a_kernel_never_ends(suite, with_processes):
    """A hang of the last GPU after some steps; the others wait for it. The run ends with the name of that GPU."""
    if suite.device == "cpu":
        raise Skip("about GPUs")
    ranks = max(suite.rank_counts)
    if with_processes:
        suite.needs_gpus(2)
    # The first call of each kernel loads it, which takes seconds on a GPU that other programs use too.
    env = {"TRIMTAB_GPU_FAULT": f"{ranks - 1}:200", "TRIMTAB_HANG_SECONDS": "10"}
    settings = suite.split("llama3", ranks, bf16="false", max_steps=1000000, num_train_epochs=1000000, disable_tqdm="true")
    if with_processes:
        settings["ranks"] = 0
        runs = start_processes(suite, ranks, settings, env)
    else:
        runs = [Run(suite, ["train"], settings, env)]
    try:
        wait_until(runs[0], lambda: "loss" in runs[0].output())
        begin = time.monotonic()
        codes = [run.wait(END_SECONDS) for run in runs]
        said = [line for run in runs for line in run.output().splitlines() if line.startswith("error")]
        if any(code != EXIT_DEVICE for code in codes):
            raise Failure(f"exit codes {codes} instead of {EXIT_DEVICE}: {said}")
        if len(said) != 1 or f"cuda:{ranks - 1}" not in said[0]:
            raise Failure(f"the GPU that hangs is not named once: {said}")
        return f"{ranks} ranks ended {time.monotonic() - begin:.1f} s after their first steps: {said[0]}"
    finally:
        for run in runs:
            run.end()


def damaged_model(suite):
    folder = suite.out / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
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
    settings = {**suite.split("llama2", ranks), "model_name_or_path": suite.once("damaged", lambda: damaged_model(suite))}
    if with_processes:
        settings["ranks"] = 0
        runs = start_processes(suite, ranks, settings)
    else:
        runs = [Run(suite, ["train"], settings)]
    try:
        codes = [run.wait() for run in runs]
    finally:
        for run in runs:
            run.end()
    lines = [line for run in runs for line in run.output().splitlines()]
    errors = [line for line in lines if line.startswith("error")]
    if any(code != EXIT_DATA for code in codes):
        raise Failure(f"exit codes {codes} instead of {EXIT_DATA}: {errors}")
    if len(errors) != 1:
        raise Failure(f"{len(errors)} messages: {errors}")
    if not any("model.layers.1" in line for line in lines):
        raise Failure(f"the layer is not named: {errors}")
    return errors[0]


def saved_bytes(run, step=STEPS):
    """Weights of the result, and weights and training state of the last checkpoint."""
    folders = [run.result, run.result / f"checkpoint-{step}"]
    files = {path.relative_to(run.result): path.read_bytes() for folder in folders for path in folder.glob("*.safetensors")}
    if not any("training_state" in path.name for path in files):
        raise Failure(f"no training state in {run.result}")
    return files


def must_be_same(a, b, what):
    """Fails when the files differ; returns the number of bytes."""
    if a.keys() != b.keys():
        raise Failure(f"{what}: other files: {sorted(map(str, a.keys() ^ b.keys()))}")
    for path in a:
        if a[path] == b[path]:
            continue
        different = sum(x != y for x, y in zip(a[path], b[path])) + abs(len(a[path]) - len(b[path]))
        raise Failure(f"{what}: {different} of {len(a[path])} bytes of {path} differ")
    return sum(map(len, a.values()))


def went_on(run, step):
    """Checks that the run resumed; a run from the start would end with the same result."""
    if f"step {step} of " not in run.output():
        raise Failure(f"did not go on from step {step}: {run.output()[-300:]}")


def goes_on_alike(suite, ranks, settings):
    """Saved in the middle or not, resumed from there or not: the same bytes at the end."""
    settings = suite.split(*settings[1:2], ranks, bf16="true", save_strategy="steps", **settings[2])
    whole, saving = suite.together(lambda every: suite.train({**settings, "save_steps": every}, REPEATABLE),
                                   (STEPS, STEPS // 2))
    after = suite.train({**settings, "save_steps": STEPS, "resume_from_checkpoint": saving.result / "checkpoint-4"},
                        REPEATABLE)
    went_on(after, STEPS // 2)
    wanted = saved_bytes(whole)
    must_be_same(saved_bytes(saving), wanted, "after a save in the middle")
    return must_be_same(saved_bytes(after), wanted, "gone on with")


def resumes_same_bits(suite, ranks, many):
    suite.needs_gpus(ranks)

    def one(settings):
        try:
            return goes_on_alike(suite, ranks, settings)
        except Failure as reason:
            return Failure(f"{settings[0]}: {reason}")

    found = suite.together(one, many)
    failures = [str(reason) for reason in found if isinstance(reason, Failure)]
    if failures:
        raise Failure("; ".join(failures))
    return f"{len(found)} kinds of runs, {sum(found)} bytes"


def resumes_elsewhere(suite, first, then, more):
    """`first`, `then`: device and ranks. The reference curve is that of the saving run, which is not interrupted."""
    for device, ranks in (first, then):
        if device != "cpu":
            suite.needs_gpus(ranks)

    def settings(place, **further):
        device, ranks = place
        return {**suite.split("llama3", ranks, bf16="false", save_strategy="steps", save_steps=STEPS // 2, **more,
                              **further), "device": device}

    saving = suite.once(("saving", first, str(more)), lambda: suite.train(settings(first)))
    after = suite.train(settings(then, resume_from_checkpoint=saving.result / "checkpoint-4"))
    half = STEPS // 2
    went_on(after, half)
    return within([after.curve()[half:]], ["the rest"], saving.curve()[half:], 1e-4)


def resumes_elsewhere_both(suite, first, then):
    """Adapters, and all weights."""
    return "; ".join(suite.together(lambda more: resumes_elsewhere(suite, first, then, more), ({}, ALL_WEIGHTS)))


def resumes_as_processes(suite):
    """Saved by ranks of one process and resumed by a process for each, and the other way round."""
    suite.needs_gpus(2)
    ranks = max(suite.rank_counts)
    more = {"save_strategy": "steps", "save_steps": STEPS // 2}
    with suite.slots:
        saving = all_must(start_processes(suite, ranks, process_settings(suite, ranks, **more, **SHARDED)))
    threads = suite.train(suite.split("llama3", ranks, bf16="false", **more))
    half = STEPS // 2
    wanted = threads.curve()[half:]
    saved = {"resume_from_checkpoint": threads.result / "checkpoint-4"}
    with suite.slots:
        other = all_must(start_processes(suite, ranks, process_settings(suite, ranks, **more, **saved)))
    saved = {"resume_from_checkpoint": saving.result / "checkpoint-4"}
    after = suite.train(suite.split("llama3", ranks, bf16="false", **more, **saved))
    went_on(other, half)
    went_on(after, half)
    return within([other.curve()[half:], after.curve()[half:]], ["as processes", "as threads"], wanted, 1e-4)


def verify(suite, folder):
    run = Run(suite, ["checkpoint", "verify", folder], {})
    if run.wait() != 0:
        raise Failure(f"{folder}: {run.output().strip()[:300]}")


def stop_and_go_on(suite, with_processes):
    """SIGTERM during training: exit code 11, a complete checkpoint, and then the end of an uninterrupted run."""
    ranks = max(suite.rank_counts)
    more = {"bf16": "true", "max_steps": LONG, "save_strategy": "steps", "save_steps": LONG}
    settings = suite.split("llama3", ranks, **more)
    if with_processes:
        suite.needs_gpus(2)
        runs = start_processes(suite, ranks, {**settings, "ranks": 0}, REPEATABLE)
    else:
        runs = [Run(suite, ["train"], settings, REPEATABLE)]
    try:
        if not wait_until(runs[0], lambda: "step 9/" in runs[0].output()):
            raise Failure(f"ended by itself: {runs[0].output()[-300:]}")
        begin = time.monotonic()
        runs[-1].process.send_signal(signal.SIGTERM)
        codes = [run.wait(END_SECONDS) for run in runs]
        seconds = time.monotonic() - begin
    finally:
        for run in runs:
            run.end()
    if any(code != EXIT_STOPPED for code in codes):
        raise Failure(f"exit codes {codes} instead of {EXIT_STOPPED}: {runs[0].output()[-300:]}")
    saved = list(runs[0].result.glob("checkpoint-*"))
    if len(saved) != 1 or saved[0].name == f"checkpoint-{LONG}":
        raise Failure(f"checkpoints of the stopped run: {[path.name for path in saved]}")
    verify(suite, saved[0])
    step = saved[0].name.split("-")[1]
    rest = {**settings, "resume_from_checkpoint": "true"}
    if with_processes:  # sums over processes have another order
        after = suite.train(rest, REPEATABLE, runs[0].result)
        went_on(after, step)
        if len(after.curve()) != LONG:
            raise Failure(f"a curve of {len(after.curve())} steps")
        return f"ended {seconds:.1f} s after the signal with {step} of {LONG} steps, and went on"
    after, whole = suite.together(lambda pair: suite.train(pair[0], REPEATABLE, pair[1]),
                                  [(rest, runs[0].result), (settings, None)])
    went_on(after, step)
    wanted = saved_bytes(whole, LONG)
    stopped = {path: data for path, data in saved_bytes(after, LONG).items() if path in wanted}
    return (f"ended {seconds:.1f} s after the signal with {step} of {LONG} steps; "
            f"{must_be_same(stopped, wanted, 'gone on with')} bytes as if it had not")


def killed_while_saving(suite):
    """Killed a few times in the middle of a save: folders with the name of a checkpoint are complete, and the run resumes."""
    ranks = max(suite.rank_counts)
    settings = suite.split("llama3", ranks, bf16="true", max_steps=LONG, save_strategy="steps", save_steps=1,
                           save_total_limit=2, resume_from_checkpoint="true", **ALL_WEIGHTS, **SHARDED,
                           save_dtype="bfloat16")
    result, killed_at, attempts = suite.out / "runs" / "killed", [], 0

    def checkpoints():
        steps = [path.name.split("-")[1] for path in result.glob("checkpoint-*")]
        return sorted(int(step) for step in steps if step.isdigit())

    while len(killed_at) < KILLS and attempts < 3 * KILLS:
        attempts += 1
        before = max(checkpoints(), default=0)
        run = Run(suite, ["train"], settings, REPEATABLE, result)

        def amid_a_save():
            if max(checkpoints(), default=0) < before + 2 or not any(result.glob("checkpoint-*.saving")):
                return False
            run.process.send_signal(signal.SIGSTOP)  # so that it still runs when it is killed
            time.sleep(0.001)
            if any(result.glob("checkpoint-*.saving")):
                return True
            run.process.send_signal(signal.SIGCONT)
            return False

        if not wait_until(run, amid_a_save):
            raise Failure(f"ended by itself: {run.output()[-300:]}")
        run.process.kill()  # end() would resume it first
        run.end()
        if any(result.glob("checkpoint-*.saving")):
            killed_at.append(max(checkpoints()))
        for step in checkpoints():
            verify(suite, result / f"checkpoint-{step}")
    if not killed_at:
        raise Failure(f"never amid a save in {attempts} attempts")
    newest = max(checkpoints())
    wanted_settings = {**settings, "save_steps": LONG, "resume_from_checkpoint": "false"}
    after, whole = suite.together(lambda pair: suite.train(pair[0], REPEATABLE, pair[1]),
                                  [({**settings, "save_steps": LONG}, result), (wanted_settings, None)])
    went_on(after, newest)
    if any(result.glob("*.saving")):
        raise Failure("what the killed run left unfinished is still there")
    bytes_same = must_be_same(saved_bytes(after, LONG), saved_bytes(whole, LONG), "gone on with")
    return f"killed amid a save {len(killed_at)} times in {attempts} (after steps {killed_at}); {bytes_same} bytes the same"


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
    ("fp16 is bfloat16", {"fp16": "true"}, {}, 0, "computes in bfloat16"),
]


def all_checks(suite):
    for family in ("llama2", "llama3", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma3", "gemma2",
                   *MORE_FAMILIES):
        suite.check(f"fp32 as on the CPU, {family}", as_on_the_cpu, family, **SLOW_FAMILIES.get(family, {}))
    for name, family, more in ADAPTERS:
        suite.check(f"fp32 as on the CPU, {name}", as_on_the_cpu, family, **more)
    for ranks, families in ((2, ("dense/qwen3_moe", "dense/deepseek_v3")), (4, ("dense/glm4_moe_lite",))):
        for family in families:
            suite.check(f"experts over ranks, {family}, ranks {ranks}", experts_over_ranks, ranks, family)
    for name, family, more in CODED_EXPERTS:
        suite.check(f"fp32 as on the CPU, experts in {name}", as_on_the_cpu, family, **more)
    for family in ("llama3", "phi3", "gemma3", "gemma2"):
        suite.check(f"fp32 as on the CPU, {family}, all weights", as_on_the_cpu, family, **ALL_WEIGHTS)
    suite.check("fp32 as on the CPU, Muon", as_on_the_cpu, "llama3", optim="muon", ns_dtype="float32", **ALL_WEIGHTS)
    for ranks in RANKS[1:]:
        suite.check(f"one curve, Muon, ranks {ranks}", one_curve_muon, ranks)
    for name, more in DETECTORS:
        suite.check(f"a detector as on the CPU, {name}", detector_as_on_the_cpu, more)
    for ranks in RANKS:
        suite.check(f"one curve, bf16, ranks {ranks}", one_curve_bf16, ranks, False)
        suite.check(f"one curve, bf16 packed, ranks {ranks}", one_curve_bf16, ranks, True)
        suite.check(f"one curve, fp32, ranks {ranks}", one_curve_fp32, ranks)
        suite.check(f"same command, same bits, ranks {ranks}", same_bits, ranks)
        for offload in ("false", "true"):
            suite.check(f"one curve, quantized base, ranks {ranks}, offload_params {offload}", one_curve_quantized, ranks,
                        offload)
        saved = [kind for kind in SAVED if kind[2].get("sharding_strategy", "FULL_SHARD") in strategies(ranks)]
        suite.check(f"resume, same bits, ranks {ranks}", resumes_same_bits, ranks, saved)
        suite.check(f"resume, same bits over a quantized base, ranks {ranks}", resumes_same_bits, ranks,
                    QUANTIZED if ranks == 2 else QUANTIZED[:1])
        suite.check(f"same command, same bits over fp8, ranks {ranks}", same_bits, ranks, **properties_fp8.DEMO)
        fp8 = properties_fp8.saved(suite)
        suite.check(f"resume, same bits over fp8, ranks {ranks}", resumes_same_bits, ranks, fp8 if ranks == 2 else fp8[:1])
    properties_fp8.add_checks(suite)
    properties_preferences.add_checks(suite)
    properties_serve.add_checks(suite)
    here = suite.device
    for first, then in (((here, 1), (here, 2)), ((here, 2), (here, 1)), ((here, 2), (here, 4)), ((here, 4), (here, 2)), ((here, 8), (here, 4)), ((here, 4), (here, 8)),
                        ((here, 1), ("cpu", 1)), (("cpu", 2), (here, 1)), (("cpu", 1), (here, 2))):
        suite.check(f"resume, {first[0]} ranks {first[1]} to {then[0]} ranks {then[1]}", resumes_elsewhere_both, first, then)
    suite.check("resume, a process for each rank and threads", resumes_as_processes, when=0)
    suite.check("resume after SIGTERM", stop_and_go_on, False, when=0)
    suite.check("resume after SIGTERM to one of several processes", stop_and_go_on, True, when=0)
    suite.check("resume after being killed while saving", killed_while_saving, when=0)
    suite.check("generate", generates, when=0)
    suite.check("generate in batches", generates_in_batches, when=0)
    suite.check("eval", evaluates, when=0)
    suite.check("a process for each rank", processes, when=0)
    suite.check("the bits of threads and of processes", same_bits_over_transports, "llama3", when=0)
    suite.check("the bits of threads and of processes, sums in bf16", same_bits_over_transports, "qwen3",
                reduce_dtype="bfloat16", when=0)
    suite.check("the bits of threads and of processes, experts over ranks", same_bits_over_transports, "dense/qwen3_moe",
                expert_parallel=2, when=0)
    for strategy in ("HYBRID_SHARD", "FULL_SHARD"):
        suite.check(f"two machines, {strategy}", machines, strategy, when=0)
    suite.check("a rank is killed", a_rank_goes, signal.SIGKILL, when=2)
    suite.check("a rank is stopped", a_rank_goes, signal.SIGSTOP, when=2)
    suite.check("a kernel never ends, ranks of one process", a_kernel_never_ends, False, when=2)
    suite.check("a kernel never ends, a process for each rank", a_kernel_never_ends, True, when=2)
    suite.check("NaN in the weights, ranks of one process", nan_weights, False)
    suite.check("NaN in the weights, a process for each rank", nan_weights, True)
    for name, more, env, code, part in REFUSALS:
        suite.check(f"refusal: {name}", refusal, more, env, code, part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trimtab", type=pathlib.Path, default=ROOT / "build/trimtab", help="the program")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for results and outputs of runs")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--gpus", type=int, help="ranks to use at most; default: as many as there are")
    parser.add_argument("--jobs", type=int, help="runs at a time, over all checks; default: by the processors")
    parser.add_argument("--checks-at-once", type=int, default=1, help="checks at a time")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no check is begun")
    parser.add_argument("--results", type=pathlib.Path, help="file that gets a line of each check; default: results.tsv in --out")
    parser.add_argument("--only", nargs="*", help="checks whose name holds one of these words")
    args = parser.parse_args()
    args.checks_at_once = max(1, args.checks_at_once)
    if args.jobs is None:
        args.jobs = min(6 * args.checks_at_once, (os.cpu_count() or 2) // 3)
    args.jobs = max(1, args.jobs)
    try:
        suite = Suite(args)
    except Failure as reason:
        sys.exit(f"error: {reason}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, suite.end_at_once)
    all_checks(suite)
    suite.run_checks()
    sys.exit(1 if suite.failed else 0)


if __name__ == "__main__":
    main()
