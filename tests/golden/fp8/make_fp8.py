"""Model folders with weights in FP8, in the forms that servers read, and the loss of their numbers.

channel/  compressed-tensors, float-quantized, BF16 scales of rows; ignored by name and by an expression
tensor/   compressed-tensors, one F32 scale a matrix, static activations (input_scale)
mistral/  quant_method fp8, static: one BF16 weight_scale_inv without dimensions, activation_scale
blocks/   quant_method fp8, as DeepSeek-V3 and Qwen3: F32 scales of 128 x 128 weights, the last blocks cut
powers/   the same with F8_E8M0 scales: powers of two
divided/  the same as transformers writes it (Fp8Quantize): weights that the blocks do not divide stay in BF16, though
    config.json does not name them
train.jsonl  three rows of tokens.
losses.json  the mean loss of their tokens in float32 (transformers, LlamaForCausalLM): `stored` with the folder's numbers,
    code * scale; `rows` after another quantization, by rows (largest size / 448).

What the libraries make of the same tensors is compared on the way: dequantize of compressed-tensors, Fp8Dequantize of
transformers, which takes matrices of whole blocks only.

    OMP_NUM_THREADS=1 python tests/golden/fp8/make_fp8.py
"""

import json
import pathlib

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.utils.quantization_config import FineGrainedFP8Config

HERE = pathlib.Path(__file__).parent
BLOCK, MOST = 128, 448.0
torch.set_num_threads(1)


def make_model(hidden, intermediate, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=1,
        num_attention_heads=3 if hidden % 3 == 0 else 2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        dtype=torch.bfloat16,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).float()  # with its weights in bfloat16, and rotation in float32
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.1)
                weight[::7] *= 6  # rows and columns of another size
                weight[:, ::11] *= 0.2
            else:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            weight.copy_(weight.bfloat16())
    return model


def largest(weight, kind):
    """The largest size of each scale's weights, [n, m]."""
    size = weight.float().abs()
    if kind == "channel":
        return size.amax(1, keepdim=True)
    if kind in ("tensor", "mistral"):
        return size.amax().reshape(1, 1)
    rows, cols = -(-weight.shape[0] // BLOCK), -(-weight.shape[1] // BLOCK)
    padded = torch.zeros(rows * BLOCK, cols * BLOCK)
    padded[: weight.shape[0], : weight.shape[1]] = size
    return padded.view(rows, BLOCK, cols, BLOCK).amax((1, 3))


def spread(scale, shape):
    """A scale for each weight."""
    if scale.shape == (1, 1) or scale.shape[0] == shape[0]:
        return scale.expand(shape)
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return wide[: shape[0], : shape[1]]


def quantize(weight, kind, generator):
    scale = largest(weight, kind) / MOST
    if kind == "powers":
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    # not the smallest possible scale everywhere, as after calibration
    elif kind != "channel":
        scale = scale * (1 + torch.rand(scale.shape, generator=generator) / 4)
    if kind in ("channel", "mistral"):
        scale = scale.bfloat16().float()
    wide = spread(scale, weight.shape)
    codes = (weight.float() / wide).clamp(-MOST, MOST).to(torch.float8_e4m3fn)
    return codes, scale, codes.float() * wide


def compare_library(codes, scale, numbers, kind):
    if kind in ("channel", "tensor"):
        args = QuantizationArgs(num_bits=8, type="float", strategy=kind, symmetric=True)
        theirs = dequantize(codes, scale if kind == "channel" else scale.reshape(1), None, args, dtype=torch.float32)
    elif all(side % BLOCK == 0 for side in codes.shape) or scale.numel() == 1:
        theirs = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)
    else:
        return
    assert torch.equal(theirs.float(), numbers), kind


class Quantizer:
    quantization_config = FineGrainedFP8Config()


def quantize_as_library(weight, name):
    """Codes, scales and numbers as of `quantize`; None for a weight that stays as it is."""
    made = Fp8Quantize(Quantizer())._quantize_one(name + ".weight", weight)
    if len(made) == 1:
        return None
    codes, scale = made[name + ".weight"], made[name + ".weight_scale_inv"]
    return codes, scale, codes.float() * spread(scale, weight.shape)


def stored(scale, kind):
    """The tensors beside the weight."""
    if kind == "channel":
        return {"weight_scale": scale.bfloat16()}
    if kind == "tensor":
        return {"weight_scale": scale.reshape(1), "input_scale": torch.tensor([0.02])}
    if kind == "mistral":
        return {"weight_scale_inv": scale.reshape(()).bfloat16(), "activation_scale": torch.tensor(0.02).bfloat16()}
    return {"weight_scale_inv": scale.to(torch.float8_e8m0fnu) if kind == "powers" else scale}


def config_of(kind):
    if kind in ("channel", "tensor"):
        scheme = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "block_structure": None,
                  "actorder": None, "observer_kwargs": {}}
        inputs = {"strategy": "token", "dynamic": True, "observer": None}
        if kind == "tensor":
            inputs = {"strategy": "tensor", "dynamic": False, "observer": "minmax"}
        group = {
            "targets": ["Linear"],
            "weights": scheme | {"strategy": kind, "dynamic": False, "observer": "minmax"},
            "input_activations": scheme | inputs,
            "output_activations": None,
        }
        return {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "global_compression_ratio": 1.5,
            "kv_cache_scheme": None,
            "config_groups": {"group_0": group},
            "ignore": ["lm_head", "re:.*k_proj$"] if kind == "channel" else ["lm_head"],
        }
    if kind == "mistral":
        return {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
                "modules_to_not_convert": ["lm_head"]}
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK],
              "modules_to_not_convert": ["lm_head"] + ([] if kind == "divided" else ["model.layers.0.self_attn.v_proj"])}
    return config | ({"scale_fmt": "ue8m0"} if kind == "powers" else {})


SIDES = {"blocks": (144, 160), "powers": (144, 160), "divided": (128, 256)}
SKIPPED = {"channel": "k_proj", "blocks": "v_proj", "powers": "v_proj"}


def loss_of(model, rows):
    total = count = 0
    with torch.no_grad():
        for ids in rows:
            logits = model(torch.tensor([ids])).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(logits.double(), torch.tensor(ids[1:]), reduction="sum").item()
            count += len(ids) - 1
    return total / count


def main():
    losses = {}
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randint(0, 64, (length,), generator=generator).tolist() for length in (9, 3, 14)]
    (HERE / "train.jsonl").write_text("".join(json.dumps({"input_ids": ids, "labels": ids}) + "\n" for ids in rows))
    for seed, kind in enumerate(["channel", "tensor", "mistral", "blocks", "powers", "divided"]):
        model = make_model(*SIDES.get(kind, (48, 80)), seed)
        generator = torch.Generator().manual_seed(seed)
        tensors = {name: value.detach().bfloat16() for name, value in model.state_dict().items()}
        again = {}
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.Linear) or name == "lm_head" or name.endswith(SKIPPED.get(kind, " ")):
                continue
            weight = tensors[name + ".weight"]
            made = quantize_as_library(weight, name) if kind == "divided" else quantize(weight, kind, generator)
            if made is None:
                continue
            codes, scale, numbers = made
            compare_library(codes, scale, numbers, kind)
            tensors[name + ".weight"] = codes
            tensors |= {f"{name}.{ending}": value for ending, value in stored(scale, kind).items()}
            module.weight.data = numbers
            factor = numbers.abs().amax(1, keepdim=True) / MOST
            again[module] = (numbers / factor).to(torch.float8_e4m3fn).float() * factor
        stored_loss = loss_of(model, rows)
        for module, numbers in again.items():
            module.weight.data = numbers
        losses[kind] = {"stored": stored_loss, "rows": loss_of(model, rows)}
        folder = HERE / kind
        folder.mkdir(exist_ok=True)
        save_file({name: value.contiguous() for name, value in sorted(tensors.items())}, folder / "model.safetensors",
                  metadata={"format": "pt"})
        config = model.config.to_dict() | {"dtype": "bfloat16", "quantization_config": config_of(kind)}
        config["architectures"] = ["LlamaForCausalLM"]
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (HERE / "losses.json").write_text(json.dumps(losses, indent=2) + "\n")


main()
