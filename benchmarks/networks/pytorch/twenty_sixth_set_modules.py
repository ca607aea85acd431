"""Networks of the twenty-sixth set that no package here has, written from papers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(read: int, written: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(read, written, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(written),
        nn.LeakyReLU(0.1),
    )


class _Elan(nn.Module):
    """The tiny block of YOLOv7, which joins four stages of a chain of Convs."""

    def __init__(self, read: int, width: int, written: int) -> None:
        super().__init__()
        self.left, self.right = _conv(read, width, 1), _conv(read, width, 1)
        self.first, self.second = _conv(width, width), _conv(width, width)
        self.last = _conv(4 * width, written, 1)

    def forward(self, image: Tensor) -> Tensor:
        """The joined stages, by one more Conv."""
        right = self.right(image)
        first = self.first(right)
        stages = [self.second(first), first, right, self.left(image)]
        joined: Tensor = self.last(torch.cat(stages, 1))
        return joined


class _Pyramid(nn.Module):
    """The pools of three sizes of YOLOv7-tiny, joined, beside a shortcut."""

    def __init__(self, read: int, width: int) -> None:
        super().__init__()
        self.shortcut, self.before = _conv(read, width, 1), _conv(read, width, 1)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in (13, 9, 5))
        self.joined, self.last = _conv(4 * width, width, 1), _conv(2 * width, width, 1)

    def forward(self, image: Tensor) -> Tensor:
        """A map of the same size."""
        before = self.before(image)
        pooled = [*(pool(before) for pool in self.pools), before]
        both = [self.joined(torch.cat(pooled, 1)), self.shortcut(image)]
        made: Tensor = self.last(torch.cat(both, 1))
        return made


class TinyYolo7(nn.Module):
    """YOLOv7-tiny (Wang et al. 2022) of half its width: three levels of anchors, not decoded."""

    def __init__(self, anchors: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 3, 2), _conv(16, 32, 3, 2), _Elan(32, 16, 32))
        self.stages = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2, 2), _Elan(width, width, 2 * width))
            for width in (32, 64, 128)
        )
        self.pyramid = _Pyramid(256, 128)
        self.up = nn.ModuleList((_conv(128, 64, 1), _conv(64, 32, 1)))
        self.across = nn.ModuleList((_conv(128, 64, 1), _conv(64, 32, 1)))
        self.joined = nn.ModuleList((_Elan(128, 32, 64), _Elan(64, 16, 32)))
        self.down = nn.ModuleList((_conv(32, 64, 3, 2), _conv(64, 128, 3, 2)))
        self.after = nn.ModuleList((_Elan(128, 32, 64), _Elan(256, 64, 128)))
        self.heads = nn.ModuleList(
            nn.Sequential(_conv(width, 2 * width), nn.Conv2d(2 * width, anchors * (classes + 5), 1))
            for width in (32, 64, 128)
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        """A map of boxes and scores for each level."""
        levels, made = [], self.stem(image)
        for stage in self.stages:
            made = stage(made)
            levels.append(made)
        top = self.pyramid(levels[2])
        middle = self._joined(0, top, levels[1])
        low = self._joined(1, middle, levels[0])
        middle = self.after[0](torch.cat((self.down[0](low), middle), 1))
        top = self.after[1](torch.cat((self.down[1](middle), top), 1))
        return [head(level) for head, level in zip(self.heads, (low, middle, top), strict=True)]

    def _joined(self, level: int, upper: Tensor, side: Tensor) -> Tensor:
        larger = functional.interpolate(self.up[level](upper), scale_factor=2.0, mode="nearest")
        joined: Tensor = self.joined[level](torch.cat((self.across[level](side), larger), 1))
        return joined
