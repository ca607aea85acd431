"""Networks of which latencies in TensorRT were published for known placements, but no layers.

Needs torch, torchvision, transformers and ultralytics. Weights are random; sizes and batches are
those that were measured.

python -m benchmarks.networks.write published --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torchvision import models
from transformers import ViTConfig, ViTForImageClassification
from ultralytics.nn.tasks import DetectionModel

from benchmarks.networks.pytorch.export import Network


def _with_relu(model: nn.Module) -> nn.Module:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.SiLU):
                setattr(module, name, nn.ReLU())
    return model


def _yolo(config: str, size: int, batch: int, relu: bool = False) -> Network:
    """A network of ultralytics as it exports it."""

    def make() -> nn.Module:
        model = DetectionModel(f"{config}.yaml", verbose=False).eval().fuse(verbose=False)
        model.model[-1].export, model.model[-1].format = True, "onnx"
        return _with_relu(model) if relu else model

    return Network(make, (torch.zeros(batch, 3, size, size),), dynamo=False)


def _conv(inputs: int, filters: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, filters, kernel, stride, kernel // 2), nn.SiLU())


class Elan(nn.Module):
    """Two branches, one of them four Convs deep; ``wide`` joins what each of these makes."""

    def __init__(self, inputs: int, width: int, outputs: int, wide: bool = False) -> None:
        super().__init__()
        deep = width // 2 if wide else width
        self.one, self.two = _conv(inputs, width), _conv(inputs, width)
        self.deep = nn.ModuleList(_conv(deep if i else width, deep, 3) for i in range(4))
        self.out = _conv(2 * width + (4 if wide else 2) * deep, outputs)
        self.joined = (5, 4, 3, 2, 1, 0) if wide else (5, 3, 1, 0)

    def forward(self, x: Tensor) -> Tensor:
        """The joined map."""
        found = [self.one(x), self.two(x)]
        for module in self.deep:
            found.append(module(found[-1]))
        return self.out(torch.cat([found[i] for i in self.joined], 1))


class Down(nn.Module):
    """Half of the size by a pool and by a Conv."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.pool, self.one = nn.MaxPool2d(2, 2), _conv(inputs, width)
        self.two, self.three = _conv(inputs, width), _conv(width, width, 3, 2)

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        """Both, and ``more``."""
        return torch.cat((self.three(self.two(x)), self.one(self.pool(x)), *more), 1)


class Pyramid(nn.Module):
    """Pools of three sizes beside a Conv."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.begin = nn.Sequential(
            _conv(inputs, width), _conv(width, width, 3), _conv(width, width)
        )
        self.pools = nn.ModuleList(nn.MaxPool2d(k, 1, k // 2) for k in (5, 9, 13))
        self.middle = nn.Sequential(_conv(4 * width, width), _conv(width, width, 3))
        self.beside, self.out = _conv(inputs, width), _conv(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The joined map."""
        y = self.begin(x)
        y = self.middle(torch.cat([y, *(pool(y) for pool in self.pools)], 1))
        return self.out(torch.cat((y, self.beside(x)), 1))


class YoloV7(nn.Module):
    """YOLOv7 with its three heads, re-parametrised (Wang et al. 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 32, 3), _conv(32, 64, 3, 2), _conv(64, 64, 3), _conv(64, 128, 3, 2),
            Elan(128, 64, 256), Down(256, 128), Elan(256, 128, 512),
        )  # fmt: skip
        self.fourth = nn.Sequential(Down(512, 256), Elan(512, 256, 1024))
        self.fifth = nn.Sequential(Down(1024, 512), Elan(1024, 256, 1024), Pyramid(1024, 512))
        self.up = nn.Upsample(scale_factor=2)
        self.left, self.right = _conv(512, 256), _conv(1024, 256)
        self.left2, self.right2 = _conv(256, 128), _conv(512, 128)
        self.wide, self.wide2 = Elan(512, 256, 256, True), Elan(256, 128, 128, True)
        self.down, self.wide3 = Down(128, 128), Elan(512, 256, 256, True)
        self.down2, self.wide4 = Down(256, 256), Elan(1024, 512, 512, True)
        widths = (256, 512, 1024)
        self.last = nn.ModuleList(_conv(width // 2, width, 3) for width in widths)
        self.head = nn.ModuleList(nn.Conv2d(width, 255, 1) for width in widths)

    def forward(self, image: Tensor) -> Tensor:
        """Boxes and scores."""
        third = self.stem(image)
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        upper = self.wide(torch.cat((self.right(fourth), self.up(self.left(fifth))), 1))
        top = self.wide2(torch.cat((self.right2(third), self.up(self.left2(upper))), 1))
        middle = self.wide3(self.down(top, upper))
        low = self.wide4(self.down2(middle, fifth))
        maps = [
            head(last(y))
            for head, last, y in zip(self.head, self.last, (top, middle, low), strict=True)
        ]
        return torch.cat([_boxes(y, 8 * 2**i) for i, y in enumerate(maps)], 1)


def _boxes(y: Tensor, stride: int) -> Tensor:
    batch, _, height, width = y.shape
    y = y.view(batch, 3, 85, height, width).permute(0, 1, 3, 4, 2).sigmoid()
    axes = torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy")
    places = (y[..., 0:2] * 2 - 0.5 + torch.stack(axes, 2).float()) * stride
    sizes = (y[..., 2:4] * 2) ** 2 * torch.full((1, 3, 1, 1, 2), float(stride))
    return torch.cat((places, sizes, y[..., 4:]), -1).view(batch, -1, 85)


def _yolov7(batch: int) -> Network:
    return Network(YoloV7, (torch.zeros(batch, 3, 640, 640),), dynamo=False)


def _resnet50_v1() -> nn.Module:
    """With its strides in the 1x1 Convs, as MXNet's."""
    model = models.resnet50()
    for block in model.modules():
        if isinstance(block, models.resnet.Bottleneck):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    return model


def _classifier(make: Callable[[], nn.Module], batch: int) -> Network:
    return Network(lambda: make().eval(), (torch.zeros(batch, 3, 224, 224),), dynamo=False)


class VitB(nn.Module):
    """ViT-B/16 with the attention that exporters write out."""

    def __init__(self) -> None:
        super().__init__()
        config = ViTConfig(num_labels=1000, attn_implementation="eager")
        self.body = ViTForImageClassification(config)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of classes."""
        return self.body(image).logits


_CLASSIFIERS = {
    "resnet18": models.resnet18,
    "resnet50": models.resnet50,
    "resnet50-v1": _resnet50_v1,
    "mobilenetv2": models.mobilenet_v2,
}
_YOLOV9C = {f"yolov9c x{batch}": _yolo("yolov9c", 640, batch) for batch in (1, 4, 8, 12)}
_YOLOV9C |= {f"yolov9c-relu x{n}": _yolo("yolov9c", 640, n, relu=True) for n in (1, 4, 8, 12)}
SETS: Mapping[str, Mapping[str, Network]] = {
    ".": {
        **_YOLOV9C,
        **{
            f"yolov9{s} x{batch}": _yolo(f"yolov9{s}", 640, batch)
            for s in "ts"
            for batch in (1, 12)
        },
        **{f"yolov8{size} x1": _yolo(f"yolov8{size}", 640, 1) for size in "nsmlx"},
        **{f"yolov7 x{batch}": _yolov7(batch) for batch in (1, 16)},
        **{
            f"{name} x{batch}": _classifier(make, batch)
            for name, make in _CLASSIFIERS.items()
            for batch in (1, 8)
        },
        "vit-b x1": _classifier(VitB, 1),
        "yolo26n x1": _yolo("yolo26n", 640, 1),
        "yolo26s x1": _yolo("yolo26s", 640, 1),
        "yolo26m-416 x1": _yolo("yolo26m", 416, 1),
    }
}
