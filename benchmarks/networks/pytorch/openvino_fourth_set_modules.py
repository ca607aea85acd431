"""Networks of openvino_fourth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


class Crnn(nn.Module):
    """Lines of text by Convs and LSTMs of both directions (Shi et al. 2015)."""

    def __init__(self, width: int = 32, classes: int = 37) -> None:
        super().__init__()
        w = width
        self.maps = nn.Sequential(
            nn.Conv2d(1, w, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            conv_norm(2 * w, 4 * w), nn.MaxPool2d((2, 1)),
            conv_norm(4 * w, 4 * w), nn.MaxPool2d((2, 1)),
            nn.Conv2d(4 * w, 4 * w, (2, 1)), nn.ReLU(),
        )  # fmt: skip
        self.rows = nn.LSTM(4 * w, 2 * w, 2, bidirectional=True)
        self.out = nn.Linear(4 * w, classes)

    def forward(self, line: Tensor) -> Tensor:
        """(batch, 1, 32, width) to (width / 4, batch, classes)."""
        x = self.maps(line).squeeze(2).permute(2, 0, 1)
        made: Tensor = self.out(self.rows(x)[0]).log_softmax(-1)
        return made


class Crepe(nn.Module):
    """Pitch of a frame of audio by wide Convs (Kim et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for width, size, stride in ((64, 64, 4), (16, 32, 1), (16, 32, 1), (32, 32, 1)):
            pad = (size - 1) // 2
            layers += [
                nn.ZeroPad1d((pad, size - 1 - pad)), nn.Conv1d(inputs, width, size, stride),
                nn.ReLU(), nn.BatchNorm1d(width), nn.MaxPool1d(2), nn.Dropout(0.25),
            ]  # fmt: skip
            inputs = width
        self.maps = nn.Sequential(*layers)
        self.out = nn.Linear(16 * 32, 90)

    def forward(self, frame: Tensor) -> Tensor:
        """(batch, 1, 1024) to (batch, 90)."""
        x = self.maps(frame).permute(0, 2, 1).flatten(1)
        made: Tensor = torch.sigmoid(self.out(x))
        return made


class _Dab(nn.Module):
    """A bottleneck of two branches of asymmetric depthwise Convs, one of them dilated."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        half, d = width // 2, dilation
        self.first = nn.Sequential(nn.BatchNorm2d(width), nn.PReLU(width), self._conv(width, half))
        self.near = nn.Sequential(self._row(half, 1), self._column(half, 1))
        self.far = nn.Sequential(self._row(half, d), self._column(half, d))
        self.last = nn.Sequential(
            nn.BatchNorm2d(half), nn.PReLU(half), nn.Conv2d(half, width, 1, bias=False)
        )

    @staticmethod
    def _conv(inputs: int, width: int) -> nn.Sequential:
        conv = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.PReLU(width))

    @staticmethod
    def _row(width: int, d: int) -> nn.Sequential:
        conv = nn.Conv2d(
            width, width, (3, 1), padding=(d, 0), dilation=(d, 1), groups=width, bias=False
        )
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.PReLU(width))

    @staticmethod
    def _column(width: int, d: int) -> nn.Sequential:
        conv = nn.Conv2d(
            width, width, (1, 3), padding=(0, d), dilation=(1, d), groups=width, bias=False
        )
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.PReLU(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        made: Tensor = self.last(self.near(y) + self.far(y)) + x
        return made


class DabNet(nn.Module):
    """Segmentation by depthwise asymmetric bottlenecks (Li et al. 2019)."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        act = nn.PReLU(width)
        self.stem = nn.Sequential(
            conv_norm(3, width, 3, 2, act), conv_norm(width, width, act=nn.PReLU(width))
        )
        self.down = nn.Conv2d(width + 3, width, 3, 2, 1)
        self.blocks = nn.Sequential(_Dab(width, 2), _Dab(width, 2))
        self.down2 = nn.Conv2d(2 * width + 3, 2 * width, 3, 2, 1)
        self.blocks2 = nn.Sequential(_Dab(2 * width, 4), _Dab(2 * width, 8))
        self.out = nn.Conv2d(4 * width + 3, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        half = functional.avg_pool2d(x, 3, 2, 1)
        quarter = functional.avg_pool2d(half, 3, 2, 1)
        eighth = functional.avg_pool2d(quarter, 3, 2, 1)
        y = self.down(torch.cat((self.stem(x), half), 1))
        y = self.down2(torch.cat((self.blocks(y), y, quarter), 1))
        y = self.out(torch.cat((self.blocks2(y), y, eighth), 1))
        return functional.interpolate(y, scale_factor=8, mode="bilinear", align_corners=False)


class Demucs(nn.Module):
    """Separation of audio: Convs with gates, an LSTM, transposed Convs (Defossez et al. 2019)."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inputs = 1
        for level in range(depth):
            w = width * 2**level
            self.down.append(
                nn.Sequential(
                    nn.Conv1d(inputs, w, 8, 4), nn.ReLU(), nn.Conv1d(w, 2 * w, 1), nn.GLU(1)
                )
            )
            last = [nn.ReLU()] if level else []
            self.up.insert(
                0,
                nn.Sequential(
                    nn.Conv1d(w, 2 * w, 3, padding=1), nn.GLU(1),
                    nn.ConvTranspose1d(w, inputs if level else 2, 8, 4), *last,
                ),
            )  # fmt: skip
            inputs = w
        self.rows = nn.LSTM(inputs, inputs, 1, bidirectional=True)
        self.join = nn.Linear(2 * inputs, inputs)

    def forward(self, wave: Tensor) -> Tensor:
        """(batch, 1, samples) to (batch, 2, samples)."""
        kept = []
        x = wave
        for down in self.down:
            x = down(x)
            kept.append(x)
        x = self.join(self.rows(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for up in self.up:
            skip = kept.pop()
            x = up(x + skip[..., : x.shape[-1]])
        return x


class DeepFm(nn.Module):
    """Factorization machine and linear layers on embeddings (Guo et al. 2017)."""

    def __init__(self, fields: int = 16, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.Embedding(fields * 20, width)
        self.weights = nn.Embedding(fields * 20, 1)
        sizes = (fields * width, 256, 128, 1)
        layers: list[nn.Module] = []
        for given, made in itertools.pairwise(sizes):
            layers += [nn.Linear(given, made), nn.BatchNorm1d(made), nn.ReLU()]
        self.deep = nn.Sequential(*layers[:-2])
        self.register_buffer("offsets", 20 * torch.arange(fields)[None])

    def forward(self, categories: Tensor) -> Tensor:
        """(batch, fields) to a probability."""
        index = categories + self.offsets
        x = self.tables(index)
        pairs = 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(1, keepdim=True)
        made: Tensor = self.weights(index).sum(1) + pairs + self.deep(x.flatten(1))
        return torch.sigmoid(made)


class _DualPathBlock(nn.Module):
    """An LSTM within pieces, then one across them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.rows = nn.ModuleList(
            [nn.LSTM(width, hidden, batch_first=True, bidirectional=True) for _ in range(2)]
        )
        self.out = nn.ModuleList([nn.Linear(2 * hidden, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.GroupNorm(1, width) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        b, c, k, s = x.shape
        for axis, order in enumerate(((0, 3, 2, 1), (0, 2, 3, 1))):
            y = x.permute(*order).reshape(-1, (k, s)[axis], c)
            y = self.out[axis](self.rows[axis](y)[0])
            y = y.reshape(b, (s, k)[axis], (k, s)[axis], c)
            back = (0, 3, 2, 1) if axis == 0 else (0, 3, 1, 2)
            x = x + self.norms[axis](y.permute(*back))
        return x


class Dprnn(nn.Module):
    """Separation of two speakers by dual-path LSTMs (Luo et al. 2019)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, width, 16, 8, bias=False)
        self.norm = nn.GroupNorm(1, width)
        self.narrow = nn.Conv1d(width, width, 1)
        self.blocks = nn.Sequential(_DualPathBlock(width, 32), _DualPathBlock(width, 32))
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv2d(width, 2 * width, 1))
        self.tanh, self.gate = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.decode = nn.ConvTranspose1d(width, 1, 16, 8, bias=False)

    def forward(self, wave: Tensor) -> Tensor:
        """(1, 1, 1608) to (2, 1, 1608)."""
        coded = torch.relu(self.encode(wave))
        x = self.narrow(self.norm(coded))
        x = self.mask(self.blocks(x.reshape(1, -1, 20, 10)))
        x = x.reshape(2, -1, 200)
        x = torch.tanh(self.tanh(x)) * torch.sigmoid(self.gate(x))
        made: Tensor = self.decode(torch.relu(x) * coded)
        return made


class _Esp(nn.Module):
    """A pyramid of dilated Convs whose outputs are added up and joined."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        n = width // 5
        n1 = width - 4 * n
        self.reduce = nn.Conv2d(inputs, n, 3 if stride > 1 else 1, stride, 1 if stride > 1 else 0)
        self.branches = nn.ModuleList(
            [
                nn.Conv2d(n, n1 if d == 1 else n, 3, padding=d, dilation=d, bias=False)
                for d in (1, 2, 4, 8, 16)
            ]
        )
        self.last = nn.Sequential(nn.BatchNorm2d(width), nn.PReLU(width))
        self.adds = inputs == width and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce(x)
        first, total, *rest = [branch(y) for branch in self.branches]
        parts = [first, total]
        for part in rest:
            total = total + part
            parts.append(total)
        joined = torch.cat(parts, 1)
        made: Tensor = self.last(x + joined if self.adds else joined)
        return made


class EspNet(nn.Module):
    """Segmentation by efficient spatial pyramids, with its decoder (Mehta et al. 2018)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_norm(3, 16, 3, 2, nn.PReLU(16))
        self.second = _Esp(19, 64, 2)
        self.blocks = nn.Sequential(_Esp(64, 64), _Esp(64, 64))
        self.third = _Esp(131, 128, 2)
        self.blocks2 = nn.Sequential(_Esp(128, 128), _Esp(128, 128))
        self.narrow = nn.Conv2d(256, classes, 1)
        self.up = nn.ConvTranspose2d(classes, classes, 2, 2, bias=False)
        self.side = nn.Conv2d(131, classes, 1)
        self.join = conv_norm(2 * classes, classes, act=nn.PReLU(classes))
        self.out = nn.ConvTranspose2d(classes, classes, 4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        half = functional.avg_pool2d(x, 3, 2, 1)
        quarter = functional.avg_pool2d(half, 3, 2, 1)
        y = self.second(torch.cat((self.stem(x), half), 1))
        mid = torch.cat((self.blocks(y), y, quarter), 1)
        y = self.third(mid)
        y = self.narrow(torch.cat((self.blocks2(y), y), 1))
        y = self.join(torch.cat((torch.relu(self.up(y)), self.side(mid)), 1))
        made: Tensor = self.out(y)
        return made


class FsrCnn(nn.Module):
    """Twice to thrice as many pixels: narrow Convs and one transposed (Dong et al. 2016)."""

    def __init__(self, width: int = 56, narrow: int = 12, scale: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 5, padding=2), nn.PReLU(width)]
        layers += [nn.Conv2d(width, narrow, 1), nn.PReLU(narrow)]
        for _ in range(4):
            layers += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
        layers += [nn.Conv2d(narrow, width, 1), nn.PReLU(width)]
        self.maps = nn.Sequential(*layers)
        self.up = nn.ConvTranspose2d(width, 1, 9, scale, 4, scale - 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to (batch, 1, scale * height, scale * width)."""
        made: Tensor = self.up(self.maps(x))
        return made


class _GhostV2(nn.Module):
    """A ghost module, beside attention of rows and columns at half the size."""

    def __init__(self, inputs: int, width: int, attends: bool, relu: bool) -> None:
        super().__init__()
        half = width // 2
        act = nn.ReLU() if relu else nn.Identity()
        self.primary = conv_norm(inputs, half, 1, act=act)
        self.cheap = conv_norm(half, half, 3, act=act, groups=half)
        self.far = None
        if attends:
            self.far = nn.Sequential(
                conv_norm(inputs, width, 1, act=nn.Identity()),
                nn.Conv2d(width, width, (1, 5), padding=(0, 2), groups=width, bias=False),
                nn.BatchNorm2d(width),
                nn.Conv2d(width, width, (5, 1), padding=(2, 0), groups=width, bias=False),
                nn.BatchNorm2d(width),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.primary(x)
        joined = torch.cat((y, self.cheap(y)), 1)
        if self.far is None:
            return joined
        gate = torch.sigmoid(self.far(functional.avg_pool2d(x, 2, 2)))
        return joined * functional.interpolate(gate, size=joined.shape[2:], mode="nearest")


class GhostNetV2(nn.Module):
    """Cheap maps with far attention (Tang et al. 2022)."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        blocks = []
        inputs = width
        for made, stride in ((24, 2), (24, 1), (40, 2), (40, 1)):
            mid = 3 * inputs // 2 * 2
            step = conv_norm(mid, mid, 3, stride, nn.Identity(), groups=mid)
            blocks.append(
                nn.ModuleList(
                    [
                        _GhostV2(inputs, mid, True, True),
                        step if stride > 1 else nn.Identity(),
                        _GhostV2(mid, made, False, False),
                        nn.Identity()
                        if inputs == made and stride == 1
                        else nn.Sequential(
                            conv_norm(inputs, inputs, 3, stride, nn.Identity(), groups=inputs),
                            conv_norm(inputs, made, 1, act=nn.Identity()),
                        ),
                    ]
                )
            )
            inputs = made
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(
            conv_norm(inputs, 120, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(120, 160, 1), nn.ReLU()
        )
        self.out = nn.Linear(160, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores."""
        x = self.stem(x)
        for ghost, step, last, short in self.blocks:
            x = last(step(ghost(x))) + short(x)
        made: Tensor = self.out(self.head(x).flatten(1))
        return made


class _PreRes(nn.Module):
    """A bottleneck whose norms and activations come first."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        half = width // 2
        layers: list[nn.Module] = []
        for given, made, size in ((inputs, half, 1), (half, half, 3), (half, width, 1)):
            layers += [
                nn.BatchNorm2d(given), nn.ReLU(), nn.Conv2d(given, made, size, 1, size // 2)
            ]  # fmt: skip
        self.main = nn.Sequential(*layers)
        self.short = nn.Identity() if inputs == width else nn.Conv2d(inputs, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.main(x) + self.short(x)
        return made


class _HourglassPart(nn.Module):
    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.side, self.low, self.last = (_PreRes(width, width) for _ in range(3))
        self.inner = _HourglassPart(depth - 1, width) if depth > 1 else _PreRes(width, width)

    def forward(self, x: Tensor) -> Tensor:
        low = self.last(self.inner(self.low(functional.max_pool2d(x, 2))))
        made: Tensor = self.side(x) + functional.interpolate(low, scale_factor=2.0)
        return made


class Hourglass(nn.Module):
    """Poses by two stacked hourglasses (Newell et al. 2016)."""

    def __init__(self, width: int = 48, joints: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 24, 7, 2), _PreRes(24, width), nn.MaxPool2d(2))
        self.glass = nn.ModuleList([_HourglassPart(3, width) for _ in range(2)])
        self.feature = nn.ModuleList(
            [nn.Sequential(_PreRes(width, width), conv_norm(width, width, 1)) for _ in range(2)]
        )
        self.heat = nn.ModuleList([nn.Conv2d(width, joints, 1) for _ in range(2)])
        self.back = nn.Conv2d(width, width, 1)
        self.again = nn.Conv2d(joints, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width) to heat maps of both stacks."""
        x = self.stem(x)
        y = self.feature[0](self.glass[0](x))
        first = self.heat[0](y)
        x = x + self.back(y) + self.again(first)
        return first, self.heat[1](self.feature[1](self.glass[1](x)))


class LstNet(nn.Module):
    """Series by a Conv, GRUs, one that skips, and a linear part (Lai et al. 2018)."""

    def __init__(self, series: int = 16, window: int = 72, width: int = 32, skip: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, (6, series))
        self.rows, self.skipped = nn.GRU(width, width), nn.GRU(width, 8)
        self.skip, self.steps = skip, (window - 5) // skip
        self.out = nn.Linear(width + skip * 8, series)
        self.highway = nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(1, window, series) to (1, series)."""
        c = torch.relu(self.conv(x[:, None])).squeeze(3)
        last = self.rows(c.permute(2, 0, 1))[1].squeeze(0)
        s = c[:, :, -self.steps * self.skip :].reshape(1, -1, self.steps, self.skip)
        s = s.permute(2, 0, 3, 1).reshape(self.steps, self.skip, -1)
        s = self.skipped(s)[1].reshape(1, -1)
        linear = self.highway(x[:, -24:, :].permute(0, 2, 1).reshape(-1, 24))
        made: Tensor = self.out(torch.cat((last, s), 1)) + linear.reshape(1, -1)
        return made


class PointNet(nn.Module):
    """Points with a learned transform (Qi et al. 2017)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.local = self._shared(3, 64, 128)
        self.turn = nn.Sequential(
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 9)
        )
        self.first, self.second = self._shared(3, 64, 64), self._shared(64, 128, 256)
        self.head = nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, classes)
        )
        self.register_buffer("unit", torch.eye(3).flatten()[None])

    @staticmethod
    def _shared(*sizes: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for given, made in itertools.pairwise(sizes):
            layers += [nn.Conv1d(given, made, 1), nn.BatchNorm1d(made), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, points: Tensor) -> Tensor:
        """(batch, 3, points) to scores."""
        turn = (self.turn(self.local(points).max(2).values) + self.unit).view(-1, 3, 3)
        x = torch.bmm(points.transpose(1, 2), turn).transpose(1, 2)
        made: Tensor = self.head(self.second(self.first(x)).max(2).values)
        return made


class _Selective(nn.Module):
    """Two sizes of kernels, mixed by a Softmax over both."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.small = conv_norm(width, width, 3, groups=8)
        self.large = conv_norm(width, width, 3, groups=8, dilation=2)
        self.narrow = nn.Sequential(nn.Conv2d(width, 16, 1, bias=False), nn.ReLU())
        self.scores = nn.Conv2d(16, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        small, large = self.small(x), self.large(x)
        mean = (small + large).mean((2, 3), keepdim=True)
        both = self.scores(self.narrow(mean)).view(x.shape[0], 2, x.shape[1], 1, 1).softmax(1)
        made: Tensor = (torch.stack((small, large), 1) * both).sum(1)
        return made


class SkNet(nn.Module):
    """Selective kernels (Li et al. 2019)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 32, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.main, self.short = nn.ModuleList(), nn.ModuleList()
        inputs = 32
        for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1)):
            half = width // 2
            pool: list[nn.Module] = [nn.AvgPool2d(2)] if stride > 1 else []
            last = conv_norm(half, width, 1, act=nn.Identity())
            self.main.append(
                nn.Sequential(conv_norm(inputs, half, 1), _Selective(half), *pool, last)
            )
            self.short.append(
                nn.Identity()
                if inputs == width
                else conv_norm(inputs, width, 1, stride, nn.Identity())
            )
            inputs = width
        self.out = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores."""
        x = self.stem(x)
        for main, short in zip(self.main, self.short, strict=True):
            x = torch.relu(main(x) + short(x))
        made: Tensor = self.out(x.mean((2, 3)))
        return made


class SqueezeNext(nn.Module):
    """Bottlenecks of separable Convs (Gholami et al. 2018)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 32, 5, 2), nn.MaxPool2d(3, 2))
        self.main, self.short = nn.ModuleList(), nn.ModuleList()
        inputs = 32
        for width, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
            half, quarter = inputs // 2, inputs // 4
            self.main.append(
                nn.Sequential(
                    conv_norm(inputs, half, 1, stride), conv_norm(half, quarter, 1),
                    self._line(quarter, half, (1, 3)), self._line(half, half, (3, 1)),
                    conv_norm(half, width, 1),
                )
            )  # fmt: skip
            same = inputs == width and stride == 1
            self.short.append(nn.Identity() if same else conv_norm(inputs, width, 1, stride))
            inputs = width
        self.out = nn.Linear(inputs, classes)

    @staticmethod
    def _line(inputs: int, width: int, size: tuple[int, int]) -> nn.Sequential:
        conv = nn.Conv2d(inputs, width, size, padding=(size[0] // 2, size[1] // 2), bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores."""
        x = self.stem(x)
        for main, short in zip(self.main, self.short, strict=True):
            x = torch.relu(main(x) + short(x))
        made: Tensor = self.out(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return made


class TextCnn(nn.Module):
    """Sentences by Convs of several sizes and maxima over time (Kim 2014)."""

    def __init__(self, width: int = 64, filters: int = 48, classes: int = 6) -> None:
        super().__init__()
        self.table = nn.Embedding(100, width)
        self.convs = nn.ModuleList([nn.Conv2d(1, filters, (size, width)) for size in (3, 4, 5)])
        self.out = nn.Linear(3 * filters, classes)

    def forward(self, words: Tensor) -> Tensor:
        """(batch, words) to scores."""
        x = self.table(words)[:, None]
        maps = [torch.relu(conv(x)).squeeze(3) for conv in self.convs]
        tops = [functional.max_pool1d(each, each.shape[2]).squeeze(2) for each in maps]
        made: Tensor = self.out(torch.cat(tops, 1))
        return made


class VoxelMorph(nn.Module):
    """The network of 3-D registration that finds the flow (Balakrishnan et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [nn.Conv3d(given, made, 3, 2, 1) for given, made in ((2, 16), (16, 32), (32, 32))]
        )
        self.up = nn.ModuleList(
            [nn.Conv3d(given, made, 3, 1, 1) for given, made in ((32, 32), (64, 32), (48, 32))]
        )
        self.last = nn.Sequential(
            nn.Conv3d(34, 16, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv3d(16, 3, 3, 1, 1)
        )

    def forward(self, moving: Tensor, fixed: Tensor) -> Tensor:
        """Two volumes (1, 1, depth, height, width) to (1, 3, depth, height, width)."""
        x = torch.cat((moving, fixed), 1)
        kept = [x]
        for conv in self.down:
            kept.append(functional.leaky_relu(conv(kept[-1]), 0.2))
        x = kept.pop()
        for conv in self.up:
            x = functional.leaky_relu(conv(x), 0.2)
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = torch.cat((x, kept.pop()), 1)
        made: Tensor = self.last(x)
        return made


class WaveNet(nn.Module):
    """Dilated causal Convs with gates, residual and skip sums (van den Oord et al. 2016)."""

    def __init__(
        self, width: int = 32, skip: int = 64, dilations: Sequence[int] = (1, 2, 4, 8)
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(16, width, 1)
        self.pads = tuple(dilations)
        self.gated = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=d) for d in dilations])
        self.rest = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in dilations])
        self.skips = nn.ModuleList([nn.Conv1d(width, skip, 1) for _ in dilations])
        self.out = nn.Sequential(
            nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, 64, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 16, samples) to (batch, 64, samples)."""
        x = self.first(x)
        total = torch.zeros(1, 1, 1)
        for pad, gated, rest, skip in zip(
            self.pads, self.gated, self.rest, self.skips, strict=True
        ):
            a, b = gated(functional.pad(x, (pad, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            x = x + rest(y)
        made: Tensor = self.out(total)
        return made


class WaveUNet(nn.Module):
    """A U-Net of audio: every second sample is dropped, linear steps up (Stoller et al. 2018)."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inputs = 1
        for level in range(1, depth + 1):
            self.down.append(self._conv(inputs, width * level, 15))
            inputs = width * level
        self.middle = self._conv(inputs, width * (depth + 1), 15)
        for level in range(depth, 0, -1):
            self.up.append(self._conv(width * (2 * level + 1), width * level, 5))
        self.out = nn.Conv1d(width + 1, 2, 1)

    @staticmethod
    def _conv(inputs: int, width: int, size: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(inputs, width, size, padding=size // 2), nn.LeakyReLU())

    def forward(self, wave: Tensor) -> Tensor:
        """(batch, 1, samples) to (batch, 2, samples)."""
        kept = []
        x = wave
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = x[:, :, ::2]
        x = self.middle(x)
        for up in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="linear", align_corners=True)
            x = up(torch.cat((x, kept.pop()), 1))
        return torch.tanh(self.out(torch.cat((x, wave), 1)))
