#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the references of adapters on experts: LoRA with PEFT's target_parameters over the models of ../dense and
../vision.

For every row of ADAPTERS, what transformers + PEFT compute on the CPU, in fp32 and on one thread:

    NAME/adapter_init/         the adapter as PEFT begins it
    NAME/adapter_final/        the same after 50 steps of AdamW
    NAME/train_reference.json  loss, gradient norm before clipping and learning rate of each of these steps
    NAME/reference.safetensors logits_adapter of adapter_final for the sequences of the model's reference.safetensors
    NAME/merged.safetensors    some: the tensors of experts of merge_and_unload, as save_pretrained writes them

and for every row of EACH an adapter by single experts, as PEFT wrote it before transformers 5:

    each_NAME/adapter_final/   random numbers in bf16
    each_NAME/reference.safetensors logits_adapter of that, as above


How to run, after ../dense/make_dense.py and ../vision/make_vision.py:

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/experts/make_experts.py [name ...]
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "dense")]
import make_dense as dense  # noqa: E402
import make_models as models  # noqa: E402

BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


@dataclasses.dataclass
class Adapter:
    base: str  # of the golden models
    seed: int
    lora: dict
    rate: float = 1e-2
    merged: bool = False


def of(base, seed, parameters=BOTH, modules=("q_proj", "v_proj"), rate=1e-2, merged=False, **lora):
    targets = modules if isinstance(modules, str) else list(modules)
    return Adapter(base, seed, {"target_parameters": list(parameters), "target_modules": targets} | lora, rate, merged)


ADAPTERS = {
    "qwen3_moe": of("dense/qwen3_moe", 501, merged=True),
    "mixtral": of("dense/mixtral", 502, modules=[], use_rslora=True, rank_pattern={"gate_up_proj": 3},
                  alpha_pattern={"mlp.experts.down_proj": 5}),
    "olmoe": of("dense/olmoe", 503, ["experts.down_proj"], []),
    "qwen2_moe": of("dense/qwen2_moe", 504, ["gate_up_proj"], ["o_proj"], init_lora_weights="gaussian"),
    "qwen3_5_moe_text": of("dense/qwen3_5_moe_text", 505, modules=["out_proj", "shared_expert.up_proj"], rate=1e-3),
    "qwen3_next": of("dense/qwen3_next", 506, modules=["in_proj_qkvz"], rate=1e-3),
    "glm4_moe": of("dense/glm4_moe", 507),
    "glm4_moe_lite": of("dense/glm4_moe_lite", 508, modules=["kv_b_proj"]),
    "minimax_m2": of("dense/minimax_m2", 519),
    "deepseek_v3": of("dense/deepseek_v3", 510, ["model.layers.1.mlp.experts.gate_up_proj", "down_proj"], ["o_proj"]),
    "gpt_oss": of("dense/gpt_oss", 511, merged=True),
    "granite4_moe": of("dense/granite4_moe", 512, ["block_sparse_moe." + name[4:] for name in BOTH], rate=1e-3),
    "nemotron_h": of("dense/nemotron_h", 513, ["mixer.experts.up_proj", "mixer.experts.down_proj"], rate=1e-3),
    "mistral4": of("vision/mistral4", 514, modules=[]),
    "gemma4_moe": of("dense/gemma4_moe", 529, ["experts.gate_up_proj", "experts.down_proj"], ["router.proj", "up_proj"]),
    "qwen3_moe_all": of("dense/qwen3_moe", 521, [], "all-linear"),
    "minimax_m2_all": of("dense/minimax_m2", 522, [], "all-linear"),
    "deepseek_v3_all": of("dense/deepseek_v3", 523, [], "all-linear"),
    "qwen3_next_all": of("dense/qwen3_next", 524, [], "all-linear", rate=1e-3),
    "qwen2_moe_all": of("dense/qwen2_moe", 525, [], "all-linear"),
    "gpt_oss_gate_up": of("dense/gpt_oss", 527, ["mlp.experts.gate_up_proj"], []),
    "gpt_oss_down": of("dense/gpt_oss", 528, ["mlp.experts.down_proj"], ["q_proj"]),
    "gpt_oss_router": of("dense/gpt_oss", 526, ["mlp.router.weight"], ["k_proj"]),
}


# The module of the experts in files, the older names of their linears and of the router, further linears.
EACH = {
    "qwen3_moe": ("dense/qwen3_moe", "mlp.experts", ("gate_proj", "up_proj", "down_proj"), "mlp.gate", ["q_proj", "o_proj"]),
    "mixtral": ("dense/mixtral", "block_sparse_moe.experts", ("w1", "w3", "w2"), "block_sparse_moe.gate", ["v_proj"]),
    "glm4_moe": ("dense/glm4_moe", "mlp.experts", ("gate_proj", "up_proj", "down_proj"), None, []),
}


def load_model():
    return models.AutoModelForCausalLM.from_pretrained(BASE + "/model", attn_implementation="eager", dtype=torch.float32)


def load_vision():
    return transformers.AutoModelForImageTextToText.from_pretrained(
        BASE + "/model", attn_implementation="eager", dtype=torch.float32)


def rows_of(base):
    path = HERE.parent / base / "train.jsonl"
    path = path if path.exists() else HERE.parent / "dense" / "train.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def save_merged(model):
    with tempfile.TemporaryDirectory() as folder:
        model.merge_and_unload().save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if ".experts." in name}, "merged.safetensors", {"format": "pt"})


def make(name):
    global BASE
    print(name)
    adapter = ADAPTERS[name]
    BASE = "../../" + adapter.base
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    os.chdir(HERE / name)
    models.load_model = load_vision if adapter.base.startswith("vision/") else load_model
    models.make_adapter("adapter_init", models.LORA | {"r": 2, "lora_alpha": 4} | adapter.lora, seed=adapter.seed,
                        random_b=False)

    def lora():
        return PeftModel.from_pretrained(models.load_model(), "adapter_init", is_trainable=True)

    config = json.loads(Path(BASE + "/model/config.json").read_text())
    models.losses = dense.balanced_losses if "router_aux_loss_coef" in config else dense.LOSSES
    trained = models.reference_curve(lora, rows_of(adapter.base), adapter.rate, "train_reference.json")
    models.save_adapter(trained, "adapter_final")
    reference = load_file(BASE + "/reference.safetensors")
    model = PeftModel.from_pretrained(models.load_model(), "adapter_final").eval()
    logits = models.all_logits(model, reference["input_ids"], reference["seq_lens"].tolist())
    save_file({"logits_adapter": logits}, "reference.safetensors", {"format": "pt"})
    if adapter.merged:
        save_merged(model)


def make_each(name):
    global BASE
    print("each", name)
    base, experts, linears, router, others = EACH[name]
    BASE = "../../" + base
    folder = HERE / ("each_" + name)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "adapter_final").mkdir(parents=True)
    os.chdir(folder)
    models.load_model = load_model
    model = models.load_model()
    generator = torch.Generator().manual_seed(531)
    tensors, r = {}, 2

    def add(path, rows, columns):
        for end, shape in (("A", (r, columns)), ("B", (rows, r))):
            value = 0.2 * torch.randn(shape, generator=generator)
            tensors[f"base_model.model.{path}.lora_{end}.weight"] = value.to(torch.bfloat16).contiguous()

    for path, module in list(model.named_modules()):
        if path.rpartition(".")[2] in others:
            add(path, *module.weight.shape)
        if not path.endswith(".mlp.experts"):
            continue
        count, width, dim = module.down_proj.shape[0], module.down_proj.shape[2], module.down_proj.shape[1]
        layer = path.removesuffix(".mlp.experts")
        for expert in range(count):
            for linear in linears:
                shape = (dim, width) if linear == linears[2] else (width, dim)
                add(f"{layer}.{experts}.{expert}.{linear}", *shape)
        if router:
            add(f"{layer}.{router}", count, dim)
    save_file(tensors, "adapter_final/adapter_model.safetensors", {"format": "pt"})
    targets = [*others, *linears] + ([router.rpartition(".")[2]] if router else [])
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": r, "lora_alpha": 3, "lora_dropout": 0.0,
              "target_modules": targets, "peft_version": "0.14.0", "base_model_name_or_path": None}
    Path("adapter_final/adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    reference = load_file(BASE + "/reference.safetensors")
    model = PeftModel.from_pretrained(model, "adapter_final").eval()
    logits = models.all_logits(model, reference["input_ids"], reference["seq_lens"].tolist())
    save_file({"logits_adapter": logits}, "reference.safetensors", {"format": "pt"})


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in sys.argv[1:] or [*ADAPTERS, *("each_" + name for name in EACH)]:
        make_each(name[5:]) if name.startswith("each_") else make(name)


if __name__ == "__main__":
    main()
