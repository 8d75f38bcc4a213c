#!/usr/bin/env python3
"""Makes tests/golden/detect/retinanet: a narrow RetinaNet by torchvision, its outputs, losses, gradients and steps of SGD.

    python tests/golden/detect/make_retinanet.py

weights.pth   the state_dict (frozen norms with statistics that are not trivial)
expected.pth  of the batch that `pixels` and `TARGETS` describe, which the test makes again: the heads' outputs, both
              losses, the gradient of every trainable parameter (as grad.<name>), and the losses of five steps
"""
import pathlib

import torch
from torch import nn
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import RetinaNet, _default_anchorgen
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

HERE = pathlib.Path(__file__).parent / "retinanet"
WIDTH, PYRAMID, CLASSES, BLOCKS, TRAINABLE = 4, 12, 5, (1, 2, 1, 1), 3
IMAGES, HEIGHT, WIDE = 2, 96, 64
TARGETS = [  # boxes in pixels and labels; the second image has none that are large, the first has neighbours
    ([[4, 6, 40, 50], [10, 40, 62, 94], [30, 8, 50, 30]], [1, 4, 2]),
    ([[20, 20, 52, 60]], [3]),
]


class Narrow(ResNet):
    def __init__(self):
        super().__init__(Bottleneck, [1, 1, 1, 1], norm_layer=FrozenBatchNorm2d)
        self.inplanes = WIDTH
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = FrozenBatchNorm2d(WIDTH)
        for stage, blocks in enumerate(BLOCKS):
            layer = self._make_layer(Bottleneck, WIDTH << stage, blocks, stride=1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", layer)


def make_model():
    body = Narrow()
    body.avgpool = body.fc = None
    channels = [4 * WIDTH << stage for stage in (1, 2, 3)]
    layers = {"layer2": "0", "layer3": "1", "layer4": "2"}
    del body.avgpool, body.fc
    backbone = BackboneWithFPN(body, layers, channels, PYRAMID, LastLevelP6P7(PYRAMID, PYRAMID))
    model = RetinaNet(backbone, CLASSES, anchor_generator=_default_anchorgen())
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:TRAINABLE]
    for name, parameter in model.backbone.body.named_parameters():
        parameter.requires_grad_(any(name.startswith(part) for part in trained))
    return model


def set_values(model):
    """Small whole numbers of a generator, so that every activation has a size that matters."""
    generator = torch.Generator().manual_seed(7)
    for name, value in sorted(model.state_dict().items()):
        if name.endswith("running_var"):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
        elif ".bn" in name or ".downsample.1" in name:
            base = 1.0 if name.endswith(".weight") else 0.0
            value.copy_(base + 0.2 * torch.randn(value.shape, generator=generator))
        elif name.endswith("cls_logits.bias"):
            value.fill_(-2.0)
        elif name.endswith(".bias"):
            value.copy_(0.1 * torch.randn(value.shape, generator=generator))
        else:
            fan = value[0].numel()
            value.copy_(torch.randn(value.shape, generator=generator) * (0.8 / fan) ** 0.5)


def pixels():
    """[N, 3, H, W]: a linear congruential sequence over (n, y, x, channel), in steps of 1/64 from -2 to 2."""
    state, values = 1, []
    for _ in range(IMAGES * HEIGHT * WIDE * 3):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        values.append((state >> 24) / 64 - 2)
    return torch.tensor(values).reshape(IMAGES, HEIGHT, WIDE, 3).permute(0, 3, 1, 2).contiguous()


def run(model, images, targets):
    features = list(model.backbone(images).values())
    outputs = model.head(features)
    anchors = model.anchor_generator(ImageList(images, [(HEIGHT, WIDE)] * IMAGES), features)
    return outputs, model.compute_loss(targets, outputs, anchors)


def main():
    torch.set_num_threads(1)
    model = make_model().train()
    set_values(model)
    HERE.mkdir(exist_ok=True)
    torch.save(model.state_dict(), HERE / "weights.pth")
    targets = [{"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}
               for boxes, labels in TARGETS]
    images = pixels()
    outputs, losses = run(model, images, targets)
    (losses["classification"] + losses["bbox_regression"]).backward()
    expected = {"class_logits": outputs["cls_logits"].detach(), "box_deltas": outputs["bbox_regression"].detach(),
                "losses": torch.stack([losses["classification"], losses["bbox_regression"]]).detach()}
    expected |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.002, momentum=0.9,
                                weight_decay=1e-3)
    steps = []
    for _ in range(5):
        optimizer.zero_grad()
        _, losses = run(model, images, targets)
        (losses["classification"] + losses["bbox_regression"]).backward()
        optimizer.step()
        steps.append(torch.stack([losses["classification"], losses["bbox_regression"]]).detach())
    expected["steps"] = torch.stack(steps)
    torch.save(expected, HERE / "expected.pth")
    print({name: tuple(value.shape) for name, value in expected.items() if "grad" not in name}, expected["steps"])


if __name__ == "__main__":
    main()
