#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference models as GGUF, against what llama.cpp's own converter makes of the same folders (make_converted.py,
converted/*.txt), and properties that are refused:

    python3 tests/golden/gguf/families.py TRIMTAB

Every tensor of the converter has the same type, shape and bytes, and there is no other one; every key of the
architecture has the same value. Needs the standard library alone.
"""

import hashlib
import json
import math
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent
CONVERTED = GOLDEN / "gguf" / "converted"
TOKENIZER = GOLDEN.parent / "support" / "tiny_tokenizer"
SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
TEMPERATURE = {"rope_theta": 1e6, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 8}
LEFT_OUT = None, "no such key"
HYBRID = {"layer_types": ["mamba", "attention"], "position_embedding_type": None, "mamba_proj_bias": False,
          "time_step_limit": [0.0, {"__float__": "Infinity"}]}
ALIKE = {"layer_types": ["attention"] * 2, "position_embedding_type": "rope", "attention_bias": False}
NEMOTRON = {"layers_block_type": LEFT_OUT, "num_hidden_layers": 3, "use_bias": False, "rms_norm_eps": 1e-4}
LATENT = {"attention_bias": False, "rms_norm_eps": 1e-6}

# Folder of the reference model, and behind a blank which of several: changes of (the text part of) its config.json, without
# which the format cannot express it.
MODELS = {
    "llama3": {}, "mistral": {"sliding_window": None}, "qwen2": {}, "qwen3": {}, "smollm3": {}, "phi3": {},
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {"query_pre_attn_scalar": 16, "layer_types": [SLIDING] * 3},
    "dense/gemma4_text": {"attention_bias": False},
    "dense/gemma4_e": {},
    "dense/gemma4_moe": {},
    "dense/ministral3": {},
    "dense/ministral": {"layer_types": [FULL] * 3},
    "dense/seed_oss": {"attention_out_bias": False, "mlp_bias": False},
    "dense/ernie4_5": {"use_bias": False},
    "dense/granite": {"attention_bias": False, "mlp_bias": False},
    "dense/glm4": {},
    "dense/olmo2": {"attention_bias": False},
    "dense/olmo3": {"attention_bias": False, "layer_types": [SLIDING] * 3},
    "dense/exaone4": {"sliding_window": None, "layer_types": [FULL] * 3},
    "dense/hunyuan_v1_dense": {"attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 5e3}},
    "dense/lfm2": {"conv_bias": False},
    "dense/cohere2": {"attention_bias": False, "layer_types": [SLIDING] * 3},
    "dense/qwen3_moe": {"norm_topk_prob": True}, "dense/mixtral": {"sliding_window": None}, "dense/qwen2_moe": {"norm_topk_prob": False},
    "dense/olmoe": {"attention_bias": False, "norm_topk_prob": False, "num_key_value_heads": 4}, "dense/gpt_oss": {"tie_word_embeddings": False},
    "dense/glm4_moe": {}, "dense/minimax_m2": {"rotary_dim": 6}, "vision/qwen3_5_moe": {},
    "dense/granitemoehybrid": HYBRID | {"num_experts_per_tok": 0}, "dense/granite4_moe": HYBRID,
    "dense/granitemoehybrid attention": HYBRID | ALIKE | {"num_experts_per_tok": 0}, "dense/granite4_moe attention": HYBRID | ALIKE,
    "dense/nemotron_h": NEMOTRON | {"hybrid_override_pattern": "M*E", "mlp_bias": False},
    "dense/nemotron_h dense": NEMOTRON | {"hybrid_override_pattern": "M*-"} |
    {key: LEFT_OUT for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group")},
    "dense/qwen3_next": {"rms_norm_eps": 1e-6, "linear_value_head_dim": 8, "mlp_only_layers": []},
    "dense/deepseek_v3": LATENT | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}},
    "dense/glm4_moe_lite": LATENT | {"rope_interleave": True, "first_k_dense_replace": 1}, "dense/youtu": LATENT, "vision/mistral4": LATENT,
    "vision/gemma3": {"query_pre_attn_scalar": 12, "layer_types": [SLIDING] * 2},
    "vision/gemma4": {}, "vision/ministral3": {}, "vision/mistral3": {}, "vision/qwen2_5_vl": {}, "vision/qwen3_vl": {},
    "vision/smolvlm": {}, "vision/lfm2_vl": {}, "vision/qwen3_5": {},
    "vision/muse_glimmer": {"attention_bias": False, "post_norm_eps": 1e-8},
}

# The biases that a model has not when the key is false.
BIASES = {"attention_bias": r"layers\.\d+\.self_attn\.\w+\.bias$", "attention_out_bias": r"layers\.\d+\.self_attn\.o_proj\.bias$",
          "mlp_bias": r"layers\.\d+\.mlp\.\w+\.bias$", "use_bias": r"layers\.\d+\.(self_attn|mlp)\.\w+\.bias$",
          "conv_bias": r"layers\.\d+\.conv\.\w+\.bias$"}



def whole_heads(tensors):
    """Each key head is there twice, so that query heads have one of their own."""
    for name, (dtype, shape, value) in list(tensors.items()):
        if re.search(r"self_attn\.(k_proj|v_proj|k_norm)\.weight$", name):
            half = len(value) // 2
            tensors[name] = dtype, [2 * shape[0], *shape[1:]], value[:half] * 2 + value[half:] * 2


def with_head(tensors):
    dtype, shape, value = tensors["model.embed_tokens.weight"]
    half = len(value) // shape[0] * (shape[0] // 2)
    tensors["lm_head.weight"] = dtype, shape, value[half:] + value[:half]


def first_like_second(tensors):
    """Layer 0 is one of attention."""
    for name in [name for name in tensors if ".layers.0." in name]:
        del tensors[name]
    tensors.update({name.replace(".layers.1.", ".layers.0."): value for name, value in tensors.items() if ".layers.1." in name})


def without_linear_biases(tensors):
    for name in [name for name in tensors if re.search(r"\.(in|out)_proj\.bias$", name)]:
        del tensors[name]


def attention_alone(tensors):
    first_like_second(tensors)
    without_linear_biases(tensors)


def with_experts(tensors):
    """Layer 2 is that of experts, without biases."""
    without_linear_biases(tensors)
    for name in [name for name in tensors if ".layers.2." in name or ".shared_experts." in name and name.endswith(".bias")]:
        del tensors[name]
    for name in [name for name in tensors if ".layers.3." in name]:
        tensors[name.replace(".layers.3.", ".layers.2.")] = tensors.pop(name)


def without_experts(tensors):
    without_linear_biases(tensors)
    for name in [name for name in tensors if ".layers.3." in name]:
        del tensors[name]


def take(tensor, rows):
    dtype, shape, value = tensor
    size = len(value) // shape[0]
    return dtype, [len(rows), *shape[1:]], b"".join(value[row * size:(row + 1) * size] for row in rows)


VALUES = [head * 12 + i for head in range(2) for i in range(8)]


def square_linears(tensors, rows_of, columns_of):
    """Value heads have 8 of their 12 columns, as many as those of keys."""
    of_key = [*range(16), *(16 + i for i in VALUES), *(40 + i for i in VALUES)]
    tensors[rows_of] = take(tensors[rows_of], [key * 64 + i for key in range(2) for i in of_key])
    dtype, (rows, columns), value = tensors[columns_of]
    numbers = take((dtype, [rows * columns], value), [row * columns + head * 12 + i for row in range(rows) for head in range(4) for i in range(8)])
    tensors[columns_of] = dtype, [rows, 32], numbers[2]


def square_states(tensors):
    """The same of the model, and both layers have experts."""
    state = "model.layers.0.linear_attn."
    square_linears(tensors, state + "in_proj_qkvz.weight", state + "out_proj.weight")
    tensors[state + "conv1d.weight"] = take(tensors[state + "conv1d.weight"], [*range(32), *(32 + i for i in VALUES), *(56 + i for i in VALUES)])
    tensors[state + "norm.weight"] = take(tensors[state + "norm.weight"], range(8))
    for name in [name for name in tensors if ".layers.1.mlp." in name]:
        del tensors[name]
    tensors.update({name.replace(".layers.0.", ".layers.1."): value for name, value in tensors.items() if ".layers.0.mlp." in name})


def square_adapter(tensors):
    state = "base_model.model.model.layers.0.linear_attn."
    square_linears(tensors, state + "in_proj_qkvz.lora_B.weight", state + "out_proj.lora_A.weight")
    for name in [name for name in tensors if ".layers.1.mlp." in name]:
        del tensors[name]


EDITS = {"dense/olmoe": whole_heads, "dense/gpt_oss": with_head, "dense/granitemoehybrid": without_linear_biases,
         "dense/granitemoehybrid attention": attention_alone, "dense/granite4_moe attention": first_like_second,
         "dense/nemotron_h": with_experts, "dense/nemotron_h dense": without_experts, "dense/qwen3_next": square_states}
ADAPTER_EDITS = {"dense/qwen3_next": square_adapter}

# Where the converter is not right, or another name is as good: (model, name in its listing, why).
APART = [
    ("vision/qwen3_5", "qwen35.full_attention_interval", "the converter takes 4, whatever layer_types says"),
    ("vision/qwen3_5_moe", "qwen35moe.full_attention_interval", "the same"),
    ("llama3", "rope_freqs.weight", "the converter takes 8192 for the original positions, which stand in rope_parameters"),
    ("gemma3", "token_embd.weight", "it leaves out the rows that no token has"),
    ("gemma3", "gemma3.rope.freq_base_swa", "the loader has this value without the key"),
    ("vision/gemma3", "gemma3.rope.freq_base_swa", "the same"),
    ("dense/olmo3", "olmo2.rope.freq_base_swa", "the same"),
    ("dense/olmo3", "olmo2.attention.sliding_window_pattern", "the loader reads a number, or has 4"),
    ("dense/olmo3", "olmo2.rope.scaling.yarn_attn_factor", "the loader reads attn_factor instead"),
    ("dense/cohere2", "cohere2.rope.scaling.type", "a factor of 1 without the key"),
    ("dense/qwen3_next", "qwen3next.full_attention_interval", "the converter takes 4, whatever layer_types says"),
    *((f"dense/{model} attention", f"{name}.ssm.{key}", "no layer has a state")
      for model, name in (("granitemoehybrid", "granite"), ("granite4_moe", "granitemoe"))
      for key in ("conv_kernel", "group_count", "inner_size", "state_size", "time_step_rank")),
]
# Mistral in a vision folder: the tensors and keys of mistral3 without a temperature are those of llama.
RENAMED = {"vision/mistral3": ("mistral3", "llama")}


def third_like_first(tensors):
    """Layer 2 has keys of its own, and an MLP of the usual width."""
    for name in [name for name in tensors if ".layers.2." in name]:
        del tensors[name]
    tensors.update({name.replace(".layers.0.", ".layers.2."): value for name, value in tensors.items() if ".layers.0." in name})


def with_biases(tensors):
    """The linears of attention have biases."""
    for name in [name for name in tensors if ".self_attn." in name and name.endswith("_proj.weight")]:
        dtype, (rows, columns), value = tensors[name]
        tensors[name.replace(".weight", ".bias")] = dtype, [rows], value[:len(value) // columns]


def half_of_keys(tensors):
    for name, (dtype, shape, value) in list(tensors.items()):
        if re.search(r"self_attn\.(k_proj|v_proj|k_norm)\.weight$", name):
            tensors[name] = dtype, [shape[0] // 2, *shape[1:]], value[:len(value) // 2]


def dense_second(tensors):
    """Layer 1 has an MLP instead of experts."""
    for name in [name for name in tensors if ".layers.1.mlp." in name]:
        del tensors[name]
    for module, shape in (("gate_proj", [40, 32]), ("up_proj", [40, 32]), ("down_proj", [32, 40])):
        tensors[f"model.layers.1.mlp.{module}.weight"] = "BF16", shape, bytes(2 * 40 * 32)


def without_biases(tensors):
    for name in [name for name in tensors if ".self_attn." in name and name.endswith("_proj.bias")]:
        del tensors[name]


def more_rows(tensors):
    dtype, (rows, columns), value = tensors["model.embed_tokens_per_layer.weight"]
    tensors["model.embed_tokens_per_layer.weight"] = dtype, [rows + 4, columns], value + bytes(4 * len(value) // rows)


def with_zeros(part):
    """The linears whose names match have biases, of zeros."""
    def edit(tensors):
        for name in [name for name in tensors if re.search(part + r"\.weight$", name)]:
            dtype, (rows, _), _ = tensors[name]
            tensors[name.replace(".weight", ".bias")] = dtype, [rows], bytes((2 if dtype == "BF16" else 4) * rows)

    return edit


def without(part):
    def edit(tensors):
        for name in [name for name in tensors if re.search(part, name)]:
            del tensors[name]

    return edit


def halve_states(tensors):
    """The columns of a state's heads together are as many as those of the stream."""
    state = "model.layers.0.mamba."
    for name, rows in (("in_proj.weight", 96), ("conv1d.weight", 56), ("conv1d.bias", 56), ("norm.weight", 32)):
        tensors[state + name] = take(tensors[state + name], range(rows))
    dtype, (rows, columns), value = tensors[state + "out_proj.weight"]
    tensors[state + "out_proj.weight"] = dtype, [rows, columns // 2], value[:len(value) // 2]


def with_mlp_layer(tensors):
    tensors["backbone.layers.3.norm.weight"] = tensors["backbone.layers.2.norm.weight"]
    for module, shape in (("up_proj", [40, 32]), ("down_proj", [32, 40])):
        tensors[f"backbone.layers.3.mixer.{module}.weight"] = "BF16", shape, bytes(2 * 40 * 32)


def of_27_layers(tensors):
    for name in [name for name in tensors if ".layers.1." in name]:
        tensors.update({name.replace(".layers.1.", f".layers.{layer}."): tensors[name] for layer in range(2, 27)})


def experts_first(tensors):
    moved = {name: tensors.pop(name) for name in list(tensors) if ".mlp." in name}
    for name, value in moved.items():
        tensors[re.sub(r"layers\.([01])\.", lambda layer: f"layers.{1 - int(layer[1])}.", name)] = value


def without_head(tensors):
    """The embeddings are the head."""
    del tensors["lm_head.weight"]


BIASED, NONE = "attention_bias of this model type", None
TURNS = "layers of this model type that have a window and no rotation, or the reverse"
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
PROPORTIONAL = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
# Properties that the format cannot express: a folder with its changes above, more changes, an edit of its tensors, and
# what the error says.
REFUSED = [
    ("dense/qwen3_5_text", {}, NONE, "a linear_value_head_dim other than linear_key_head_dim"),
    ("dense/qwen3_moe", {"norm_topk_prob": False}, NONE, "norm_topk_prob false of this model type"),
    ("dense/qwen3_moe", {"mlp_only_layers": [1]}, dense_second, "these layers without experts of this model type"),
    ("dense/qwen3_moe", {"attention_bias": True}, with_biases, "biases of o_proj and the MLP of this model type"),
    ("dense/qwen2_moe", {"norm_topk_prob": True}, NONE, "norm_topk_prob true of this model type"),
    ("dense/qwen2_moe", {"tie_word_embeddings": True}, without_head, "tied embeddings of this model type"),
    ("dense/minimax_m2", {"tie_word_embeddings": True}, without_head, "tied embeddings of this model type"),
    ("dense/olmoe", {"tie_word_embeddings": True}, without_head, "tied embeddings of this model type"),
    ("dense/olmoe", {"attention_bias": True}, with_biases, "attention_bias of this model type"),
    ("dense/olmoe", {"num_key_value_heads": 2}, half_of_keys, "fewer key heads than query heads of this model type"),
    ("dense/gpt_oss", {"layer_types": [FULL, SLIDING]}, NONE, "layers without a window other than every second of this model type"),
    ("dense/gpt_oss", {"tie_word_embeddings": True}, without_head, "tied embeddings of this model type"),
    ("dense/gpt_oss", {"attention_bias": False}, without_biases, "attention_bias false of this model type"),
    ("vision/qwen3_5", {"attention_bias": True}, with_biases, "attention_bias of this model type"),
    ("vision/qwen3_5", {"hidden_act": "gelu"}, NONE, "an activation other than silu of this model type"),
    ("vision/qwen3_5", {"layer_types": [FULL] * 2}, first_like_second,
     "layers of attention other than every n-th of this model type"),
    ("dense/lfm2", {"conv_bias": True}, NONE, "conv_bias of this model type"),
    ("dense/lfm2", {"layer_types": [FULL] * 2}, first_like_second, "a model of this type without a convolution"),
    ("dense/gemma4_text", {"attention_bias": True}, NONE, BIASED),
    ("dense/gemma4_text", {"hidden_activation": "silu"}, NONE, "an activation other than GELU by tanh of this model type"),
    ("dense/gemma4_text", {"rope_parameters": {SLIDING: LINEAR, FULL: PROPORTIONAL}}, NONE, "these rotations of this model type"),
    ("dense/gemma4_text", {"rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: LINEAR}}, NONE,
     "these rotations of this model type"),
    ("dense/gemma4_e", {"num_kv_shared_layers": 2}, third_like_first, "num_kv_shared_layers with this order of layer_types"),
    ("dense/gemma4_e", {"vocab_size_per_layer_input": 100}, more_rows, "a vocab_size_per_layer_input other than vocab_size"),
    ("vision/muse_glimmer", {"post_norm_eps": 1e-4}, NONE, "a post_norm_eps other than 1e-8"),
    ("vision/muse_glimmer", {"attention_bias": True}, NONE, BIASED),
    ("vision/muse_glimmer", {"layer_rope_theta": [500.0, 500.0]}, NONE, TURNS),
    ("vision/muse_glimmer", {"layer_rope_theta": [0.0, 0.0]}, NONE, TURNS),
    ("vision/muse_glimmer", {"rope_parameters": LINEAR}, NONE, "a scaled rotation of this model type"),
    ("dense/ministral", {"layer_types": [SLIDING] * 3}, NONE, "the sliding_window of 6 tokens for architecture 'llama'"),
    ("dense/ministral3", {"sliding_window": 6}, NONE, "the sliding_window of 6 tokens for architecture 'mistral3'"),
    ("dense/ministral3", {"rope_parameters": {"rope_type": "yarn", "factor": 16.0, "truncate": False}}, NONE, "yarn with truncate false"),
    ("qwen3", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}}, NONE, "a beta_fast of yarn other than 32"),
    ("llama3", {"hidden_act": "gelu"}, NONE, "an activation other than"),
    ("llama3", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
                                    "original_max_position_embeddings": 64}}, NONE, "LongRoPE for this model type"),
    ("smollm3", {"no_rope_layers": [1, 0, 1, 0]}, NONE, "layers without rotation other than every fourth"),
    ("gemma2", {"final_logit_softcapping": None}, NONE, "a model of this type without caps"),
    ("gemma2", {"tie_word_embeddings": False}, with_head, "a head of its own of this model type"),
    ("gemma2", {"layer_types": [FULL, SLIDING, FULL]}, NONE, "layers without a window other than every second"),
    ("gemma3", {"final_logit_softcapping": 30.0}, NONE, "final_logit_softcapping of this model type"),
    ("gemma3", {"rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 2e4}, FULL: LINEAR}}, NONE,
     "a rope_theta of layers with a window other than 10000"),
    ("vision/muse_glimmer", {"tie_word_embeddings": True}, without_head, "tied embeddings of this model type"),
    ("dense/cohere2", {"attention_bias": True}, NONE, BIASED),
    ("dense/cohere2", {"layer_types": [FULL, SLIDING, SLIDING]}, NONE, "layers without a window other than every fourth"),
    ("dense/olmo3", {"rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 2e4}, FULL: {"rope_type": "default",
                                                                                                     "rope_theta": 1e4}}}, NONE,
     "a rotation of the layers with a window other than that of the others"),
    ("dense/ernie4_5", {"use_bias": True}, NONE, "biases of"),
    ("dense/granite", {"attention_bias": True}, NONE, "biases of"),
    ("dense/hunyuan_v1_dense", {"attention_bias": True}, NONE, BIASED),
    ("dense/olmo3", {"layer_types": [FULL, SLIDING, SLIDING]}, NONE, "layers without a window other than every fourth"),
    ("dense/seed_oss", {"mlp_bias": True}, NONE, "biases of o_proj and the MLP of this model type"),
    ("dense/granitemoehybrid", {"mamba_proj_bias": True}, with_zeros(r"mamba\.(in|out)_proj"), "biases of in_proj and out_proj of this model type"),
    ("dense/granitemoehybrid", {"mamba_conv_bias": False}, without(r"conv1d\.bias"), "a convolution without a bias of this model type"),
    ("dense/granitemoehybrid", {"time_step_limit": [0.02, 4.0]}, NONE, "a time_step_limit of this model type"),
    ("dense/granitemoehybrid", {"mamba_expand": 1}, halve_states, "a mamba_expand other than 2"),
    ("dense/granitemoehybrid", {"hidden_act": "gelu"}, NONE, "an activation other than silu of this model type"),
    ("dense/granitemoehybrid", {"mlp_bias": True}, with_zeros(r"shared_mlp\.\w+"), "mlp_bias of this model type"),
    ("dense/granitemoehybrid attention", {"attention_bias": True}, with_biases, "biases of o_proj and the MLP of this model type"),
    ("dense/granitemoehybrid attention", {"position_embedding_type": None}, NONE, "attention without rotation and without a state"),
    ("dense/nemotron_h", {"mlp_bias": True}, with_zeros(r"shared_experts\.\w+"), "mlp_bias of this model type with experts"),
    ("dense/nemotron_h", {"hybrid_override_pattern": "M*E-", "num_hidden_layers": 4}, with_mlp_layer,
     "layers of an MLP beside those of experts of this model type"),
    ("dense/nemotron_h dense", {"mlp_hidden_act": "silu"}, NONE, "an activation other than relu2 of this model type"),
    ("dense/nemotron_h dense", {"hybrid_override_pattern": "**-"}, first_like_second, "a model of this type without a state"),
    ("dense/qwen3_next", {"norm_topk_prob": False}, NONE, "norm_topk_prob false of this model type"),
    ("dense/qwen3_next", {"mlp_only_layers": [1]}, dense_second, "these layers without experts of this model type"),
    ("dense/deepseek_v3", {"attention_bias": True}, with_zeros(r"self_attn\.(q_a_proj|kv_a_proj_with_mqa|o_proj)"), BIASED),
    ("dense/deepseek_v3", {"rope_interleave": False}, NONE, "rope_interleave false of this model type"),
    ("dense/deepseek_v3", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}}, NONE,
     "an mscale of yarn other than mscale_all_dim of this model type"),
    ("dense/deepseek_v3", {"rope_parameters": LINEAR}, NONE, "a rotation of this model type that is scaled otherwise than by yarn"),
    ("dense/deepseek_v3", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 16.0}}, NONE,
     "a beta_fast of yarn other than 32"),
    ("dense/deepseek_v3", {"hidden_act": "gelu"}, NONE, "an activation other than silu of this model type"),
    ("dense/deepseek_v3", {"num_hidden_layers": 27}, of_27_layers, "a q_lora_rank of this model type with this number of layers"),
    ("dense/glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense"]}, experts_first, "these layers without experts of this model type"),
    ("dense/exaone4", {"sliding_window": 6, "layer_types": [SLIDING] * 3}, NONE, "windows of this model type in other than 64 layers"),
]


# Keys of other values than those of the models above: a folder with its changes, more changes, and a key with its value.
KEYS = [
    ("qwen3", {"rope_parameters": YARN | {"attention_factor": 1.0}}, "qwen3.rope.scaling.attn_factor", 1 / (0.1 * math.log(4) + 1)),
    ("qwen3", {"rope_parameters": YARN}, "qwen3.rope.scaling.attn_factor", None),
    ("dense/ministral3", {"rope_parameters": YARN | TEMPERATURE | {"beta_fast": 8.0, "attention_factor": 1.5}},
     "mistral3.rope.scaling.attn_factor", 1.5 / (0.1 * math.log(4) + 1)),
    ("dense/ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.0, "mscale": 1.0, "mscale_all_dim": 1.0}},
     "mistral3.attention.temperature_scale", None),
    ("dense/ministral3", {"rope_parameters": {"rope_type": "default"} | TEMPERATURE}, "mistral3.rope.scaling.original_context_length", 8),
    ("dense/gemma4_text", {"final_logit_softcapping": None}, "gemma4.final_logit_softcapping", 0.0),
    ("dense/gemma4_text", {"rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 5e3},
                                               FULL: {"rope_type": "default", "rope_theta": 1e5}}}, "gemma4.rope.freq_base_swa", 5e3),
    ("vision/muse_glimmer", {"layer_types": [FULL, SLIDING], "layer_rope_theta": [0, 500.0]},
     "muse-glimmer.attention.sliding_window_pattern", [False, True]),
    ("dense/granitemoehybrid", {"position_embedding_type": "rope"}, "granitehybrid.rope.scaling.finetuned", True),
    ("dense/deepseek_v3", {"rope_parameters": YARN | {"attention_factor": 1.0}}, "deepseek2.rope.scaling.attn_factor", 1 / (0.1 * math.log(4) + 1)),
    ("vision/mistral4", {"rope_parameters": YARN | TEMPERATURE | {"mscale": 0.7, "mscale_all_dim": 0.7}},
     "mistral4.rope.scaling.attn_factor", (0.07 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
    ("vision/mistral4", {}, "mistral4.attention.temperature_length", 8),
]


OF_EXPERTS = "../../experts/minimax_m2_all/adapter_final"
# A model, an adapter, modules that are taken out of it, and what the error says; None: it is written.
ADAPTERS = [
    ("dense/gemma4_e", "adapter_final", "per_layer_model_projection", None),
    ("dense/gemma4_e", "adapter_final", None, "GGUF cannot express LoRA on 'model.per_layer_model_projection.weight' in an adapter"),
    ("dense/ministral3", "adapter_final", None, None), ("vision/gemma4", "adapter_random", None, None),
    ("vision/ministral3", "adapter_final", None, None), ("vision/qwen3_5", "adapter_random", None, None), ("llama3", "adapter_random", None, None),
    ("llama2", "variety", None, "GGUF cannot express modules_to_save in an adapter: 'lm_head.weight'"),
    ("dense/minimax_m2", OF_EXPERTS, None, "GGUF cannot express LoRA on experts in an adapter: 'model.layers.0.mlp.experts.gate_up_proj'"),
    ("dense/granitemoehybrid", "adapter_final", None, None), ("dense/granite4_moe", "adapter_final", None, None),
    ("dense/nemotron_h", "adapter_final", "up_proj down_proj", None), ("dense/qwen3_next", "adapter_final", None, None),
    ("dense/deepseek_v3", "adapter_final", "kv_b_proj q_a_proj q_b_proj kv_a_proj_with_mqa", None),
    ("dense/deepseek_v3", "adapter_final", None, "GGUF cannot express LoRA on 'model.layers.0.self_attn.q_a_proj.weight' in an adapter"),
    ("dense/deepseek_v3", "adapter_final", "q_a_proj q_b_proj kv_a_proj_with_mqa",
     "GGUF cannot express LoRA on 'model.layers.0.self_attn.kv_b_proj.weight' in an adapter"),
    ("llama2", "variety", "lm_head", None),  # rsLoRA with patterns of ranks and of alpha
]


def edit_weights(file, edit):
    """`edit` changes the tensors of a safetensors file: name -> (type, shape, bytes)."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, values = json.loads(data[8:8 + size]), data[8 + size:]
    tensors = {name: (entry["dtype"], entry["shape"], values[slice(*entry["data_offsets"])])
               for name, entry in header.items() if name != "__metadata__"}
    edit(tensors)
    header, offset = {}, 0
    for name, (dtype, shape, value) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(value)]}
        offset += len(value)
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    file.write_bytes(struct.pack("<Q", len(packed)) + packed + b"".join(value for _, _, value in tensors.values()))


def folder_of(name):
    return GOLDEN / name.split()[0]


def make_folder(name, changes, folder):
    """The model with its changes, and the tiny tokenizer with the ids that it has; returns config.json."""
    folder.mkdir()
    for file in (folder_of(name) / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    text.update(changes)
    for key in [key for key, value in changes.items() if value == LEFT_OUT]:
        del text[key]
    if "tie_word_embeddings" in changes:  # the whole configuration counts
        config["tie_word_embeddings"] = changes["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((TOKENIZER / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {token: i for token, i in tokenizer["model"]["vocab"].items() if i < text["vocab_size"]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shutil.copy(TOKENIZER / "tokenizer_config.json", folder)
    biases = [part for key, part in BIASES.items() if changes.get(key) is False]
    if biases:
        edit_weights(folder / "model.safetensors",
                     lambda tensors: [tensors.pop(name) for name in list(tensors) if any(re.search(part, name) for part in biases)])
    if name in EDITS:
        edit_weights(folder / "model.safetensors", EDITS[name])
    return config


class Reader:
    """A GGUF file, version 3: ggml's docs/gguf.md."""

    NUMBERS = "BbHhIif?", {10: "Q", 11: "q", 12: "d"}
    TYPES = {0: ("f32", 1, 4), 1: ("f16", 1, 2), 30: ("bf16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
             7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 10: ("q2_K", 256, 84), 11: ("q3_K", 256, 110), 12: ("q4_K", 256, 144),
             13: ("q5_K", 256, 176), 14: ("q6_K", 256, 210)}  # name, weights and bytes of a block

    def __init__(self, path):
        self.data, self.at = Path(path).read_bytes(), 8
        tensors, keys = self.number("Q"), self.number("Q")
        self.keys = {}
        for _ in range(keys):
            name = self.text()
            self.keys[name] = self.value(self.number("I"))
        self.tensors = {}
        described = []
        for _ in range(tensors):
            name, rank = self.text(), self.number("I")
            dims = [self.number("Q") for _ in range(rank)]
            described.append((name, dims, self.TYPES[self.number("I")], self.number("Q")))
        start = -(-self.at // 32) * 32
        for name, dims, (kind, weights, size), offset in described:
            size = math.prod(dims) // weights * size
            self.tensors[name] = kind, dims, self.data[start + offset:start + offset + size]

    def number(self, letter):
        value = struct.unpack_from("<" + letter, self.data, self.at)[0]
        self.at += struct.calcsize("<" + letter)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(self.NUMBERS[0][kind] if kind < 8 else self.NUMBERS[1][kind])

    def listing(self):
        """Lines for the architecture's keys and the tensors."""
        architecture = self.keys["general.architecture"]
        lines = [f"key {name} {json.dumps(value)}" for name, value in self.keys.items() if name.startswith(architecture + ".")]
        lines += [f"tensor {name} {kind} {dims} {hashlib.sha256(data).hexdigest()[:16]}"
                  for name, (kind, dims, data) in self.tensors.items()]
        return [f"architecture {architecture}", *sorted(lines)]


def same(ours, theirs):
    """A number for all layers is a list of it."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return ours == theirs
    return all(mine == other for mine in (ours if isinstance(ours, list) else [ours])
               for other in (theirs if isinstance(theirs, list) else [theirs]))


def differences(reader, model):
    """What a file lacks, or has otherwise, of a converter's listing."""
    theirs = listing_of(model).read_text().replace(*RENAMED.get(model, ("", ""))).splitlines()
    apart = {name for other, name, _ in APART if other == model}
    ours, found = set(reader.listing()), []
    for line in theirs:
        kind, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if name in apart:
            continue
        if line in ours or (kind == "key" and name in reader.keys and same(reader.keys[name], json.loads(value))):
            continue
        found.append(f"lacks {line}" + (f" (has {reader.keys[name]})" if name in reader.keys else ""))
    names = {line.split()[1] for line in theirs if line.startswith("tensor ")}
    return found + [f"has the tensor {name}, which the converter has not" for name in reader.tensors if name not in names]


# Expressions of published pre-tokenizers, as they stand in tokenizer.json.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = TEKKEN.replace(r"\p{M}]+|[", r"\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[").replace(
    r"\p{M}]*|\p{N}|", r"\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|")
SEED = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
NO_NAME = "cannot express its pre_tokenizer, which has no name in that format"
# Splits before ByteLevel, ignore_merges, and the name, or what the error says.
PRE_TOKENIZERS = [
    ([LLAMA3], True, "llama-bpe"), ([LLAMA3], False, "dbrx"), ([LLAMA3.replace("{1,3}", "")], False, "qwen2"), ([QWEN35], False, "qwen35"),
    ([TEKKEN], True, "tekken"), ([GPT4O], False, "gpt-4o"), ([SEED], False, "seed-coder"), (DEEPSEEK, False, "deepseek-v3"),
    ([GPT2], False, "gpt-2"),
    ([TEKKEN], False, "cannot express ignore_merges false with this pre_tokenizer"),
    ([GPT4O], True, "cannot express ignore_merges true with this pre_tokenizer"),
    ([SEED + "|x"], False, NO_NAME), (DEEPSEEK[:2], False, NO_NAME), ([*DEEPSEEK[:2], GPT2], False, NO_NAME), ([], False, NO_NAME),
]


def make_tokenizer_folder(model, tokenizer, change, folder):
    """A model of as many rows as a golden tokenizer has tokens; `change` edits its tokenizer.json."""
    source = GOLDEN / "tokenizer" / tokenizer / "tokenizer.json"
    data = json.loads(source.read_text())
    change(data)
    rows = 1 + max([*data["model"]["vocab"].values(), *(token["id"] for token in data["added_tokens"])])
    make_folder(model, MODELS[model] | {"vocab_size": rows}, folder)

    def grow(tensors):
        for name in tensors:
            if name.endswith(("embed_tokens.weight", "lm_head.weight")):
                dtype, (old, columns), value = tensors[name]
                tensors[name] = dtype, [rows, columns], value + bytes((rows - old) * (len(value) // old))

    edit_weights(folder / "model.safetensors", grow)
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(data))


def with_splits(expressions, ignore_merges):
    def change(data):
        splits = [{"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False} for text in expressions]
        last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, last]}
        data["model"]["ignore_merges"] = ignore_merges

    return change


def normalizer(steps, byte_level):
    def change(data):
        data["normalizer"] = {"type": "Sequence", "normalizers": steps}
        if not byte_level:
            data["pre_tokenizer"] = None

    return change


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
# A model, a tokenizer, steps of its normalizer, and what the error says; None: it is written.
NORMALIZERS = [
    ("llama3", "qwen2", [{"type": "NFC"}], None),
    ("llama3", "qwen2", [{"type": "NFKC"}], "cannot express the normalizer of a byte-level tokenizer"),
    ("llama3", "gemma", [REPLACE], None),
    ("llama3", "gemma", [REPLACE, {"type": "NFKC"}], "cannot express its normalizer"),
    ("dense/gemma4_text", "gemma", [{"type": "Prepend", "prepend": "\u2581"}, REPLACE], "cannot express a blank before the first word"),
]


def check_normalizer(trimtab, model, tokenizer, steps, said, work):
    make_tokenizer_folder(model, tokenizer, normalizer(steps, tokenizer != "gemma"), work / "model")
    done = export(trimtab, work)
    if said is None:
        return [] if done.returncode == 0 else [done.stderr]
    return [] if done.returncode == 2 and said in done.stderr else [f"no '{said}' in: {done.stderr}"]


def check_pre_tokenizer(trimtab, expressions, ignore_merges, said, work):
    make_tokenizer_folder("llama3", "llama3", with_splits(expressions, ignore_merges), work / "model")
    done = export(trimtab, work)
    if done.returncode != 0:
        return [] if said in done.stderr else [f"no '{said}' in: {done.stderr}"]
    got = Reader(work / "out.gguf").keys["tokenizer.ggml.pre"]
    return [] if got == said else [f"tokenizer.ggml.pre is {got}, not {said}"]


MARK = {"id": 1501, "content": "<|tool_call>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def with_mark(data):
    data["added_tokens"].append(MARK)


def check_gemma4_tokenizer(trimtab, work):
    """Merges in the file's order, no scores, bytes as such; marks in answers are shown."""
    make_tokenizer_folder("dense/gemma4_text", "gemma", with_mark, work / "model")
    done = export(trimtab, work)
    if done.returncode != 0:
        return [done.stderr]
    keys = Reader(work / "out.gguf").keys
    data = json.loads((work / "model" / "tokenizer.json").read_text())
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    expected = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.pre": "gemma4", "tokenizer.ggml.merges": merges,
                "tokenizer.ggml.scores": None, "tokenizer.ggml.add_space_prefix": False}
    found = [f"{key} is {str(keys.get(key))[:80]}" for key, value in expected.items() if keys.get(key) != value]
    types = keys["tokenizer.ggml.token_type"]
    kinds = [types[i] for i in (data["model"]["vocab"]["<0x41>"], MARK["id"], 1)]
    if kinds != [6, 4, 3]:
        found.append(f"types of bytes, marks and control tokens are {kinds}")
    return found


def listing_of(name):
    return CONVERTED / (name.replace("/", "_").replace(" ", "_") + ".txt")


def export(trimtab, work, *words):
    command = [trimtab, "export", "gguf", "--model_name_or_path", "model", "--output_file", "out.gguf", "--outtype", "f32", *words]
    return subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)


def check_model(trimtab, name, changes, work):
    make_folder(name, changes, work / "model")
    done = export(trimtab, work)
    if done.returncode != 0:
        return [done.stderr]
    return differences(Reader(work / "out.gguf"), name)


def make_adapter(name, adapter, without, folder):
    folder.mkdir()
    for file in (folder_of(name) / adapter).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for module in (without or "").split():
        config = json.loads((folder / "adapter_config.json").read_text())
        for modules in (config["target_modules"], config["modules_to_save"]):
            if modules and module in modules:
                modules.remove(module)
        (folder / "adapter_config.json").write_text(json.dumps(config))
        edit_weights(folder / "adapter_model.safetensors",
                     lambda tensors, part=f".{module}.": [tensors.pop(key) for key in list(tensors) if part in key])
    if name in ADAPTER_EDITS:
        edit_weights(folder / "adapter_model.safetensors", ADAPTER_EDITS[name])


def pattern_of(patterns, module, usual):
    """PEFT's: the first that matches the end of the module's name."""
    return next((value for key, value in (patterns or {}).items() if re.match(rf"(.*\.)?({key})$", module)), usual)


def rows_of(data, columns, scale):
    values = [scale * value for value in struct.unpack(f"<{len(data) // 4}f", data)]
    return [values[at:at + columns] for at in range(0, len(values), columns)]


def check_scaling(folder, reader):
    """Rows of B times alpha / rank are those of the adapter times the scaling of its module. Their order is the base's."""
    config, ours, theirs = json.loads((folder / "adapter_config.json").read_text()), [], []
    for name, (_, (columns, _), data) in reader.tensors.items():
        if name.endswith(".lora_b"):
            ours += rows_of(data, columns, reader.keys["adapter.lora.alpha"] / columns)

    def add(tensors):
        for name, (_, shape, data) in tensors.items():
            module = name.removeprefix("base_model.model.").removesuffix(".lora_B.weight")
            if name.endswith(".lora_B.weight"):
                alpha = pattern_of(config["alpha_pattern"], module, config["lora_alpha"])
                theirs.extend(rows_of(data, shape[1], alpha / (math.sqrt(shape[1]) if config["use_rslora"] else shape[1])))

    edit_weights(folder / "adapter_model.safetensors", add)
    alike = [len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9) for x, y in zip(a, b))
             for a, b in zip(sorted(ours), sorted(theirs))]
    return [] if len(ours) == len(theirs) and all(alike) else [f"{alike.count(False)} of {len(theirs)} rows of B are scaled otherwise"]


def check_adapter(trimtab, name, adapter, without, said, work):
    """Each A and B belongs to a matrix of the model's file, and has its columns and rows."""
    make_folder(name, MODELS.get(name, {}), work / "model")
    export(trimtab, work)
    tensors = Reader(work / "out.gguf").tensors
    make_adapter(name, adapter, without, work / "adapter")
    done = export(trimtab, work, "--overwrite", "--adapter_only", "--adapter_name_or_path", "adapter")
    if said is not None:
        return [] if done.returncode == 2 and said in done.stderr else [f"no '{said}' in: {done.stderr}"]
    if done.returncode != 0:
        return [done.stderr]
    reader = Reader(work / "out.gguf")
    matrices, found = reader.tensors, check_scaling(work / "adapter", reader)
    for matrix, (_, (columns, rows), _) in matrices.items():
        whole, _, part = matrix.rpartition(".lora_")
        wanted = tensors[whole][1] if whole in tensors else [0, 0]
        if (columns, part) != (wanted[0], "a") and (rows, part) != (wanted[1], "b"):
            found.append(f"{matrix} is {columns} x {rows}, and its matrix {wanted}")
    return found if matrices else ["the adapter has no tensors"]


# What readers compute otherwise is written, and said: a folder with its changes, more changes, and the notice.
NOTICES = [
    ("dense/gpt_oss", {}, "readers of the file round the borders of yarn, which this model does not (truncate)"),
    ("dense/glm4_moe_lite", {"rms_norm_eps": 1e-5},
     "readers of the file norm latents with rms_norm_eps too, which this model does with 1e-6"),
]
# Models with adapters whose merged weights are looked at.
MERGED = [("dense/minimax_m2", OF_EXPERTS), ("dense/granite4_moe", "adapter_final"), ("dense/qwen3_next", "adapter_final"),
          ("dense/deepseek_v3", "adapter_final")]


def check_notice(trimtab, name, changes, said, work):
    make_folder(name, MODELS[name] | changes, work / "model")
    done = export(trimtab, work)
    return [] if done.returncode == 0 and said in done.stderr else [f"no '{said}' in: {done.stderr}"]


def check_merged(trimtab, name, adapter, work):
    """A model with its adapter is what export makes of the merged folder."""
    make_folder(name, MODELS[name], work / "model")
    make_adapter(name, adapter, None, work / "adapter")
    done = export(trimtab, work, "--adapter_name_or_path", "adapter")
    if done.returncode != 0:
        return [done.stderr]
    ours = Reader(work / "out.gguf").tensors
    merge = [trimtab, "merge", "--model_name_or_path", "model", "--adapter_name_or_path", "adapter", "--output_dir", "merged",
             "--save_dtype", "float32"]
    subprocess.run(merge, cwd=work, check=True, capture_output=True)
    plain = export(trimtab, work, "--overwrite", "--model_name_or_path", "merged")
    theirs = Reader(work / "out.gguf").tensors if plain.returncode == 0 else {}
    return [f"{tensor} is other than in the merged folder's file" for tensor in ours if ours[tensor] != theirs.get(tensor)]


def check_blocks(trimtab, work):
    """Rows of a head that begin inside of a block of a quantized base are refused; whole blocks are read."""
    found = []
    for name, said in (("dense/youtu", "is no first one of a block of nf4"), ("dense/granitemoehybrid", None)):
        folder = work / name.split("/")[-1]
        folder.mkdir()
        make_folder(name, MODELS[name], folder / "full")
        words = ["--model_name_or_path", "full", "--output_dir", "model", "--to", "nf4"]
        subprocess.run([trimtab, "quantize", *words], cwd=folder, check=True, capture_output=True)
        done = export(trimtab, folder)
        good = done.returncode == 0 if said is None else done.returncode == 2 and said in done.stderr
        found += [] if good else [f"{name}, no '{said}' in: {done.stderr}"]
    return found


def check_key(trimtab, name, changes, key, value, work):
    make_folder(name, MODELS.get(name, {}) | changes, work / "model")
    done = export(trimtab, work)
    if done.returncode != 0:
        return [done.stderr]
    got = Reader(work / "out.gguf").keys.get(key)
    equal = math.isclose(got, value, rel_tol=1e-6) if isinstance(value, float) and got is not None else got == value
    return [] if equal else [f"{key} is {got}, not {value}"]


def check_refusal(trimtab, name, changes, edit, said, work):
    make_folder(name, MODELS.get(name, {}) | changes, work / "model")
    if edit is not None:
        edit_weights(work / "model" / "model.safetensors", edit)
    done = export(trimtab, work)
    expected = f"GGUF cannot express {said}"
    return [] if done.returncode == 2 and expected in done.stderr else [f"no '{expected}' in: {done.stderr}"]


def families_without_a_model():
    """Families with an architecture of llama.cpp that MODELS does not have."""
    source = GOLDEN.parent.parent / "src/model"
    families = re.findall(r"^FAMILY\((\w+)\)", (source / "families.def").read_text(), re.M)
    folders = {name.split()[0].split("/")[-1] for name in MODELS} | {"llama"}
    return [name for name in families if name not in folders and ".gguf = " in (source / f"{name}.c").read_text()]


def main():
    trimtab, failed = Path(sys.argv[1]).resolve(), 0
    for name in families_without_a_model():
        print(f"{name}: no model of this family is compared")
        failed += 1
    checks = [(name, lambda work, n=name, c=changes: check_model(trimtab, n, c, work)) for name, changes in MODELS.items()]
    checks += [(f"{name} {changes}", lambda work, n=name, c=changes, k=key, v=value: check_key(trimtab, n, c, k, v, work))
               for name, changes, key, value in KEYS]
    checks += [(f"{name} {changes}", lambda work, n=name, c=changes, e=edit, s=said: check_refusal(trimtab, n, c, e, s, work))
               for name, changes, edit, said in REFUSED]
    checks += [(f"{name}/{adapter}", lambda work, n=name, a=adapter, w=without, s=said: check_adapter(trimtab, n, a, w, s, work))
               for name, adapter, without, said in ADAPTERS]
    checks += [("a base in blocks", lambda work: check_blocks(trimtab, work))]
    checks += [(f"notice of {name}", lambda work, n=name, c=changes, s=said: check_notice(trimtab, n, c, s, work))
               for name, changes, said in NOTICES]
    checks += [(f"{name} merged with {adapter}", lambda work, n=name, a=adapter: check_merged(trimtab, n, a, work)) for name, adapter in MERGED]
    checks += [(f"pre-tokenizer {said}", lambda work, x=expressions, i=ignore, s=said: check_pre_tokenizer(trimtab, x, i, s, work))
               for expressions, ignore, said in PRE_TOKENIZERS]
    checks += [(f"{tokenizer} {steps}", lambda work, m=model, t=tokenizer, x=steps, s=said: check_normalizer(trimtab, m, t, x, s, work))
               for model, tokenizer, steps, said in NORMALIZERS]
    checks += [("tokenizer of Gemma 4", lambda work: check_gemma4_tokenizer(trimtab, work))]
    for name, check in checks:
        with tempfile.TemporaryDirectory() as work:
            for text in check(Path(work)):
                print(f"{name}: {text}")
                failed += 1
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
