#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/gguf/cards.jsonl: the keys that gguf-py's Metadata makes of model cards. Each row is {"card", the text of
a README.md, "parameters", "keys", the bytes of a GGUF file with these keys in hex}. general.name is "model" where the card
has none; what Metadata guesses from names of folders is left out. How to run, in an environment with gguf:

    python tests/golden/gguf/make_cards.py
"""

import json
import tempfile
from pathlib import Path

import gguf

OUT = Path(__file__).resolve().parent / "cards.jsonl"

CARDS = [
    "",
    "no front matter\n",
    "---\nlicense: apache-2.0\n---\n# A model\n",
    "---\nlicense: [mit, apache-2.0]\nlanguage:\n- en\n- no\n- de\npipeline_tag: text-generation\ntags: [chat, sft]\n---\n",
    "---\nlanguage: en\nlicense: other\nlicense_name: llama3.1\nlicense_link: https://example.org/license\n---\n",
    "---\nname: A Name\nauthor: Someone\nversion: v2\norganization: Some Where\ndescription: |\n  two\n  lines\n---\n",
    "---\nmodel_name: Other Name\nmodel_creator: Maker\nmodel_type: llama\nmodel_version: '1.0'\n---\n",
    "---\nname: 'Größe 漢字'\nauthor: \"tab\\tquote\\\"\"\nfinetune: chat\nsize_label: 7B\nbasename: base\n---\n",
    "---\nurl: https://example.org\ndoi: 10.1/2\nuuid: u-u\nrepo_url: https://example.org/r\n---\n",
    "---\nbase_model: meta-llama/Llama-3.1-8B-Instruct\ndatasets:\n- org/some-data\n- plain\n---\n",
    "---\nbase_model:\n- mistralai/Mistral-7B-v0.1\n- ./local/path\n- A Sentence of Words\n- org/a/b\n---\n",
    "---\nbase_model: https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct\ndatasets: http://example.org/x/y\n---\n",
    "---\nbase_models: [a/Phi-3-mini-4k-instruct, a/phi-mini-2-4k, b/gemma-2-9b-it, c/bloom-7b1]\n---\n",
    "---\nbase_model_sources:\n- name: N\n  author: A\n  version: v\n  organization: O\n  description: D\n  url: u\n  doi: d\n"
    "  uuid: i\n  repo_url: r\n---\n",
    "---\nbase_model: [o/x-v1.2.3-iter3-q4_k_m, o/y-8x7B-bf16-chat, o/z-A3B-v2, o/2-3-4, o/v1, o/llama-2-7b-hf]\n---\n",
    "---\nbase_model: [o/UPPER-lower-miXed, o/it's-a_name, o/--x--1.0--, o/name-1_5b, o/name-7.2b1-v3]\n---\n",
    "---\nbase_model:\n---\n",
    "---\nbase_model: ''\nlicense: ''\n---\n",
    "---\ndataset: [one/Two-three-v4]\nbase_model: []\n---\n",
    "---\ndataset_sources:\n- url: u\n- ssh://host/path\n---\n",
    "---\r\nlicense: mit\r\nlanguage:\r\n- en\r\n---\r\ntext\r\n",
    "---\nlicense: mit\n",
    "---\ntags:\n-\tone\n- two\n---\n",
    "---\nname: null\nauthor: ~\nlicense:\nmodel_name: Second\n---\n",
    "---\na: &anchor [x, y]\ntags: *anchor\nlanguages: *anchor\n---\n",
    "---\nname: &n Named\nauthor: *n\n---\n",
    "---\n---\n",
    "---\n- a\n- list\n---\n",
    " ---\nname: x\n---\n",
]


def keys(card, parameters, folder):
    (folder / "README.md").write_bytes(card.encode())
    metadata = gguf.Metadata.apply_metadata_heuristic(gguf.Metadata(), gguf.Metadata.load_model_card(folder), None, None, parameters)
    if not metadata.name:
        metadata.name = "model"
    writer = gguf.GGUFWriter(folder / "keys.gguf", "llama")
    metadata.set_gguf_meta_model(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (folder / "keys.gguf").read_bytes().hex()


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for card in CARDS:
            for parameters in (0, 7_000_000_000, -20_000_000):
                if parameters and "base_model" not in card:
                    continue
                rows.append({"card": card, "parameters": parameters, "keys": keys(card, parameters, Path(folder))})
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
