"""Modules of PyTorch for ``seventh_set``: as in the papers, fewer blocks."""

from __future__ import annotations

import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional


class _Bottleneck(nn.Module):
    """A regular, dilated or asymmetric block of ENet, or one that halves the map."""

    def __init__(self, inputs: int, outputs: int, kind: str = "regular", dilation: int = 1) -> None:
        super().__init__()
        inner, self.down = outputs // 4, kind == "down"
        first = (2, 2) if self.down else (1, 1)
        middle: list[nn.Module] = [nn.Conv2d(inner, inner, 3, padding=dilation, dilation=dilation)]
        if kind == "asymmetric":
            middle = [
                nn.Conv2d(inner, inner, (5, 1), padding=(2, 0), bias=False),
                nn.Conv2d(inner, inner, (1, 5), padding=(0, 2)),
            ]
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, inner, first, first, bias=False), nn.BatchNorm2d(inner),
            nn.PReLU(inner), *middle, nn.BatchNorm2d(inner), nn.PReLU(inner),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.extra, self.last = outputs - inputs, nn.PReLU(outputs)

    def forward(self, given: Tensor) -> Tensor:
        """Features of as many places, or a quarter."""
        rest = functional.max_pool2d(given, 2) if self.down else given
        rest = functional.pad(rest, (0, 0, 0, 0, 0, self.extra)) if self.extra else rest
        return self.last(rest + self.branch(given))


class ENet(nn.Module):
    """Segmentation of streets (Paszke et al. 2016); maps grow by transposed convolutions."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 13, 3, 2, 1)
        self.start = nn.Sequential(nn.BatchNorm2d(16), nn.PReLU(16))
        self.body = nn.Sequential(
            _Bottleneck(16, 64, "down"), _Bottleneck(64, 64), _Bottleneck(64, 128, "down"),
            _Bottleneck(128, 128), _Bottleneck(128, 128, dilation=2),
            _Bottleneck(128, 128, "asymmetric"), _Bottleneck(128, 128, dilation=4),
            nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), nn.BatchNorm2d(64), nn.ReLU(),
            _Bottleneck(64, 64), nn.ConvTranspose2d(64, 16, 3, 2, 1, 1), nn.BatchNorm2d(16),
            nn.ReLU(), _Bottleneck(16, 16), nn.ConvTranspose2d(16, classes, 2, 2),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """A score of each class for each place."""
        joined = torch.cat([self.first(image), functional.max_pool2d(image, 2)], dim=1)
        return self.body(self.start(joined))


class Residual(nn.Module):
    """Two convolutions with reflected borders and norms of each map, added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width),
        )  # fmt: skip

    def forward(self, given: Tensor) -> Tensor:
        """The sum of both branches."""
        return given + self.body(given)


class DeblurGenerator(nn.Module):
    """Sharp images of blurred ones (Kupyn et al. 2018): what is missing is added."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1), nn.InstanceNorm2d(4 * width), nn.ReLU(),
            *(Residual(4 * width) for _ in range(blocks)),
            nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1), nn.InstanceNorm2d(2 * width),
            nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1),
            nn.InstanceNorm2d(width), nn.ReLU(), nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7),
            nn.Tanh(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """The image without its blur."""
        return torch.clamp(image + self.body(image), -1, 1)


class Yolact(nn.Module):
    """Prototypes of masks and their coefficients over a pyramid (Bolya et al. 2019)."""

    def __init__(self, width: int, masks: int) -> None:
        super().__init__()
        self.backbone = timm.create_model(
            "resnet18", pretrained=False, features_only=True, out_indices=(2, 3, 4)
        )
        channels = self.backbone.feature_info.channels()
        self.narrow = nn.ModuleList(nn.Conv2d(c, width, 1) for c in channels)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in channels)
        self.next = nn.Conv2d(width, width, 3, 2, 1)
        self.tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.heads = nn.ModuleList(nn.Conv2d(width, 3 * out, 3, padding=1) for out in (4, 6, masks))
        self.sizes = (4, 6, masks)
        conv = (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.protos = nn.Sequential(
            *conv, nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, masks, 1),
            nn.ReLU(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> list[Tensor]:
        """Boxes, scores and coefficients of all anchors, and the prototypes."""
        levels = [n(f) for n, f in zip(self.narrow, self.backbone(image), strict=True)]
        for index in (1, 0):
            size = levels[index].shape[2:]
            above = functional.interpolate(
                levels[index + 1], size, mode="bilinear", align_corners=False
            )
            levels[index] = levels[index] + above
        levels = [functional.relu(s(f)) for s, f in zip(self.smooth, levels, strict=True)]
        levels.append(self.next(levels[-1]))
        towers = [self.tower(f) for f in levels]
        found = [
            torch.cat([h(f).permute(0, 2, 3, 1).reshape(1, -1, s) for f in towers], dim=1)
            for h, s in zip(self.heads, self.sizes, strict=True)
        ]
        boxes, scores, coefficients = found
        protos = self.protos(levels[0]).permute(0, 2, 3, 1)
        return [boxes, functional.softmax(scores, -1), torch.tanh(coefficients), protos]


class Craft(nn.Module):
    """Regions and links of characters over VGG16 (Baek et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        body = torchvision.models.vgg16_bn(weights=None).features
        self.parts = nn.ModuleList((body[:12], body[12:19], body[19:29], body[29:39]))
        self.deep = nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.Conv2d(512, 512, 3, padding=6, dilation=6),
            nn.Conv2d(512, 512, 1),
        )  # fmt: skip
        widths = ((1024, 512, 256), (512 + 256, 256, 128), (256 + 128, 128, 64), (128 + 64, 64, 32))
        self.up = nn.ModuleList(self._double(*w) for w in widths)
        self.last = nn.Sequential(
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 2, 1),
        )  # fmt: skip

    @staticmethod
    def _double(inputs: int, inner: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, inner, 1), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Two scores for each place of a map of half the size."""
        maps, features = list[Tensor](), image
        for part in self.parts:
            features = part(features)
            maps.append(features)
        features = self.deep(features)
        for up, skip in zip(self.up, reversed(maps), strict=True):
            size = skip.shape[2:]
            features = functional.interpolate(features, size, mode="bilinear", align_corners=False)
            features = up(torch.cat([features, skip], dim=1))
        return self.last(features).permute(0, 2, 3, 1)
