#!/usr/bin/env python3
"""Makes tests/golden/adapters/inits/: 20 steps in fp32 on the CPU of adapters whose init_lora_weights changes the base.

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/adapters/make_inits.py [name ...]

For each name:
    first.safetensors      of some linears: product.<linear>, the first B A; residual.<linear>, what is left of the weight
    train_reference.json   base (a folder of make_models.py), loss, gradient norm and learning rate of each step
    adapter_final/         what save_pretrained(path_initial_model_for_weight_conversion=...) writes after the steps
    logits.safetensors     ids, and logits of the trained model before it was saved

make_models.py says how a step is computed.
"""
import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from make_models import LINEARS, reference_curve  # noqa: E402

IDS = torch.tensor([[5, 17, 42, 8, 99, 3, 61, 23]])
SHOWN = ["layers.0.self_attn.q_proj", "layers.1.mlp.down_proj"]
# base, LoraConfig, learning rate
INITS = {
    "pissa": ("llama2", {"r": 4, "lora_alpha": 8, "target_modules": LINEARS, "init_lora_weights": "pissa"}, 1e-3),
    "pissa_some": ("qwen2", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"],
                             "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"q_proj": 4},
                             "init_lora_weights": "pissa"}, 1e-3),
    "olora": ("llama2", {"r": 4, "lora_alpha": 2, "target_modules": LINEARS, "init_lora_weights": "olora"}, 1e-3),
    "olora_rslora": ("qwen2", {"r": 4, "lora_alpha": 1, "use_rslora": True, "target_modules": ["q_proj", "up_proj", "down_proj"],
                               "init_lora_weights": "olora"}, 1e-3),
}


def base_of(family):
    return AutoModelForCausalLM.from_pretrained(HERE.parent / family / "model", dtype=torch.float32, attn_implementation="eager")


def make_first(model, family):
    tensors = {}
    for name, module in model.named_modules():
        for shown in SHOWN if family == "llama2" else SHOWN[:1]:
            if name.endswith(shown) and hasattr(module, "lora_A"):
                a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
                tensors["product." + shown] = (b @ a).detach().clone()
                tensors["residual." + shown] = module.base_layer.weight.detach().clone()
    save_file(tensors, "first.safetensors")


def make_init(name, seed):
    family, lora, rate = INITS[name]
    folder = HERE / "inits" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    rows = [json.loads(line) for line in (HERE.parent / family / "train.jsonl").read_text().splitlines()]

    def adapted():
        torch.manual_seed(seed)
        return get_peft_model(base_of(family), LoraConfig(task_type="CAUSAL_LM", **lora))

    first = adapted()
    make_first(first, family)
    first.peft_config["default"].init_lora_weights = True
    first.save_pretrained("initial")
    model = reference_curve(adapted, rows, rate, "train_reference.json")
    text = Path("train_reference.json").read_text()
    Path("train_reference.json").write_text(text.replace("{\n", '{\n "base": "%s",\n' % family, 1))
    with torch.no_grad():
        logits = model.eval()(IDS).logits[0].contiguous()
    model.save_pretrained("adapter_final", path_initial_model_for_weight_conversion="./initial")
    (Path("adapter_final") / "README.md").unlink()
    shutil.rmtree("initial")
    path = Path("adapter_final/adapter_config.json")
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = family
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    again = PeftModel.from_pretrained(base_of(family), "adapter_final").eval()
    with torch.no_grad():
        plain = again(IDS).logits[0]
    difference = ((plain - logits).norm() / logits.norm()).item()
    print(f"  {name}: the plain adapter's logits differ by {difference:.1e}")
    assert difference < 1e-5
    save_file({"ids": IDS[0], "logits": logits}, "logits.safetensors")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for seed, name in enumerate(INITS):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        make_init(name, 600 + seed)


main()
