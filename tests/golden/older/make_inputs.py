#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes older/inputs/: a model of 9,000 parameters in bfloat16, rows, pairs, and images with boxes.

    make_inputs.py FOLDER

Python's standard library is all it needs, and the same script makes the same bytes: images are PNG, which all decoders
read alike.
"""
import json
import pathlib
import random
import shutil
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "tools"))
import tensors  # noqa: E402

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD, FFN, LAYERS = 264, 16, 2, 1, 8, 32, 2
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
          "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": True, "vocab_size": VOCABULARY, "bos_token_id": 1,
          "eos_token_id": 2}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")


def bfloat16(rng, shape, spread):
    """Numbers that are spread evenly, cut to bfloat16; spread: a number, or one for each row."""
    rows, columns = shape
    spreads = spread if isinstance(spread, list) else [spread] * rows
    words = b"".join(struct.pack("<f", rng.uniform(-width, width))[2:] for width in spreads for _ in range(columns))
    return "BF16", list(shape), words


def is_readable(token):
    return all("!" <= letter <= "~" or letter == "\u0120" for letter in token)


def write_model(folder):
    """The tokens that print as text have larger embeddings, which are the head too: a completion is readable."""
    rng = random.Random("older")
    tokenizer = ROOT / "tests" / "support" / "tiny_tokenizer"
    readable = {id for token, id in json.loads((tokenizer / "tokenizer.json").read_text())["model"]["vocab"].items()
                if is_readable(token)}
    spreads = [0.5 if id in readable else 0.05 for id in range(VOCABULARY)]
    names = {"model.embed_tokens.weight": bfloat16(rng, (VOCABULARY, HIDDEN), spreads)}
    for i in range(LAYERS):
        for name, shape in (("self_attn.q_proj", (HEADS * HEAD, HIDDEN)), ("self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN)),
                            ("self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HEADS * HEAD)),
                            ("mlp.gate_proj", (FFN, HIDDEN)), ("mlp.up_proj", (FFN, HIDDEN)), ("mlp.down_proj", (HIDDEN, FFN))):
            names[f"model.layers.{i}.{name}.weight"] = bfloat16(rng, shape, 0.4)
        for name in ("input_layernorm", "post_attention_layernorm"):
            names[f"model.layers.{i}.{name}.weight"] = "BF16", [HIDDEN], b"\x80\x3f" * HIDDEN
    names["model.norm.weight"] = "BF16", [HIDDEN], b"\x80\x3f" * HIDDEN
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    tensors.write(folder / "model.safetensors", names)
    for file in tokenizer.iterdir():
        shutil.copyfile(file, folder / file.name)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def png(size, ground, box, color):
    """A square image with one rectangle."""
    x0, y0, x1, y1 = box
    lines = b""
    for y in range(size):
        lines += b"\0" + b"".join(bytes(color if y0 <= y < y1 and x0 <= x < x1 else [ground] * 3) for x in range(size))

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b""))


def write_images(folder, size=64):
    rng = random.Random("boxes")
    (folder / "images").mkdir(parents=True)
    table = ["ImageID,LabelName,XMin,XMax,YMin,YMax"]
    for i in range(10):
        side, wide = rng.randrange(20, 36), i % 2
        x, y = rng.randrange(0, size - side), rng.randrange(0, size - side)
        box = (x, y, x + side, y + (side // 2 if wide else side))
        color = [rng.randrange(128, 256) for _ in range(3)]
        (folder / "images" / f"image{i}.png").write_bytes(png(size, rng.randrange(20, 90), box, color))
        table.append(f"image{i},{('square', 'bar')[wide]}," + ",".join(
            format(value / size, ".6f") for value in (box[0], box[2], box[1], box[3])))
    (folder / "boxes.csv").write_text("\n".join(table) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    write_model(out / "model")
    write_rows(out / "rows.jsonl", [{"prompt": f"{a} and {b} is", "completion": f" {NUMBERS[a + b]}, {'so ' * (a + 1)}it is."}
                                    for a in range(6) for b in range(4)])
    write_rows(out / "eval.jsonl", [{"prompt": f"{a} and 5 is", "completion": f" {NUMBERS[a + 5]}."} for a in range(5)])
    write_rows(out / "pairs.jsonl", [{"prompt": f"{a} or {b}?", "chosen": f" {NUMBERS[max(a, b)]}.",
                                      "rejected": f" It is {NUMBERS[min(a, b)]}, of course."}
                                     for a in range(6) for b in range(4) if a != b])
    write_images(out / "shapes")


if __name__ == "__main__":
    main()
