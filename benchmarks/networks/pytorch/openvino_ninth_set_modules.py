"""Networks of openvino_ninth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


def _resized(x: Tensor, size: tuple[int, int], mode: str = "bilinear") -> Tensor:
    aligned = None if mode == "nearest" else False
    made: Tensor = functional.interpolate(x, size=size, mode=mode, align_corners=aligned)
    return made


def _mish(inputs: int, width: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    return conv_norm(inputs, width, size, stride, nn.Mish())


def _leaky(inputs: int, width: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    return conv_norm(inputs, width, size, stride, nn.LeakyReLU(0.1))


class _MishBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(_mish(width, width, 1), _mish(width, width))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.convs(x)
        return made


class _CrossStage(nn.Module):
    """A stage that half of the channels pass by."""

    def __init__(self, inputs: int, width: int, blocks: int) -> None:
        super().__init__()
        self.down = _mish(inputs, width, 3, 2)
        self.past, self.into = _mish(width, width // 2, 1), _mish(width, width // 2, 1)
        self.blocks = nn.Sequential(*(_MishBlock(width // 2) for _ in range(blocks)))
        self.behind = _mish(width // 2, width // 2, 1)
        self.joined = _mish(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        inside = self.behind(self.blocks(self.into(x)))
        made: Tensor = self.joined(torch.cat((inside, self.past(x)), 1))
        return made


class Yolo4(nn.Module):
    """YOLOv4 (Bochkovskiy et al. 2020): CSPDarknet with Mish, SPP and a PAN with LeakyRelu."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        w = [width, 2 * width, 4 * width, 8 * width]
        self.first = _mish(3, width)
        self.stages = nn.ModuleList(_CrossStage(n, m, 2) for n, m in pairwise(w))
        self.last_stage = _CrossStage(w[3], w[3], 1)
        self.before = nn.Sequential(
            _leaky(w[3], w[2], 1), _leaky(w[2], w[3]), _leaky(w[3], w[2], 1)
        )
        self.pooled = _leaky(4 * w[2], w[2], 1)
        self.up = _leaky(w[2], w[1], 1)
        self.beside = _leaky(w[3], w[1], 1)
        self.finer = nn.Sequential(_leaky(w[2], w[1], 1), _leaky(w[1], w[2]), _leaky(w[2], w[1], 1))
        self.down = _leaky(w[1], w[2], 3, 2)
        self.coarser = nn.Sequential(_leaky(2 * w[2], w[2], 1), _leaky(w[2], w[3]))
        outputs = 3 * (classes + 5)
        self.small = nn.Sequential(_leaky(w[1], w[2]), nn.Conv2d(w[2], outputs, 1))
        self.large = nn.Conv2d(w[3], outputs, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width) to what is found in cells of two sizes."""
        x, kept = self.first(x), []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        x = self.before(self.last_stage(x))
        windows = [functional.max_pool2d(x, size, 1, size // 2) for size in (13, 9, 5)]
        x = self.pooled(torch.cat((*windows, x), 1))
        up = functional.interpolate(self.up(x), scale_factor=2)
        finer = self.finer(torch.cat((self.beside(kept[-1]), up), 1))
        coarser = self.coarser(torch.cat((self.down(finer), x), 1))
        return self.small(finer), self.large(coarser)


class _Basic(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = conv_norm(inputs, width, 3, stride)
        self.second = conv_norm(width, width, act=nn.Identity())
        same = stride == 1 and inputs == width
        self.beside = nn.Identity() if same else conv_norm(inputs, width, 1, stride, nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = functional.relu(self.second(self.first(x)) + self.beside(x))
        return made


class _Reflected(nn.Module):
    """A Conv behind a reflection, and an Elu."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.pad, self.conv = nn.ReflectionPad2d(1), nn.Conv2d(inputs, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = functional.elu(self.conv(self.pad(x)))
        return made


class Monodepth(nn.Module):
    """Monodepth2's depth network (Godard et al. 2019): a ResNet and reflecting Convs with Elus."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = [width, width, 2 * width, 4 * width]
        self.first = conv_norm(3, width, 7, 2)
        self.down = nn.ModuleList(
            nn.Sequential(_Basic(n, m, 1 if n == m else 2), _Basic(m, m, 1)) for n, m in pairwise(w)
        )
        self.narrow = nn.ModuleList(_Reflected(n, m) for n, m in ((w[3], w[2]), (w[2], width)))
        self.joined = nn.ModuleList(
            _Reflected(n, m) for n, m in ((2 * w[2], w[2]), (2 * width, width))
        )
        self.last = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, 1, 3), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to disparities at a quarter of the size."""
        x = functional.max_pool2d(self.first((x - 0.45) / 0.225), 3, 2, 1)
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        for narrow, joined, beside in zip(self.narrow, self.joined, kept[1::-1], strict=True):
            x = functional.interpolate(narrow(x), scale_factor=2)
            x = joined(torch.cat((x, beside), 1))
        made: Tensor = self.last(x)
        return made


def _separable(inputs: int, width: int, stride: int = 1) -> nn.Sequential:
    deep = conv_norm(inputs, inputs, 3, stride, groups=inputs)
    return nn.Sequential(deep, conv_norm(inputs, width, 1))


class _Inverted(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inputs
        self.convs = nn.Sequential(
            conv_norm(inputs, wide, 1),
            conv_norm(wide, wide, 3, stride, groups=wide),
            conv_norm(wide, width, 1, act=nn.Identity()),
        )
        self.residual = stride == 1 and inputs == width

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.convs(x) if self.residual else self.convs(x)
        return made


class FastScnn(nn.Module):
    """Fast-SCNN (Poudel et al. 2019): two branches that share their first layers."""

    def __init__(self, width: int = 24, classes: int = 8) -> None:
        super().__init__()
        self.shared = nn.Sequential(
            conv_norm(3, 16, 3, 2), _separable(16, width, 2), _separable(width, width, 2)
        )
        self.global_ = nn.Sequential(
            _Inverted(width, width, 2), _Inverted(width, width, 1), _Inverted(width, 2 * width, 2)
        )
        self.pools = nn.ModuleList(conv_norm(2 * width, width // 2, 1) for _ in range(3))
        self.pyramid = conv_norm(7 * width // 2, 2 * width, 1)
        self.deep = conv_norm(2 * width, 2 * width, 3, groups=2 * width)
        self.low = nn.Conv2d(2 * width, 2 * width, 1)
        self.high = nn.Conv2d(width, 2 * width, 1)
        self.scores = nn.Sequential(
            _separable(2 * width, 2 * width),
            _separable(2 * width, 2 * width),
            nn.Conv2d(2 * width, classes, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        size = (x.shape[2], x.shape[3])
        high = self.shared(x)
        low = self.global_(high)
        found = [low]
        for pool, bins in zip(self.pools, (1, 2, 4), strict=True):
            made = pool(functional.avg_pool2d(low, low.shape[2] // bins))
            found.append(_resized(made, (low.shape[2], low.shape[3])))
        low = self.pyramid(torch.cat(found, 1))
        return self._joined(low, high, size)

    def _joined(self, low: Tensor, high: Tensor, size: tuple[int, int]) -> Tensor:
        low = self.low(self.deep(_resized(low, (high.shape[2], high.shape[3]))))
        return _resized(self.scores(functional.relu(low + self.high(high))), size)


class _Dense(nn.Module):
    """A block of DexiNed: each layer's result is averaged with a map that passes by."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        widths = [inputs, *[width] * layers]
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(), conv_norm(n, m), nn.Conv2d(m, m, 3, padding=1), nn.BatchNorm2d(m)
            )
            for n, m in pairwise(widths)
        )

    def forward(self, x: Tensor, beside: Tensor) -> Tensor:
        for layer in self.layers:
            x = 0.5 * (layer(x) + beside)
        return x


class _Up(nn.Module):
    """ConvTransposes to the size of the image."""

    def __init__(self, inputs: int, scale: int) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for step in range(scale):
            width = 1 if step == scale - 1 else 16
            deconv = nn.ConvTranspose2d(16, width, 4, 2, 1)
            steps += [nn.Conv2d(inputs, 16, 1), nn.ReLU(), deconv]
            inputs = width
        self.steps = nn.Sequential(*steps) if steps else nn.Conv2d(inputs, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.steps(x)
        return made


class DexiNed(nn.Module):
    """DexiNed (Soria et al. 2020): edges from each of several dense blocks, and joined."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = [width, 2 * width, 4 * width]
        self.first = nn.Sequential(conv_norm(3, width, 3, 2), conv_norm(width, w[1]))
        self.second = conv_norm(w[1], w[1])
        self.beside = nn.ModuleList(
            conv_norm(n, m, 1, act=nn.Identity()) for n, m in ((w[1], w[1]), (w[1], w[2]))
        )
        self.blocks = nn.ModuleList((_Dense(w[1], w[1], 2), _Dense(w[1], w[2], 2)))
        self.passing = conv_norm(w[1], w[1], 1, 2, nn.Identity())
        self.up = nn.ModuleList((_Up(w[1], 1), _Up(w[1], 1), _Up(w[1], 2), _Up(w[2], 3)))
        self.joined = nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(batch, 3, height, width) to four maps of edges and the joined one."""
        first = self.first(x)
        second = self.second(first)
        halved = functional.max_pool2d(second, 3, 2, 1)
        third = self.blocks[0](halved, self.beside[0](halved))
        summed = functional.max_pool2d(third, 3, 2, 1) + self.passing(halved)
        fourth = self.blocks[1](summed, self.beside[1](summed))
        edges = [up(x) for up, x in zip(self.up, (first, second, third, fourth), strict=True)]
        return (*edges, self.joined(torch.cat(edges, 1)))


def _row_conv(inputs: int, width: int, size: int = 1, **more: int) -> nn.Conv1d:
    pad = size // 2 * more.get("dilation", 1)
    return nn.Conv1d(inputs, width, size, padding=pad, bias=False, **more)


class _TimeChannel(nn.Module):
    """Depthwise and 1x1 Convs in a row, a residual and a Relu."""

    def __init__(self, inputs: int, width: int, size: int, parts: int, *, gated: bool) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for part in range(parts):
            read = width if part else inputs
            steps += [_row_conv(read, read, size, groups=read), _row_conv(read, width)]
            steps.append(nn.BatchNorm1d(width))
            if part < parts - 1:
                steps.append(nn.ReLU())
        self.steps = nn.Sequential(*steps)
        self.beside = nn.Sequential(_row_conv(inputs, width), nn.BatchNorm1d(width))
        self.gate = (
            nn.Sequential(nn.Linear(width, width // 8), nn.ReLU(), nn.Linear(width // 8, width))
            if gated
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.steps(x)
        if self.gate is not None:
            made = made * torch.sigmoid(self.gate(made.mean(2))).unsqueeze(2)
        return functional.relu(made + self.beside(x))


class MatchboxNet(nn.Module):
    """MatchboxNet 3x2x64 (Majumdar and Ginsburg 2020), for words."""

    def __init__(self, features: int = 64, width: int = 64, classes: int = 30) -> None:
        super().__init__()
        blocks = [_TimeChannel(128, width, 13, 2, gated=False)]
        blocks += [_TimeChannel(width, width, size, 2, gated=False) for size in (15, 17)]
        self.first = nn.Sequential(
            _row_conv(features, features, 11, groups=features), _row_conv(features, 128),
            nn.BatchNorm1d(128), nn.ReLU(),
        )  # fmt: skip
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(
            _row_conv(width, width, 29, groups=width, dilation=2), _row_conv(width, 128),
            nn.BatchNorm1d(128), nn.ReLU(), _row_conv(128, 128), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Conv1d(128, classes, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features, frames) to scores of each word."""
        made: Tensor = self.last(self.blocks(self.first(x))).mean(2)
        return made


class TitaNet(nn.Module):
    """TitaNet-S (Koluguri et al. 2021): gated blocks and pooling by attention, for speakers."""

    def __init__(self, features: int = 80, width: int = 96, size: int = 64) -> None:
        super().__init__()
        self.first = nn.Sequential(
            _row_conv(features, features, 3, groups=features), _row_conv(features, width),
            nn.BatchNorm1d(width), nn.ReLU(),
        )  # fmt: skip
        self.blocks = nn.Sequential(
            *(_TimeChannel(width, width, kernel, 3, gated=True) for kernel in (7, 11, 15))
        )
        self.wide = nn.Sequential(_row_conv(width, 384), nn.BatchNorm1d(384), nn.ReLU())
        self.scores = nn.Sequential(
            nn.Conv1d(3 * 384, 64, 1), nn.ReLU(), nn.BatchNorm1d(64), nn.Tanh(),
            nn.Conv1d(64, 384, 1),
        )  # fmt: skip
        self.pooled = nn.BatchNorm1d(2 * 384)
        self.last = nn.Linear(2 * 384, size)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features, frames) to an embedding."""
        x = self.wide(self.blocks(self.first(x)))
        mean = x.mean(2, keepdim=True)
        deviation = ((x - mean) ** 2).mean(2, keepdim=True).clamp(min=1e-5).sqrt()
        context = torch.cat((x, mean.expand_as(x), deviation.expand_as(x)), 1)
        weights = torch.softmax(self.scores(context), 2)
        mean = (weights * x).sum(2)
        square = (weights * x * x).sum(2)
        deviation = (square - mean * mean).clamp(min=1e-5).sqrt()
        made: Tensor = self.last(self.pooled(torch.cat((mean, deviation), 1)))
        return made
