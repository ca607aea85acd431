"""Networks of openvino_seventh_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


def _resized(x: Tensor, factor: int) -> Tensor:
    made: Tensor = functional.interpolate(
        x, scale_factor=factor, mode="bilinear", align_corners=False
    )
    return made


def _norm_act(width: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(width), nn.PReLU(width))


def _asymmetric(inputs: int, width: int, dilation: int, groups: int = 1) -> nn.Sequential:
    d = dilation
    return nn.Sequential(
        nn.Conv2d(inputs, width, (3, 1), padding=(d, 0), dilation=(d, 1), groups=groups),
        nn.Conv2d(width, width, (1, 3), padding=(0, d), dilation=(1, d), groups=groups),
    )


class _Eda(nn.Module):
    """Asymmetric Convs, whose result is joined with what they read."""

    def __init__(self, inputs: int, growth: int, dilation: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            conv_norm(inputs, growth, 1), _asymmetric(growth, growth, 1), nn.BatchNorm2d(growth),
            nn.ReLU(), _asymmetric(growth, growth, dilation), nn.BatchNorm2d(growth),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat((self.maps(x), x), 1))


class _Down(nn.Module):
    """A strided Conv joined with a pool, then a norm and a Relu."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width - inputs, 3, 2, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(torch.cat((self.conv(x), functional.max_pool2d(x, 2)), 1))
        return torch.relu(made)


class EdaNet(nn.Module):
    """Segmentation by dense modules of asymmetric Convs (Lo et al. 2018)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Down(3, 15), _Down(15, 60)]
        width = 60
        for dilation in (1, 1, 2, 2):
            layers.append(_Eda(width, 20, dilation))
            width += 20
        layers.append(nn.Conv2d(width, 96, 3, 2, 1))
        width = 96
        for dilation in (2, 4, 8):
            layers.append(_Eda(width, 20, dilation))
            width += 20
        self.maps = nn.Sequential(*layers, nn.Conv2d(width, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        return _resized(self.maps(x), 8)


class _Cfp(nn.Module):
    """Four pyramids of asymmetric depthwise Convs, which are added up and joined."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        n = width // 4
        self.first = nn.Sequential(
            _norm_act(width), nn.Conv2d(width, n, 1, bias=False), _norm_act(n)
        )
        self.rows = nn.ModuleList(
            nn.Sequential(_asymmetric(n, n, max(d, 1), n), _norm_act(n))
            for d in (1, dilation // 4, dilation // 2, dilation)
        )
        self.last = nn.Sequential(
            _norm_act(width), nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        total, *rest = [row(y) for row in self.rows]
        parts = [total]
        for part in rest:
            total = total + part
            parts.append(total)
        made: Tensor = x + self.last(torch.cat(parts, 1))
        return made


class CfpNet(nn.Module):
    """Segmentation by pyramids of channels (Lou and Loew 2021)."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, width, 3, 2, nn.PReLU(width)),
            conv_norm(width, width, act=nn.PReLU(width)),
        )
        self.down = nn.Sequential(nn.Conv2d(width + 3, 2 * width, 3, 2, 1), _norm_act(2 * width))
        self.blocks = nn.Sequential(_Cfp(2 * width, 2), _Cfp(2 * width, 4))
        self.down2 = nn.Sequential(
            nn.Conv2d(4 * width + 3, 4 * width, 3, 2, 1), _norm_act(4 * width)
        )
        self.blocks2 = nn.Sequential(_Cfp(4 * width, 4), _Cfp(4 * width, 8))
        self.out = nn.Conv2d(8 * width + 3, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        half = functional.avg_pool2d(x, 3, 2, 1)
        quarter = functional.avg_pool2d(half, 3, 2, 1)
        eighth = functional.avg_pool2d(quarter, 3, 2, 1)
        y = self.down(torch.cat((self.stem(x), half), 1))
        y = self.down2(torch.cat((self.blocks(y), y, quarter), 1))
        return _resized(self.out(torch.cat((self.blocks2(y), y, eighth), 1)), 8)


class _Eesp(nn.Module):
    """Groups of dilated depthwise Convs, added up, joined, normed and mixed."""

    def __init__(self, inputs: int, width: int, stride: int = 1, branches: int = 4) -> None:
        super().__init__()
        k = branches
        n = width // k
        self.reduce = nn.Sequential(nn.Conv2d(inputs, n, 1, groups=k, bias=False), _norm_act(n))
        self.rows = nn.ModuleList(
            nn.Conv2d(n, n, 3, stride, d, dilation=d, groups=n, bias=False) for d in range(1, k + 1)
        )
        self.joined = _norm_act(width)
        self.mix = nn.Sequential(
            nn.Conv2d(width, width, 1, groups=k, bias=False), nn.BatchNorm2d(width)
        )
        self.act = nn.PReLU(width)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce(x)
        total, *rest = [row(y) for row in self.rows]
        parts = [total]
        for part in rest:
            total = total + part
            parts.append(total)
        y = self.mix(self.joined(torch.cat(parts, 1)))
        if self.stride > 1:
            return torch.cat((y, functional.avg_pool2d(x, 3, 2, 1)), 1)
        made: Tensor = self.act(y + x)
        return made


class EspNetV2(nn.Module):
    """Classes of images by extremely efficient pyramids (Mehta et al. 2019)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            conv_norm(3, 32, 3, 2, nn.PReLU(32)),
            _Eesp(32, 32, 2), nn.PReLU(64), _Eesp(64, 64), _Eesp(64, 64),
            _Eesp(64, 64, 2), nn.PReLU(128), _Eesp(128, 128), _Eesp(128, 128),
        )  # fmt: skip
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, classes)."""
        made: Tensor = self.out(functional.adaptive_avg_pool2d(self.maps(x), 1).flatten(1))
        return made


class _Fpe(nn.Module):
    """Depthwise Convs in a chain of parts, each of which adds the one before."""

    def __init__(self, width: int, expansion: int = 2) -> None:
        super().__init__()
        inner = width * expansion
        self.first = conv_norm(width, inner, 1)
        n = inner // 4
        self.rows = nn.ModuleList(conv_norm(n, n, 3, groups=n, dilation=d) for d in (1, 2, 4, 8))
        self.last = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(4, 1))
        made = [self.rows[0](parts[0])]
        for part, row in zip(parts[1:], list(self.rows)[1:], strict=True):
            made.append(row(part + made[-1]))
        return torch.relu(self.last(torch.cat(made, 1)) + x)


class FpeNet(nn.Module):
    """Segmentation by pyramids of depthwise Convs and mutual embedding (Liu and Yin 2019)."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        w = width
        self.one = nn.Sequential(conv_norm(3, w, 3, 2), _Fpe(w))
        self.two = nn.Sequential(conv_norm(w, 2 * w, 3, 2), _Fpe(2 * w), _Fpe(2 * w))
        self.three = nn.Sequential(conv_norm(2 * w, 4 * w, 3, 2), _Fpe(4 * w), _Fpe(4 * w))
        self.high = conv_norm(4 * w, 2 * w, 1)
        self.low = conv_norm(2 * w, 2 * w, 1)
        self.channels = nn.Conv2d(2 * w, 2 * w, 1)
        self.out = nn.Conv2d(2 * w, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        y = self.two(self.one(x))
        high, low = self.high(self.three(y)), self.low(y)
        scale = torch.sigmoid(self.channels(functional.adaptive_avg_pool2d(low, 1)))
        high = _resized(high, 2)
        place = torch.sigmoid(high.mean(1, keepdim=True))
        return _resized(self.out(low * place + high * scale), 4)


class _Sep(nn.Module):
    """Three separable Convs with a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        n = width // 4
        layers: list[nn.Module] = []
        for a, b, s in ((inputs, n, 1), (n, n, 1), (n, width, stride)):
            layers += [nn.Conv2d(a, a, 3, s, 1, groups=a, bias=False), conv_norm(a, b, 1)]
        self.maps = nn.Sequential(*layers)
        self.skip = conv_norm(inputs, width, 1, stride, nn.Identity()) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.maps(x) + (x if self.skip is None else self.skip(x))
        return made


class _Encoder(nn.Module):
    """Three stages of separable Convs, each of which also reads a given map, and attention."""

    def __init__(self, inputs: tuple[int, int, int], width: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(_Sep(i, width * 2**n, 2), _Sep(width * 2**n, width * 2**n, 1))
            for n, i in enumerate(inputs)
        )
        self.scale = nn.Linear(4 * width, 4 * width)
        self.mix = conv_norm(4 * width, 4 * width, 1)

    def forward(self, x: Tensor, given: list[Tensor]) -> list[Tensor]:
        maps: list[Tensor] = []
        for number, stage in enumerate(self.stages):
            x = stage(torch.cat((x, given[number]), 1) if given else x)
            maps.append(x)
        pooled = functional.adaptive_avg_pool2d(x, 1).flatten(1)
        maps[-1] = self.mix(x * self.scale(pooled)[:, :, None, None])
        return maps


class DfaNet(nn.Module):
    """Segmentation by encoders that read each other's maps (Li et al. 2019)."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        w = width
        self.stem = conv_norm(3, 8, 3, 2)
        self.one = _Encoder((8, w, 2 * w), w)
        self.two = _Encoder((4 * w + w, w + 2 * w, 2 * w + 4 * w), w)
        self.low = nn.ModuleList(conv_norm(w, 16, 1) for _ in range(2))
        self.high = nn.ModuleList(conv_norm(4 * w, 16, 1) for _ in range(2))
        self.out = nn.Conv2d(16, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        one = self.one(self.stem(x), [])
        given = [one[0], functional.avg_pool2d(one[1], 1), one[2]]
        two = self.two(_resized(one[2], 4), given)
        low = self.low[0](one[0]) + _resized(self.low[1](two[0]), 2)
        high = _resized(self.high[0](one[2]), 4) + _resized(self.high[1](two[2]), 8)
        return _resized(self.out(low + high), 4)


class LiteSeg(nn.Module):
    """Segmentation by inverted residuals and a deeper pyramid of dilations (Emara et al. 2019)."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        w = width
        self.one = nn.Sequential(conv_norm(3, w, 3, 2), self._inverted(w, 2 * w, 2))
        self.two = nn.Sequential(self._inverted(2 * w, 4 * w, 2), self._inverted(4 * w, 6 * w, 2))
        self.rows = nn.ModuleList(
            [conv_norm(6 * w, 2 * w, 1)]
            + [conv_norm(6 * w, 2 * w, 3, dilation=d) for d in (3, 6, 9)]
        )
        self.pooled = conv_norm(6 * w, 2 * w, 1)
        self.mix = conv_norm(16 * w, 2 * w, 1)
        self.last = nn.Sequential(
            conv_norm(4 * w, 2 * w), conv_norm(2 * w, 2 * w), nn.Conv2d(2 * w, classes, 1)
        )

    @staticmethod
    def _inverted(inputs: int, width: int, stride: int) -> nn.Sequential:
        inner = 4 * inputs
        return nn.Sequential(
            conv_norm(inputs, inner, 1, act=nn.ReLU6()),
            conv_norm(inner, inner, 3, stride, nn.ReLU6(), groups=inner),
            conv_norm(inner, width, 1, act=nn.Identity()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        low = self.one(x)
        y = self.two(low)
        pooled = self.pooled(functional.adaptive_avg_pool2d(y, 1)).expand(-1, -1, *y.shape[2:])
        y = self.mix(torch.cat((y, pooled, *(row(y) for row in self.rows)), 1))
        return _resized(self.last(torch.cat((_resized(y, 4), low), 1)), 4)


class SegNet(nn.Module):
    """Segmentation by an encoder and decoder of plain Convs (Badrinarayanan et al. 2015)."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        w = width
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for a, b in ((3, w), (w, 2 * w), (2 * w, 4 * w)):
            self.down.append(nn.Sequential(conv_norm(a, b), conv_norm(b, b)))
        for a, b in ((4 * w, 2 * w), (2 * w, w), (w, w)):
            self.up.append(nn.Sequential(conv_norm(a, a), conv_norm(a, b)))
        self.out = nn.Conv2d(w, classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        for stage in self.down:
            x = functional.max_pool2d(stage(x), 2)
        for stage in self.up:
            x = stage(functional.interpolate(x, scale_factor=2))
        made: Tensor = self.out(x)
        return made


class _Dense(nn.Module):
    """Norm, Relu and Conv, whose results are joined."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + n * growth), nn.ReLU(),
                nn.Conv2d(inputs + n * growth, growth, 3, padding=1),
            )
            for n in range(layers)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return x


class Tiramisu(nn.Module):
    """Segmentation by dense blocks (Jegou et al. 2017)."""

    def __init__(self, growth: int = 12, classes: int = 10) -> None:
        super().__init__()
        g, width = growth, 32
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.moves, self.up, self.rises = (nn.ModuleList() for _ in range(4))
        skips: list[int] = []
        for _ in range(2):
            self.down.append(_Dense(width, g, 3))
            width += 3 * g
            skips.append(width)
            self.moves.append(
                nn.Sequential(
                    nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 1), nn.MaxPool2d(2)
                )
            )
        self.middle = _Dense(width, g, 3)
        width += 3 * g
        for skip in reversed(skips):
            self.rises.append(nn.ConvTranspose2d(width, 36, 4, 2, 1))
            self.up.append(_Dense(36 + skip, g, 3))
            width = 36 + skip + 3 * g
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        x, skips = self.stem(x), []
        for block, move in zip(self.down, self.moves, strict=True):
            skips.append(block(x))
            x = move(skips[-1])
        x = self.middle(x)
        for rise, block in zip(self.rises, self.up, strict=True):
            x = block(torch.cat((rise(x), skips.pop()), 1))
        made: Tensor = self.out(x)
        return made


class _Scales(nn.Module):
    """Convs of two windows that read each other's results (MSRN)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        self.small = nn.ModuleList(nn.Conv2d(n * w, n * w, 3, padding=1) for n in (1, 2))
        self.large = nn.ModuleList(nn.Conv2d(n * w, n * w, 5, padding=2) for n in (1, 2))
        self.mix = nn.Conv2d(4 * w, w, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.relu(self.small[0](x)), torch.relu(self.large[0](x))
        c = torch.relu(self.small[1](torch.cat((a, b), 1)))
        d = torch.relu(self.large[1](torch.cat((b, a), 1)))
        made: Tensor = self.mix(torch.cat((c, d), 1)) + x
        return made


class Msrn(nn.Module):
    """Twice as many pixels: Convs of two windows (Li et al. 2018)."""

    def __init__(self, width: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(_Scales(width) for _ in range(blocks))
        self.mix = nn.Conv2d((blocks + 1) * width, width, 1)
        self.out = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to twice the size."""
        maps = [self.stem(x)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        made: Tensor = self.out(self.mix(torch.cat(maps, 1)))
        return made


class _Project(nn.Module):
    """Up, down and the difference up again, or the other way round (DBPN)."""

    def __init__(self, width: int, up: bool) -> None:
        super().__init__()
        w = width
        kinds = (nn.ConvTranspose2d, nn.Conv2d, nn.ConvTranspose2d)
        kinds = kinds if up else (nn.Conv2d, nn.ConvTranspose2d, nn.Conv2d)
        self.steps = nn.ModuleList(
            nn.Sequential(kind(w, w, 4, 2, 1), nn.PReLU(w)) for kind in kinds
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.steps[0](x)
        made: Tensor = self.steps[2](self.steps[1](first) - x) + first
        return made


class Dbpn(nn.Module):
    """Twice as many pixels: projections back and forth (Haris et al. 2018)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(
            nn.Conv2d(3, 2 * w, 3, padding=1), nn.PReLU(2 * w), nn.Conv2d(2 * w, w, 1), nn.PReLU(w)
        )
        self.up = nn.ModuleList(_Project(w, True) for _ in range(3))
        self.down = nn.ModuleList(_Project(w, False) for _ in range(2))
        self.mix = nn.ModuleList(nn.Sequential(nn.Conv2d(n * w, w, 1), nn.PReLU(w)) for n in (2, 2))
        self.out = nn.Conv2d(3 * w, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to twice the size."""
        high = [self.up[0](self.stem(x))]
        low = self.down[0](high[0])
        high.append(self.up[1](low))
        low = self.down[1](self.mix[0](torch.cat(high, 1)))
        high.append(self.up[2](low))
        made: Tensor = self.out(torch.cat(high, 1))
        return made
