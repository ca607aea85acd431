"""Networks for super-resolution that no library of those in ``fourth_lot`` has."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class _ChannelAttention(nn.Module):
    """Channels scaled by what their means say."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.ReLU(),
            nn.Conv2d(channels // 4, channels, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, given: Tensor) -> Tensor:
        """``given``, scaled."""
        return given * self.gate(given)


def _conv(channels: int, out: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(channels, out, kernel, padding=kernel // 2)


class _Residual(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, given: Tensor) -> Tensor:
        """``given`` and what the parts make of it."""
        return given + self.parts(given)


class Rcan(nn.Module):
    """Residual channel attention network (Zhang et al. 2018), of two groups of two blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _conv(3, channels)
        self.body = _Residual(*(self._group(channels) for _ in range(2)), _conv(channels, channels))
        self.last = nn.Sequential(
            _conv(channels, 4 * channels), nn.PixelShuffle(2), _conv(channels, 3)
        )

    @staticmethod
    def _group(channels: int) -> nn.Module:
        blocks = (
            _Residual(
                _conv(channels, channels), nn.ReLU(), _conv(channels, channels),
                _ChannelAttention(channels),
            )
            for _ in range(2)
        )  # fmt: skip
        return _Residual(*blocks, _conv(channels, channels))

    def forward(self, image: Tensor) -> Tensor:
        """The image at twice its size."""
        return self.last(self.body(self.first(image)))


class _SpatialAttention(nn.Module):
    """The enhanced spatial attention of RLFN: a mask from a small map."""

    def __init__(self, channels: int, inner: int = 8) -> None:
        super().__init__()
        self.narrow, self.skip = _conv(channels, inner, 1), _conv(inner, inner, 1)
        self.strided = nn.Conv2d(inner, inner, 3, stride=2)
        self.conv, self.widen = _conv(inner, inner), _conv(inner, channels, 1)

    def forward(self, given: Tensor) -> Tensor:
        """``given``, masked."""
        narrow = self.narrow(given)
        small = self.conv(functional.max_pool2d(self.strided(narrow), 7, 3))
        size = given.shape[2:]
        large = functional.interpolate(small, size, mode="bilinear", align_corners=False)
        return given * torch.sigmoid(self.widen(large + self.skip(narrow)))


class _LocalFeatures(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            *(part for _ in range(3) for part in (_conv(channels, channels), nn.LeakyReLU(0.05)))
        )
        self.last, self.attention = _conv(channels, channels, 1), _SpatialAttention(channels)

    def forward(self, given: Tensor) -> Tensor:
        """One block's features."""
        return self.attention(self.last(self.convs(given) + given))


class Rlfn(nn.Module):
    """Residual local feature network (Kong et al. 2022), of three blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.middle = _conv(3, channels), _conv(channels, channels)
        self.blocks = nn.Sequential(*(_LocalFeatures(channels) for _ in range(3)))
        self.last = nn.Sequential(_conv(channels, 12), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        """The image at twice its size."""
        first = self.first(image)
        return self.last(self.middle(self.blocks(first)) + first)
