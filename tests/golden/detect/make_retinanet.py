#!/usr/bin/env python3
"""Makes tests/golden/detect/retinanet and retinanet_v2: narrow RetinaNets by torchvision, their outputs, losses, gradients
and steps of SGD.

    python tests/golden/detect/make_retinanet.py

retinanet has frozen norms and trains three stages, as retinanet_resnet50_fpn with weights; retinanet_v2 has batch norms
and trains all, as retinanet_resnet50_fpn_v2 without. In each folder:

weights.pth   the state_dict (frozen norms with statistics that are not trivial)
expected.pth  of the batch that `pixels` and `TARGETS` describe, which the test makes again: the heads' outputs, both
              losses, the gradient of every trainable parameter (as grad.<name>), and the losses of five steps
frozen.pth    of retinanet_v2 with three and with four stages that train, as _resnet_fpn_extractor sets them: the losses of
              five steps with a weight decay of its own for norms, as torchvision's references group them
              (steps.<stages>), and parameters and running statistics after them (after.<stages>.<name>; with four
              stages those of the first stage and of the stem)
"""
import functools
import pathlib

import torch
from torch import nn
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import RetinaNet, RetinaNetHead, _default_anchorgen
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops._utils import split_normalization_params
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

HERE = pathlib.Path(__file__).parent
WIDTH, PYRAMID, CLASSES, BLOCKS, GROUPS = 4, 12, 5, (1, 2, 1, 1), 4
IMAGES, HEIGHT, WIDE = 2, 96, 64
TARGETS = [  # boxes in pixels and labels; the second image has none that are large, the first has neighbours
    ([[4, 6, 40, 50], [10, 40, 62, 94], [30, 8, 50, 30]], [1, 4, 2]),
    ([[20, 20, 52, 60]], [3]),
]


class Narrow(ResNet):
    def __init__(self, norm):
        super().__init__(Bottleneck, [1, 1, 1, 1], norm_layer=norm)
        self.inplanes = WIDTH
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = norm(WIDTH)
        for stage, blocks in enumerate(BLOCKS):
            layer = self._make_layer(Bottleneck, WIDTH << stage, blocks, stride=1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", layer)


def make_model(second):
    body = Narrow(nn.BatchNorm2d if second else FrozenBatchNorm2d)
    body.avgpool = body.fc = None
    channels = [4 * WIDTH << stage for stage in (1, 2, 3)]
    layers = {"layer2": "0", "layer3": "1", "layer4": "2"}
    del body.avgpool, body.fc
    extra = LastLevelP6P7(channels[-1] if second else PYRAMID, PYRAMID)
    backbone = BackboneWithFPN(body, layers, channels, PYRAMID, extra)
    anchors, head = _default_anchorgen(), None
    if second:
        head = RetinaNetHead(PYRAMID, anchors.num_anchors_per_location()[0], CLASSES,
                             norm_layer=functools.partial(nn.GroupNorm, GROUPS))
        head.regression_head._loss_type = "giou"
    model = RetinaNet(backbone, CLASSES, anchor_generator=anchors, head=head)
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1", "bn1"] if second else ["layer4", "layer3", "layer2"]
    for name, parameter in model.backbone.body.named_parameters():
        parameter.requires_grad_(any(name.startswith(part) for part in trained))
    return model


def is_group_norm(name):
    return ".conv." in name and name.split(".")[-2] == "1"


def set_values(model):
    """Small whole numbers of a generator, so that every activation has a size that matters."""
    generator = torch.Generator().manual_seed(7)
    for name, value in sorted(model.state_dict().items()):
        if name.endswith("num_batches_tracked"):
            continue
        if name.endswith("running_var"):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
        elif ".bn" in name or ".downsample.1" in name or is_group_norm(name):
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


def make(second):
    folder = HERE / ("retinanet_v2" if second else "retinanet")
    model = make_model(second).train()
    set_values(model)
    folder.mkdir(exist_ok=True)
    torch.save(model.state_dict(), folder / "weights.pth")
    started = {name: value.clone() for name, value in model.state_dict().items()}
    targets = [{"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}
               for boxes, labels in TARGETS]
    images = pixels()
    outputs, losses = run(model, images, targets)
    (losses["classification"] + losses["bbox_regression"]).backward()
    if second:  # by the running statistics of the file
        model.load_state_dict(started)
        with torch.no_grad():
            outputs, _ = run(model.eval(), images, targets)
    expected = {"class_logits": outputs["cls_logits"].detach(), "box_deltas": outputs["bbox_regression"].detach(),
                "losses": torch.stack([losses["classification"], losses["bbox_regression"]]).detach()}
    expected |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    model.train()
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
    if second:  # after five steps
        expected |= {"running." + name: value.clone() for name, value in model.state_dict().items() if "running_" in name}
    torch.save(expected, folder / "expected.pth")
    print({name: tuple(value.shape) for name, value in expected.items() if "grad" not in name}, expected["steps"])


def make_frozen():
    folder, kept = HERE / "retinanet_v2", {}
    targets = [{"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}
               for boxes, labels in TARGETS]
    images = pixels()
    for stages in (3, 4):
        model = make_model(True).train()
        model.load_state_dict(torch.load(folder / "weights.pth", weights_only=True))
        trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:stages]
        for name, parameter in model.backbone.body.named_parameters():
            parameter.requires_grad_(any(name.startswith(part) for part in trained))
        norms, others = split_normalization_params(model)
        optimizer = torch.optim.SGD([{"params": norms, "weight_decay": 0.05}, {"params": others, "weight_decay": 1e-3}],
                                    lr=0.002, momentum=0.9)
        steps = []
        for _ in range(5):
            optimizer.zero_grad()
            _, losses = run(model, images, targets)
            (losses["classification"] + losses["bbox_regression"]).backward()
            optimizer.step()
            steps.append(torch.stack([losses["classification"], losses["bbox_regression"]]).detach())
        kept[f"steps.{stages}"] = torch.stack(steps)
        kept |= {f"after.{stages}.{name}": value.clone() for name, value in model.state_dict().items()
                 if not name.endswith("num_batches_tracked")
                 and (stages == 3 or ".layer1." in name or ".body.bn1." in name or ".body.conv1." in name)}
    torch.save(kept, folder / "frozen.pth")
    print({name: value for name, value in kept.items() if name.startswith("steps")})


def main():
    torch.set_num_threads(1)
    make(False)
    make(True)
    make_frozen()


if __name__ == "__main__":
    main()
