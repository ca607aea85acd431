"""Networks of papers that no package has: SlowFast, N-BEATS, Lightweight OpenPose."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv3d(
    channels: int, filters: int, kernel: tuple[int, int, int], stride: int = 1
) -> nn.Module:
    padding = tuple(size // 2 for size in kernel)
    conv = nn.Conv3d(channels, filters, kernel, (1, stride, stride), padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(filters))


class _Bottleneck3d(nn.Module):
    def __init__(self, channels: int, inner: int, filters: int, time: int, stride: int) -> None:
        super().__init__()
        self.first = _conv3d(channels, inner, (time, 1, 1))
        self.second = _conv3d(inner, inner, (1, 3, 3), stride)
        self.third = _conv3d(inner, filters, (1, 1, 1))
        self.short = _conv3d(channels, filters, (1, 1, 1), stride)

    def forward(self, frames: Tensor) -> Tensor:
        """(N, channels, T, H, W) to (N, filters, T, H / stride, W / stride)."""
        inner = functional.relu(self.second(functional.relu(self.first(frames))))
        return functional.relu(self.third(inner) + self.short(frames))


class SlowFast(nn.Module):
    """Two paths over frames, the fast one with an eighth of the channels (Feichtenhofer, 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.slow_stem, self.fast_stem = _conv3d(3, 32, (1, 7, 7), 2), _conv3d(3, 4, (5, 7, 7), 2)
        self.to_slow = nn.ModuleList(
            nn.Conv3d(width, 2 * width, (5, 1, 1), (4, 1, 1), (2, 0, 0)) for width in (4, 16)
        )
        self.slow = nn.ModuleList(
            (_Bottleneck3d(40, 32, 128, 1, 1), _Bottleneck3d(160, 64, 256, 3, 2))
        )
        self.fast = nn.ModuleList((_Bottleneck3d(4, 4, 16, 3, 1), _Bottleneck3d(16, 8, 32, 3, 2)))
        self.head = nn.Linear(288, 10)

    def forward(self, frames: Tensor) -> Tensor:
        """Scores of (N, 3, 16, H, W)."""
        slow = functional.relu(self.slow_stem(frames[:, :, ::4]))
        fast = functional.relu(self.fast_stem(frames))
        for lateral, slower, faster in zip(self.to_slow, self.slow, self.fast, strict=True):
            slow = slower(torch.cat((slow, lateral(fast)), 1))
            fast = faster(fast)
        return self.head(torch.cat((slow.mean((2, 3, 4)), fast.mean((2, 3, 4))), 1))


class NBeats(nn.Module):
    """Residual blocks of Linear layers, each of which explains a part of a series (2020)."""

    def __init__(self, past: int, future: int, width: int, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, width), nn.ReLU(),
            )
            for _ in range(blocks)
        )  # fmt: skip
        self.backcasts = nn.ModuleList(nn.Linear(width, past) for _ in range(blocks))
        self.forecasts = nn.ModuleList(nn.Linear(width, future) for _ in range(blocks))

    def forward(self, series: Tensor) -> Tensor:
        """(N, past) to (N, future)."""
        found: Tensor | None = None
        for block, back, fore in zip(self.blocks, self.backcasts, self.forecasts, strict=True):
            inner = block(series)
            series = series - back(inner)
            found = fore(inner) if found is None else found + fore(inner)
        assert found is not None
        return found


def _conv(
    channels: int, filters: int, kernel: int = 3, stride: int = 1, wide: int = 1
) -> nn.Module:
    padding = wide * (kernel // 2)
    conv = nn.Conv2d(channels, filters, kernel, stride, padding, wide, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(filters), nn.ReLU())


def _separable(channels: int, filters: int, stride: int = 1, wide: int = 1) -> nn.Module:
    depthwise = nn.Conv2d(channels, channels, 3, stride, wide, wide, channels, bias=False)
    return nn.Sequential(
        depthwise, nn.BatchNorm2d(channels), nn.ReLU(), _conv(channels, filters, 1)
    )


def _without_norm(channels: int, wide: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, 1, wide, wide, channels, bias=False), nn.ELU(),
        nn.Conv2d(channels, channels, 1, bias=False), nn.ELU(),
    )  # fmt: skip


class _Refinement(nn.Module):
    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 1)
        self.trunk = nn.Sequential(_conv(filters, filters), _conv(filters, filters, wide=2))

    def forward(self, maps: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, filters, H, W)."""
        first = functional.relu(self.first(maps))
        return first + self.trunk(first)


class LightweightOpenPose(nn.Module):
    """Maps of joints and of limbs in two stages on MobileNet (Osokin, 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(
            _conv(3, 16, stride=2), _separable(16, 32), _separable(32, 64, 2), _separable(64, 64),
            _separable(64, 128, 2), _separable(128, 128), _separable(128, 256),
            _separable(256, 256, wide=2), _separable(256, 256),
        )  # fmt: skip
        self.narrow = nn.Sequential(nn.Conv2d(256, 64, 1), nn.ReLU())
        self.context = nn.Sequential(*(_without_norm(64) for _ in range(3)))
        self.mixed = nn.Conv2d(64, 64, 3, 1, 1)
        self.trunk = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()) for _ in range(3))
        )
        self.joints = nn.Sequential(nn.Conv2d(64, 128, 1), nn.ReLU(), nn.Conv2d(128, 19, 1))
        self.limbs = nn.Sequential(nn.Conv2d(64, 128, 1), nn.ReLU(), nn.Conv2d(128, 38, 1))
        self.refined = nn.Sequential(*(_Refinement(121 if not i else 64, 64) for i in range(3)))
        self.later_joints = nn.Sequential(nn.Conv2d(64, 64, 1), nn.ReLU(), nn.Conv2d(64, 19, 1))
        self.later_limbs = nn.Sequential(nn.Conv2d(64, 64, 1), nn.ReLU(), nn.Conv2d(64, 38, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Maps of the last stage, of (N, 3, H, W)."""
        narrow = self.narrow(self.base(image))
        maps = functional.relu(self.mixed(narrow + self.context(narrow)))
        trunk = self.trunk(maps)
        known = torch.cat((maps, self.joints(trunk), self.limbs(trunk)), 1)
        refined = self.refined(known)
        return torch.cat((self.later_joints(refined), self.later_limbs(refined)), 1)
