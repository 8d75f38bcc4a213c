#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports with trimtab and reads the files with gguf-py and transformers; run by hand:

    python tests/golden/check_gguf.py BUILD

Models: transformers loads the file (turning q and k back on its own) and gives the logits of base + adapter in PEFT.
Adapters: A and B that gguf-py reads, turned back, times alpha / rank, are PEFT's delta weights. Tokenizers: gguf-py reads
the tokens that the tokenizers library has, and what its SpecialVocab writes. Prints one line each.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"
import gguf
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
BOUNDS = {"f32": 1e-5, "f16": 5e-3, "bf16": 4e-2}


def load(folder, **kwargs):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **kwargs).eval()


@torch.no_grad()
def logits(model, family):
    batch = load_file(GOLDEN / family / "reference.safetensors")
    parts = batch["input_ids"].split(batch["seq_lens"].tolist())
    return torch.cat([model(input_ids=ids[None]).logits[0].float() for ids in parts])


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def export(trimtab, *words):
    subprocess.run([trimtab, "export", "gguf", *map(str, words)], check=True, capture_output=True)


def model_folder(folder, family, tokenizer="../support/tiny_tokenizer"):
    """The reference model with a tokenizer, in `folder`; llama2's embeddings are too few for it."""
    shutil.copytree(GOLDEN / family / "model", folder)
    for file in (GOLDEN / tokenizer).iterdir():
        if file.name.startswith("tokenizer"):
            shutil.copy(file, folder)
    return folder


def check_rope(trimtab, work, base):
    export(trimtab, "--model_name_or_path", base, "--output_file", work / "r.gguf")
    factors = next(t for t in gguf.GGUFReader(work / "r.gguf").tensors if t.name == "rope_freqs.weight").data
    model = load(base)
    plain = 500000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    error = relative(plain / torch.from_numpy(factors.copy()), model.model.rotary_emb.inv_freq.double())
    return f"llama3   rope_freqs {error:.2e}", error <= 1e-6


def check_models(trimtab, work):
    for family in ("llama3", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"):
        base = model_folder(work / family, family)
        if (GOLDEN / "gguf" / f"{family}_config.json").exists():
            shutil.copy(GOLDEN / "gguf" / f"{family}_config.json", base / "config.json")
        if family == "llama3":
            yield check_rope(trimtab, work, base)
            # transformers does not read rope_freqs either: the same weights without the scaling.
            config = json.loads((base / "config.json").read_text())
            config["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
            (base / "config.json").write_text(json.dumps(config))
        adapter = GOLDEN / family / "adapter_random"
        for outtype, bound in BOUNDS.items():
            for words in ([], ["--adapter_name_or_path", adapter]):
                (work / "gguf").mkdir(exist_ok=True)
                export(trimtab, "--model_name_or_path", base, "--output_file", work / "gguf" / "model.gguf", "--overwrite",
                       "--outtype", outtype, *words)
                # transformers does not read attention.key_length, rope_factors_* and others, which these do not derive from the rest.
                known = {"config": AutoConfig.from_pretrained(base)} if family in ("qwen3", "phi3", "gemma2", "gemma3") else {}
                ours = load(work / "gguf", gguf_file="model.gguf", dtype=torch.float32, **known)
                both = PeftModel.from_pretrained(load(base), adapter).eval() if words else load(base)
                error = relative(logits(ours, family), logits(both, family))
                yield f"{family:8} {outtype:5} {'merged' if words else 'base':7} logits {error:.2e}", error <= bound


def turn_back(rows, heads):
    """Rows of q and k from neighbouring pairs to halves."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def check_adapters(trimtab, work):
    for family in ("llama3", "qwen2", "mistral", "llama2"):
        base, adapter = GOLDEN / family / "model", GOLDEN / family / "adapter_random"
        export(trimtab, "--model_name_or_path", base, "--output_file", work / "a.gguf", "--overwrite",
               "--adapter_name_or_path", adapter, "--adapter_only")
        reader = gguf.GGUFReader(work / "a.gguf")
        assert reader.get_field("general.type").contents() == "adapter"
        assert reader.get_field("adapter.type").contents() == "lora"
        alpha = reader.get_field("adapter.lora.alpha").contents()
        tensors = {t.name: torch.from_numpy(t.data.copy()) for t in reader.tensors}
        model = PeftModel.from_pretrained(load(base), adapter)
        config, worst, count = model.config, 0.0, 0
        for name, a in tensors.items():
            if not name.endswith(".lora_a"):
                continue
            layer, which = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight\.lora_a", name).groups()
            b = tensors[name[:-1] + "b"]
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(which)
            if heads and config.model_type in ("llama", "mistral"):
                b = turn_back(b, heads)
            module = model.base_model.model.get_submodule(f"model.layers.{layer}.{NAMES[which]}")
            worst = max(worst, relative(alpha / b.shape[1] * (b @ a), module.get_delta_weight("default").detach()))
            count += 1
        yield f"{family:8} adapter, {count} modules, worst delta {worst:.2e}", worst <= 1e-6 and 2 * count == len(tensors)


def check_tokenizers(trimtab, work):
    for name in ("llama2", "llama3", "qwen2", "mistral", "gpt2"):
        tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer" / name / "tokenizer.json"))
        folder = work / f"tokenizer_{name}"
        shutil.copytree(GOLDEN / "qwen2" / "model", folder)
        rows = tokenizer.get_vocab_size() + 7
        model = load(folder)
        model.resize_token_embeddings(rows)
        model.save_pretrained(folder)
        shutil.copy(GOLDEN / "tokenizer" / name / "tokenizer.json", folder)
        export(trimtab, "--model_name_or_path", folder, "--output_file", work / "t.gguf", "--overwrite")
        reader = gguf.GGUFReader(work / "t.gguf")
        tokens = reader.get_field("tokenizer.ggml.tokens").contents()
        types = reader.get_field("tokenizer.ggml.token_type").contents()
        expected = [tokenizer.id_to_token(i) for i in range(rows)]
        for index, token in tokenizer.get_added_tokens_decoder().items():
            expected[index] = token.content  # id_to_token says what a normalizer makes of it
        ok = len(tokens) == rows and all(e is None or e == t for e, t in zip(expected, tokens))
        ok = ok and all((e is None) == (kind == 5) for e, kind in zip(expected, types))
        kind = reader.get_field("tokenizer.ggml.model").contents(), reader.get_field("tokenizer.ggml.pre").contents()
        yield f"{name:8} tokenizer {kind}", ok


def check_special(trimtab, work):
    """Special tokens, flags and templates as gguf-py's SpecialVocab finds them, which llama.cpp's converter writes."""
    folder = model_folder(work / "special", "qwen2")
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "pad_token": "<unk>",
                "add_bos_token": True, "add_eos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool-use.jinja").write_text("{{ tools }}")
    export(trimtab, "--model_name_or_path", folder, "--output_file", work / "s.gguf")
    writer = gguf.GGUFWriter(work / "wanted.gguf", "qwen2")
    gguf.SpecialVocab(folder).add_to_gguf(writer, quiet=True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wanted, ours = gguf.GGUFReader(work / "wanted.gguf"), gguf.GGUFReader(work / "s.gguf")
    names = [name for name in wanted.fields if name.startswith("tokenizer.")]
    ok = all(name in ours.fields and ours.get_field(name).contents() == wanted.get_field(name).contents() for name in names)
    yield f"special  {len(names)} keys of SpecialVocab", ok and len(names) == 9


def main():
    trimtab, failures = Path(sys.argv[1]).resolve() / "trimtab", 0
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_models, check_adapters, check_tokenizers, check_special):
            for line, ok in check(trimtab, Path(folder)):
                failures += not ok
                print(line, "ok" if ok else "FAILED", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
