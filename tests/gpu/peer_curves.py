#!/usr/bin/env python3
"""Loss curves of trimtab compared with those of transformers + PEFT: the same weights, adapter, rows and order, in bf16 and fp32.

    tests/gpu/peer_curves.py --trimtab build/trimtab --out FOLDER [--families llama qwen3] [--device cuda] [--steps 50]

Needs torch, transformers and peft. The script makes small random models of each family, with heads as wide as real
ones. The effect of rounding to bf16 on a curve is measured, not chosen: the peer in bf16 against itself in fp32. Each of
two bf16 curves has about that distance from the fp32 one, so the distance of trimtab's from the peer's may be at most
twice that. In fp32 it may be a tenth of it. --tiny makes models that a CPU trains in seconds, to try this script.

--quant nf4 is the same over a base in NF4 with double quantization, and needs bitsandbytes, which quantizes the base once
and saves it. Both sides train from that folder. On a GPU bitsandbytes adds up the scales in another order, so that a few of
them may get another code than on a CPU, which must not affect the comparison of training. One more bf16 curve is of trimtab
quantizing the plain folder during loading; it has the tolerance of bf16 curves, and the number of different codes and
scales is reported.

llama-long has so many tokens per step, and is so wide, that its products fill an H200, so that fused kernels are compared
too. One more bf16 curve is without them (TRIMTAB_GEMM_FUSED=0).
"""
import argparse
import concurrent.futures
import gc
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROWS_PER_STEP = 2
LONG_ROWS_PER_STEP, LONG_STEPS = 10, 20  # of llama-long: the peer computes row by row
LEARNING_RATE = 1e-3
RUN_SECONDS = 120  # of trimtab
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FAMILIES = {
    "llama": dict(hidden_size=1024, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, head_dim=128,
                  intermediate_size=2816, tie_word_embeddings=False),
    "llama-long": dict(hidden_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, head_dim=128,
                       intermediate_size=4096, tie_word_embeddings=False),
    "mistral": dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
                    intermediate_size=1536, sliding_window=160, tie_word_embeddings=False),
    "qwen2": dict(hidden_size=896, num_hidden_layers=6, num_attention_heads=14, num_key_value_heads=2,
                  intermediate_size=2432, tie_word_embeddings=True),
    "qwen3": dict(hidden_size=768, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=3, head_dim=128,
                  intermediate_size=2048, tie_word_embeddings=True),
}
TINY = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
            intermediate_size=256)


def make_rows(path, vocabulary, count, longest):
    """Rows of a few words of the vocabulary, most often in a fixed order, so that there is something to learn."""
    generator = torch.Generator().manual_seed(7)
    words = torch.randperm(vocabulary, generator=generator)[:40]
    follows = torch.randperm(40, generator=generator)
    rows = []
    for _ in range(count):
        length = int(torch.randint(longest // 4, longest + 1, (1,), generator=generator))
        noise = torch.rand(length, generator=generator) < 0.3
        random = torch.randint(0, 40, (length,), generator=generator)
        ids = [int(random[0])]
        for t in range(1, length):
            ids.append(int(random[t]) if noise[t] else int(follows[ids[-1]]))
        rows.append([int(words[i]) for i in ids])
    with open(path, "w") as stream:
        for ids in rows:
            stream.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return rows


def make_model(family, folder, args):
    """A model and an adapter of random numbers, on disk; the adapter's B is not zero, so that A has a gradient too."""
    torch.manual_seed(1)
    settings = {**FAMILIES[family], **(TINY if args.tiny else {}), "vocab_size": args.vocabulary,
                "max_position_embeddings": 2048, "initializer_range": 0.04}
    config = AutoConfig.for_model(family.split("-")[0], **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(torch.bfloat16)
    model.save_pretrained(folder / "model")
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.01)
    adapted.save_pretrained(folder / "adapter")


def make_quantized(folder, args):
    """The model quantized and saved by the peer. It is quantized from fp32, so that products in fp32 get values without a
    rounding to bf16 in between; products in bf16 round them."""
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                             bnb_4bit_compute_dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, device_map={"": args.device},
                                                quantization_config=how)
    base.save_pretrained(folder / "quantized")


def tensors_of(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as stored:
            tensors |= {name: stored.get_tensor(name) for name in stored.keys()}
    return tensors


def quantized_apart(folder, args):
    """The numbers of codes and scales in which `trimtab quantize` differs from the peer."""
    words = [args.trimtab, "quantize", "--model_name_or_path", folder / "model", "--output_dir", folder / "quantized_by_us",
             "--overwrite_output_dir", "true", "--bnb_4bit_use_double_quant", "true"]
    run([str(word) for word in words])
    ours, theirs = tensors_of(folder / "quantized_by_us"), tensors_of(folder / "quantized")
    said = []
    for what, ending in (("bytes of codes", ".weight"), ("scales", ".weight.absmax"), ("scales of scales", ".nested_absmax")):
        names = [name for name in theirs if name.endswith(ending) and name.split(".weight")[0] + ".weight.absmax" in theirs]
        if any(name not in ours for name in names):
            sys.exit(f"error: trimtab quantize leaves out tensors that end in {ending}")
        different = sum(int((ours[name].flatten() != theirs[name].flatten()).sum()) for name in names)
        said.append(f"{different} of {sum(theirs[name].numel() for name in names)} {what}")
    return ", ".join(said)


def peer_model(folder, dtype, args):
    how = {"dtype": dtype, "attn_implementation": "sdpa"}
    if args.quant == "nf4":
        how["device_map"] = {"": args.device}
    base = AutoModelForCausalLM.from_pretrained(folder / ("quantized" if args.quant == "nf4" else "model"), **how)
    base.config.use_cache = False
    for module in base.modules():
        if module.__class__.__name__ == "Linear4bit":
            module.compute_dtype = dtype  # the folder says float32
    model = PeftModel.from_pretrained(base, folder / "adapter", is_trainable=True, torch_device=args.device)
    packed = sum(parameter.__class__.__name__ == "Params4bit" for parameter in model.parameters())
    if packed != (len(TARGETS) * base.config.num_hidden_layers if args.quant == "nf4" else 0):
        sys.exit(f"error: transformers has {packed} matrices in 4 bits")
    if args.quant == "none":
        model.to(args.device)
    return model.train()


def peer_curve(folder, rows, dtype, rows_per_step, args):
    """Steps in a plain loop, like Trainer's with bf16=True, one row at a time so that nothing is padded."""
    model = peer_model(folder, dtype, args)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if any(parameter.dtype != torch.float32 for parameter in trained):
        sys.exit("error: PEFT keeps the adapter in another type than float32")
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
    curve = []
    for step in range(args.steps):
        batch = rows[step * rows_per_step:(step + 1) * rows_per_step]
        supervised = sum(len(ids) - 1 for ids in batch)
        total = 0.0
        for ids in batch:
            ids = torch.tensor([ids], device=args.device)
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                logits = model(input_ids=ids).logits
            loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:], reduction="sum") / supervised
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curve.append(total)
    del model, optimizer
    gc.collect()
    if args.device == "cuda":
        torch.cuda.empty_cache()
    return curve


def run(words, environment=None):
    """Runs trimtab, in any thread; its output is the error when it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_SECONDS,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words[:2])} ended with {done.returncode}: {done.stdout[-800:]}")


def our_curve(folder, name, bf16, base, rows_per_step, args):
    out = folder / name
    environment = {"TRIMTAB_GEMM_FUSED": "0"} if name == "ours_unfused_bf16" else None
    settings = {
        "model_name_or_path": folder / base, "adapter_name_or_path": folder / "adapter",
        "dataset_name": folder / "rows.jsonl", "output_dir": out, "overwrite_output_dir": "true", "device": args.device,
        "ranks": 1, "bf16": str(bf16).lower(), "max_steps": args.steps, "logging_steps": 1, "save_strategy": "no",
        "report_to": "none", "per_device_train_batch_size": rows_per_step, "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": 0, "max_grad_norm": 1,
        "train_sampling_strategy": "sequential", "packing": "false", "max_length": 2048,
    }
    if args.quant == "nf4" and base == "model":
        settings |= {"load_in_4bit": "true", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": "true"}
    words = [str(args.trimtab), "train"]
    for key, value in settings.items():
        words += [f"--{key}", str(value)]
    run(words, environment)
    state = json.loads((out / "trainer_state.json").read_text())
    return [row["loss"] for row in state["log_history"] if "loss" in row]


def furthest(a, b):
    distances = [abs(x - y) / abs(y) for x, y in zip(a, b, strict=True)]
    return max(distances), 1 + distances.index(max(distances))


def compare(family, args):
    begin = time.monotonic()
    title = family if args.quant == "none" else f"{family} {args.quant}"
    folder = args.out / title.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    make_model(family, folder, args)
    rows_per_step = ROWS_PER_STEP
    if family == "llama-long":
        rows_per_step = LONG_ROWS_PER_STEP
        args = argparse.Namespace(**{**vars(args), "steps": min(args.steps, LONG_STEPS)})
    rows = make_rows(folder / "rows.jsonl", args.vocabulary, args.steps * rows_per_step, args.longest)
    ours = {"ours_bf16": (True, "model"), "ours_fp32": (False, "model")}
    if family == "llama-long":
        ours["ours_unfused_bf16"] = (True, "model")
    apart = ""
    if args.quant == "nf4":
        make_quantized(folder, args)
        apart = quantized_apart(folder, args)
        ours = {"ours_bf16": (True, "quantized"), "ours_fp32": (False, "quantized"), "ours_loading_bf16": (True, "model")}
    with concurrent.futures.ThreadPoolExecutor(len(ours) if args.device == "cuda" else 1) as pool:
        running = {name: pool.submit(our_curve, folder, name, *how, rows_per_step, args) for name, how in ours.items()}
        if args.device == "cpu":  # on a GPU they run beside the peer
            concurrent.futures.wait(running.values())
        curves = {"peer_bf16": peer_curve(folder, rows, torch.bfloat16, rows_per_step, args),
                  "peer_fp32": peer_curve(folder, rows, torch.float32, rows_per_step, args)}
        curves |= {name: future.result() for name, future in running.items()}
    (folder / "curves.json").write_text(json.dumps(curves))
    noise, _ = furthest(curves["peer_bf16"], curves["peer_fp32"])
    own_noise, _ = furthest(curves["ours_bf16"], curves["ours_fp32"])
    bf16, bf16_step = furthest(curves["ours_bf16"], curves["peer_bf16"])
    fp32, fp32_step = furthest(curves["ours_fp32"], curves["peer_fp32"])
    learned = curves["peer_fp32"][-1] < 0.97 * curves["peer_fp32"][0]
    good = bf16 <= 2 * noise and fp32 <= 0.1 * noise and learned
    loading = ""
    if "ours_unfused_bf16" in curves:
        unfused, unfused_step = furthest(curves["ours_unfused_bf16"], curves["peer_bf16"])
        good = good and unfused <= 2 * noise
        loading = f"unfused, bf16: {unfused:.2e} (step {unfused_step}); "
    if apart:
        loading_bf16, loading_step = furthest(curves["ours_loading_bf16"], curves["peer_bf16"])
        good = good and loading_bf16 <= 2 * noise
        loading += f"quantized while loading, bf16: {loading_bf16:.2e} (step {loading_step}); made otherwise: {apart}; "
    print(f"{'PASS' if good else 'FAIL'} {title:{args.width}s} loss {curves['peer_bf16'][0]:.4f} to {curves['peer_bf16'][-1]:.4f}"
          f"{'' if learned else ' (learned nothing)'}; bf16: furthest {bf16:.2e} (step {bf16_step}), bound {2 * noise:.2e}; "
          f"fp32: {fp32:.2e} (step {fp32_step}), bound {0.1 * noise:.2e}; {loading}bf16 against fp32: peer {noise:.2e}, "
          f"trimtab {own_noise:.2e}; {time.monotonic() - begin:.0f} s", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trimtab", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--quant", choices=["none", "nf4"], default="none")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.vocabulary, args.longest = (300, 80) if args.tiny else (4096, 600)
    args.width = 10 if args.quant == "none" else 12
    args.trimtab, args.out = args.trimtab.resolve(), args.out.resolve()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        sys.exit(77)
    if args.quant != "none":
        for name in ("bitsandbytes", "accelerate"):
            if importlib.util.find_spec(name) is None:
                print(f"skipped: there is no Python package {name}")
                sys.exit(77)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = [compare(family, args) for family in args.families]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
