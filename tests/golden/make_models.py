#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference models, adapters, logits and training curves of tests/golden/.

For every model family this writes a folder with a tiny random model and what
transformers + PEFT compute with it on the CPU, in fp32 and on one thread:

    model/                    the model as transformers' save_pretrained writes it
    reference.safetensors     seq_lens, input_ids (sequences one after the other), and per
                              token the logits of each sequence run alone:
                              logits [total, vocab], logits_adapter (with adapter_random),
                              some families: logits_bf16 (model run in bfloat16),
                              logits_window (with config_window.json), logits_long (with
                              config_long.json)
    adapter_random/           PEFT LoRA on all linears, A and B random
    adapter_init/             PEFT's own initialisation: B is zero
    train.jsonl               24 rows {"input_ids", "labels"}; labels are not shifted
    train_reference.json      20 steps of LoRA from adapter_init: settings, loss, gradient norm
                              before clipping, learning rate of that step
    adapter_final/            the adapter after these steps
    full_reference.json       20 steps that train every parameter
    full_final.safetensors    some families: the parameters after these steps
    generate.json             greedy continuations, with and without adapter_random
    variety/, all_linear/     some families: unusual LoraConfigs, see VARIETIES

and beside them llama_sharded/ (llama2/model in several safetensors files) and peft_init.json
(the distributions of PEFT's two initialisations).

How to run, in a virtual environment with torch, transformers, peft and safetensors:

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/make_models.py [family ...]

Without arguments everything is made again. PEFT writes target_modules in the order of a Python
set, hence the hash seed. tests/golden/VERSIONS.md names the versions that made the committed
files. Other versions or processors may change the last digits.
"""

import dataclasses
import json
import math
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.trainer_pt_utils import get_parameter_names

GOLDEN = Path(__file__).resolve().parent
IGNORED = -100  # label of a token that is not supervised
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": LINEARS, "task_type": "CAUSAL_LM"}

# Trainer.get_decay_parameter_names of transformers 5: these names get no weight decay.
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]


@dataclasses.dataclass
class Family:
    """One reference model; sizes are odd on purpose, so that no kernel sees only whole tiles."""

    model_type: str
    seed: int
    config: dict
    lengths: tuple  # of the sequences in reference.safetensors
    bf16: bool = False  # also logits of the model run in bfloat16
    window: int = 0  # also logits with this sliding window
    config_v4: bool = False  # also config_v4.json, with the keys of transformers 4
    keep_full_final: bool = False
    linears: tuple = tuple(LINEARS)  # targets of the adapters
    longrope: bool = False  # also logits with LongRoPE's long factors


FAMILIES = {
    "llama2": Family(
        "llama",
        seed=102,
        lengths=(1, 5, 17, 33),
        config={
            "vocab_size": 257, "hidden_size": 40, "intermediate_size": 88, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 5, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        keep_full_final=True,
    ),
    "llama3": Family(
        "llama",
        seed=103,
        lengths=(1, 5, 13, 65),
        # head_dim 16, theta 5e5 and 64 original positions put wavelengths into all three bands of the scaling.
        config={
            "vocab_size": 263, "hidden_size": 64, "intermediate_size": 104, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            },
        },
        bf16=True,
        config_v4=True,
    ),
    "mistral": Family(
        "mistral",
        seed=104,
        lengths=(1, 5, 13, 65),
        config={
            "vocab_size": 271, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        window=16,
    ),
    "qwen2": Family(
        "qwen2",
        seed=105,
        lengths=(2, 5, 13, 33),
        config={
            "vocab_size": 290, "hidden_size": 64, "intermediate_size": 104, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        bf16=True,
    ),
    "qwen3": Family(
        "qwen3",
        seed=106,
        lengths=(1, 7, 16, 66),
        config={
            "vocab_size": 259, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        keep_full_final=True,
    ),
    # The fourth layer has no rotation.
    "smollm3": Family(
        "smollm3",
        seed=107,
        lengths=(1, 5, 17, 33),
        config={
            "vocab_size": 269, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 4,
            "num_attention_heads": 5, "num_key_value_heads": 1, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 2000000.0},
        },
    ),
    # 12 of the 16 columns of a head rotate. The short factors hold up to 1024 positions.
    "phi3": Family(
        "phi3",
        seed=108,
        lengths=(2, 5, 17, 33),
        config={
            "vocab_size": 277, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 4096,
            "original_max_position_embeddings": 1024,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.05, 1.1, 1.3, 1.5, 2.0], "long_factor": [1.0, 1.5, 2.5, 5.0, 8.0, 12.0],
            },
        },
        linears=("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
        longrope=True,
    ),
    # The third layer sees all keys, the others four; each kind has its own rotation.
    "gemma3": Family(
        "gemma3_text",
        seed=109,
        lengths=(1, 5, 17, 33),
        config={
            "vocab_size": 283, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
            "query_pre_attn_scalar": 20, "sliding_window": 4,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        bf16=True,
    ),
    # Scores and logits are about as large as their caps; the second layer sees all keys, the others four.
    "gemma2": Family(
        "gemma2",
        seed=110,
        lengths=(1, 5, 17, 33),
        config={
            "vocab_size": 293, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
            "query_pre_attn_scalar": 20, "sliding_window": 4,
            "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        bf16=True,
    ),
}

VARIETIES = {
    "llama2": {
        "r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM", "use_rslora": True,
        "target_modules": LINEARS, "exclude_modules": ["v_proj"], "layers_to_transform": [1],
        "rank_pattern": {"down_proj": 2, r"layers\.1\.self_attn\.q_proj": 6},
        "alpha_pattern": {"gate_proj": 3, r"self_attn\..*": 5},
        "modules_to_save": ["lm_head"],
    },
    # Embeddings are tied here: PEFT trains a copy of embed_tokens, and the head keeps the old weight.
    "qwen2": {
        "r": 3, "lora_alpha": 5, "task_type": "CAUSAL_LM", "init_lora_weights": "gaussian",
        "target_modules": r".*\.(q_proj|up_proj|down_proj)", "exclude_modules": r".*layers\.0\.mlp.*",
        "modules_to_save": ["embed_tokens"],
    },
}

TRAIN = {
    "optimizer": "AdamW", "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "weight_decay": 0.01,
    "lr_scheduler_type": "linear", "warmup_steps": 2, "max_steps": 20, "max_grad_norm": 1.0,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "order": "file order, wrapping",
}
ROWS = 24
PROMPT_LEN, NEW_TOKENS = 6, 16


def write_json(path, value):
    """One line per key, and one per item of a list of objects: short files whose changes read well."""
    lines = []
    for key, item in value.items():
        if isinstance(item, list):
            text = "[\n  " + ",\n  ".join(json.dumps(element) for element in item) + "\n ]"
        else:
            text = json.dumps(item)
        lines.append(f" {json.dumps(key)}: {text}")
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}


def load_model(folder="model", **kwargs):
    """Reads a model folder; eager attention is the plain formula, whatever the processor."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **kwargs)


# ---------------------------------------------------------------------------------------------
# Models


def randomise(model, generator):
    """Large enough values that logits differ, and that a forgotten norm weight or bias shows."""
    with torch.no_grad():
        for name, param in model.named_parameters():
            noise = torch.randn(param.shape, generator=generator)
            if "norm" in name:
                param.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                param.copy_(0.3 * noise)
            else:
                param.copy_(0.12 * noise)


def make_model(family):
    config = AutoConfig.for_model(family.model_type, dtype="float32", **family.config)
    model = AutoModelForCausalLM.from_config(config)
    randomise(model, torch.Generator().manual_seed(family.seed))
    model.save_pretrained("model")
    return model


def write_config_v4():
    """The same configuration with the keys that transformers 4 wrote; it must give the same model."""
    config = json.loads(Path("model/config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.45.0"
    Path("config_v4.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load_with_config(config_file):
    """The weights of model/ under another config.json."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy("model/model.safetensors", folder)
        shutil.copy(config_file, Path(folder) / "config.json")
        return load_model(folder).eval()


def make_sharded(model):
    folder = GOLDEN / "llama_sharded" / "model"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="100KB")


# ---------------------------------------------------------------------------------------------
# Adapters


def save_adapter(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (Path(folder) / "README.md").unlink()  # a model card template without content


def make_adapter(folder, lora, seed, random_b):
    """A PEFT adapter with PEFT's own initialisation; random_b also fills B and the saved modules."""
    torch.manual_seed(seed)
    model = get_peft_model(load_model(), LoraConfig(**lora))
    if random_b:
        with torch.no_grad():
            for name, param in model.named_parameters():
                if "lora_B" in name:
                    param.normal_(0.0, 0.1)
                elif "modules_to_save" in name:
                    param.add_(0.05 * torch.randn(param.shape))
    save_adapter(model, folder)


def make_variety(family_name, input_ids, lengths):
    make_adapter("variety", VARIETIES[family_name], seed=7, random_b=True)
    model = PeftModel.from_pretrained(load_model(), "variety").eval()
    save_file({"logits": all_logits(model, input_ids, lengths)}, "variety/reference.safetensors", {"format": "pt"})


def make_all_linear():
    """Only the configuration: how PEFT writes down what target_modules='all-linear' came to mean."""
    make_adapter("all_linear", {**LORA, "target_modules": "all-linear"}, seed=8, random_b=False)
    Path("all_linear/adapter_model.safetensors").unlink()


def make_peft_init():
    """What PEFT draws A and B from, measured once so that the formulas are not only read off its source."""
    in_features, out_features, r = 4096, 64, 16
    bound = 1.0 / math.sqrt(in_features)
    expected = {
        True: {"distribution": "uniform", "bound_formula": "1/sqrt(in_features)", "bound": bound, "std": bound / math.sqrt(3)},
        "gaussian": {"distribution": "normal", "std_formula": "1/r", "std": 1.0 / r},
    }
    cases = []
    for init, distribution in expected.items():
        torch.manual_seed(11)
        base = torch.nn.Sequential(torch.nn.Linear(in_features, out_features, bias=False))
        model = get_peft_model(base, LoraConfig(r=r, target_modules=["0"], init_lora_weights=init))
        layer = model.base_model.model[0]
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert not b.any()
        measured = {"count": a.numel(), "mean": a.mean().item(), "std": a.std().item(), "max_abs": a.abs().max().item()}
        cases.append({"init_lora_weights": init, "A": distribution, "A_measured": measured, "B": "zeros"})
    shapes = {"in_features": in_features, "out_features": out_features, "r": r}
    write_json(GOLDEN / "peft_init.json", {"versions": versions(), **shapes, "cases": cases})


# ---------------------------------------------------------------------------------------------
# Logits and generation


@torch.no_grad()
def all_logits(model, input_ids, lengths):
    """Logits of each sequence run alone, [total tokens, vocab] in fp32."""
    parts = [model(input_ids=ids[None]).logits[0].float() for ids in input_ids.split(list(lengths))]
    return torch.cat(parts).contiguous()


def make_reference(family):
    generator = torch.Generator().manual_seed(family.seed + 1000)
    input_ids = torch.randint(0, family.config["vocab_size"], (sum(family.lengths),), generator=generator)
    base = load_model().eval()
    tensors = {
        "seq_lens": torch.tensor(family.lengths, dtype=torch.int64),
        "input_ids": input_ids,
        "logits": all_logits(base, input_ids, family.lengths),
    }
    if family.bf16:
        tensors["logits_bf16"] = all_logits(load_model(dtype=torch.bfloat16).eval(), input_ids, family.lengths)
    if family.window:
        config = json.loads(Path("model/config.json").read_text()) | {"sliding_window": family.window}
        Path("config_window.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tensors["logits_window"] = all_logits(load_with_config("config_window.json"), input_ids, family.lengths)
        assert not torch.allclose(tensors["logits_window"], tensors["logits"], atol=1e-2)
    if family.config_v4:
        write_config_v4()
        assert torch.equal(all_logits(load_with_config("config_v4.json"), input_ids, family.lengths), tensors["logits"])
    if family.longrope:
        config = json.loads(Path("model/config.json").read_text()) | {"original_max_position_embeddings": 1}
        config["rope_parameters"] |= {"original_max_position_embeddings": 1, "factor": 4.0}
        config["rope_parameters"]["attention_factor"] = 1.1
        Path("config_long.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tensors["logits_long"] = all_logits(load_with_config("config_long.json"), input_ids, family.lengths)
        assert not torch.allclose(tensors["logits_long"], tensors["logits"], atol=1e-2)
    adapted = PeftModel.from_pretrained(base, "adapter_random").eval()
    tensors["logits_adapter"] = all_logits(adapted, input_ids, family.lengths)
    save_file(tensors, "reference.safetensors", {"format": "pt"})
    return input_ids


@torch.no_grad()
def greedy(model, prompt):
    """Greedy ids by generate() with its cache, checked against runs without one; min_margin is the
    smallest lead of a chosen logit over the next best, so a test can tell a tie from a mistake."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    ids = model.generate(
        input_ids=torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False, max_new_tokens=NEW_TOKENS,
    )
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
    best = logits.topk(2).values
    new_ids = ids[0, len(prompt) :]
    assert torch.equal(logits.argmax(-1), new_ids)
    return {"ids": new_ids.tolist(), "min_margin": (best[:, 0] - best[:, 1]).min().item()}


def make_generate(family):
    """Two prompts whose greedy choices are all clear, so that rounding cannot change them."""
    rng = random.Random(family.seed)
    base = load_model().eval()
    adapted = PeftModel.from_pretrained(load_model(), "adapter_random").eval()
    cases = []
    while len(cases) < 2:
        prompt = [rng.randrange(3, family.config["vocab_size"]) for _ in range(PROMPT_LEN)]
        case = {"prompt": prompt, "base": greedy(base, prompt), "adapter_random": greedy(adapted, prompt)}
        if min(case["base"]["min_margin"], case["adapter_random"]["min_margin"]) > 0.01:
            cases.append(case)
    write_json("generate.json", {"versions": versions(), "max_new_tokens": NEW_TOKENS, "cases": cases})


# ---------------------------------------------------------------------------------------------
# Training


def make_rows(family):
    """Rows that can be learned: mostly a fixed map from id to id. Most begin with an unsupervised prompt,
    some have a gap; two edge cases are all labels, and the fewest labels allowed."""
    rng = random.Random(family.seed + 2000)
    vocab = family.config["vocab_size"]
    rows = []
    for i in range(ROWS):
        length = 8 if i == 0 else rng.randint(8, 40)
        ids = [rng.randrange(vocab)]
        while len(ids) < length:
            ids.append((5 * ids[-1] + 3) % vocab if rng.random() < 0.85 else rng.randrange(vocab))
        labels = list(ids)
        if i == 0:
            labels = [IGNORED] * (length - 2) + ids[-2:]
        elif i != 1:
            prompt = rng.randint(0, length - 4)
            labels[:prompt] = [IGNORED] * prompt
            if i % 5 == 0:
                labels[length - 2] = IGNORED
            if i % 7 == 0:
                labels[length - 1] = IGNORED
        assert sum(label != IGNORED for label in labels[1:]) >= 2
        rows.append({"input_ids": ids, "labels": labels})
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def collate(rows):
    """Right-padded batch with its mask; a single row has no padding."""
    width = max(len(row["input_ids"]) for row in rows)

    def pad(values, filler):
        return values + [filler] * (width - len(values))

    ids = torch.tensor([pad(row["input_ids"], 0) for row in rows])
    labels = torch.tensor([pad(row["labels"], IGNORED) for row in rows])
    mask = torch.tensor([pad([1] * len(row["input_ids"]), 0) for row in rows])
    return ids, labels, mask


def nll_sum(model, rows):
    """Summed negative log likelihood of the supervised tokens: position t is scored on the label at t + 1."""
    ids, labels, mask = collate(rows)
    return nll_of(model(input_ids=ids, attention_mask=mask).logits, labels)


def nll_of(logits, labels):
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")


def losses(model, rows, tokens, rows_per_forward):
    """The parts of a step's loss, whose gradients add up."""
    for start in range(0, len(rows), rows_per_forward):
        yield nll_sum(model, rows[start : start + rows_per_forward]) / tokens


def train(model, rows, learning_rate, rows_per_forward):
    """The 20 optimizer steps, written out: what Trainer does with num_items_in_batch normalisation."""
    decayed = set(get_parameter_names(model, [torch.nn.LayerNorm], NO_DECAY))
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    groups = [
        {"params": [p for n, p in named if n in decayed], "weight_decay": TRAIN["weight_decay"]},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]
    betas = (TRAIN["adam_beta1"], TRAIN["adam_beta2"])
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=TRAIN["adam_epsilon"], foreach=False)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, TRAIN["warmup_steps"], TRAIN["max_steps"])
    rows_per_step = TRAIN["per_device_train_batch_size"] * TRAIN["gradient_accumulation_steps"]
    model.train()
    steps = []
    for step in range(TRAIN["max_steps"]):
        picked = [rows[(step * rows_per_step + i) % len(rows)] for i in range(rows_per_step)]
        tokens = sum(label != IGNORED for row in picked for label in row["labels"][1:])
        loss = 0.0
        for part in losses(model, picked, tokens, rows_per_forward):
            part.backward()
            loss += part.item()
        grad_norm = torch.nn.utils.clip_grad_norm_([p for _, p in named], TRAIN["max_grad_norm"]).item()
        rate = scheduler.get_last_lr()[0]
        steps.append({"loss": loss, "grad_norm": grad_norm, "learning_rate": rate, "supervised_tokens": tokens})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return steps


def reference_curve(make, rows, learning_rate, out):
    """Trains twice, each row alone and two rows padded together, and takes the first as the reference.
    The difference of the two is the rounding noise that any other correct order of sums also has."""
    model, padded = make(), make()
    steps = train(model, rows, learning_rate, rows_per_forward=1)
    other = train(padded, rows, learning_rate, rows_per_forward=TRAIN["per_device_train_batch_size"])
    trained = [(p, q) for p, q in zip(model.parameters(), padded.parameters()) if p.requires_grad]
    noise = {key: max(abs(a[key] - b[key]) / a[key] for a, b in zip(steps, other)) for key in ("loss", "grad_norm")}
    noise["tensor"] = max(((p - q).norm() / p.norm()).item() for p, q in trained)
    assert noise["loss"] < 1e-5 and noise["tensor"] < 1e-4, noise
    print(f"  {out}: loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}, noise {noise}")
    reference = {
        "versions": versions(),
        "settings": {**TRAIN, "learning_rate": learning_rate},
        "trained_parameters": sum(p.numel() for p, _ in trained),
        "noise_relative": noise,
        "steps": steps,
    }
    write_json(out, reference)
    return model


def make_training(family):
    rows = make_rows(family)

    def lora():
        return PeftModel.from_pretrained(load_model(), "adapter_init", is_trainable=True)

    save_adapter(reference_curve(lora, rows, 1e-2, "train_reference.json"), "adapter_final")
    model = reference_curve(load_model, rows, 1e-3, "full_reference.json")
    if family.keep_full_final:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            shutil.copyfile(Path(folder) / "model.safetensors", "full_final.safetensors")


# ---------------------------------------------------------------------------------------------


def make_family(name):
    """Runs inside the family's folder: PEFT writes the path of its base model down, and that must be 'model'."""
    print(name)
    family = FAMILIES[name]
    shutil.rmtree(GOLDEN / name, ignore_errors=True)
    (GOLDEN / name).mkdir(parents=True)
    os.chdir(GOLDEN / name)
    model = make_model(family)
    lora = {**LORA, "target_modules": list(family.linears)}
    make_adapter("adapter_random", lora, seed=family.seed + 1, random_b=True)
    make_adapter("adapter_init", lora, seed=family.seed + 2, random_b=False)
    input_ids = make_reference(family)
    make_generate(family)
    make_training(family)
    if name in VARIETIES:
        make_variety(name, input_ids, family.lengths)
    if name == "llama2":
        make_all_linear()
        make_sharded(model)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = sys.argv[1:] or list(FAMILIES)
    for name in names:
        if name not in FAMILIES:
            sys.exit(f"no family '{name}'; there are: {', '.join(FAMILIES)}")
    for name in names:
        make_family(name)
    if not sys.argv[1:]:
        make_peft_init()


if __name__ == "__main__":
    main()
