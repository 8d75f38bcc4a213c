#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares conversations with TRL and transformers as they are installed: ids and labels under TRL's own templates.

For each family of FAMILIES, TRL's training template (with {% generation %}) and generated conversations:

    tagged      ids and assistant masks of transformers' apply_chat_template (what TRL's SFT trainer calls) against trimtab's
    untagged    the same masks against trimtab's with the tags taken out: by the origin of bytes
    stock       the family's published template: ids, and the mask of rows whose ids are the training template's too

The tokenizer is tests/golden/tokenizer/qwen2 with the family's special tokens added. Nothing of TRL's is stored.

    python tests/golden/chat/compare_trl.py --build build --count 1000

The log of a run is in docs/measurements/conversations.md.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jinja2
import transformers
import trl
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
FAMILIES = {  # end token, begin token, further special tokens, features of its conversations
    "qwen2_5": ("<|im_end|>", None, [], "system calls"),
    "qwen3": ("<|im_end|>", None, [], "system calls think"),
    "qwen3_instruct_2507": ("<|im_end|>", None, [], "system calls"),
    "llama3": ("<|eot_id|>", "<|begin_of_text|>", ["<|start_header_id|>", "<|end_header_id|>"], "system"),
    "gemma": ("<end_of_turn>", "<bos>", ["<start_of_turn>"], ""),
    "gemma3": ("<end_of_turn>", "<bos>", ["<start_of_turn>"], "system"),
    "phi3": ("<|endoftext|>", None, ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], "system"),
    "phi3_5": ("<|endoftext|>", None, ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], "system"),
    "cohere": ("<|END_OF_TURN_TOKEN|>", "<BOS_TOKEN>", ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"], "system"),
    "deepseekv3": ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", ["<｜User｜>", "<｜Assistant｜>"], "system"),
    "lfm2": ("<|im_end|>", "<|startoftext|>", [], "system"),
    "nemotron_3_nano": ("<|im_end|>", None, [], "system calls think"),
}

WORDS = "the a of and ferry leaves at 7:45 we'll need tickets naïve café 東京 🙂 x_i 3.14 hello! Why? ok. - * \"no\" {x} <b> </b> ### user assistant".split()
CALLS = [("weather", {"place": "Köln", "days": [1, 2], "x": 1.0}), ("add", {"a": 1, "b": -2.5}), ("none", {})]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}]


def text(rng):
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 20))]
    joined = "".join(word + rng.choice([" ", " ", " ", "\n", "\n\n", "  "]) for word in words)
    return joined if rng.random() < 0.2 else joined.strip()


def answer(rng, features):
    message = {"role": "assistant", "content": text(rng)}
    if "think" in features and rng.random() < 0.5:
        message["reasoning_content"] = text(rng)
    if "calls" in features and rng.random() < 0.3:
        message["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in rng.sample(CALLS, rng.randint(1, 2))]
    return message


def conversation(rng, features):
    messages = []
    if "system" in features and rng.random() < 0.4:
        messages.append({"role": "system", "content": text(rng)})
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text(rng)})
        messages.append(answer(rng, features))
        while messages[-1].get("tool_calls"):
            messages += [{"role": "tool", "content": text(rng)} for _ in messages[-1]["tool_calls"]]
            messages.append(answer(rng, features))
    row = {"messages": messages}
    if "calls" in features and rng.random() < 0.4:
        row["tools"] = TOOLS
    return row


def write_lines(path, values):
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8", newline="\n")


def make_tokenizer(folder, end, begin, others):
    tokenizer = Tokenizer.from_file(str(HERE.parent / "tokenizer" / "qwen2" / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in [end, *([begin] if begin else []), *others]])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": end} | ({"bos_token": begin} if begin else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=begin)


def render(tokenizer, template, row, masked):
    try:
        out = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), chat_template=template, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=masked)
    except (jinja2.exceptions.TemplateError, TypeError):
        return None
    return [out["input_ids"], out["assistant_masks"] if masked else [1] * len(out["input_ids"])]


def run(build, folder, template, rows, answers):
    write_lines(folder.parent / "rows.jsonl", rows)
    write_lines(folder.parent / "golden.jsonl", [a or [] for a in answers])
    (folder.parent / "t.jinja").write_text(template, encoding="utf-8")
    command = [build / "tests/test_golden_chat", folder, folder.parent / "t.jinja", folder.parent / "rows.jsonl", folder.parent / "golden.jsonl"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.stderr:
        print(result.stderr[:3000], file=sys.stderr)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print(f"trl {trl.__version__}, transformers {transformers.__version__}; {args.count} conversations each")
    for name in args.families:
        end, begin, others, features = FAMILIES[name]
        rng = random.Random(name)
        rows = [conversation(rng, features) for _ in range(args.count)]
        tagged = (TEMPLATES / f"{name}_training.jinja").read_text(encoding="utf-8")
        stock = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
        untagged = re.sub(r"(\{%[-+]?\s*)endgeneration", r"\1endif", re.sub(r"(\{%[-+]?\s*)generation", r"\1if true", tagged))
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "tokenizer"
            tokenizer = make_tokenizer(folder, end, begin, others)
            started = time.perf_counter()
            answers = [render(tokenizer, tagged, row, True) for row in rows]
            print(f"{name}: {time.perf_counter() - started:.2f} s of apply_chat_template")
            print(f"{name} tagged: {run(args.build, folder, tagged, rows, answers)}", flush=True)
            print(f"{name} untagged: {run(args.build, folder, untagged, rows, answers)}", flush=True)
            plain = [render(tokenizer, stock, row, False) for row in rows]
            both = [(row, a) for row, a, p in zip(rows, answers, plain) if a and p and a[0] == p[0]]
            if both:
                result = run(args.build, folder, stock, [row for row, _ in both], [a for _, a in both])
                print(f"{name} stock, {len(both)} rows with the same ids: {result}", flush=True)


if __name__ == "__main__":
    main()
