#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyTorch: FSDP2 and AdamW saved and loaded by torch.distributed.checkpoint, between training steps.

    python -m torch.distributed.run --standalone --nproc_per_node 2 bench/peers/torch_checkpoint.py --shape l1b --folder DIR

Parameters are fp32 masters that FSDP2 gathers in bf16, so masters and both moments are saved: 12 bytes per trained
parameter, the state that `trimtab train` keeps. --lora R trains an adapter of PEFT instead and saves only the trainable parameters.
Modes of --modes, each --saves times into a new folder below DIR:

    sync           dcp.save: training waits for the whole save
    async          dcp.async_save: a stream of its own copies into pinned memory, which is kept from save to save, and a
                   thread writes; the next update waits for the copies
    async-process  the same, but a process of its own writes, from shared memory

Writers are FileSystemWriter with --threads files per rank and sync_files (fsync), its default. One JSON line of rank 0:
for each save

    stall_s      time of the call in the training thread
    gap_s        the call and the step after it, less the median step: the loss of training, including waits for copies
    written_s    from the call until all files were written
    slower_s     extra time of the steps meanwhile, compared with the median, without the first of them

Then load_s: dcp.load into the running job, values checked. --resume FOLDER loads once after the start instead; built_s and
first_step_s are then the seconds from the start of the process to a built model and to the end of the first step.
"""

import time

STARTED = time.time()  # before the imports: they are part of a restart

import argparse
import faulthandler
import inspect
import json
import os
import platform
import shutil
import statistics
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

SHAPES = Path(__file__).resolve().parents[1] / "shapes"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SLOW_STEPS_MAX = 400  # measured while a save is written


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="l1b", help="a name of bench/shapes")
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--lora", type=int, default=0, help="rank of the adapter; 0: all weights train")
    parser.add_argument("--bs", type=int, default=2, help="sequences of one rank in a step")
    parser.add_argument("--seq", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=10, help="steps for the median, after 3 of warmup")
    parser.add_argument("--modes", default="async,sync")
    parser.add_argument("--saves", type=int, default=2, help="of each mode; the first one takes memory too")
    parser.add_argument("--threads", type=int, default=8, help="writing threads, and files, of a rank; and of loading")
    parser.add_argument("--keep", type=int, default=0, help="1: leave the last checkpoint there")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from: one load and two steps, nothing else")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a rank ends, wherever it is")
    return parser.parse_args()


def build(args, device, rank):
    """Nothing is allocated before it is sharded; then random numbers, drawn where they lie."""
    config = AutoConfig.from_pretrained(SHAPES / f"{args.shape}.json")
    frozen = torch.bfloat16 if args.lora else torch.float32
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=frozen, attn_implementation="sdpa")
        if args.lora:
            from peft import LoraConfig, get_peft_model
            model = get_peft_model(model, LoraConfig(r=args.lora, lora_alpha=2 * args.lora, target_modules=TARGETS,
                                                     lora_dropout=0.0, task_type="CAUSAL_LM"))
    decoder = model.base_model.model.model if args.lora else model.model
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in decoder.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    torch.manual_seed(1 + rank)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().normal_(0, 0.02)
        for module in model.modules():
            # Buffers that follow from the config; meta tensors have no values for them.
            if hasattr(module, "inv_freq"):
                fresh = type(module)(config, device=device)
                for name, buffer in fresh.named_buffers():
                    module.register_buffer(name, buffer, persistent=False)
                module.original_inv_freq = module.inv_freq
            if "norm" in type(module).__name__.lower() and hasattr(module, "weight"):
                module.weight.to_local().fill_(1)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, torch.optim.AdamW(trained, lr=1e-5, fused=device.type == "cuda"), config.vocab_size


class Job:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        local = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device("cuda", local) if args.device == "cuda" else torch.device("cpu")
        self.model, self.optimizer, self.vocabulary = build(args, self.device, self.rank)
        generator = torch.Generator(device=self.device).manual_seed(1 + self.rank)
        self.ids = torch.randint(0, self.vocabulary, (args.bs, args.seq), device=self.device, generator=generator)
        self.options = StateDictOptions(ignore_frozen_params=bool(args.lora), strict=not args.lora)
        self.stager = {}
        self.saving = dist.new_group(backend="gloo")  # a thread that saves must not share one with training

    def step(self, before_update=None):
        """Its seconds; the loss is read, as a log of every step does."""
        begin = time.perf_counter()
        loss = self.model(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        if before_update is not None:
            before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer, options=self.options)
        return {"model": model, "optimizer": optimizer}

    def writer(self, folder):
        return dcp.FileSystemWriter(folder, single_file_per_rank=True, sync_files=True, thread_count=self.args.threads)

    def save(self, folder):
        dist.barrier()
        begin = time.perf_counter()
        dcp.save(self.state(), storage_writer=self.writer(folder), process_group=self.saving)
        seconds = time.perf_counter() - begin
        return {"stall_s": seconds, "gap_s": seconds, "written_s": seconds, "slower_s": 0.0, "steps_meanwhile": 0}

    def stage_by(self, process):
        """The stager is kept: from the second save on its memory is there."""
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        if process not in self.stager:
            gpu = self.device.type == "cuda"
            self.stager[process] = DefaultStager(StagingOptions(use_pinned_memory=gpu, use_shared_memory=process,
                                                                use_async_staging=gpu, use_non_blocking_copy=gpu))
        return self.stager[process]

    def save_async(self, folder, process, median):
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
        kind = AsyncCheckpointerType.PROCESS if process else AsyncCheckpointerType.THREAD
        dist.barrier()
        begin = time.perf_counter()
        response = dcp.async_save(self.state(), storage_writer=self.writer(folder), async_checkpointer_type=kind,
                                  async_stager=self.stage_by(process), process_group=self.saving)
        stall = time.perf_counter() - begin
        staged = getattr(response, "staging_completion", None)
        written = getattr(response, "upload_completion", response)
        ended = []
        written.add_done_callback(lambda _: ended.append(time.perf_counter()))
        seconds = []
        while len(seconds) < SLOW_STEPS_MAX:
            seconds.append(self.step(staged.result if staged is not None else None))
            staged = None
            done = torch.tensor([1 if written.done() else 0], device=self.device)
            dist.all_reduce(done, op=dist.ReduceOp.MIN)
            if done.item():
                break
        written.result()
        first, *others = seconds
        return {"stall_s": stall, "gap_s": stall + first - median, "written_s": ended[0] - begin,
                "slower_s": sum(others) - len(others) * median, "steps_meanwhile": len(others)}

    def load(self, folder):
        """Seconds until weights and optimizer hold what was saved."""
        dist.barrier()
        begin = time.perf_counter()
        state = self.state()
        reader = dcp.FileSystemReader(folder)
        if "thread_count" in inspect.signature(dcp.FileSystemReader.__init__).parameters:
            reader = dcp.FileSystemReader(folder, thread_count=self.args.threads)
        dcp.load(state, storage_reader=reader, process_group=self.saving)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"],
                       options=self.options)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        return time.perf_counter() - begin

    def trained(self):
        return [parameter.to_local() for parameter in self.model.parameters() if parameter.requires_grad]

    def sums(self):
        moments = [value.to_local() for state in self.optimizer.state.values() for name, value in state.items()
                   if name.startswith("exp_avg")]
        return [tensor.double().sum().item() for tensor in self.trained() + moments]

    def forget(self):
        with torch.no_grad():
            for tensor in self.trained():
                tensor.zero_()
            for state in self.optimizer.state.values():
                state["exp_avg"].to_local().zero_()
                state["exp_avg_sq"].to_local().zero_()


def folder_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove(folder):
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


def measure(job, args):
    for _ in range(3):
        job.step()
    median = statistics.median(job.step() for _ in range(args.steps))
    result = {"step_s": median, "saves": []}
    last = None
    for mode in args.modes.split(","):
        for number in range(args.saves):
            folder = args.folder / f"torch-{mode}-{number}"
            remove(folder)
            if mode == "sync":
                save = job.save(folder)
            else:
                save = job.save_async(folder, mode == "async-process", median)
            dist.barrier()
            result["saves"].append({"mode": mode, "number": number, "bytes": folder_bytes(folder), **save})
            if last is not None:
                remove(last)
            last = folder
    if mode != "sync":  # steps followed it, and what is loaded must hold the present values
        remove(last)
        dcp.save(job.state(), storage_writer=job.writer(last), process_group=job.saving)
    before = job.sums()
    job.forget()
    result["load_s"] = job.load(last)
    result["load_is_exact"] = job.sums() == before
    job.step()
    if args.keep:
        result["checkpoint"] = str(last)
    else:
        remove(last)
    return result


def resume(job, args):
    """A restart: as a recipe has it, the optimizer's state is made by loading."""
    built = time.time() - STARTED
    seconds = job.load(args.resume)
    job.step()
    return {"built_s": built, "load_s": seconds, "first_step_s": time.time() - STARTED}


def main():
    args = parse_arguments()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    warnings.filterwarnings("ignore")
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        dist.init_process_group("gloo")
    args.folder.mkdir(parents=True, exist_ok=True)
    job = Job(args)
    result = resume(job, args) if args.resume else measure(job, args)
    if job.rank == 0:
        trained = sum(parameter.numel() for parameter in job.model.parameters() if parameter.requires_grad)
        print(json.dumps({"bench": "checkpoint", "program": "torch", "shape": args.shape, "world": job.world,
                          "device": args.device, "lora": args.lora, "bs": args.bs, "seq": args.seq,
                          "threads": args.threads, "trained_parameters": trained,
                          "holds": "masters and both moments, fp32", "fsync": True, **result,
                          "versions": {"torch": torch.__version__, "python": platform.python_version()}}), flush=True)
    dist.barrier()
    for stager in job.stager.values():
        stager.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
