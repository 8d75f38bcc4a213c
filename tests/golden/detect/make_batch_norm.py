#!/usr/bin/env python3
"""Makes batch_norm.json: torch's BatchNorm2d in training, float32: output, gradients and running statistics of a batch.

Pixels are rows of channels, as in backend/ops/channels.h; the statistics before are not trivial. SyncBatchNorm is the
same over the batch of all ranks: the test splits the pixels."""
import json
import pathlib

import torch

IMAGES, HEIGHT, WIDTH, CHANNELS = 3, 4, 5, 6


def main():
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(CHANNELS, eps=1e-5, momentum=0.1)
    with torch.no_grad():
        for vector in (norm.weight, norm.bias, norm.running_mean):
            vector.copy_(torch.randn(CHANNELS))
        norm.running_var.copy_(torch.rand(CHANNELS) + 0.5)
    before = {name: getattr(norm, name).tolist() for name in ("weight", "bias", "running_mean", "running_var")}
    x = (torch.randn(IMAGES, CHANNELS, HEIGHT, WIDTH) * torch.arange(1, CHANNELS + 1).reshape(1, -1, 1, 1) +
         torch.randn(1, CHANNELS, 1, 1)).requires_grad_()
    g = torch.randn(IMAGES, CHANNELS, HEIGHT, WIDTH)
    y = norm(x)
    y.backward(g)
    rows = {name: value.detach().permute(0, 2, 3, 1).reshape(-1, CHANNELS).tolist()
            for name, value in (("x", x), ("g", g), ("y", y), ("dx", x.grad))}
    golden = {"torch": torch.__version__.split("+")[0], "eps": norm.eps, "momentum": norm.momentum, "before": before,
              **rows, "dweight": norm.weight.grad.tolist(), "dbias": norm.bias.grad.tolist(),
              "running_mean": norm.running_mean.tolist(), "running_var": norm.running_var.tolist()}
    path = pathlib.Path(__file__).parent / "batch_norm.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
