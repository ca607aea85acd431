"""Networks of papers that no package here has, with fewer and narrower blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: str = "SiLU"
) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, 1, groups, bias=False)
    activation = [getattr(nn, act)()] if act else []
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), *activation)


class _Csp(nn.Module):
    """A cross stage of bottlenecks, as YOLOX has them."""

    def __init__(self, inputs: int, outputs: int, count: int = 1, adds: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.second = _conv(inputs, half), _conv(inputs, half)
        self.blocks = nn.ModuleList(
            nn.Sequential(_conv(half, half), _conv(half, half, 3)) for _ in range(count)
        )
        self.last, self.adds = _conv(outputs, outputs), adds

    def forward(self, features: Tensor) -> Tensor:
        inside = self.first(features)
        for block in self.blocks:
            inside = inside + block(inside) if self.adds else block(inside)
        return self.last(torch.cat((inside, self.second(features)), 1))


class _Spp(nn.Module):
    """Pyramid of pools."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _conv(width, width // 2), _conv(width * 2, width)
        self.pools = nn.ModuleList(nn.MaxPool2d(k, 1, k // 2) for k in (5, 9, 13))

    def forward(self, features: Tensor) -> Tensor:
        features = self.first(features)
        return self.last(torch.cat([features, *(pool(features) for pool in self.pools)], 1))


class _Decoupled(nn.Module):
    """YOLOX' head for one level: classes, boxes and objects."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.stem = _conv(inputs, width)
        self.classes, self.boxes = (
            nn.Sequential(_conv(width, width, 3), _conv(width, width, 3)) for _ in range(2)
        )
        self.class_scores, self.box = nn.Conv2d(width, classes, 1), nn.Conv2d(width, 4, 1)
        self.objects = nn.Conv2d(width, 1, 1)

    def forward(self, features: Tensor) -> Tensor:
        features = self.stem(features)
        boxes = self.boxes(features)
        scores = self.class_scores(self.classes(features)).sigmoid()
        return torch.cat((self.box(boxes), self.objects(boxes).sigmoid(), scores), 1).flatten(2)


class Yolox(nn.Module):
    """YOLOX (Ge et al., 2021) of a nano's depth: a focus, a CSPDarknet, a PAFPN and its heads."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 128, 256)
        self.stem = _conv(12, 16, 3)
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(a, b, 3, 2), *([_Spp(b)] if b == 256 else []), _Csp(b, b))
            for a, b in pairwise(widths)
        )
        self.reduce = nn.ModuleList([_conv(256, 128), _conv(128, 64)])
        self.up = nn.ModuleList([_Csp(256, 128, adds=False), _Csp(128, 64, adds=False)])
        self.shrink = nn.ModuleList([_conv(64, 64, 3, 2), _conv(128, 128, 3, 2)])
        self.down = nn.ModuleList([_Csp(128, 128, adds=False), _Csp(256, 256, adds=False)])
        self.heads = nn.ModuleList(_Decoupled(w, 64, 5) for w in (64, 128, 256))

    def forward(self, image: Tensor) -> Tensor:
        """(N, anchors, 10) of (N, 3, H, W)."""
        even, odd = image[..., ::2, :], image[..., 1::2, :]
        parts = (even[..., ::2], odd[..., ::2], even[..., 1::2], odd[..., 1::2])
        features, levels = self.stem(torch.cat(parts, 1)), []
        for stage in self.stages:
            features = stage(features)
            levels.append(features)
        kept: list[Tensor] = []
        for reduce, block, level in zip(self.reduce, self.up, (levels[2], levels[1]), strict=True):
            features = reduce(features)
            kept.insert(0, features)
            larger = functional.interpolate(features, scale_factor=2.0, mode="nearest")
            features = block(torch.cat((larger, level), 1))
        found = [features]
        for shrink, block, level in zip(self.shrink, self.down, kept, strict=True):
            features = block(torch.cat((shrink(features), level), 1))
            found.append(features)
        made = [head(level) for head, level in zip(self.heads, found, strict=True)]
        return torch.cat(made, 2).permute(0, 2, 1)


class _OneDimensional(nn.Module):
    """ERFNet's block: a 3x3 Conv in two lines, twice, the second pair dilated."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, (3, 1), 1, (1, 0))
        self.second = nn.Conv2d(width, width, (1, 3), 1, (0, 1), bias=False)
        self.third = nn.Conv2d(width, width, (3, 1), 1, (dilation, 0), (dilation, 1))
        self.fourth = nn.Conv2d(width, width, (1, 3), 1, (0, dilation), (1, dilation), bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, eps=1e-3) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        inside = self.norms[0](self.second(self.first(features).relu())).relu()
        inside = self.norms[1](self.fourth(self.third(inside).relu()))
        return (inside + features).relu()


class _Halved(nn.Module):
    """A Conv and a pool side by side, joined and normed."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs - inputs, 3, 2, 1)
        self.pool, self.norm = nn.MaxPool2d(2, 2), nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(torch.cat((self.conv(features), self.pool(features)), 1)).relu()


def erfnet() -> nn.Module:
    """ERFNet (Romera et al., 2017), fewer blocks: classes of each pixel."""

    def up(inputs: int, outputs: int) -> list[nn.Module]:
        norm = nn.BatchNorm2d(outputs, eps=1e-3)
        return [nn.ConvTranspose2d(inputs, outputs, 3, 2, 1, 1), norm, nn.ReLU()]

    return nn.Sequential(
        _Halved(3, 16), _Halved(16, 64), _OneDimensional(64, 1), _OneDimensional(64, 1),
        _Halved(64, 128), *(_OneDimensional(128, d) for d in (2, 4, 8)),
        *up(128, 64), _OneDimensional(64, 1), *up(64, 16), _OneDimensional(16, 1),
        nn.ConvTranspose2d(16, 5, 2, 2),
    )  # fmt: skip


class Ffdnet(nn.Module):
    """FFDNet (Zhang et al., 2018): a noisy image in quarters, beside a map of its noise."""

    def __init__(self) -> None:
        super().__init__()
        inner = [m for _ in range(4) for m in (nn.Conv2d(48, 48, 3, padding=1), nn.ReLU())]
        self.body = nn.Sequential(
            nn.Conv2d(13, 48, 3, padding=1), nn.ReLU(), *inner, nn.Conv2d(48, 12, 3, padding=1)
        )

    def forward(self, image: Tensor, noise: Tensor) -> Tensor:
        """(N, 3, H, W) of as much and (N, 1, 1, 1)."""
        parts = functional.pixel_unshuffle(image, 2)
        level = noise.repeat(1, 1, parts.shape[2], parts.shape[3])
        return functional.pixel_shuffle(self.body(torch.cat((parts, level), 1)), 2)


class _Masked(nn.Module):
    """A layer of CAM++: a dilated Conv of a line, masked by means of pieces and of the whole."""

    def __init__(self, inputs: int, width: int, growth: int, dilation: int) -> None:
        super().__init__()
        self.norm, self.first = nn.BatchNorm1d(inputs), nn.Conv1d(inputs, width, 1, bias=False)
        self.inner = nn.BatchNorm1d(width)
        self.local = nn.Conv1d(width, growth, 3, 1, dilation, dilation, bias=False)
        self.squeeze, self.widen = nn.Conv1d(width, width // 2, 1), nn.Conv1d(width // 2, growth, 1)

    def forward(self, line: Tensor) -> Tensor:
        line = self.inner(self.first(self.norm(line).relu())).relu()
        pieces = functional.avg_pool1d(line, 20, 20, ceil_mode=True)
        spread = pieces.unsqueeze(-1).expand(*pieces.shape, 20).reshape(*pieces.shape[:-1], -1)
        context = line.mean(-1, keepdim=True) + spread[..., : line.shape[-1]]
        return self.local(line) * self.widen(self.squeeze(context).relu()).sigmoid()


class _Residual(nn.Module):
    """A residual block of maps, of fewer frequencies then."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, (stride, 1), 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, (stride, 1), bias=False)

    def forward(self, features: Tensor) -> Tensor:
        inside = self.norms[0](self.first(features)).relu()
        inside = self.norms[1](self.second(inside))
        return (inside + self.norms[2](self.shortcut(features))).relu()


class CamPlusPlus(nn.Module):
    """CAM++ (Wang et al., 2023): embeddings of speakers of a log mel spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.maps = nn.Sequential(_Residual(16, 16, 2), _Residual(16, 16, 2))
        self.line = nn.Conv1d(16 * 20, 64, 5, 2, 2, bias=False)
        self.norm = nn.BatchNorm1d(64)
        self.layers = nn.ModuleList(_Masked(64 + 16 * i, 64, 16, 1 + i % 2) for i in range(4))
        self.transit = nn.Sequential(nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 64, 1))
        self.out, self.dense = nn.BatchNorm1d(64), nn.Linear(128, 96)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """(N, 96) of (N, T, 80)."""
        features = self.maps(self.stem(spectrogram.permute(0, 2, 1).unsqueeze(1)).relu())
        line = self.norm(self.line(features.flatten(1, 2))).relu()
        for layer in self.layers:
            line = torch.cat((line, layer(line)), 1)
        line = self.out(self.transit(line)).relu()
        return self.dense(torch.cat((line.mean(-1), line.std(-1)), -1))


class _Weighted(nn.Module):
    """Lite-HRNet's weighting of channels across resolutions, and of places of each."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        total = sum(widths)
        self.widths = widths
        self.across = nn.Sequential(
            _conv(total, total // 4, act="ReLU"), _conv(total // 4, total, act="Sigmoid")
        )
        self.depthwise = nn.ModuleList(_conv(w, w, 3, groups=w, act="") for w in widths)
        self.gates = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(w, w // 4, 1), nn.ReLU(),
                nn.Conv2d(w // 4, w, 1), nn.Sigmoid(),
            )
            for w in widths
        )  # fmt: skip

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        size = maps[-1].shape[2:]
        small = [functional.adaptive_avg_pool2d(m, size) for m in maps[:-1]] + [maps[-1]]
        weights = self.across(torch.cat(small, 1)).split(self.widths, 1)
        found = []
        parts = zip(maps, weights, self.depthwise, self.gates, strict=True)
        for part, weight, conv, gate in parts:
            larger = functional.interpolate(weight, size=part.shape[2:], mode="nearest")
            gated = conv(part * larger)
            found.append(gated * gate(gated))
        return found


def _shuffled(features: Tensor) -> Tensor:
    n, c, h, w = features.shape
    return features.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class LiteHrnet(nn.Module):
    """Lite-HRNet (Yu et al., 2021), two resolutions and two weighted blocks: joints of a person."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 32, 3, 2, act="ReLU"), _conv(32, 32, 3, 2, act="ReLU"))
        self.halves = nn.ModuleList([_conv(32, 40, 3, act="ReLU"), _conv(32, 80, 3, 2, act="ReLU")])
        self.blocks = nn.ModuleList(_Weighted((20, 40)) for _ in range(2))
        self.up = _conv(80, 40, act="")
        self.down = nn.Sequential(_conv(40, 40, 3, 2, 40, act=""), _conv(40, 80, act=""))
        self.joints = nn.Conv2d(40, 17, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(N, 17, H / 4, W / 4)."""
        stem = self.stem(image)
        maps = [half(stem) for half in self.halves]
        for block in self.blocks:
            kept, given = zip(*(m.chunk(2, 1) for m in maps), strict=True)
            pairs = zip(kept, block(list(given)), strict=True)
            maps = [_shuffled(torch.cat(pair, 1)) for pair in pairs]
        larger = functional.interpolate(self.up(maps[1]), size=maps[0].shape[2:], mode="nearest")
        return self.joints((maps[0] + larger).relu())


class _Periods(nn.Module):
    """A block of TimesNet for periods that are given: the series as a map of each, in Convs."""

    def __init__(self, width: int, periods: tuple[int, ...]) -> None:
        super().__init__()
        self.periods = periods
        self.first, self.second = (
            nn.ModuleList(nn.Conv2d(a, b, k, padding=k // 2) for k in (1, 3, 5))
            for a, b in ((width, 2 * width), (2 * width, width))
        )
        self.weights = nn.Parameter(torch.randn(1, 1, 1, len(periods)))

    def forward(self, series: Tensor) -> Tensor:
        n, length, width = series.shape
        found = []
        for period in self.periods:
            maps = series.reshape(n, length // period, period, width).permute(0, 3, 1, 2)
            inside = torch.stack([conv(maps) for conv in self.first], -1).mean(-1)
            inside = functional.gelu(inside)
            maps = torch.stack([conv(inside) for conv in self.second], -1).mean(-1)
            found.append(maps.permute(0, 2, 3, 1).reshape(n, -1, width))
        weights = self.weights.softmax(-1)
        return (torch.stack(found, -1) * weights).sum(-1) + series


class TimesNet(nn.Module):
    """TimesNet (Wu et al., 2023) with the periods that its Fourier transform would choose."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Conv1d(7, 32, 3, padding=1, padding_mode="circular", bias=False)
        self.length = nn.Linear(96, 144)
        self.blocks = nn.ModuleList(_Periods(32, (48, 24, 12)) for _ in range(2))
        self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 7)

    def forward(self, series: Tensor) -> Tensor:
        """(N, 48, 7) of (N, 96, 7)."""
        mean = series.mean(1, keepdim=True)
        centred = series - mean
        deviation = (centred.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        tokens = self.values((centred / deviation).permute(0, 2, 1)).transpose(1, 2)
        tokens = self.length(tokens.permute(0, 2, 1)).permute(0, 2, 1)
        for block in self.blocks:
            tokens = self.norm(block(tokens))
        return (self.out(tokens) * deviation + mean)[:, -48:]
