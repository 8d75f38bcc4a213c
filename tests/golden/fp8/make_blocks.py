"""LoRA over the folders blocks/ and powers/ as a server multiplies them, in float32 (after make_fp8.py):

adapter/     rank 4 on all linears, A and B random
blocks.json  for both: the mean loss of the tokens of train.jsonl without adapter, with `inputs` rounded to E4M3 in
    groups of 128 columns (`stored` in losses.json: not rounded), three tokens and twelve that follow greedily, and
    the loss and gradient norm of each of 8 steps of AdamW over all rows, `rounded` so and `plain`.

A linear multiplies code * scale of its blocks with the rounded input; the gradient of the input goes through the same
weight and is not rounded, as in FP8LinearFunction of transformers, whose _dequantize_fp8_weight gives the same weight.
Scales of inputs are largest / 448, in powers/ rounded up to powers of two. PEFT's adapters read the input itself.

    OMP_NUM_THREADS=1 python tests/golden/fp8/make_blocks.py
"""

import json
import pathlib

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

HERE = pathlib.Path(__file__).parent
BLOCK, MOST, STEPS, RATE = 128, 448.0, 8, 0.02
LINEARS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
torch.set_num_threads(1)


def round_groups(x, powers):
    pieces = []
    for piece in x.split(BLOCK, -1):
        scale = piece.abs().amax(-1, keepdim=True) / MOST
        if powers:
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        pieces.append((piece / scale).to(torch.float8_e4m3fn).float() * scale)
    return torch.cat(pieces, -1)


class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, powers):
        ctx.save_for_backward(weight)
        return round_groups(x, powers) @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.saved_tensors[0], None, None


class BlockLinear(torch.nn.Linear):
    powers = False

    def forward(self, x):
        return Multiply.apply(x, self.weight, self.powers)


def weight_of(tensors, name):
    codes, scale = tensors[name + ".weight"], tensors[name + ".weight_scale_inv"].float()
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: codes.shape[0], : codes.shape[1]]
    weight = codes.float() * wide
    assert torch.equal(weight, _dequantize_fp8_weight(codes, scale, [BLOCK, BLOCK], torch.float32)), name
    return weight


def load(kind, rounded):
    config = json.loads((HERE / kind / "config.json").read_text())
    config.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig(**config)).float()
    tensors = load_file(HERE / kind / "model.safetensors")
    for name, module in model.named_modules():
        if name + ".weight_scale_inv" in tensors:
            module.weight.data = weight_of(tensors, name)
            if rounded:
                module.__class__ = BlockLinear
                module.powers = kind == "powers"
        elif name + ".weight" in tensors:
            module.weight.data = tensors[name + ".weight"].float()
    return model


def loss_of(model, rows):
    total = count = 0
    for ids in rows:
        logits = model(torch.tensor([ids])).logits[0, :-1]
        total = total + torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")
        count += len(ids) - 1
    return total / count


def train(model, rows):
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0)
    steps = []
    for _ in range(STEPS):
        loss = loss_of(model, rows)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"loss": loss.item(), "grad_norm": norm.item()})
    return steps


def greedy(model):
    """Twelve more tokens, each the best by 1e-3 at least, so that rounding in other orders chooses the same."""
    ids = [5, 17, 40]
    with torch.no_grad():
        for _ in range(12):
            first, second = model(torch.tensor([ids])).logits[0, -1].topk(2).values
            assert first - second > 1e-3
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return ids


def make_adapter():
    torch.manual_seed(9)
    config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM")
    model = get_peft_model(load("blocks", False), config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value.normal_(0, 0.05)
    model.save_pretrained(HERE / "adapter")
    settings = json.loads((HERE / "adapter" / "adapter_config.json").read_text()) | {
        "base_model_name_or_path": None,
        "target_modules": LINEARS,
    }
    (HERE / "adapter" / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    (HERE / "adapter" / "README.md").unlink()


def main():
    rows = [json.loads(line)["input_ids"] for line in (HERE / "train.jsonl").read_text().splitlines()]
    out = {}
    make_adapter()
    for kind in ("blocks", "powers"):
        out[kind] = {"inputs": loss_of(load(kind, True), rows).item(), "greedy": greedy(load(kind, True))}
        for name in ("rounded", "plain"):
            model = PeftModel.from_pretrained(load(kind, name == "rounded"), HERE / "adapter", is_trainable=True)
            out[kind][name] = train(model, rows)
    (HERE / "blocks.json").write_text(json.dumps(out, indent=2) + "\n")


main()
