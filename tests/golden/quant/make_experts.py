"""A parameter of all experts, [experts, out, in], as bitsandbytes quantizes it (bitsandbytes.nn.parametrize, by which
Axolotl quantizes experts), on a CPU with one thread.

experts.safetensors, for each of nf4, nf4_nested, fp4 with _ROWS of an expert:
    TYPE.weight                           the parameter, in bfloat16
    TYPE.codes .absmax [.nested_absmax .offset]   what the module has of it
    TYPE.numbers                          what it reads as its parameter

    OMP_NUM_THREADS=1 python tests/golden/quant/make_experts.py
"""

import pathlib

import torch
from bitsandbytes.nn.parametrize import replace_parameter_4bit
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
torch.set_num_threads(1)


class Experts(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(weight)


def main():
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    # whole blocks in an expert, and blocks that begin in an expert and end in the next: 14 x 36 is no multiple of 64
    for shape in ((4, 24, 64), (3, 14, 36)):
        for name, quant_type, nested in (("nf4", "nf4", False), ("nf4_nested", "nf4", True), ("fp4", "fp4", False)):
            weight = (torch.randn(shape, generator=generator) * 0.02).to(torch.bfloat16)
            module = Experts(weight.clone())
            replace_parameter_4bit(module, "gate_up_proj", compress_statistics=nested, quant_type=quant_type, blocksize=64)
            key = f"{name}_{shape[1]}"
            state = module.parametrizations["gate_up_proj"][0].quant_state
            tensors[f"{key}.weight"] = weight
            tensors[f"{key}.codes"] = module.parametrizations["gate_up_proj"].original.data.flatten().clone()
            tensors[f"{key}.absmax"] = state.absmax.clone()
            if nested:
                tensors[f"{key}.nested_absmax"] = state.state2.absmax.clone()
                tensors[f"{key}.offset"] = state.offset.reshape(1).clone()
            tensors[f"{key}.numbers"] = module.gate_up_proj.detach().clone()
    save_file(tensors, HERE / "experts.safetensors", {"format": "pt"})


main()
