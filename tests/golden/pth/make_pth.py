#!/usr/bin/env python3
"""Makes the files of torch.save in this folder, and values.json with what they hold.

    python tests/golden/pth/make_pth.py

archive.pth      a state dictionary: every type, shared storages, transposed, channels last, a part of a storage, a
                 parameter, empty and without dimensions
stream.pth       the same in the container before torch 1.6
protocol4.pth    the same with pickle protocol 4
checkpoint.pth   as torchvision's references save: {"model", "optimizer", "lr_scheduler", "epoch", "args"}, the model's
                 names with the prefix "module." of DistributedDataParallel, args an argparse.Namespace
attack.pth       a state dictionary beside a global os.system, called with "touch executed"
attack_stream.pth the same in the older container
float8.pth       types that have no storage class of their own
whole.pth        a whole torch.nn.Module instead of a state dictionary
tensor.pth       a tensor instead of a state dictionary
adapter/         adapter_model.bin of ../qwen2/adapter_random
sharded/         ../llama_sharded/model as pytorch_model-0000?-of-00002.bin and their index
"""
import argparse
import collections
import io
import json
import os
import pathlib
import struct

import torch

HERE = pathlib.Path(__file__).parent


class Attack:
    def __reduce__(self):
        return os.system, ("touch executed",)


def tensors():
    torch.manual_seed(20)
    state = collections.OrderedDict()
    state["float"] = torch.randn(3, 4)
    state["bf16"] = torch.randn(5).to(torch.bfloat16)
    state["half"] = torch.randn(2, 3).half()
    state["double"] = torch.randn(3, dtype=torch.float64)
    state["long"] = torch.tensor([1, -2, 1 << 40])
    state["int"] = torch.tensor([[7, -8]], dtype=torch.int32)
    state["short"] = torch.tensor([300, -300], dtype=torch.int16)
    state["char"] = torch.tensor([1, -1], dtype=torch.int8)
    state["byte"] = torch.tensor([0, 255], dtype=torch.uint8)
    state["bool"] = torch.tensor([True, False, True])
    state["tied"] = state["float"]
    state["transposed"] = torch.randn(4, 6).t()
    state["channels_last"] = torch.randn(4, 3, 2, 5).to(memory_format=torch.channels_last)
    base = torch.arange(40, dtype=torch.float32).reshape(5, 8)
    state["part"] = base[1:4, 2:7:2]
    state["expanded"] = torch.tensor([[1.5], [2.5]]).expand(2, 3)
    state["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    state["empty"] = torch.zeros(0, 3)
    state["scalar"] = torch.tensor(3.25)
    return state


def describe(state):
    out = {}
    for name, tensor in state.items():
        values = tensor.detach().to(torch.float64).flatten().tolist()
        out[name] = {"dtype": str(tensor.dtype).replace("torch.", ""), "shape": list(tensor.shape), "values": values}
    return out


def checkpoint():
    torch.manual_seed(21)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [16, 22])
    state = model.state_dict()
    saved = {"model": collections.OrderedDict(("module." + k, v) for k, v in state.items()),
             "optimizer": optimizer.state_dict(), "lr_scheduler": scheduler.state_dict(), "epoch": 3,
             "args": argparse.Namespace(data_path="coco", lr=0.01, milestones=[16, 22], device=torch.device("cpu"))}
    return saved, state


def read_safetensors(path):
    data = path.read_bytes()
    (bytes_,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + bytes_])
    types = {"F32": torch.float32, "BF16": torch.bfloat16}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = bytearray(data[8 + bytes_ + begin:8 + bytes_ + end])
        yield name, torch.frombuffer(raw, dtype=types[entry["dtype"]]).reshape(entry["shape"])


def save_shards():
    folder = pathlib.Path("sharded")
    folder.mkdir(exist_ok=True)
    tensors = {}
    for path in sorted(pathlib.Path("../llama_sharded/model").glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    names = sorted(tensors)
    weight_map, total = {}, sum(t.numel() * t.element_size() for t in tensors.values())
    for i in range(2):
        file = f"pytorch_model-0000{i + 1}-of-00002.bin"
        part = names[i * len(names) // 2:(i + 1) * len(names) // 2]
        torch.save({name: tensors[name] for name in part}, folder / file)
        weight_map.update((name, file) for name in part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")


def main():
    os.chdir(HERE)
    state = tensors()
    torch.save(state, "archive.pth")
    torch.save(state, "stream.pth", _use_new_zipfile_serialization=False)
    torch.save(state, "protocol4.pth", pickle_protocol=4)
    saved, model = checkpoint()
    torch.save(saved, "checkpoint.pth")
    small = {"weight": torch.tensor([1.0, 2.0])}
    attack = {"model": small, "hook": Attack()}
    torch.save(attack, "attack.pth")
    torch.save(attack, "attack_stream.pth", _use_new_zipfile_serialization=False)
    eight = {"e4m3": torch.tensor([1.0, -448.0]).to(torch.float8_e4m3fn), "e5m2": torch.tensor([0.25, 3.0]).to(torch.float8_e5m2),
             "u16": torch.tensor([1, 65535], dtype=torch.uint16)}
    torch.save(eight, "float8.pth")
    torch.save(torch.nn.Linear(2, 2), "whole.pth")
    torch.save(torch.ones(2), "tensor.pth")
    adapter = pathlib.Path("adapter")
    adapter.mkdir(exist_ok=True)
    torch.save(dict(read_safetensors(pathlib.Path("../qwen2/adapter_random/adapter_model.safetensors"))),
               adapter / "adapter_model.bin")
    save_shards()
    values = {"archive": describe(state), "checkpoint": describe(model), "attack": describe(small)}
    pathlib.Path("values.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
