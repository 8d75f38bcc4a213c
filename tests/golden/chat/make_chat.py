#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat/: the ids and labels that TRL's SFTTrainer gives conversations.

    templates/NAME.jinja   twelve chat templates with {% generation %}, written for this test
    rows.jsonl             conversations as rows of messages
    completions.jsonl      rows of prompt and completion that are messages
    NAME.jsonl             one line per row of rows.jsonl, [ids, mask]: SFTTrainer.train_dataset with assistant_only_loss
                           (mask: the labels that are not -100); null where the template refuses the conversation
    completion_NAME.jsonl  the same for completions.jsonl, without assistant_only_loss
    tokenizers/NAME        tokenizer_config.json for a tokenizer of ../tokenizer

How to run, after make_tokenizers.py, with trl 1.16.0 and transformers 5.17.0:

    python tests/golden/chat/make_chat.py
"""

import json
import tempfile
from pathlib import Path

import jinja2
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

HERE = Path(__file__).resolve().parent
# Tokenizer: end token and begin token.
TOKENIZERS = {"qwen2": ("<|im_end|>", None), "llama3": ("<|end_of_text|>", "<|begin_of_text|>"), "llama2": ("</s>", "<s>")}
TEMPLATES = {
    "chatml": "qwen2", "chatml_default_system": "qwen2", "tools": "qwen2", "think": "qwen2", "parts": "qwen2", "marker": "qwen2",
    "headers": "llama3", "final_eos": "llama3", "turns": "llama2", "inst": "llama2", "instruction": "llama2", "one_line": "llama2",
}

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"


def talk(*texts, system=None):
    roles = [USER, ASSISTANT] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts)]
    return ([{"role": SYSTEM, "content": system}] if system else []) + messages


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": [1, 2], "x": 1.0}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
ROWS = [
    {"messages": talk("Hello there", "Hi.")},
    {"messages": talk("What is 1+1?", "2", "And 2+2?", "It is 4.", system="Be brief.")},
    {"messages": talk("a", "b", "a", "b", "a", "b")},
    {"messages": talk("  blanks  ", "  two\n", "\n\nx", " y ")},
    {"messages": talk("Name a café.", "Die Straße 👩‍👩‍👧 é 日本語", "ok", "naïve")},
    {"messages": talk("same", "same", "same", "same", system="same")},
    {"messages": talk("Think.", "<think>\nplan A\n</think>\n\nBecause.")},
    {"messages": talk("One", "assistant\nassistant: ### Response:\nok")},
    {"messages": talk("Numbers", "1\n2\n3\n", "More", "\t4", system="S")},
    {"messages": talk("x" * 300, "y z " * 60)},
    {"messages": [*talk("Weather?"), {"role": ASSISTANT, "content": "Wait.", "tool_calls": [CALL, CALL]},
                  {"role": "tool", "content": "21.5"}, {"role": ASSISTANT, "content": "21.5 °C"}], "tools": TOOLS},
    {"messages": [{"role": USER, "content": [{"type": "text", "text": "look "}, {"type": "text", "text": "here"}]},
                  {"role": ASSISTANT, "content": [{"type": "text", "text": "se"}, {"type": "text", "text": "en"}]}]},
    {"messages": [*talk("Deep?"), {"role": ASSISTANT, "content": "Yes.", "reasoning_content": "more\nthan this"}]},
]
COMPLETIONS = [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in ROWS[:10]]


def write_lines(path, values):
    lines = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def load(name, template):
    end, begin = TOKENIZERS[name]
    return PreTrainedTokenizerFast(tokenizer_file=str(HERE.parent / "tokenizer" / name / "tokenizer.json"), eos_token=end, bos_token=begin,
                                   chat_template=template)


def train_rows(tokenizer, model, rows, assistant_only, folder):
    config = SFTConfig(output_dir=folder, max_length=8192, assistant_only_loss=assistant_only, report_to="none", use_cpu=True, bf16=False)
    trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    result = []
    for row in trainer.train_dataset:
        assert all(label in (-100, token) for label, token in zip(row["labels"], row["input_ids"]))
        result.append([row["input_ids"], [int(label != -100) for label in row["labels"]]])
    return result


def main():
    write_lines(HERE / "rows.jsonl", ROWS)
    write_lines(HERE / "completions.jsonl", COMPLETIONS)
    for name, (end, begin) in TOKENIZERS.items():
        folder = HERE / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        config = {"eos_token": end} | ({"bos_token": begin} if begin else {})
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer_name in TEMPLATES.items():
            tokenizer = load(tokenizer_name, (HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8"))
            model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
            results = []
            for row in ROWS:  # one by one: Arrow would give each message the members of all
                try:
                    results += train_rows(tokenizer, model, [row], True, folder)
                except (jinja2.exceptions.TemplateError, TypeError) as error:
                    print(f"{name}: {error}")
                    results.append(None)
            write_lines(HERE / f"{name}.jsonl", results)
            write_lines(HERE / f"completion_{name}.jsonl", train_rows(tokenizer, model, COMPLETIONS, False, folder))


if __name__ == "__main__":
    main()
