#!/usr/bin/env python3
"""Tokens per second of generation on the CPU, compared with transformers' generate().

    OMP_NUM_THREADS=2 python bench/peers/hf_cpu_generate.py --trimtab build/trimtab --config bench/shapes/s135m.json
    OMP_NUM_THREADS=2 python bench/peers/hf_cpu_generate.py --trimtab build/trimtab MODEL_FOLDER

--config: a model with random weights in float32 and the repository's tokenizer of bytes, made for this run. Greedy, end
tokens ignored, --new_tokens tokens after prompts of the same number of tokens. Both sides run alternately,
in each type and batch size; the median of the rounds counts. transformers runs with each number of --peer_threads (1 and
--threads), because more threads may be slower; its best number counts. On a machine with other work, --threads 1 --clock cpu
counts the processor time of one thread instead. transformers' time is that of generate() less that of generate() with one
new token. Trimtab's is that of a whole command less that of the same command with one new token, so that loading does not
count; with --config and the clock on the wall it is what `trimtab bench generate` prints for the tokens after the first, over
random weights of its own, because loads differ by more than a short answer takes. Prints one JSON line for each type and batch size (ratio: of the medians; ratios: of each
round), and last a table of them.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

import torch
import transformers


TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "tests/support/tiny_tokenizer"


def make_model(config, folder):
    fields = json.loads(pathlib.Path(config).read_text())
    fields["dtype"] = "float32"
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32).save_pretrained(folder)
    for file in TOKENIZER.iterdir():
        shutil.copy(file, folder)


def now(args, who):
    if args.clock == "wall":
        return time.perf_counter()
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def trimtab_seconds(args, prompts, dtype, new_tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(prompts))
        file.flush()
        command = [args.trimtab, "generate", "--model_name_or_path", args.model, "--prompt_file", file.name]
        command += ["--max_new_tokens", str(new_tokens), "--ignore_eos", "true", "--device", "cpu"]
        command += ["--per_device_eval_batch_size", str(len(prompts))]
        command += ["--bf16", "true" if dtype == "bfloat16" else "false", "--threads", str(args.threads)]
        start = now(args, resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return now(args, resource.RUSAGE_CHILDREN) - start


def bench_seconds(args, prompt_tokens, count, dtype):
    """Of all tokens after the first of each row, without loading."""
    command = [args.trimtab, "bench", "generate", "--config_json", args.config, "--device", "cpu", "--threads", str(args.threads),
               "--bf16", "true" if dtype == "bfloat16" else "false", "--prompt_tokens", str(prompt_tokens),
               "--new_tokens", str(args.new_tokens), "--per_device_train_batch_size", str(count)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return count * (args.new_tokens - 1) / json.loads(said.splitlines()[0])["decode_tokens_per_second"]


def transformers_seconds(args, threads, model, tokenizer, prompts, new_tokens):
    torch.set_num_threads(threads)
    batch = tokenizer(prompts, return_tensors="pt")
    assert batch["attention_mask"].min() == 1, "prompts of different lengths"
    start = now(args, resource.RUSAGE_SELF)
    with torch.inference_mode():
        ids = model.generate(**batch, do_sample=False, max_new_tokens=new_tokens, pad_token_id=0)
    assert ids.shape[1] == batch["input_ids"].shape[1] + new_tokens
    return now(args, resource.RUSAGE_SELF) - start


def compare(args, dtype, count, ours, peer):
    """ours: seconds of each round; peer: the same for each number of threads."""
    tokens = count * (args.new_tokens - 1)
    best = min(peer, key=lambda threads: statistics.median(peer[threads]))
    result = {"dtype": dtype, "batch": count, "threads": args.threads, "clock": args.clock, "rounds": args.rounds}
    result["trimtab"] = round(tokens / statistics.median(ours), 1)
    result["transformers"] = round(tokens / statistics.median(peer[best]), 1)
    result["transformers_threads"] = best
    result["ratio"] = round(result["trimtab"] / result["transformers"], 2)
    result["ratios"] = [round(b / a, 2) for a, b in zip(ours, peer[best])]
    result["seconds"] = {"trimtab": [round(value, 2) for value in ours]}
    for threads, seconds in peer.items():
        result["seconds"][f"transformers, threads {threads}"] = [round(value, 2) for value in seconds]
    return result


def measure(args):
    results = []
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    for dtype in args.dtypes:
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, dtype))
        model.generation_config.eos_token_id = None
        for count in args.batches:
            prompts = [f"The letter {chr(65 + i)} is the first letter of" for i in range(count)]
            ours, peer = [], {threads: [] for threads in args.peer_threads}
            for _ in range(args.rounds):
                if args.config is not None and args.clock == "wall":
                    ours.append(bench_seconds(args, len(tokenizer(prompts[0])["input_ids"]), count, dtype))
                else:
                    short = trimtab_seconds(args, prompts, dtype, 1)
                    ours.append(trimtab_seconds(args, prompts, dtype, args.new_tokens) - short)
                for threads, seconds in peer.items():
                    short = transformers_seconds(args, threads, model, tokenizer, prompts, 1)
                    seconds.append(transformers_seconds(args, threads, model, tokenizer, prompts, args.new_tokens) - short)
            results.append(compare(args, dtype, count, ours, peer))
            print(json.dumps(results[-1]), flush=True)
        del model
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trimtab", default="build/trimtab")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    parser.add_argument("--peer_threads", type=int, nargs="+", help="numbers of threads of transformers: 1 and --threads")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new_tokens", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--config")
    parser.add_argument("model", nargs="?")
    args = parser.parse_args()
    if (args.config is None) == (args.model is None):
        parser.error("give a model folder, or --config")
    args.peer_threads = sorted(set(args.peer_threads or [1, args.threads]))
    with tempfile.TemporaryDirectory() as folder:
        if args.config is not None:
            make_model(args.config, folder)
            args.model = folder
        results = measure(args)
    print("| type | prompts at a time | Trimtab | transformers | its threads | ratio | of rounds |\n|---|---|---|---|---|---|---|")
    for result in results:
        print(f"| {result['dtype']} | {result['batch']} | {result['trimtab']} | {result['transformers']} | "
              f"{result['transformers_threads']} | {result['ratio']} | {min(result['ratios'])} to {max(result['ratios'])} |")


if __name__ == "__main__":
    main()
