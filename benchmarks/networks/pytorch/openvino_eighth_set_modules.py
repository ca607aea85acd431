"""Networks of openvino_eighth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


def _resized(x: Tensor, factor: int) -> Tensor:
    made: Tensor = functional.interpolate(
        x, scale_factor=factor, mode="bilinear", align_corners=False
    )
    return made


def _conv_plain(inputs: int, width: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """A Conv and a norm."""
    conv = nn.Conv2d(inputs, width, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width))


class _Recurrent(nn.Module):
    """A Conv that is run again on the sum of its result and what it read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv_norm(width, width)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.conv(x)
        for _ in range(2):
            made = self.conv(x + made)
        return made


class _RecurrentResidual(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(inputs, width, 1)
        self.maps = nn.Sequential(_Recurrent(width), _Recurrent(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(x)
        made: Tensor = x + self.maps(x)
        return made


class R2UNet(nn.Module):
    """U-Net of recurrent residual blocks (Alom et al. 2018)."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            _RecurrentResidual(n, m) for n, m in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(conv_norm(2 * n, n) for n in widths[1::-1])
        self.joined = nn.ModuleList(_RecurrentResidual(2 * n, n) for n in widths[1::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, joined, beside in zip(self.up, self.joined, kept[1::-1], strict=True):
            x = joined(torch.cat((beside, up(functional.interpolate(x, scale_factor=2))), 1))
        made: Tensor = self.last(x)
        return made


class _MultiRes(nn.Module):
    """Three Convs in a row, all of which are joined, and a 1x1 Conv beside them."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        widths = [inputs, width // 6, width // 3, width - width // 6 - width // 3]
        self.rows = nn.ModuleList(conv_norm(n, m) for n, m in pairwise(widths))
        self.beside = _conv_plain(inputs, width, 1)
        self.norm, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        beside, parts = self.beside(x), []
        for row in self.rows:
            x = row(x)
            parts.append(x)
        made: Tensor = self.norm2(torch.relu(self.norm(torch.cat(parts, 1)) + beside))
        return made


class _ResPath(nn.Module):
    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.rows = nn.ModuleList(_conv_plain(width, width) for _ in range(length))
        self.beside = nn.ModuleList(_conv_plain(width, width, 1) for _ in range(length))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(length))

    def forward(self, x: Tensor) -> Tensor:
        for row, beside, norm in zip(self.rows, self.beside, self.norms, strict=True):
            x = norm(torch.relu(torch.relu(row(x)) + beside(x)))
        return x


class MultiResUNet(nn.Module):
    """U-Net of joined Convs with paths of residual blocks (Ibtehaz and Rahman 2020)."""

    def __init__(self, width: int = 24, classes: int = 4) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            _MultiRes(n, m) for n, m in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in widths[1::-1])
        self.paths = nn.ModuleList(
            _ResPath(n, k) for n, k in zip(widths[1::-1], (1, 2), strict=True)
        )
        self.joined = nn.ModuleList(_MultiRes(2 * n, n) for n in widths[1::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, path, joined, beside in zip(
            self.up, self.paths, self.joined, kept[1::-1], strict=True
        ):
            x = joined(torch.cat((up(x), path(beside)), 1))
        made: Tensor = self.last(x)
        return made


def _norm_relu_conv(inputs: int, width: int, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, width, size, 1, size // 2, bias=False)
    )


class _Memory(nn.Module):
    """Residual blocks, which are joined with all earlier memories by a gate."""

    def __init__(self, width: int, blocks: int, memories: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(_norm_relu_conv(width, width), _norm_relu_conv(width, width))
            for _ in range(blocks)
        )
        self.gate = _norm_relu_conv((blocks + memories) * width, width, 1)

    def forward(self, x: Tensor, memories: Sequence[Tensor]) -> Tensor:
        parts = []
        for block in self.blocks:
            x = x + block(x)
            parts.append(x)
        made: Tensor = self.gate(torch.cat((*parts, *memories), 1))
        return made


class MemNet(nn.Module):
    """Restoration by persistent memory (Tai et al. 2017)."""

    def __init__(self, width: int = 32, count: int = 3, blocks: int = 3) -> None:
        super().__init__()
        self.first = _norm_relu_conv(1, width)
        self.memories = nn.ModuleList(_Memory(width, blocks, n + 1) for n in range(count))
        self.last = _norm_relu_conv(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to the restored image."""
        y = self.first(x)
        kept = [y]
        for memory in self.memories:
            y = memory(y, kept)
            kept.append(y)
        made: Tensor = x + self.last(y)
        return made


class _SelectiveFusion(nn.Module):
    """Maps of three sizes, weighed by channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        narrow = width // 4
        self.narrow = nn.Sequential(nn.Conv2d(width, narrow, 1), nn.PReLU())
        self.wide = nn.ModuleList(nn.Conv2d(narrow, width, 1) for _ in range(2))

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        pooled = (maps[0] + maps[1]).mean((2, 3), keepdim=True)
        narrow = self.narrow(pooled)
        weights = torch.softmax(torch.stack([wide(narrow) for wide in self.wide], 1), 1)
        made: Tensor = maps[0] * weights[:, 0] + maps[1] * weights[:, 1]
        return made


class _DualAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 1), nn.PReLU(), nn.Conv2d(width, width, 3, 1, 1)
        )
        self.places = nn.Conv2d(2, 1, 5, 1, 2)
        self.channels = nn.Sequential(
            nn.Conv2d(width, width // 4, 1), nn.ReLU(), nn.Conv2d(width // 4, width, 1)
        )
        self.last = nn.Conv2d(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.maps(x)
        largest, mean = y.amax(1, keepdim=True), y.mean(1, keepdim=True)
        places = y * torch.sigmoid(self.places(torch.cat((largest, mean), 1)))
        channels = y * torch.sigmoid(self.channels(y.mean((2, 3), keepdim=True)))
        made: Tensor = x + self.last(torch.cat((places, channels), 1))
        return made


class _MultiScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fine, self.coarse = _DualAttention(width), _DualAttention(2 * width)
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.up = nn.Conv2d(2 * width, width, 1)
        self.fusion = _SelectiveFusion(width)
        self.last = nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        coarse = self.coarse(self.down(x))
        fine = self.fine(x)
        made: Tensor = x + self.last(self.fusion((fine, self.up(_resized(coarse, 2)))))
        return made


class MirNet(nn.Module):
    """Restoration by features of several scales (Zamir et al. 2020)."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.blocks = nn.Sequential(_MultiScale(width), _MultiScale(width))
        self.last = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to the restored image."""
        made: Tensor = x + self.last(self.blocks(self.first(x)))
        return made


class _Pyramid(nn.Module):
    """A residual block whose shortcut is padded with zero channels."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width), nn.ReLU(), _conv_plain(width, width),
        )  # fmt: skip
        self.stride, self.more = stride, width - inputs

    def forward(self, x: Tensor) -> Tensor:
        beside = functional.avg_pool2d(x, 2) if self.stride == 2 else x
        made: Tensor = self.maps(x) + functional.pad(beside, (0, 0, 0, 0, 0, self.more))
        return made


class PyramidNet(nn.Module):
    """Residual network that widens in each block (Han et al. 2017)."""

    def __init__(self, width: int = 16, wider: int = 16, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv_plain(3, width)]
        for number in range(9):
            layers.append(_Pyramid(width, width + wider, 2 if number in (3, 6) else 1))
            width += wider
        self.maps = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of classes."""
        made: Tensor = self.last(self.maps(x).mean((2, 3)))
        return made


class _DualPath(nn.Module):
    """A block whose result is in part added and in part joined."""

    def __init__(self, inputs: int, added: int, joined: int, stride: int, first: bool) -> None:
        super().__init__()
        width = added // 2
        self.added = added
        self.beside = _norm_relu_conv(inputs, added + 2 * joined, 1) if first else None
        if self.beside is not None:
            self.beside[2].stride = (stride, stride)
        self.maps = nn.Sequential(
            _norm_relu_conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, groups=4, bias=False),
            _norm_relu_conv(width, added + joined, 1),
        )  # fmt: skip

    def forward(self, x: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        both = torch.cat(tuple(x), 1)
        added, joined = x if self.beside is None else self._halves(self.beside(both))
        more, new = self._halves(self.maps(both))
        return added + more, torch.cat((joined, new), 1)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, : self.added], x[:, self.added :]


class DualPathNet(nn.Module):
    """Blocks of which each is both residual and dense (Chen et al. 2017)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_norm(3, 32, 3, 2)
        blocks, width = list[nn.Module](), 32
        for added, joined, count, stride in ((64, 16, 3, 1), (96, 16, 3, 2)):
            for number in range(count):
                first = number == 0
                blocks.append(_DualPath(width, added, joined, stride if first else 1, first))
                width = added + 3 * joined if first else width + joined
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.last = nn.BatchNorm2d(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of classes."""
        parts: Sequence[Tensor] = (self.stem(x),)
        for block in self.blocks:
            parts = block(parts)
        made: Tensor = self.last(torch.relu(self.norm(torch.cat(tuple(parts), 1))).mean((2, 3)))
        return made


class _ChannelNorm(nn.Module):
    """A norm over channels, as HorNet computes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        made = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.gain[:, None, None] * made + self.shift[:, None, None]


class _GatedConv(nn.Module):
    """Recursive products of maps, the orders of which have more and more channels."""

    def __init__(self, width: int, order: int = 3) -> None:
        super().__init__()
        self.widths = [width // 2**n for n in range(order)][::-1]
        self.first = nn.Conv2d(width, 2 * width, 1)
        total = sum(self.widths)
        self.places = nn.Conv2d(total, total, 7, 1, 3, groups=total)
        self.wider = nn.ModuleList(
            nn.Conv2d(n, m, 1) for n, m in zip(self.widths, self.widths[1:], strict=False)
        )
        self.last = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate, rest = torch.split(self.first(x), (self.widths[0], sum(self.widths)), 1)
        parts = torch.split(self.places(rest) / 3.0, self.widths, 1)
        x = gate * parts[0]
        for wider, part in zip(self.wider, parts[1:], strict=True):
            x = wider(x) * part
        made: Tensor = self.last(x)
        return made


class _Hor(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = _ChannelNorm(width), _GatedConv(width)
        self.norm2 = nn.LayerNorm(width)
        self.maps = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.gain, self.gain2 = (nn.Parameter(0.5 * torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gain[:, None, None] * self.conv(self.norm(x))
        y = self.maps(self.norm2(x.permute(0, 2, 3, 1)))
        made: Tensor = x + (self.gain2 * y).permute(0, 3, 1, 2)
        return made


class HorNet(nn.Module):
    """Recursive gated Convs (Rao et al. 2022)."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(3, width, 4, 4), _ChannelNorm(width), _Hor(width), _Hor(width),
            _ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2), _Hor(2 * width),
            _Hor(2 * width),
        )  # fmt: skip
        self.norm, self.last = nn.LayerNorm(2 * width), nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of classes."""
        made: Tensor = self.last(self.norm(self.maps(x).mean((2, 3))))
        return made


class _SincConv(nn.Module):
    """Band-pass filters whose edges are learned; the filters are constants of an export."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.linspace(0.01, 0.4, width)[:, None])
        self.band = nn.Parameter(torch.full((width, 1), 0.05))
        self.register_buffer("times", torch.arange(1, size // 2 + 1).float()[None])
        self.register_buffer("window", torch.hamming_window(size, periodic=False))

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.low, self.low + self.band
        times, pi = 2 * torch.pi * self.times, torch.pi
        half = (torch.sin(high * times) - torch.sin(low * times)) / (pi * self.times)
        filters = torch.cat((half.flip(1), 2 * (high - low), half), 1) * self.window
        return functional.conv1d(x, filters[:, None])


class _LayerNormRow(nn.Module):
    """A norm over channels and time."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(sizes)
        # Engines drop gains of 1 and shifts of 0, which no training leaves.
        nn.init.normal_(self.norm.weight, 1, 0.1)
        nn.init.normal_(self.norm.bias, 0, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(x)
        return made


class SincNet(nn.Module):
    """Speakers from raw audio (Ravanelli and Bengio 2018), for 1,600 samples."""

    def __init__(self, speakers: int = 20) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            _LayerNormRow(1, 1600), _SincConv(40, 125), nn.MaxPool1d(3), _LayerNormRow(40, 492),
            nn.LeakyReLU(0.2), nn.Conv1d(40, 60, 5), nn.MaxPool1d(3), _LayerNormRow(60, 162),
            nn.LeakyReLU(0.2), nn.Conv1d(60, 60, 5), nn.MaxPool1d(3), _LayerNormRow(60, 52),
            nn.LeakyReLU(0.2), nn.Flatten(),
        )  # fmt: skip
        self.rows = nn.Sequential(
            nn.Linear(60 * 52, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2),
            nn.Linear(256, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2),
            nn.Linear(256, speakers),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, samples) to logarithms of chances."""
        return torch.log_softmax(self.rows(self.maps(x)), 1)


class _TimeBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv1d(inputs, width, 9, stride, 4, bias=False), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 9, 1, 4, bias=False), nn.BatchNorm1d(width),
        )  # fmt: skip
        self.beside = (
            nn.Sequential(
                nn.Conv1d(inputs, width, 1, stride, bias=False), nn.BatchNorm1d(width), nn.ReLU()
            )
            if stride > 1 or inputs != width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.maps(x) + self.beside(x))


class TcResNet(nn.Module):
    """Keywords by Convs over time (Choi et al. 2019)."""

    def __init__(self, classes: int = 12) -> None:
        super().__init__()
        widths = (16, 24, 24, 32, 32, 48, 48)
        layers: list[nn.Module] = [nn.Conv1d(40, 16, 3, 1, 1, bias=False)]
        for number, (inputs, width) in enumerate(pairwise(widths)):
            layers.append(_TimeBlock(inputs, width, 1 if number % 2 else 2))
        self.maps, self.last = nn.Sequential(*layers), nn.Conv1d(48, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 40, frames) to scores of keywords."""
        made: Tensor = self.last(functional.adaptive_avg_pool1d(self.maps(x), 1))
        return made.flatten(1)


class _Trunk(nn.Module):
    """Four stages of residual blocks, all of which are returned."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        widths = [width, width, 2 * width, 4 * width, 4 * width]
        self.stages = nn.ModuleList(conv_norm(n, m, 3, 2) for n, m in pairwise(widths))
        self.blocks = nn.ModuleList(
            nn.Sequential(conv_norm(n, n), _conv_plain(n, n)) for n in widths[1:]
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        x, made = self.stem(x), []
        for stage, block in zip(self.stages, self.blocks, strict=True):
            x = stage(x)
            x = torch.relu(x + block(x))
            made.append(x)
        return made


class East(nn.Module):
    """Text boxes from merged maps (Zhou et al. 2017)."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.trunk = _Trunk(width)
        merged, beside = (8 * width, 4 * width, 2 * width), (2 * width, width, width)
        self.narrow = nn.ModuleList(
            nn.Sequential(conv_norm(n, m, 1), conv_norm(m, m))
            for n, m in zip(merged, beside, strict=True)
        )
        self.last = conv_norm(width, width)
        self.score, self.box = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 4, 1)
        self.angle = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width) to scores and to boxes with angles."""
        *others, y = self.trunk(x)
        for other, narrow in zip(others[::-1], self.narrow, strict=True):
            y = narrow(torch.cat((_resized(y, 2), other), 1))
        y = self.last(y)
        boxes = torch.sigmoid(self.box(y)) * 512
        angles = (torch.sigmoid(self.angle(y)) - 0.5) * torch.pi
        return torch.sigmoid(self.score(y)), torch.cat((boxes, angles), 1)


class _Unit(nn.Module):
    """A residual unit whose first Relu stands before its Convs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.conv2 = (nn.Conv2d(width, width, 3, 1, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.conv2(torch.relu(self.conv(torch.relu(x))))
        return made


class _ChainedPools(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        made = x = torch.relu(x)
        for conv in self.convs:
            x = conv(functional.max_pool2d(x, 5, 1, 2))
            made = made + x
        return made


class RefineNet(nn.Module):
    """Segmentation by refining maps of several sizes (Lin et al. 2017)."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.trunk = _Trunk(width)
        inputs = (4 * width, 4 * width, 2 * width, width)
        self.narrow = nn.ModuleList(nn.Conv2d(n, width, 3, 1, 1, bias=False) for n in inputs)
        self.units = nn.ModuleList(_Unit(width) for _ in inputs)
        self.merged = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in inputs)
        self.beside = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in inputs)
        self.pools = nn.ModuleList(_ChainedPools(width) for _ in inputs)
        self.after = nn.ModuleList(_Unit(width) for _ in inputs)
        self.last = nn.Conv2d(width, classes, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel of maps of a quarter."""
        y: Tensor | None = None
        for number, maps in enumerate(self.trunk(x)[::-1]):
            z = self.merged[number](self.units[number](self.narrow[number](maps)))
            y = z if y is None else z + _resized(self.beside[number](y), 2)
            y = self.after[number](self.pools[number](y))
        made: Tensor = self.last(y)
        return made


class _InceptionResidual(nn.Module):
    """Branches that are joined, made as wide as what they read, scaled and added to it."""

    def __init__(self, width: int, scale: float, tall: bool) -> None:
        super().__init__()
        n, self.scale = width // 4, scale
        middle = (
            (nn.Conv2d(n, n, (1, 7), padding=(0, 3)), nn.Conv2d(n, n, (7, 1), padding=(3, 0)))
            if tall
            else (nn.Conv2d(n, n, 3, 1, 1), nn.Conv2d(n, n, 3, 1, 1))
        )
        self.short = conv_norm(width, n, 1)
        self.long = nn.Sequential(
            conv_norm(width, n, 1), middle[0], nn.BatchNorm2d(n), nn.ReLU(), middle[1],
            nn.BatchNorm2d(n), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Conv2d(2 * n, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        made = self.last(torch.cat((self.short(x), self.long(x)), 1))
        return torch.relu(x + self.scale * made)


class InceptionResNet(nn.Module):
    """Inception with scaled residuals (Szegedy et al. 2016)."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 16, 3, 2), conv_norm(16, 32), nn.MaxPool2d(3, 2, 1),
            conv_norm(32, width),
        )  # fmt: skip
        self.first = nn.Sequential(*(_InceptionResidual(width, 0.17, False) for _ in range(3)))
        self.down = conv_norm(width, width, 3, 2)
        self.second = nn.Sequential(*(_InceptionResidual(2 * width, 0.1, True) for _ in range(3)))
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of classes."""
        x = self.first(self.stem(x))
        x = torch.cat((self.down(x), functional.max_pool2d(x, 3, 2, 1)), 1)
        made: Tensor = self.last(self.second(x).mean((2, 3)))
        return made


def _separable(width: int, size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(width, width, size, 1, size // 2, groups=width, bias=False),
        nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width),
    )  # fmt: skip


class _AmoebaCell(nn.Module):
    """The normal cell of AmoebaNet-A, which reads the results of the last two."""

    def __init__(self, before: int, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.ReLU(), _conv_plain(before, width, 1))
        self.second = nn.Sequential(nn.ReLU(), _conv_plain(inputs, width, 1))
        self.small = nn.ModuleList(_separable(width, 3) for _ in range(3))
        self.large = nn.ModuleList(_separable(width, 5) for _ in range(2))

    def forward(self, before: Tensor, x: Tensor) -> Tensor:
        a, b = self.first(before), self.second(x)
        c = functional.avg_pool2d(a, 3, 1, 1) + functional.max_pool2d(b, 3, 1, 1)
        d = self.small[0](b) + functional.avg_pool2d(a, 3, 1, 1)
        e = self.large[0](c) + self.small[1](a)
        f = self.large[1](d) + b
        g = functional.avg_pool2d(c, 3, 1, 1) + self.small[2](b)
        return torch.cat((e, f, g), 1)


class AmoebaNet(nn.Module):
    """Cells found by evolution (Real et al. 2019)."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem, self.down = _conv_plain(3, width, 3, 2), _conv_plain(width, width, 3, 2)
        widths = (width, width, 3 * width, 3 * width, 3 * width)
        self.cells = nn.ModuleList(_AmoebaCell(n, m, width) for n, m in pairwise(widths))
        self.last = nn.Linear(3 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of classes."""
        before = x = self.down(torch.relu(self.stem(x)))
        for cell in self.cells:
            before, x = x, cell(before, x)
        made: Tensor = self.last(torch.relu(x).mean((2, 3)))
        return made
