#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized exports against what llama.cpp makes of the same model's file in float32 (make_quantized.py, quantized.txt):

    python3 tests/golden/gguf/quantized.py TRIMTAB

Every tensor has the same type and the same bytes. Models with rows of whole blocks, of 256 and of 32 weights, in every
mixture, and the reference models of families.py, whose rows are short, in one. Needs the standard library alone.
"""

import collections
import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from families import GOLDEN, MODELS, Reader, make_folder

QUANTIZED = GOLDEN / "gguf" / "quantized.txt"
TOKENIZER = GOLDEN / "gguf" / "tokenizer"
MIXTURES = {"q8_0": 7, "q6_k": 18, "q5_k_m": 17, "q5_k_s": 16, "q5_1": 9, "q5_0": 8, "q4_k_m": 15, "q4_k_s": 14, "q4_1": 3, "q4_0": 2,
            "q3_k_l": 13, "q3_k_m": 12, "q3_k_s": 11, "q2_k": 10}  # numbers of llama_ftype
WITH_SHORT_ROWS = "q4_k_m"  # llama.cpp has no q4_0 and the like for rows that are not of 32 weights
VOCAB = 266


def llama(hidden, ffn, layers, heads, key_heads, tied):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": ffn,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": key_heads, "head_dim": hidden // heads,
            "vocab_size": VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": tied, "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2}


# Blocks of 256 fill the rows of the first; those of 32 the rows of the second; neither those of ffn_down in the third.
SHAPES = {"blocks of 256": llama(256, 512, 8, 4, 2, False), "blocks of 32": llama(288, 480, 3, 9, 3, True),
          "no blocks": llama(256, 344, 2, 8, 2, False)}
# Small and large halves: sign, 8 exponents, and all of the mantissa.
HIGH_BYTES = bytes((byte & 0x83) | (6 + (byte >> 2 & 7)) << 2 for byte in range(256))


def halves(name, count):
    data = bytearray(random.Random(name).randbytes(2 * count))
    data[1::2] = bytes(data[1::2]).translate(HIGH_BYTES)
    return bytes(data)


def shapes_of(config):
    hidden, ffn, width = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    keys = config["num_key_value_heads"] * width
    yield "model.embed_tokens.weight", [VOCAB, hidden]
    for layer in range(config["num_hidden_layers"]):
        inside = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_proj": [hidden, hidden],
                  "self_attn.k_proj": [keys, hidden], "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, hidden],
                  "mlp.gate_proj": [ffn, hidden], "mlp.up_proj": [ffn, hidden], "mlp.down_proj": [hidden, ffn]}
        for module, shape in inside.items():
            yield f"model.layers.{layer}.{module}.weight", shape
    yield "model.norm.weight", [hidden]
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", [VOCAB, hidden]


def make_shape(config, folder):
    """A model folder with weights that any machine makes alike."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / file, folder)
    header, values = {}, []
    for name, shape in shapes_of(config):
        values.append(halves(name, shape[0] * (shape[1] if len(shape) > 1 else 1)))
        start = sum(map(len, values[:-1]))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, start + len(values[-1])]}
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + b"".join(values))


def cases():
    """Name of a model, what makes its folder, its mixtures."""
    for name, config in SHAPES.items():
        short = any(shape[-1] % 32 for _, shape in shapes_of(config))
        yield name, lambda folder, c=config: make_shape(c, folder), [WITH_SHORT_ROWS] if short else list(MIXTURES)
    for name, changes in MODELS.items():
        yield name, lambda folder, n=name, c=changes: make_folder(n, c, folder), [WITH_SHORT_ROWS]


def line_of(name, mixture, path):
    """The number of tensors of each type, and a sum of all names and bytes."""
    tensors, types, total = Reader(path).tensors, collections.Counter(), hashlib.sha256()
    for tensor, (kind, dims, data) in sorted(tensors.items()):
        types[kind] += 1
        dims = dims[:1] if dims[1:] == [1] else dims  # a matrix of one row, of which llama.cpp makes a vector
        total.update(f"{tensor} {kind} {dims} ".encode() + data)
    counts = " ".join(f"{count} {kind}" for kind, count in sorted(types.items()))
    return f"{name} {mixture}: {counts}, {total.hexdigest()[:16]}"


def export(trimtab, work, outtype):
    command = [trimtab, "export", "gguf", "--model_name_or_path", "model", "--output_file", f"{outtype}.gguf", "--outtype", outtype]
    subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
    return work / f"{outtype}.gguf"


def main():
    trimtab, expected, failed = Path(sys.argv[1]).resolve(), QUANTIZED.read_text().splitlines(), 0
    for name, make, mixtures in cases():
        if name not in SHAPES and not any(line.startswith(f"{name} ") for line in expected):
            continue  # rows of embeddings that are no whole blocks of 32: llama.cpp ends with an error
        with tempfile.TemporaryDirectory() as work:
            make(Path(work) / "model")
            for mixture in mixtures:
                line = line_of(name, mixture, export(trimtab, Path(work), mixture))
                if line not in expected:
                    print(f"other than llama.cpp's: {line}")
                    failed += 1
                else:
                    expected.remove(line)
    for line in expected:
        print(f"not made: {line}")
    sys.exit(failed + len(expected) > 0)


if __name__ == "__main__":
    main()
