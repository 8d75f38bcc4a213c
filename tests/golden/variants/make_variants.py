"""Configurations that few models have, over the weights of make_models.py: rotations of every family by LongRoPE with
rows on both sides of its border, the dynamic type, a partial_rotary_factor that a family does not read, GELU by each of
its names, and the cap on logits of Gemma 3.

    NAME.json               a config.json for the weights of FAMILY/model; NAME begins with FAMILY
    reference.safetensors   NAME: logits [sequences, vocab], fp32, of the last token of each sequence of
                            FAMILY/reference.safetensors, each run alone
    generate.json           greedy ids of phi3_longrope by generate() with its cache, whose answers pass the border;
                            margin: the smallest lead of a chosen logit over the next best

Run with OMP_NUM_THREADS=1 after make_models.py.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
BORDER = 20
SHORT, LONG = [1.0, 1.05, 1.1, 1.3, 1.5, 2.0, 2.2, 2.5], [1.0, 1.5, 2.5, 5.0, 8.0, 12.0, 14.0, 20.0]


def longrope(pairs, **more):
    return {"rope_type": "longrope", "short_factor": SHORT[:pairs], "long_factor": LONG[:pairs],
            "original_max_position_embeddings": BORDER} | more


VARIANTS = {
    "phi3_longrope": {
        "original_max_position_embeddings": BORDER,
        "rope_parameters": longrope(6, rope_theta=10000.0, partial_rotary_factor=0.75),
    },
    "phi3_gelu": {"hidden_act": "gelu"},
    "llama2_dynamic": {"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "llama2_partial": {"partial_rotary_factor": 0.5},
    "llama2_gelu_new": {"hidden_act": "gelu_new"},
    "llama3_longrope": {"rope_parameters": longrope(8, rope_theta=500000.0)},
    "llama3_gelu_accurate": {"hidden_act": "gelu_accurate"},
    "mistral_longrope": {"rope_parameters": longrope(4, rope_theta=10000.0, factor=8.0)},
    "mistral_gelu_python": {"hidden_act": "gelu_python"},
    "qwen2_longrope": {
        "rope_parameters": None, "rope_theta": 1000000.0, "original_max_position_embeddings": BORDER,
        "rope_scaling": longrope(8, attention_factor=1.1),
    },
    "qwen2_gelu_pytorch_tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "qwen3_dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1000000.0, "factor": 2.0}},
    "qwen3_gelu_fast": {"hidden_act": "gelu_fast"},
    "smollm3_longrope": {"rope_parameters": longrope(4, rope_theta=2000000.0)},
    "smollm3_gelu_python_tanh": {"hidden_act": "gelu_python_tanh"},
    "gemma2_longrope": {"rope_parameters": longrope(8, rope_theta=10000.0)},
    "gemma2_gelu": {"hidden_activation": "gelu"},
    "gemma3_longrope": {
        "rope_parameters": {
            "full_attention": longrope(8, rope_theta=1000000.0),
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "gemma3_borders": {
        "rope_parameters": {
            "full_attention": longrope(8, rope_theta=1000000.0),
            "sliding_attention": longrope(8, rope_theta=10000.0) | {"original_max_position_embeddings": 7},
        },
    },
    "gemma3_dynamic": {
        "rope_parameters": {
            "full_attention": {"rope_type": "dynamic", "rope_theta": 1000000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        },
    },
    "gemma3_capped": {"final_logit_softcapping": 3.0, "hidden_activation": "silu"},
}


def load(name):
    family = name.split("_")[0]
    config = AutoConfig.from_pretrained(HERE / f"{name}.json")
    model = AutoModelForCausalLM.from_pretrained(
        HERE.parent / family / "model", config=config, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def write_config(name, changes):
    """Keys of None are left out; rows of the file are those of the model's own configuration."""
    config = json.loads((HERE.parent / name.split("_")[0] / "model" / "config.json").read_text()) | changes
    config = {key: value for key, value in config.items() if key not in changes or value is not None}
    (HERE / f"{name}.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def last_logits(name):
    """A model of its own for each sequence: some rotations remember the longest that they have seen."""
    batch = load_file(HERE.parent / name.split("_")[0] / "reference.safetensors")
    rows = batch["input_ids"].split(batch["seq_lens"].tolist())
    return torch.stack([load(name)(input_ids=ids[None]).logits[0, -1].float() for ids in rows]).contiguous()


@torch.no_grad()
def generate():
    generator = torch.Generator().manual_seed(17)
    cases = []
    for length in (4, BORDER - 1, BORDER, BORDER + 1, 12):
        model, prompt = load("phi3_longrope"), torch.randint(3, 277, (length,), generator=generator)
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        ids = model.generate(input_ids=prompt[None], attention_mask=torch.ones(1, length, dtype=torch.long),
                             do_sample=False, max_new_tokens=24)[0]
        margin = float("inf")
        for at in range(length, len(ids)):
            logits = load("phi3_longrope")(input_ids=ids[None, :at]).logits[0, -1]
            best = logits.topk(2)
            assert best.indices[0] == ids[at], (length, at)
            margin = min(margin, float(best.values[0] - best.values[1]))
        cases.append({"prompt": prompt.tolist(), "ids": ids[length:].tolist(), "margin": round(margin, 5)})
    (HERE / "generate.json").write_text(json.dumps({"border": BORDER, "cases": cases}) + "\n")


def main():
    tensors = {}
    for name, changes in VARIANTS.items():
        write_config(name, changes)
        tensors[name] = last_logits(name)
    save_file(tensors, HERE / "reference.safetensors", {"format": "pt"})
    generate()


if __name__ == "__main__":
    main()
