#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the reference models with trimtab and runs them in llama.cpp; run by hand:

    python tests/golden/check_llama_cpp.py BUILD LIBRARY [MODEL... | tokenizers | adapters]

LIBRARY: a shared library with llama.cpp's functions, as xllamacpp.abi3.so of the package xllamacpp, whose wheels
contain it. Ids of texts are compared with those of the tokenizers library, adapters with merged models, and its logits with
those of transformers, for the models of gguf/families.py; values are float32 and so is the cache. Prints one line each.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import numpy
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

GOLDEN = Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN / "gguf"))
from families import ADAPTERS, KEYS, MODELS, PRE_TOKENIZERS, folder_of, make_adapter, make_folder, make_tokenizer_folder, with_mark, with_splits
PARAMS_BYTES = 1024  # more than the structs have; what the library does not know is not read
FLASH, TYPE_K = 52 // 4, 104 // 4  # members of llama_context_params, checked below
BOUND = 1e-4


class Params(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * PARAMS_BYTES)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


class Llama:
    """A file in llama.cpp, by the functions of include/llama.h."""

    def __init__(self, library, path):
        self.library = library
        for name, result, arguments in (
            ("llama_model_default_params", Params, []),
            ("llama_context_default_params", Params, []),
            ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Params]),
            ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Params]),
            ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
            ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
            ("llama_batch_init", Batch, [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]),
            ("llama_batch_free", None, [Batch]),
            ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
            ("llama_adapter_lora_init", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
            ("llama_set_adapters_lora", ctypes.c_int32, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t,
                                                         ctypes.POINTER(ctypes.c_float)]),
            ("llama_set_n_threads", None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
            ("llama_free", None, [ctypes.c_void_p]),
            ("llama_model_free", None, [ctypes.c_void_p]),
            ("llama_tokenize", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
                                                ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self.model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = library.llama_model_get_vocab(self.model)

    def close(self):
        self.library.llama_model_free(self.model)

    def logits(self, ids, adapter=None):
        params = self.library.llama_context_default_params()
        numbers = ctypes.cast(ctypes.byref(params), ctypes.POINTER(ctypes.c_int32))
        assert [numbers[i] for i in (FLASH, TYPE_K, TYPE_K + 1)] == [-1, 1, 1], "llama_context_params has another layout"
        numbers[FLASH] = numbers[TYPE_K] = numbers[TYPE_K + 1] = 0  # no flash attention, a cache of float32
        context = self.library.llama_init_from_model(self.model, params)
        self.library.llama_set_n_threads(context, 1, 1)  # threads would wait for each other where others compute
        if adapter is not None:
            loaded = ctypes.c_void_p(self.library.llama_adapter_lora_init(self.model, str(adapter).encode()))
            assert loaded and self.library.llama_set_adapters_lora(context, ctypes.byref(loaded), 1, ctypes.byref(ctypes.c_float(1))) == 0
        batch = self.library.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        assert self.library.llama_decode(context, batch) == 0
        columns = self.library.llama_vocab_n_tokens(self.vocab)
        rows = [numpy.ctypeslib.as_array(self.library.llama_get_logits_ith(context, i), (columns,)).copy() for i in range(len(ids))]
        self.library.llama_batch_free(batch)
        self.library.llama_free(context)
        return torch.from_numpy(numpy.stack(rows))

    def tokenize(self, text):
        data, ids = text.encode(), (ctypes.c_int32 * 4096)()
        count = self.library.llama_tokenize(self.vocab, data, len(data), ids, 4096, False, False)
        assert count >= 0
        return list(ids[:count])


def gelu_of_table(values, approximate="none"):
    """ggml's: a table of float16 by float16."""
    return plain_gelu(values.half().float(), approximate=approximate).half().float()


plain_gelu, torch.nn.functional.gelu = torch.nn.functional.gelu, gelu_of_table


@torch.no_grad()
def reference(folder, config, rows):
    kind = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    return torch.cat([model(input_ids=ids[None]).logits[0].float() for ids in rows])


def compare(trimtab, library, name, changes):
    with tempfile.TemporaryDirectory() as work:
        config = make_folder(name, changes, Path(work) / "model")
        batch = load_file(folder_of(name) / "reference.safetensors")
        rows = batch["input_ids"].split(batch["seq_lens"].tolist())
        subprocess.run([trimtab, "export", "gguf", "--model_name_or_path", f"{work}/model", "--output_file", f"{work}/model.gguf",
                        "--outtype", "f32"], check=True, stdout=subprocess.DEVNULL)
        llama = Llama(library, f"{work}/model.gguf")
        ours = torch.cat([llama.logits(ids.tolist()) for ids in rows])
        llama.close()
        theirs = reference(f"{work}/model", config, rows)
        return ((ours - theirs).norm() / theirs.norm()).item()


TEXTS = ["Hello, world! It's 12345 o'clock; we'LL see.", "  indented\n\n\tcode(x) = {1: 'a', 22: \"b\"}\r\n", "naïve café ÉCOLE Straße",
         "日本語のテキスト、漢字かな交じり。", "a/b//c\n/d", "   ", "x  \n y", "Привет, мир 2024", "한국어 문장", "camelCaseWord HTTPServer",
         "emoji 😀😃 and – dashes…", "1234567 3.14 1,000"]


def tokenize(trimtab, library, model, tokenizer, change):
    """Texts whose ids differ from those of the tokenizers library."""
    with tempfile.TemporaryDirectory() as work:
        make_tokenizer_folder(model, tokenizer, change, Path(work) / "model")
        subprocess.run([trimtab, "export", "gguf", "--model_name_or_path", f"{work}/model", "--output_file", f"{work}/model.gguf"],
                       check=True, stdout=subprocess.DEVNULL)
        llama, own = Llama(library, f"{work}/model.gguf"), Tokenizer.from_file(f"{work}/model/tokenizer.json")
        return [text for text in TEXTS if llama.tokenize(text) != own.encode(text, add_special_tokens=False).ids]


def check_tokenizers(trimtab, library):
    cases = [(name, "llama3", "llama3", with_splits(splits, ignore)) for splits, ignore, name in PRE_TOKENIZERS if " " not in name]
    failed = False
    for name, model, tokenizer, change in [*cases, ("gemma4", "dense/gemma4_text", "gemma", with_mark)]:
        differ = tokenize(trimtab, library, model, tokenizer, change)
        failed |= bool(differ)
        print(f"{name:24} tokenizer, {len(TEXTS) - len(differ)} of {len(TEXTS)} texts{f', not {differ}  FAILED' if differ else ''}", flush=True)
    return failed


def adapt(trimtab, library, name, adapter, without):
    """The base with the adapter's file, against the merged model's file."""
    with tempfile.TemporaryDirectory() as work:
        make_folder(name, MODELS.get(name, {}), Path(work) / "model")
        make_adapter(name, adapter, without, Path(work) / "adapter")
        words = ["--adapter_name_or_path", f"{work}/adapter"]
        for file, more in (("base", []), ("merged", words), ("adapter", [*words, "--adapter_only"])):
            subprocess.run([trimtab, "export", "gguf", "--model_name_or_path", f"{work}/model", "--output_file", f"{work}/{file}.gguf",
                            "--outtype", "f32", *more], check=True, stdout=subprocess.DEVNULL)
        ids = load_file(folder_of(name) / "reference.safetensors")["input_ids"].tolist()[:16]
        base, merged = Llama(library, f"{work}/base.gguf"), Llama(library, f"{work}/merged.gguf")
        plain, ours, whole = base.logits(ids), base.logits(ids, f"{work}/adapter.gguf"), merged.logits(ids)
        return ((ours - whole).norm() / whole.norm()).item(), ((plain - whole).norm() / whole.norm()).item()


def check_adapters(trimtab, library):
    failed = False
    for name, adapter, without, said in ADAPTERS:
        if said is not None:
            continue
        error, change = adapt(trimtab, library, name, adapter, without)
        good = error <= BOUND and change > 10 * error
        failed |= not good
        print(f"{name:24} {adapter} {error:.2e}, of a change of {change:.2e}{'' if good else '  FAILED'}", flush=True)
    return failed


def main():
    trimtab, library = Path(sys.argv[1]) / "trimtab", ctypes.CDLL(sys.argv[2])
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)
    library.llama_log_set(silent, None)
    library.llama_backend_init()
    failed = len(sys.argv) < 4 and check_tokenizers(trimtab, library)
    failed |= sys.argv[3:] == ["tokenizers"] and check_tokenizers(trimtab, library)
    failed |= sys.argv[3:] in ([], ["adapters"]) and check_adapters(trimtab, library)
    for name, changes in [*MODELS.items(), *((name, MODELS[name] | changes) for name, changes, _, _ in KEYS)]:
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        try:
            error = compare(trimtab, library, name, changes)
        except Exception as reason:
            print(f"{name:24} {reason}  FAILED", flush=True)
            failed = True
            continue
        failed |= not error <= BOUND
        print(f"{name:24} logits {error:.2e}{'' if error <= BOUND else '  FAILED'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
