#!/usr/bin/env python3
"""Loss curves of trimtab beside those of transformers + PEFT: the same weights, adapter, rows and order, in bf16 and fp32.

    tests/gpu/peer_curves.py --trimtab build/trimtab --out FOLDER [--families llama qwen3] [--device cuda] [--steps 50]

Needs torch, transformers and peft. Small random models of each family are made on the spot, with heads as wide as real
ones. What rounding to bf16 does to a curve is measured, not chosen: the peer in bf16 against itself in fp32. Each of two
bf16 curves is about that far from the fp32 one, so trimtab's may be at most twice that far from the peer's. In fp32 both
must agree to a tenth of it. --tiny makes models that a CPU trains in seconds, to try this script.

--quant nf4 is the same over a base that each side quantizes by itself from the same folder, to NF4 with double quantization:
the peer by bitsandbytes, which is needed then, and computing in bf16 or, for the exact pair, in fp32.
"""
import argparse
import gc
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROWS_PER_STEP = 2
LEARNING_RATE = 1e-3
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FAMILIES = {
    "llama": dict(hidden_size=1024, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, head_dim=128,
                  intermediate_size=2816, tie_word_embeddings=False),
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
    """Rows of a few words of the vocabulary, most often in a fixed order: there is something to learn."""
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
    """A model and an adapter of random numbers, on disk; the adapter's B is not zero, so that all of it has a gradient."""
    torch.manual_seed(1)
    settings = {**FAMILIES[family], **(TINY if args.tiny else {}), "vocab_size": args.vocabulary,
                "max_position_embeddings": 2048, "initializer_range": 0.04}
    config = AutoConfig.for_model(family, **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(torch.bfloat16)
    model.save_pretrained(folder / "model")
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.01)
    adapted.save_pretrained(folder / "adapter")


def peer_model(folder, dtype, args):
    how = {"dtype": dtype, "attn_implementation": "sdpa"}
    if args.quant == "nf4":
        how["device_map"] = {"": args.device}
        how["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                        bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
    base = AutoModelForCausalLM.from_pretrained(folder / "model", **how)
    base.config.use_cache = False
    model = PeftModel.from_pretrained(base, folder / "adapter", is_trainable=True, torch_device=args.device)
    packed = sum(parameter.__class__.__name__ == "Params4bit" for parameter in model.parameters())
    if packed != (len(TARGETS) * base.config.num_hidden_layers if args.quant == "nf4" else 0):
        sys.exit(f"error: transformers has {packed} matrices in 4 bits")
    if args.quant == "none":
        model.to(args.device)
    return model.train()


def peer_curve(folder, rows, dtype, args):
    """50 steps in a plain loop: what Trainer does with bf16=True, one row at a time so that nothing is padded."""
    model = peer_model(folder, dtype, args)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if any(parameter.dtype != torch.float32 for parameter in trained):
        sys.exit("error: PEFT keeps the adapter in another type than float32")
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
    curve = []
    for step in range(args.steps):
        batch = rows[step * ROWS_PER_STEP:(step + 1) * ROWS_PER_STEP]
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


def our_curve(folder, bf16, args):
    out = folder / f"ours_{'bf16' if bf16 else 'fp32'}"
    settings = {
        "model_name_or_path": folder / "model", "adapter_name_or_path": folder / "adapter",
        "dataset_name": folder / "rows.jsonl", "output_dir": out, "overwrite_output_dir": "true", "device": args.device,
        "ranks": 1, "bf16": str(bf16).lower(), "max_steps": args.steps, "logging_steps": 1, "save_strategy": "no",
        "report_to": "none", "per_device_train_batch_size": ROWS_PER_STEP, "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": 0, "max_grad_norm": 1,
        "train_sampling_strategy": "sequential", "packing": "false", "max_length": 2048,
    }
    if args.quant == "nf4":
        settings |= {"load_in_4bit": "true", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": "true"}
    words = [str(args.trimtab), "train"]
    for key, value in settings.items():
        words += [f"--{key}", str(value)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    if done.returncode != 0:
        raise RuntimeError(f"trimtab ended with {done.returncode}: {done.stdout[-800:]}")
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
    rows = make_rows(folder / "rows.jsonl", args.vocabulary, args.steps * ROWS_PER_STEP, args.longest)
    curves = {
        "peer_bf16": peer_curve(folder, rows, torch.bfloat16, args), "peer_fp32": peer_curve(folder, rows, torch.float32, args),
        "ours_bf16": our_curve(folder, True, args), "ours_fp32": our_curve(folder, False, args),
    }
    (folder / "curves.json").write_text(json.dumps(curves))
    noise, _ = furthest(curves["peer_bf16"], curves["peer_fp32"])
    own_noise, _ = furthest(curves["ours_bf16"], curves["ours_fp32"])
    bf16, bf16_step = furthest(curves["ours_bf16"], curves["peer_bf16"])
    fp32, fp32_step = furthest(curves["ours_fp32"], curves["peer_fp32"])
    learned = curves["peer_fp32"][-1] < 0.97 * curves["peer_fp32"][0]
    good = bf16 <= 2 * noise and fp32 <= 0.1 * noise and learned
    print(f"{'PASS' if good else 'FAIL'} {title:{args.width}s} loss {curves['peer_bf16'][0]:.4f} to {curves['peer_bf16'][-1]:.4f}"
          f"{'' if learned else ' (learned nothing)'}; bf16: furthest {bf16:.2e} (step {bf16_step}), bound {2 * noise:.2e}; "
          f"fp32: {fp32:.2e} (step {fp32_step}), bound {0.1 * noise:.2e}; bf16 against fp32: peer {noise:.2e}, "
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
    args.width = 8 if args.quant == "none" else 12
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
