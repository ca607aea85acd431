"""Modules of PyTorch for ``sixth_lot``: as in the papers, fewer blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class WaveUNet(nn.Module):
    """Sources of a signal (Stoller et al. 2018): strided by slices, resized linearly."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [1, *(width * (level + 1) for level in range(depth))]
        self.down = nn.ModuleList(self._conv(a, b, 15) for a, b in pairwise(widths))
        self.middle = self._conv(widths[-1], widths[-1] + width, 15)
        above = [widths[-1] + width, *reversed(widths[2:])]
        self.up = nn.ModuleList(
            self._conv(a + b, b, 5) for a, b in zip(above, reversed(widths[1:]), strict=True)
        )
        self.last = nn.Conv1d(widths[1] + 1, 2, 1)

    @staticmethod
    def _conv(inputs: int, outputs: int, kernel: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2), nn.LeakyReLU(0.2)
        )

    def forward(self, signal: Tensor) -> Tensor:
        """Two sources."""
        skips, features = [], signal
        for down in self.down:
            skips.append(down(features))
            features = skips[-1][:, :, ::2]
        features = self.middle(features)
        for up, skip in zip(self.up, reversed(skips), strict=True):
            size = skip.shape[2]
            features = functional.interpolate(features, size, mode="linear", align_corners=False)
            features = up(torch.cat([features, skip], dim=1))
        return torch.tanh(self.last(torch.cat([features, signal], dim=1)))


class MarbleNet(nn.Module):
    """Voice activity by separable convolutions over time (Jia et al. 2021)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.first = self._separable(features, 2 * width, 11)
        self.blocks = nn.ModuleList(
            nn.Sequential(self._separable(a, width, k), self._separable(width, width, k, False))
            for a, k in ((2 * width, 13), (width, 15), (width, 17))
        )
        self.skips = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, width, 1, bias=False), nn.BatchNorm1d(width))
            for a in (2 * width, width, width)
        )
        self.last = nn.Sequential(
            self._separable(width, 2 * width, 29), nn.Conv1d(2 * width, 2 * width, 1),
            nn.BatchNorm1d(2 * width), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(2 * width, 2)

    @staticmethod
    def _separable(inputs: int, outputs: int, kernel: int, relu: bool = True) -> nn.Module:
        parts = (
            nn.Conv1d(inputs, inputs, kernel, padding=kernel // 2, groups=inputs, bias=False),
            nn.Conv1d(inputs, outputs, 1, bias=False),
            nn.BatchNorm1d(outputs),
        )
        return nn.Sequential(*parts, *([nn.ReLU()] if relu else []))

    def forward(self, spectra: Tensor) -> Tensor:
        """Scores of speech and of its absence."""
        features = self.first(spectra)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            features = functional.relu(block(features) + skip(features))
        return self.head(self.last(features).mean(dim=2))


def _depthwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
    )


class _BiFpnLayer(nn.Module):
    """Levels that are summed with fast normalised weights, downwards and upwards."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(_depthwise(width, width) for _ in range(levels - 1))
        self.up = nn.ModuleList(_depthwise(width, width) for _ in range(levels - 1))
        self.weights = nn.Parameter(torch.ones(2 * levels, 3))

    def _sum(self, row: int, *maps: Tensor) -> Tensor:
        weights = functional.relu(self.weights[row, : len(maps)])
        weights = weights / (weights.sum() + 1e-4)
        return functional.silu(sum(weight * m for weight, m in zip(weights, maps, strict=True)))

    def forward(self, levels: list[Tensor]) -> list[Tensor]:
        """The levels, largest first."""
        down = [levels[-1]]
        for index, conv in enumerate(self.down):
            given = levels[-2 - index]
            above = functional.interpolate(down[0], given.shape[2:], mode="nearest")
            down.insert(0, conv(self._sum(index, given, above)))
        up = [down[0]]
        for index, conv in enumerate(self.up):
            below = functional.max_pool2d(up[-1], 3, 2, 1)
            rest = (levels[index + 1], down[index + 1]) if index + 2 < len(levels) else ()
            maps = (*(rest or (levels[-1],)), below)
            up.append(conv(self._sum(len(self.down) + index, *maps)))
        return up


class EfficientDet(nn.Module):
    """Heads that levels share over a pyramid of two layers (Tan et al. 2020)."""

    def __init__(self, backbone: nn.Module, channels: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.narrow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, width, 1), nn.BatchNorm2d(width)) for c in channels
        )
        self.pyramid = nn.ModuleList(_BiFpnLayer(width, len(channels)) for _ in range(2))
        self.heads = nn.ModuleList(
            nn.Sequential(
                _depthwise(width, width), nn.SiLU(), _depthwise(width, width), nn.SiLU(),
                nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, out, 1),
            )
            for out in (9 * 5, 9 * 4)
        )  # fmt: skip

    def forward(self, image: Tensor) -> list[Tensor]:
        """Scores and boxes of all anchors."""
        levels = [n(f) for n, f in zip(self.narrow, self.backbone(image), strict=True)]
        for layer in self.pyramid:
            levels = layer(levels)
        sizes = (5, 4)
        return [
            torch.cat([head(x).permute(0, 2, 3, 1).reshape(1, -1, size) for x in levels], dim=1)
            for head, size in zip(self.heads, sizes, strict=True)
        ]


class NanoDet(nn.Module):
    """Ghost pyramid and heads of distributions (NanoDet-Plus, 2021), without its assistants."""

    def __init__(self, backbone: nn.Module, channels: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.narrow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, width, 1, bias=False), nn.BatchNorm2d(width),
                          nn.LeakyReLU(0.1)) for c in channels
        )  # fmt: skip
        self.down = nn.ModuleList(_Ghost(2 * width, width) for _ in channels[1:])
        self.strided = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 5, 2, 2, groups=width, bias=False), nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1), nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1),
            )
            for _ in channels[1:]
        )  # fmt: skip
        self.up = nn.ModuleList(_Ghost(2 * width, width) for _ in channels[1:])
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 5, padding=2, groups=width, bias=False),
                nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
                nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
                nn.Conv2d(width, 10 + 32, 1),
            )
            for _ in channels
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Scores of ten classes and four distributions for each place."""
        levels = [n(f) for n, f in zip(self.narrow, self.backbone(image), strict=True)]
        down = [levels[-1]]
        for given, merge in zip(reversed(levels[:-1]), self.down, strict=True):
            above = functional.interpolate(
                down[0], scale_factor=2, mode="bilinear", align_corners=False
            )
            down.insert(0, merge(torch.cat([above, given], dim=1)))
        up = [down[0]]
        for given, strided, merge in zip(down[1:], self.strided, self.up, strict=True):
            up.append(merge(torch.cat([strided(up[-1]), given], dim=1)))
        found = []
        for level, head in zip(up, self.heads, strict=True):
            scores, boxes = head(level).split([10, 32], dim=1)
            found.append(torch.cat([scores.sigmoid(), boxes], dim=1).flatten(2))
        return torch.cat(found, dim=2).permute(0, 2, 1)


class _Ghost(nn.Module):
    """A ghost block with a depthwise convolution beside it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first = self._conv(inputs, half, 1)
        self.cheap = self._conv(half, half, 3, half)
        self.second, self.last = (
            self._conv(outputs, half, 1, act=False),
            self._conv(half, half, 3, half, act=False),
        )
        self.skip = nn.Sequential(
            self._conv(inputs, inputs, 5, inputs, act=False),
            self._conv(inputs, outputs, 1, act=False),
        )

    @staticmethod
    def _conv(
        inputs: int, outputs: int, kernel: int, groups: int = 1, act: bool = True
    ) -> nn.Module:
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        parts = (conv, nn.BatchNorm2d(outputs))
        return nn.Sequential(*parts, *([nn.LeakyReLU(0.1)] if act else []))

    def forward(self, given: Tensor) -> Tensor:
        """Features of as many places."""
        first = self.first(given)
        inner = self.second(torch.cat([first, self.cheap(first)], dim=1))
        return torch.cat([inner, self.last(inner)], dim=1) + self.skip(given)


class LaneNet(nn.Module):
    """Rows where lanes cross them (Ultra-Fast-Lane-Detection, Qin et al. 2020)."""

    def __init__(self, backbone: nn.Module, channels: int, places: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.pool = nn.Conv2d(channels, 8, 1)
        self.rows = nn.Sequential(nn.Linear(8 * places, 128), nn.ReLU(), nn.Linear(128, 26 * 9 * 4))

    def forward(self, image: Tensor) -> Tensor:
        """A score of each column of each row and lane."""
        pooled = self.pool(self.backbone(image)[-1])
        return self.rows(pooled.flatten(1)).view(-1, 26, 9, 4)
