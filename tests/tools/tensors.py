# A safetensors file as a dictionary: name -> (type, shape, bytes), read and written with the standard library alone.
# Usage in a test: PYTHONPATH=tests/tools python3 -c "import tensors; ..."
import json
import struct


def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in header.items()}


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
