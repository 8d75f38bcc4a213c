#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports a model in every quantized type and measures what is lost; run by hand:

    python tests/golden/check_quantized_gguf.py BUILD LLAMA_CPP MODEL TEXT [TYPE...]

LLAMA_CPP: the folder of libraries of gguf/make_quantized.py. MODEL: a folder; TEXT: a file. For each type: bits a weight;
whether all tensors have the bytes of llama_model_quantize; the perplexity of transformers over the text with the weights that
gguf's dequantize reads; whether llama.cpp says the same greedy words with both files.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import gguf
import torch
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM, AutoTokenizer

GOLDEN = Path(__file__).resolve().parent
sys.path[:0] = [str(GOLDEN), str(GOLDEN / "gguf")]
from check_llama_cpp import Llama
from make_quantized import Quantizer
from quantized import MIXTURES

WINDOW, WINDOWS, WORDS = 512, 8, 12
PROMPTS = ["The capital of France is", "To be, or not to be: that is the", "def fibonacci(n):\n"]


def tensors_of(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(str(path)).tensors}


def put_weights(model, path):
    """The matrices of the model become those of the file, whose rows of q and k are permuted for architecture llama."""
    config, found = model.config, 0
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    places = dict(model.named_parameters())
    for name, tensor in tensors_of(path).items():
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        parts = name.split(".")
        if parts[0] == "token_embd":
            place = "model.embed_tokens.weight"
        elif parts[0] == "blk" and parts[2] in names:
            place = f"model.layers.{parts[1]}.{names[parts[2]]}.weight"
        else:
            continue
        if parts[-2] in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if parts[-2] == "attn_q" else config.num_key_value_heads
            values = values.reshape(heads, -1, 2, values.shape[1]).transpose(1, 2).reshape(values.shape)
        places[place].data.copy_(values)
        found += 1
    assert found == 1 + 7 * config.num_hidden_layers


@torch.no_grad()
def perplexity(model, ids):
    total = sum(model(input_ids=row[None], labels=row[None]).loss.double() for row in ids)
    return torch.exp(total / len(ids)).item()


def greedy(llama, tokenizer, prompt):
    ids = tokenizer(prompt)["input_ids"]
    for _ in range(WORDS):
        ids.append(int(llama.logits(ids)[-1].argmax()))
    return ids


def main():
    build, libraries, folder, text = map(Path, sys.argv[1:5])
    quantize = Quantizer(libraries)
    for name in ("libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL)
    quantize.library.llama_backend_init()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert model.config.model_type == "llama"
    ids = torch.tensor(tokenizer(text.read_text()[:8 * WINDOW * WINDOWS])["input_ids"][:WINDOW * WINDOWS]).view(WINDOWS, WINDOW)
    whole, failed = perplexity(model, ids), False
    print(f"float32  perplexity {whole:.4f} of {ids.numel()} tokens", flush=True)
    with tempfile.TemporaryDirectory() as work:
        def export(kind, path):
            subprocess.run([build / "trimtab", "export", "gguf", "--model_name_or_path", folder, "--output_file", path, "--outtype", kind],
                           check=True, stdout=subprocess.DEVNULL)
            return path

        plain = export("f32", Path(work) / "plain.gguf")
        for mixture in sys.argv[5:] or MIXTURES:
            ours, theirs = export(mixture, Path(work) / "ours.gguf"), quantize(plain, Path(work) / "theirs.gguf", MIXTURES[mixture])
            left, right = tensors_of(ours), tensors_of(theirs)
            same = left.keys() == right.keys() and all(
                left[name].tensor_type == right[name].tensor_type and (left[name].data == right[name].data).all() for name in left)
            put_weights(model, ours)
            mine = perplexity(model, ids)
            if not same:
                put_weights(model, theirs)
            other = mine if same else perplexity(model, ids)
            words = []
            for path in (ours, theirs):
                llama = Llama(quantize.library, path)
                words.append([greedy(llama, tokenizer, prompt) for prompt in PROMPTS])
                llama.close()
            good = same and abs(mine / other - 1) < 1e-3 and words[0] == words[1]
            failed |= not good
            bits = 8 * sum(tensor.n_bytes for tensor in left.values()) / sum(int(tensor.n_elements) for tensor in left.values())
            print(f"{mixture:8} {bits:5.2f} bits, perplexity {mine:.4f} ({100 * (mine / whole - 1):+.2f} %), of llama.cpp's file {other:.4f}, "
                  f"bytes {'equal' if same else 'DIFFER'}, greedy words {'equal' if words[0] == words[1] else 'DIFFER'}", flush=True)
            ours.unlink()
    sys.exit(failed)


if __name__ == "__main__":
    main()
