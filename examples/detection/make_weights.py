#!/usr/bin/env python3
"""Writes the weights of a small RetinaNet, random but ready to learn, as torch.save would write them.

    make_weights.py FILE.pth [--classes 4] [--width 16] [--pyramid 48] [--blocks 1 1 1 1] [--seed 0]

The network is torchvision's retinanet_resnet50_fpn with one bottleneck a stage, `width` channels after the stem in
place of 64 and `pyramid` channels in the pyramid and the heads in place of 256; --width 64 --pyramid 256 --blocks 3 4 6 3
is the whole one. `classes` counts the background.
Its frozen norms do nothing but halve the variance of a branch where two are added, so that with weights drawn for it
(variance 2 / fan-in) the values keep their size through the network, as a trained norm would do it.

Python's standard library is all it needs: a .pth file is a ZIP of a pickle and of raw numbers.
"""
import argparse
import array
import collections
import io
import math
import pickle
import random
import sys
import types
import zipfile

ANCHORS = 9
BRANCH = math.sqrt(0.5)
WIDE = 128  # from here on the heads begin as torchvision's
LATER = math.sqrt(0.02)  # of the branch that a bottleneck adds to what enters it, which no norm makes smaller


class Storage:
    def __init__(self, values):
        self.values = array.array("f", values)
        if sys.byteorder != "little":
            self.values.byteswap()


class Tensor:
    """Pickled as the call torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, {})."""

    def __init__(self, shape, values):
        self.shape, self.storage = tuple(shape), Storage(values)

    def __reduce__(self):
        strides = [1]
        for size in self.shape[:0:-1]:
            strides.insert(0, strides[0] * size)
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (self.storage, 0, self.shape, tuple(strides), False, collections.OrderedDict())


class Pickler(pickle._Pickler):  # the one in Python: it takes globals by their names
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        self.storages.append(value)
        kind = sys.modules["torch"].FloatStorage
        return "storage", kind, str(len(self.storages) - 1), "cpu", len(value.values)


def stand_in(module, name):
    """A global of this name to pickle; torch itself is not needed."""
    made = types.ModuleType(module)
    made.__dict__[name] = type(name, (), {"__module__": module, "__qualname__": name})
    sys.modules[module] = made


def save(state, path):
    stand_in("torch", "FloatStorage")
    stand_in("torch._utils", "_rebuild_tensor_v2")
    text = io.BytesIO()
    pickler = Pickler(text)
    pickler.dump(state)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        def put(name, data):  # the same bytes whenever it is made
            file.writestr(zipfile.ZipInfo("retinanet/" + name, (1980, 1, 1, 0, 0, 0)), data)
        put("data.pkl", text.getvalue())
        put("byteorder", "little")
        for key, storage in enumerate(pickler.storages):
            put(f"data/{key}", storage.values.tobytes())
        put("version", "3\n")


class Network:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.state = collections.OrderedDict()

    def put(self, name, shape, deviation, mean=0.0):
        count = math.prod(shape)
        draw = self.rng.gauss
        values = [draw(mean, deviation) for _ in range(count)] if deviation > 0 else [mean] * count
        self.state[name] = Tensor(shape, values)

    def conv(self, name, out, into, kernel, deviation=None, bias=None):
        """`deviation` None: keeps the variance of values after relu."""
        keep = math.sqrt(2 / (into * kernel * kernel))
        self.put(name + ".weight", (out, into, kernel, kernel), keep if deviation is None else deviation)
        if bias is not None:
            self.put(name + ".bias", (out,), 0.0, bias)

    def norm(self, name, channels, scale=1.0):
        for part, value in (("weight", scale), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.put(f"{name}.{part}", (channels,), 0.0, value)


def bottleneck(net, path, into, narrow, scale):
    for number, (out, channels, kernel) in enumerate([(narrow, into, 1), (narrow, narrow, 3), (4 * narrow, narrow, 1)], 1):
        net.conv(f"{path}.conv{number}", out, channels, kernel)
        net.norm(f"{path}.bn{number}", out, scale if number == 3 else 1.0)


def build(classes, width, pyramid, blocks, seed):
    net = Network(seed)
    net.conv("backbone.body.conv1", width, 3, 7)
    net.norm("backbone.body.bn1", width)
    into = width
    for stage in range(4):
        path, narrow = f"backbone.body.layer{stage + 1}", width << stage
        bottleneck(net, f"{path}.0", into, narrow, BRANCH)
        net.conv(f"{path}.0.downsample.0", 4 * narrow, into, 1)
        net.norm(f"{path}.0.downsample.1", 4 * narrow, BRANCH)
        into = 4 * narrow
        for block in range(1, blocks[stage]):
            bottleneck(net, f"{path}.{block}", into, narrow, LATER)
    linear = {"bias": 0.0}
    for level in range(3):
        channels = 8 * width << level
        net.conv(f"backbone.fpn.inner_blocks.{level}.0", pyramid, channels, 1, math.sqrt(1 / channels), **linear)
        net.conv(f"backbone.fpn.layer_blocks.{level}.0", pyramid, pyramid, 3, math.sqrt(1 / (9 * pyramid)), **linear)
    for level in (6, 7):
        net.conv(f"backbone.fpn.extra_blocks.p{level}", pyramid, pyramid, 3, math.sqrt(1 / (9 * pyramid)), **linear)
    for head, last, out, bias in (("classification_head", "cls_logits", ANCHORS * classes, -math.log(99)),
                                  ("regression_head", "bbox_reg", ANCHORS * 4, 0.0)):
        for number in range(4):
            net.conv(f"head.{head}.conv.{number}.0", pyramid, pyramid, 3, None if pyramid < WIDE else 0.01, **linear)
        net.conv(f"head.{head}.{last}", out, pyramid, 3, 0.01, bias)
    return net.state


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--classes", type=int, default=4, help="with the background, which is class 0")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--pyramid", type=int, default=48)
    parser.add_argument("--blocks", type=int, nargs=4, default=[1, 1, 1, 1], help="bottlenecks of each stage")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    save(build(args.classes, args.width, args.pyramid, args.blocks, args.seed), args.file)


if __name__ == "__main__":
    main()
