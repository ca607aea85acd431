"""Networks of papers that no package here has, with fewer and narrower blocks."""

from __future__ import annotations

from itertools import pairwise

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, act: bool = True) -> nn.Module:
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if act else []))


class _ShortTermDense(nn.Module):
    """A short-term dense concatenate module: convolutions in turn, all of which are joined."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        widths = (outputs // 2, outputs // 4, outputs // 8, outputs // 8)
        self.first = _conv(inputs, widths[0], 1)
        self.down = (
            nn.Sequential(
                nn.Conv2d(widths[0], widths[0], 3, 2, 1, groups=widths[0], bias=False),
                nn.BatchNorm2d(widths[0]),
            )
            if stride == 2
            else nn.Identity()
        )
        self.skip = nn.AvgPool2d(3, 2, 1) if stride == 2 else nn.Identity()
        self.rest = nn.ModuleList(_conv(a, b, 3) for a, b in pairwise(widths))

    def forward(self, features: Tensor) -> Tensor:
        """A map of the same size, or of half of it."""
        first = self.first(features)
        parts, last = [self.skip(first)], self.down(first)
        for layer in self.rest:
            last = layer(last)
            parts.append(last)
        return torch.cat(parts, 1)


class _AttentionRefinement(nn.Module):
    """A 3x3 convolution times a gate of its means."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.gate = _conv(inputs, outputs, 3), _conv(outputs, outputs, 1, act=False)

    def forward(self, features: Tensor) -> Tensor:
        """(N, outputs, H, W)."""
        features = self.conv(features)
        return features * self.gate(features.mean((2, 3), keepdim=True)).sigmoid()


class Stdc(nn.Module):
    """STDC-Seg (Fan et al. 2021) as it is deployed, without its head for details."""

    def __init__(self, classes: int = 5, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 3, 2), _conv(16, 32, 3, 2))
        self.stages = nn.ModuleList(
            nn.Sequential(_ShortTermDense(a, b, 2), _ShortTermDense(b, b, 1))
            for a, b in pairwise((32, 64, 128, 256))
        )
        self.middle, self.top = _AttentionRefinement(128, width), _AttentionRefinement(256, width)
        self.whole = _conv(256, width, 1)
        self.mix_top, self.mix_middle = _conv(width, width, 3), _conv(width, width, 3)
        self.fuse = _conv(64 + width, 2 * width, 1)
        self.gates = nn.ModuleList(
            [
                nn.Conv2d(2 * width, width // 2, 1, bias=False),
                nn.Conv2d(width // 2, 2 * width, 1, bias=False),
            ]
        )
        self.head = nn.Sequential(_conv(2 * width, width, 3), nn.Conv2d(width, classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, classes, H, W) of (N, 3, H, W)."""
        maps, features = [], self.stem(image)
        for stage in self.stages:
            features = stage(features)
            maps.append(features)
        whole = self.whole(maps[2].mean((2, 3), keepdim=True))
        top = self.top(maps[2]) + functional.interpolate(whole, maps[2].shape[2:], mode="nearest")
        top = self.mix_top(functional.interpolate(top, maps[1].shape[2:], mode="nearest"))
        middle = self.middle(maps[1]) + top
        middle = self.mix_middle(functional.interpolate(middle, maps[0].shape[2:], mode="nearest"))
        fused = self.fuse(torch.cat([maps[0], middle], 1))
        gate = self.gates[1](self.gates[0](fused.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return functional.interpolate(
            self.head(fused * gate + fused), image.shape[2:], mode="bilinear", align_corners=True
        )


class _Branches(nn.Module):
    """A block of Inception-ResNet: joined branches, a 1x1 convolution, a scaled residual."""

    def __init__(self, width: int, branches: list[nn.Module], joined: int, scale: float) -> None:
        super().__init__()
        self.branches, self.scale = nn.ModuleList(branches), scale
        self.mix = nn.Conv2d(joined, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        found = self.mix(torch.cat([branch(features) for branch in self.branches], 1))
        return (found * self.scale + features).relu()


def _line(width: int, kernel: tuple[int, int]) -> nn.Module:
    padding = (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(
        nn.Conv2d(width, width, kernel, padding=padding, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


class FaceNet(nn.Module):
    """Inception-ResNet v1 as facenet-pytorch has it (Schroff et al. 2015)."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 16, 3, 2), _conv(16, 32, 3), nn.MaxPool2d(3, 2),
            _conv(32, 48, 1), _conv(48, 64, 3, 2),
        )  # fmt: skip
        small = [
            _conv(64, 16, 1),
            nn.Sequential(_conv(64, 16, 1), _conv(16, 16, 3)),
            nn.Sequential(_conv(64, 16, 1), _conv(16, 16, 3), _conv(16, 16, 3)),
        ]
        self.small = _Branches(64, small, 48, 0.17)
        self.down = nn.ModuleList([_conv(64, 64, 3, 2), nn.MaxPool2d(3, 2, 1)])
        wide = [
            _conv(128, 32, 1),
            nn.Sequential(_conv(128, 32, 1), _line(32, (1, 7)), _line(32, (7, 1))),
        ]
        self.wide = _Branches(128, wide, 64, 0.10)
        last = [
            _conv(128, 32, 1),
            nn.Sequential(_conv(128, 32, 1), _line(32, (1, 3)), _line(32, (3, 1))),
        ]
        self.last = _Branches(128, last, 64, 0.20)
        self.embed = nn.Sequential(nn.Linear(128, size, bias=False), nn.BatchNorm1d(size))

    def forward(self, image: Tensor) -> Tensor:
        """Embeddings (N, size) of (N, 3, H, W)."""
        features = self.small(self.stem(image))
        features = self.wide(torch.cat([down(features) for down in self.down], 1))
        return functional.normalize(self.embed(self.last(features).mean((2, 3))), dim=1)


class _VideoBottleneck(nn.Module):
    """MoViNet's inverted bottleneck: depthwise convolutions of places and of frames, a gate."""

    def __init__(self, inputs: int, outputs: int, stride: int, frames: int) -> None:
        super().__init__()
        width = 3 * inputs
        self.expand = nn.Sequential(
            nn.Conv3d(inputs, width, 1, bias=False), nn.BatchNorm3d(width), nn.Hardswish()
        )
        self.places = nn.Sequential(
            nn.Conv3d(
                width, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), groups=width, bias=False
            ),
            nn.BatchNorm3d(width),
            nn.Hardswish(),
        )
        self.frames = nn.Sequential(
            nn.Conv3d(width, width, (frames, 1, 1), groups=width, bias=False),
            nn.BatchNorm3d(width),
            nn.Hardswish(),
        )
        self.before = frames - 1  # Causal: frames before the first one are zeros.
        self.gate = nn.Sequential(
            nn.Conv3d(width, width // 4, 1), nn.Hardswish(), nn.Conv3d(width // 4, width, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip
        self.project = nn.Sequential(
            nn.Conv3d(width, outputs, 1, bias=False), nn.BatchNorm3d(outputs)
        )
        self.plain = stride == 1 and inputs == outputs

    def forward(self, clip: Tensor) -> Tensor:
        """(N, outputs, frames, H, W)."""
        found = self.places(self.expand(clip))
        found = self.frames(functional.pad(found, (0, 0, 0, 0, self.before, 0)))
        found = self.project(found * self.gate(found.mean((2, 3, 4), keepdim=True)))
        return clip + found if self.plain else found


class MoViNet(nn.Module):
    """MoViNet (Kondratyuk et al. 2021) with (2+1)-D convolutions, as it runs on phones."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.BatchNorm3d(8),
            nn.Hardswish(),
        )
        self.blocks = nn.Sequential(
            _VideoBottleneck(8, 8, 1, 5),
            _VideoBottleneck(8, 16, 2, 3),
            _VideoBottleneck(16, 16, 1, 3),
            _VideoBottleneck(16, 24, 2, 5),
        )
        self.last = nn.Sequential(
            nn.Conv3d(24, 64, 1, bias=False), nn.BatchNorm3d(64), nn.Hardswish()
        )
        self.head = nn.Sequential(nn.Conv3d(64, 96, 1), nn.Hardswish(), nn.Conv3d(96, classes, 1))

    def forward(self, clip: Tensor) -> Tensor:
        """Logits (N, classes) of (N, 3, frames, H, W)."""
        return self.head(
            self.last(self.blocks(self.stem(clip))).mean((2, 3, 4), keepdim=True)
        ).flatten(1)


class _ResidualUnit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.second(self.first(features.relu()).relu())


class _Fusion(nn.Module):
    """MiDaS's fusion: a deeper map and a skip, refined and enlarged."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.skip, self.refine = _ResidualUnit(width), _ResidualUnit(width)
        self.out = nn.Conv2d(width, outputs, 1)

    def forward(self, features: Tensor, skip: Tensor | None = None) -> Tensor:
        """A map of twice the size."""
        if skip is not None:
            features = features + self.skip(skip)
        features = functional.interpolate(
            self.refine(features), scale_factor=2, mode="bilinear", align_corners=True
        )
        return self.out(features)


class MidasSmall(nn.Module):
    """MiDaS v2.1 small (Ranftl et al. 2020): EfficientNet-Lite3 and fusions that widen."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.trunk = timm.create_model(
            "tf_efficientnet_lite3", features_only=True, pretrained=False
        )
        channels = self.trunk.feature_info.channels()[1:]
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.levels = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in zip(channels, widths, strict=True)
        )
        self.fusions = nn.ModuleList(_Fusion(b, a) for a, b in pairwise([width, *widths]))
        self.head = nn.Sequential(
            nn.Conv2d(width, width // 2, 3, padding=1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(width // 2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Inverse depths (N, H, W) of (N, 3, H, W)."""
        maps = [
            level(found) for level, found in zip(self.levels, self.trunk(image)[1:], strict=True)
        ]
        features = self.fusions[3](maps[3])
        for index in (2, 1, 0):
            features = self.fusions[index](features, maps[index])
        return self.head(features).squeeze(1)


class XVector(nn.Module):
    """x-vectors (Snyder et al. 2018): dilated convolutions of frames, means and deviations."""

    def __init__(self, bands: int = 24, width: int = 64, speakers: int = 10) -> None:
        super().__init__()
        layers, inputs = [], bands
        for kernel, dilation, outputs in (
            (5, 1, width),
            (3, 2, width),
            (3, 3, width),
            (1, 1, width),
            (1, 1, 3 * width),
        ):
            layers += [
                nn.Conv1d(inputs, outputs, kernel, dilation=dilation),
                nn.ReLU(),
                nn.BatchNorm1d(outputs),
            ]
            inputs = outputs
        self.frames = nn.Sequential(*layers)
        self.embed = nn.Linear(6 * width, width)
        self.rest = nn.Sequential(
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.BatchNorm1d(width),
        )
        self.speakers = nn.Linear(width, speakers)

    def forward(self, sound: Tensor) -> Tensor:
        """Logits (N, speakers) of (N, bands, frames)."""
        found = self.frames(sound)
        return self.speakers(self.rest(self.embed(torch.cat([found.mean(2), found.std(2)], 1))))
