"""Quantized matrices and model folders from the real bitsandbytes, on a CPU with one thread.

cases.safetensors, for each row of cases.json (name, type, block, nested, dtype, rows, cols):
    NAME.weight                        the matrix, in its dtype
    NAME.codes .absmax [.nested_absmax]  what bitsandbytes made of it
    NAME.dequantized_DTYPE             what bitsandbytes makes of that again, in bfloat16 and, when small, float32
cases.json "large": matrices of w(i) = ((i * 2654435761 mod 2^32) >> 8) / 2^24 - 0.5, each row scaled by
    1 + (row mod 7), in float32; codes and absmax as FNV-1a sums. "maps": the tables.
nf4/ fp4/ int8/: the model of ../llama2 quantized by transformers and saved; nf4 with nested scales and codes stored as
    bfloat16, fp4 with plain scales. NAME_reference.safetensors: every quantized matrix dequantized to float32.

    OMP_NUM_THREADS=1 python tests/golden/quant/make_quant.py
"""

import json
import pathlib

import bitsandbytes
import bitsandbytes.functional as F
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
torch.set_num_threads(1)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def fnv(tensor):
    data = tensor.contiguous().view(torch.uint8).flatten().numpy().tobytes()
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def special(rows, cols, generator):
    """Borders, zeros, signed zeros, tiny and huge numbers."""
    weight = torch.randn(rows, cols, generator=generator) * 0.02
    flat = weight.view(-1)
    flat[:64] = 0
    flat[64:128] = torch.linspace(-1, 1, 64)
    flat[128:192] = torch.linspace(1e-7, 1e-6, 64)
    flat[200] = -0.0
    flat[256:320] = 0
    flat[300] = 3e4
    flat[320:384] = 1e-30
    return weight


def four_bit_rows():
    shapes = [(64, 64), (1, 1), (3, 5), (7, 33), (1, 63), (2, 32), (33, 129), (260, 100)]
    rows = []
    for i, (n, k) in enumerate(shapes):
        for quant_type in ("nf4", "fp4"):
            for nested in (False, True) if n < 200 else (True,):
                dtype = ("float32", "bfloat16", "float16")[(i + nested) % 3]
                rows.append((quant_type, 64, nested, dtype, n, k))
    for block in (32, 128, 256, 512, 1024, 2048, 4096):
        rows.append(("nf4", block, block != 256, "bfloat16", 35, 129))
        rows.append(("fp4", block, block == 256, "float32", 35, 129))
    rows += [("nf4", 64, True, "float32", 17, 65), ("fp4", 64, True, "float32", 17, 65)]
    return rows


def make_cases():
    generator = torch.Generator().manual_seed(1)
    tensors, table = {}, []
    for index, (quant_type, block, nested, dtype, n, k) in enumerate(four_bit_rows()):
        name = f"c{index}"
        make = special if n == 17 else lambda r, c, g: torch.randn(r, c, generator=g) * 0.02
        weight = make(n, k, generator).to(DTYPES[dtype])
        codes, state = F.quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=quant_type)
        tensors[f"{name}.weight"] = weight
        tensors[f"{name}.codes"] = codes.flatten()
        tensors[f"{name}.absmax"] = state.absmax
        row = dict(name=name, type=quant_type, block=block, nested=nested, dtype=dtype, rows=n, cols=k)
        if nested:
            tensors[f"{name}.nested_absmax"] = state.state2.absmax
            row["offset"] = state.offset.item()
        for out in ("float32", "bfloat16") if n * k < 3000 else ("bfloat16",):
            state.dtype = DTYPES[out]
            tensors[f"{name}.dequantized_{out}"] = F.dequantize_4bit(codes, state).contiguous()
        table.append(row)
    for index, (dtype, n, k) in enumerate([("float16", 16, 64), ("bfloat16", 9, 33), ("float32", 1, 5), ("float32", 5, 4100)]):
        name = f"i{index}"
        weight = (torch.randn(n, k, generator=generator) * 0.02).to(DTYPES[dtype])
        if n == 9:
            weight[3] = 0
        codes, stats, _ = F.int8_vectorwise_quant(weight.to(torch.float16))
        tensors[f"{name}.weight"] = weight
        tensors[f"{name}.codes"] = codes.view(torch.uint8).flatten()
        tensors[f"{name}.absmax"] = stats
        tensors[f"{name}.dequantized_float32"] = F.int8_vectorwise_dequant(codes, stats).contiguous()
        table.append(dict(name=name, type="int8", block=0, nested=False, dtype=dtype, rows=n, cols=k))
    save_file(tensors, HERE / "cases.safetensors")
    return table


def make_large():
    table = []
    for quant_type, n, k in (("nf4", 2048, 1200), ("fp4", 1031, 1000)):
        i = torch.arange(n * k, dtype=torch.int64)
        weight = (((i * 2654435761) % 2**32) >> 8).to(torch.float32) / 2**24 - 0.5
        weight = weight.view(n, k) * (1 + torch.arange(n) % 7).to(torch.float32).view(n, 1)
        codes, state = F.quantize_4bit(weight, compress_statistics=True, quant_type=quant_type)
        table.append(
            dict(type=quant_type, rows=n, cols=k, offset=state.offset.item(), codes=fnv(codes), absmax=fnv(state.absmax),
                 nested_absmax=fnv(state.state2.absmax))
        )
    return table


def make_folder(name, config):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        HERE.parent / "llama2" / "model", quantization_config=config, dtype=torch.bfloat16, device_map="cpu"
    )
    folder = HERE / name
    model.save_pretrained(folder)
    tensors = {}
    for module_name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            state = module.weight.quant_state
            state.dtype = torch.float32
            tensors[f"{module_name}.weight"] = F.dequantize_4bit(module.weight.data, state).contiguous()
            state.dtype = torch.bfloat16
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            tensors[f"{module_name}.weight"] = F.int8_vectorwise_dequant(module.weight.data, module.weight.SCB).contiguous()
    save_file(tensors, HERE / f"{name}_reference.safetensors")


def make_folders():
    from transformers import BitsAndBytesConfig

    make_folder("nf4", BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                          bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=torch.bfloat16))
    make_folder("fp4", BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4"))
    make_folder("int8", BitsAndBytesConfig(load_in_8bit=True))


def main():
    cases = {
        "bitsandbytes": bitsandbytes.__version__,
        "torch": torch.__version__,
        "cases": make_cases(),
        "large": make_large(),
        "maps": {
            "nf4": F.get_4bit_type("nf4", device="cpu").tolist(),
            "fp4": F.get_4bit_type("fp4", device="cpu").tolist(),
            "nested": F.create_dynamic_map().tolist(),
        },
    }
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    make_folders()
    for path in HERE.rglob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
