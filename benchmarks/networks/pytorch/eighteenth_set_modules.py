"""Networks of papers that no package here has, with fewer and narrower blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, act: bool = True) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(
        convolution, nn.BatchNorm2d(outputs), *([nn.ReLU(inplace=True)] if act else [])
    )


def _enlarged(features: Tensor, like: Tensor) -> Tensor:
    return functional.interpolate(features, size=like.shape[2:], mode="bilinear")


class Cnn14(nn.Module):
    """CNN14 of PANNs (Kong et al., 2020), four blocks: labels of a log mel spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(64)
        self.blocks = nn.ModuleList(
            nn.Sequential(_conv(a, b, 3), _conv(b, b, 3)) for a, b in pairwise((1, 16, 32, 64, 128))
        )
        self.dense, self.labels = nn.Linear(128, 128), nn.Linear(128, 20)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """(N, 20) of (N, 1, T, 64)."""
        features = self.norm(spectrogram.transpose(1, 3)).transpose(1, 3)
        for block in self.blocks:
            features = functional.avg_pool2d(block(features), 2)
        features = features.mean(3)
        pooled = features.max(2).values + features.mean(2)
        return self.labels(self.dense(pooled).relu()).sigmoid()


class Drunet(nn.Module):
    """DRUNet (Zhang et al., 2021): a U-Net of residual blocks without norms and biases."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 96)
        self.head = nn.Conv2d(4, 16, 3, padding=1, bias=False)
        self.down = nn.ModuleList(
            nn.Sequential(_Plain(a), _Plain(a), nn.Conv2d(a, b, 2, 2, bias=False))
            for a, b in pairwise(widths)
        )
        self.body = nn.Sequential(_Plain(96), _Plain(96))
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(b, a, 2, 2, bias=False), _Plain(a), _Plain(a))
            for a, b in reversed(list(pairwise(widths)))
        )
        self.tail = nn.Conv2d(16, 3, 3, padding=1, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) of an image and a map of its noise, (N, 4, H, W)."""
        maps = [self.head(image)]
        for down in self.down:
            maps.append(down(maps[-1]))
        last = self.body(maps[-1])
        for up, skipped in zip(self.up, reversed(maps), strict=False):
            last = up(last + skipped)
        return self.tail(last + maps[0])


class _Plain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )

    def forward(self, features: Tensor) -> Tensor:
        return features + self.second(self.first(features).relu())


class Modnet(nn.Module):
    """MODNet (Ke et al., 2022): a matte of a person, of MobileNetV2 and norms of two kinds."""

    def __init__(self) -> None:
        super().__init__()
        stages = torchvision.models.mobilenet_v2(width_mult=0.5).features
        self.stages = nn.ModuleList(
            (stages[:2], stages[2:4], stages[4:7], stages[7:14], stages[14:18])
        )
        self.gate = nn.Sequential(nn.Linear(160, 40), nn.ReLU(), nn.Linear(40, 160), nn.Sigmoid())
        self.low16, self.low8 = _both_norms(160, 48, 5), _both_norms(48, 16, 5)
        self.to2, self.first2 = _both_norms(8, 16, 1), _both_norms(19, 16, 3, 2)
        self.to4, self.first4 = _both_norms(16, 16, 1), _both_norms(32, 32, 3)
        self.high = nn.Sequential(_both_norms(51, 32, 3), _both_norms(32, 32, 3))
        self.high2 = nn.Sequential(_both_norms(48, 32, 3), _both_norms(32, 16, 3))
        self.fused4, self.fused2 = _both_norms(16, 16, 5), _both_norms(32, 16, 5)
        self.last = nn.Sequential(_both_norms(19, 8, 3), nn.Conv2d(8, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        """(N, 1, H, W) of (N, 3, H, W)."""
        maps, last = [], image
        for stage in self.stages:
            last = stage(last)
            maps.append(last)
        gates = self.gate(last.mean((2, 3)))[:, :, None, None]
        low8 = self.low8(_enlarged(self.low16(_enlarged(last * gates, maps[3])), maps[2]))
        half, quarter = _enlarged(image, maps[0]), _enlarged(image, maps[1])
        map2 = self.to2(maps[0])
        fine = self.first2(torch.cat((half, map2), 1))
        high4 = self.first4(torch.cat((fine, self.to4(maps[1])), 1))
        low4 = _enlarged(low8, maps[1])
        high4 = self.high(torch.cat((high4, low4, quarter), 1))
        high2 = self.high2(torch.cat((_enlarged(high4, half), map2), 1))
        fused2 = self.fused2(torch.cat((_enlarged(self.fused4(low4), half), high2), 1))
        return self.last(torch.cat((_enlarged(fused2, image), image), 1)).sigmoid()


def _both_norms(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), _TwoNorms(outputs), nn.ReLU()
    )


class _TwoNorms(nn.Module):
    """Half of the channels are normalised over the batch, the others over each map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.half = width // 2
        self.batch = nn.BatchNorm2d(self.half)
        self.instance = nn.InstanceNorm2d(width - self.half, affine=False)

    def forward(self, features: Tensor) -> Tensor:
        first, second = features[:, : self.half], features[:, self.half :]
        return torch.cat((self.batch(first), self.instance(second)), 1)


class Pidnet(nn.Module):
    """PIDNet (Xu et al., 2023): three branches, gates between them, and a parallel pyramid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 16, 3, 2), _conv(16, 16, 3, 2), _Basic(16, 16), _Basic(16, 32, 2)
        )
        self.integral = nn.ModuleList(_Basic(a, b, 2) for a, b in ((32, 64), (64, 128)))
        self.last = _Bottleneck(128, 64, 128, 2)
        self.detail = nn.ModuleList((_Basic(32, 32), _Basic(32, 32), _Bottleneck(32, 32, 64)))
        self.border = nn.ModuleList(
            (_Basic(32, 16), _Bottleneck(16, 16, 32), _Bottleneck(32, 32, 64))
        )
        self.compress = nn.ModuleList((_conv(64, 32, 1, act=False), _conv(128, 32, 1, act=False)))
        self.differences = nn.ModuleList(
            (_conv(64, 16, 3, act=False), _conv(128, 32, 3, act=False))
        )
        self.gates = nn.ModuleList((_Gate(32, 16), _Gate(32, 16)))
        self.pyramid = _Pyramid(128, 24, 64)
        self.bag = nn.ModuleList((_conv(64, 64, 1, act=False), _conv(64, 64, 1, act=False)))
        self.head = nn.Sequential(_conv(64, 32, 3), nn.Conv2d(32, 5, 1))

    def forward(self, image: Tensor) -> Tensor:
        """(N, 5, H / 8, W / 8) of (N, 3, H, W)."""
        last = self.stem(image)
        detail, border = self.detail[0](last), self.border[0](last)
        for i in range(2):
            last = self.integral[i](last)
            detail = self.gates[i](detail.relu(), self.compress[i](last))
            border = border.relu() + _enlarged(self.differences[i](last), border)
            detail, border = self.detail[i + 1](detail.relu()), self.border[i + 1](border.relu())
        context = _enlarged(self.pyramid(self.last(last.relu())), detail)
        edges = border.sigmoid()
        first = self.bag[0]((1 - edges) * context + detail)
        return self.head((first + self.bag[1](context + edges * detail)).relu())


class _Basic(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _conv(inputs, outputs, 3, stride), _conv(outputs, outputs, 3, act=False)
        )
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else _conv(inputs, outputs, 1, stride, act=False)

    def forward(self, features: Tensor) -> Tensor:
        return (self.layers(features) + self.skip(features)).relu()


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _conv(inputs, width, 1),
            _conv(width, width, 3, stride),
            _conv(width, outputs, 1, act=False),
        )
        self.skip = _conv(inputs, outputs, 1, stride, act=False)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features) + self.skip(features)


class _Gate(nn.Module):
    """How alike two branches are at a place decides how much of each is taken."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = (_conv(inputs, width, 1, act=False) for _ in range(2))

    def forward(self, detail: Tensor, context: Tensor) -> Tensor:
        keys = _enlarged(self.second(context), detail)
        alike = (keys * self.first(detail)).sum(1, keepdim=True).sigmoid()
        return (1 - alike) * detail + alike * _enlarged(context, detail)


class _Pyramid(nn.Module):
    """Pools of four sizes side by side, and one grouped convolution for all of them."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        pools = [nn.AvgPool2d(k, s, k // 2) for k, s in ((5, 2), (9, 4))]
        self.pools = nn.ModuleList((*pools, nn.AdaptiveAvgPool2d((1, 1))))
        self.scales = nn.ModuleList(_before(inputs, width, 1) for _ in self.pools)
        self.first = _before(inputs, width, 1)
        self.grouped = nn.Sequential(
            nn.BatchNorm2d(3 * width), nn.ReLU(),
            nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3, bias=False),
        )  # fmt: skip
        self.joined, self.skip = _before(4 * width, outputs, 1), _before(inputs, outputs, 1)

    def forward(self, features: Tensor) -> Tensor:
        first = self.first(features)
        parts = [
            _enlarged(scale(pool(features)), first) + first
            for pool, scale in zip(self.pools, self.scales, strict=True)
        ]
        joined = torch.cat((first, self.grouped(torch.cat(parts, 1))), 1)
        return self.joined(joined) + self.skip(features)


def _before(inputs: int, outputs: int, kernel: int) -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, kernel, bias=False)
    )


class Tide(nn.Module):
    """TiDE (Das et al., 2023): residual blocks of Linears on a series and its covariates."""

    def __init__(self) -> None:
        super().__init__()
        self.features = _Residual(8, 32, 4)
        self.encoder = nn.Sequential(_Residual(96 + 4 * 120, 128, 128), _Residual(128, 128, 128))
        self.decoder = nn.Sequential(_Residual(128, 128, 128), _Residual(128, 128, 24 * 16))
        self.temporal, self.skip = _Residual(16 + 4, 32, 1), nn.Linear(96, 24)

    def forward(self, series: Tensor, covariates: Tensor) -> Tensor:
        """(N, 24) of (N, 96) and (N, 120, 8)."""
        features = self.features(covariates)
        encoded = self.encoder(torch.cat((series, features.flatten(1)), 1))
        decoded = self.decoder(encoded).reshape(-1, 24, 16)
        joined = torch.cat((decoded, features[:, 96:]), 2)
        return self.temporal(joined).squeeze(2) + self.skip(series)


class _Residual(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))
        self.skip, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)

    def forward(self, rows: Tensor) -> Tensor:
        return self.norm(self.layers(rows) + self.skip(rows))
