#!/usr/bin/env python3
"""The peer of `trimtab bench generate` on a GPU: transformers' generate() on a shape with random weights in bf16.

    python bench/peers/hf_gpu_generate.py --config bench/shapes/l8b.json --batch 1 64 --new-tokens 64

Greedy, end tokens ignored, SDPA, the cache that generate() chooses. Prints one JSON line for each batch size: new tokens
per second of the second call, all of it, and without the time of a call with one new token.
"""

import argparse
import json
import time

import torch
import transformers


def seconds(model, ids, new_tokens):
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=new_tokens,
                             max_new_tokens=new_tokens, pad_token_id=0)
    torch.cuda.synchronize()
    assert out.shape[1] == ids.shape[1] + new_tokens
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=256)
    args = parser.parse_args()
    with open(args.config) as file:
        fields = json.load(file)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.eval()
    model.generation_config.eos_token_id = None
    for batch in args.batch:
        ids = torch.randint(0, config.vocab_size, (batch, args.prompt_tokens), device="cuda")
        seconds(model, ids, 4)
        first, whole = seconds(model, ids, 1), seconds(model, ids, args.new_tokens)
        print(json.dumps({
            "peer": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "config": args.config,
            "batch": batch,
            "prompt_tokens": args.prompt_tokens,
            "new_tokens": args.new_tokens,
            "tokens_per_second": batch * args.new_tokens / whole,
            "decode_tokens_per_second": batch * (args.new_tokens - 1) / (whole - first),
            "peak_bytes": torch.cuda.max_memory_allocated(),
        }), flush=True)


if __name__ == "__main__":
    main()
