#!/usr/bin/env python3
"""Files written here, read by torch: rewrites the golden files and, with torchvision, a whole RetinaNet.

    python tests/golden/pth/check_pth.py BUILD    (after cmake --build BUILD --target rewrite_pth)

Each is read with torch.load(weights_only=True) and compared with what torch reads from the original. By hand: it needs
torch, and torchvision for the RetinaNet of 130 MiB in a temporary folder.
"""
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

import torch

HERE = pathlib.Path(__file__).parent


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8) if a.numel() else a,
                                                                     b.contiguous().view(-1).view(torch.uint8) if b.numel() else b)


def rewrite(program, source, target):
    start = time.time()
    subprocess.run([program, source, target], check=True)
    seconds = time.time() - start
    with zipfile.ZipFile(target) as archive:  # checks every CRC too
        assert archive.testzip() is None
    return torch.load(target, weights_only=True), seconds


def main():
    program = pathlib.Path(sys.argv[1]) / "tests" / "rewrite_pth"
    print("torch", torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "own.pth"
        for name in ("archive", "stream", "protocol4", "checkpoint"):
            got, _ = rewrite(program, HERE / f"{name}.pth", target)
            wanted = torch.load(HERE / f"{name}.pth", weights_only=False)
            wanted = wanted.get("model", wanted) if isinstance(wanted, dict) else wanted
            wanted = {k.removeprefix("module."): v for k, v in wanted.items()}
            assert got.keys() == wanted.keys() and all(equal(got[k], wanted[k].detach()) for k in got)
            print(f"{name}: {len(got)} tensors equal")
        try:
            import torchvision
        except ImportError:
            print("no torchvision: RetinaNet skipped")
            return
        model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None,
                                                                    norm_layer=torchvision.ops.FrozenBatchNorm2d)
        for form in (True, False):
            source = pathlib.Path(folder) / "retinanet.pth"
            torch.save(model.state_dict(), source, _use_new_zipfile_serialization=form)
            got, seconds = rewrite(program, source, target)
            model.load_state_dict(got, strict=True)
            assert all(equal(got[k], v) for k, v in torch.load(source).items())
            print(f"RetinaNet ({'archive' if form else 'stream'}): {len(got)} tensors equal, strict=True, read and written "
                  f"in {seconds:.2f} s")


if __name__ == "__main__":
    main()
