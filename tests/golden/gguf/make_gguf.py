#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/gguf/ with gguf-py, the writer of llama.cpp's own converters, and torch:

    tokenizer/            tests/support/tiny_tokenizer with three merges and a chat template
    llama3_bf16.gguf      llama3/model with that tokenizer, matrices bfloat16
    llama3_lora.gguf      llama3/adapter_random as an adapter, float32
    qwen2_f16.gguf        qwen2/model with that tokenizer, matrices float16
    smollm3_f16.gguf      smollm3/model with that tokenizer, matrices float16
    phi3_f16.gguf, gemma2_f16.gguf, gemma3_f16.gguf   the same of these; gemma?_config.json is their config.json, changed to
                          what the format can express
    tokenizer_*.gguf      keys only: tokenizers of tests/golden/tokenizer, for VOCAB rows of embeddings

Keys stand in the order in which trimtab writes them; all else (names of tensors, types, order of rows, tokens, scores) is
made here from its own sources. How to run, after make_models.py and make_tokenizers.py, in an environment with torch,
safetensors, tokenizers and gguf:

    python tests/golden/gguf/make_gguf.py
"""

import json
import math
import re
from pathlib import Path

import gguf
import numpy
import torch
from safetensors.torch import load_file

GOLDEN = Path(__file__).resolve().parent.parent
OUT = GOLDEN / "gguf"
VOCAB = 1520  # rows; more than the tokenizers have tokens
MERGES = [["Ġ", "t"], ["h", "e"], ["Ġt", "he"]]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CUTS = {"llama3": "llama-bpe", "qwen2": "qwen2", "gpt2": "gpt-2", "tokenizer": "gpt-2"}


def make_tokenizer():
    (OUT / "tokenizer").mkdir(parents=True, exist_ok=True)
    tiny = json.loads((GOLDEN.parent / "support/tiny_tokenizer/tokenizer.json").read_text())
    for left, right in MERGES:
        tiny["model"]["vocab"][left + right] = len(tiny["model"]["vocab"])
    tiny["model"]["merges"] = MERGES
    text = json.dumps(tiny, indent=1, ensure_ascii=False)
    (OUT / "tokenizer" / "tokenizer.json").write_text(text + "\n")
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "<unk>", "chat_template": TEMPLATE}
    (OUT / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def add_tokenizer(writer, folder, rows, bos, eos):
    data = json.loads((folder / "tokenizer.json").read_text())
    settings = folder / "tokenizer_config.json"
    settings = json.loads(settings.read_text()) if settings.exists() else {}
    model, unknown = data["model"], data["model"]["unk_token"]
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [int(gguf.TokenType.UNUSED)] * rows
    for token, index in model["vocab"].items():
        tokens[index] = token
        types[index] = int(gguf.TokenType.BYTE if model["byte_fallback"] and re.fullmatch("<0x..>", token) else gguf.TokenType.NORMAL)
    for token in data["added_tokens"]:
        tokens[token["id"]] = token["content"]
        types[token["id"]] = int(gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED)
    if unknown is not None:
        types[tokens.index(unknown)] = int(gguf.TokenType.UNKNOWN)
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    writer.add_tokenizer_model("llama" if model["byte_fallback"] else "gpt2")
    writer.add_tokenizer_pre("default" if model["byte_fallback"] else CUTS[folder.name])
    if model["byte_fallback"]:
        writer.add_add_space_prefix(True)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if model["byte_fallback"]:
        first = {}
        for rank, (left, right) in enumerate(merges):
            first.setdefault(left + right, rank)
        normal = int(gguf.TokenType.NORMAL)
        writer.add_token_scores([-float(first.get(t, len(merges))) if kind == normal else 0.0 for t, kind in zip(tokens, types)])
    else:
        writer.add_token_merges([" ".join(pair) for pair in merges])

    def named(key, otherwise):
        value = settings.get(key)
        value = value["content"] if isinstance(value, dict) else value
        return tokens.index(value) if value in tokens else otherwise

    bos, eos = named("bos_token", bos), named("eos_token", eos)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    if (index := named("unk_token", -1)) >= 0:
        writer.add_unk_token_id(index)
    if (index := named("pad_token", -1)) >= 0:
        writer.add_pad_token_id(index)
    steps = (data["post_processor"] or {}).get("processors", [data["post_processor"] or {}])
    first = [step["single"][0].get("SpecialToken", {}).get("id") for step in steps if "single" in step]
    writer.add_add_bos_token(bool(first) and first[0] is not None and tokens.index(first[0]) == bos)
    writer.add_add_eos_token(False)
    if "chat_template" in settings:
        writer.add_chat_template(settings["chat_template"])


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def to_pairs(rows, head_dim):
    """Rows half a head apart become neighbours."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def add_tensor(writer, name, tensor, dtype):
    if tensor.dim() == 1 or dtype == torch.float32:
        writer.add_tensor(name, tensor.float().numpy())
    elif dtype == torch.float16:
        writer.add_tensor(name, tensor.half().numpy())
    else:
        bits = tensor.to(torch.bfloat16).contiguous().view(torch.uint8).numpy()
        writer.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)


def add_family_keys(writer, arch, config):
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config["sliding_window"] or 0)
    if arch == "phi3":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))


def make_model(family, arch, architecture, dtype, file_type, name, **changes):
    folder = GOLDEN / family / "model"
    config = json.loads((folder / "config.json").read_text()) | changes
    if changes:
        (OUT / f"{family}_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    weights, layers = load_file(folder / "model.safetensors"), config["num_hidden_layers"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    names = gguf.get_tensor_name_map(architecture, layers)
    writer = gguf.GGUFWriter(OUT / name, arch)
    writer.add_type("model")
    writer.add_name("model")
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_family_keys(writer, arch, config)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    add_tokenizer(writer, OUT / "tokenizer", config["vocab_size"], config["bos_token_id"], config["eos_token_id"])
    if rope["rope_type"] == "llama3":
        scale = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        frequencies = rope["rope_theta"] ** -scale
        waves = rope["original_max_position_embeddings"] * frequencies / (2 * numpy.pi)
        smooth = ((waves - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])).clamp(0, 1)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / rope["factor"] + smooth)).float().numpy())
    if rope["rope_type"] == "longrope":
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", numpy.array(rope[f"{kind}_factor"], dtype=numpy.float32))
    parts = ["input_layernorm.weight", *(f"self_attn.{p}_proj.weight" for p in "qkv"),
             *(f"self_attn.{p}_proj.bias" for p in "qkv"), "self_attn.qkv_proj.weight", "self_attn.q_norm.weight",
             "self_attn.k_norm.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
             "pre_feedforward_layernorm.weight", *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "gate_up", "down")),
             "post_feedforward_layernorm.weight"]
    order = ["model.embed_tokens.weight"]
    order += [f"model.layers.{i}.{part}" for i in range(layers) for part in parts] + ["model.norm.weight", "lm_head.weight"]
    assert set(weights) <= set(order)
    for key in order:
        if key not in weights:
            continue
        tensor = weights[key]
        if arch in ("llama", "smollm3") and re.search(r"\.[qk]_proj\.", key):
            tensor = to_pairs(tensor, head_dim)
        if arch in ("gemma2", "gemma3") and key.endswith("norm.weight"):
            tensor = tensor.float() + 1
        add_tensor(writer, names.get_name(key, try_suffixes=(".weight", ".bias")), tensor, dtype)
    finish(writer)


def make_lora():
    weights = load_file(GOLDEN / "llama3/adapter_random/adapter_model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    writer = gguf.GGUFWriter(OUT / "llama3_lora.gguf", "llama")
    writer.add_type("adapter")
    writer.add_name("adapter_random")
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 8.0)
    for layer in range(2):
        for part in [*(f"self_attn.{p}_proj" for p in "qkvo"), *(f"mlp.{p}_proj" for p in ("gate", "up", "down"))]:
            module = f"model.layers.{layer}.{part}"
            a, b = (weights[f"base_model.model.{module}.lora_{m}.weight"] for m in "AB")
            name = names.get_name(module + ".weight", try_suffixes=(".weight",))
            writer.add_tensor(name + ".lora_a", a.numpy())
            writer.add_tensor(name + ".lora_b", (to_pairs(b, 16) if re.search("[qk]_proj", part) else b).numpy())
    finish(writer)


def main():
    make_tokenizer()
    file_types = gguf.LlamaFileType
    make_model("llama3", "llama", gguf.MODEL_ARCH.LLAMA, torch.bfloat16, file_types.MOSTLY_BF16, "llama3_bf16.gguf")
    make_model("qwen2", "qwen2", gguf.MODEL_ARCH.QWEN2, torch.float16, file_types.MOSTLY_F16, "qwen2_f16.gguf")
    make_model("smollm3", "smollm3", gguf.MODEL_ARCH.SMOLLM3, torch.float16, file_types.MOSTLY_F16, "smollm3_f16.gguf")
    make_model("phi3", "phi3", gguf.MODEL_ARCH.PHI3, torch.float16, file_types.MOSTLY_F16, "phi3_f16.gguf")
    make_model("gemma2", "gemma2", gguf.MODEL_ARCH.GEMMA2, torch.float16, file_types.MOSTLY_F16, "gemma2_f16.gguf",
               query_pre_attn_scalar=16)
    make_model("gemma3", "gemma3", gguf.MODEL_ARCH.GEMMA3, torch.float16, file_types.MOSTLY_F16, "gemma3_f16.gguf",
               query_pre_attn_scalar=16, layer_types=["sliding_attention"] * 3)
    make_lora()
    for name in ("llama2", "mistral", "llama3", "qwen2", "gpt2"):
        writer = gguf.GGUFWriter(OUT / f"tokenizer_{name}.gguf", "llama")
        add_tokenizer(writer, GOLDEN / "tokenizer" / name, VOCAB, 1, 2)
        finish(writer)


if __name__ == "__main__":
    main()
