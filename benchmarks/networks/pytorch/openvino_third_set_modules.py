"""Networks of openvino_third_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_norm(
    inputs: int,
    width: int,
    size: int = 3,
    stride: int = 1,
    act: nn.Module | None = None,
    **more: int,
) -> nn.Sequential:
    """A Conv of the same padding, a norm and ``act`` (a Relu if None)."""
    pad = size // 2 * more.get("dilation", 1)
    conv = nn.Conv2d(inputs, width, size, stride, pad, bias=False, **more)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU() if act is None else act)


class AutoInt(nn.Module):
    """Attention between the fields of a table (Song et al. 2019), two layers."""

    def __init__(self, fields: int = 12, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(20, width) for _ in range(fields)])
        self.number = nn.Linear(1, width)
        self.layers = nn.ModuleList(
            [nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(2)]
        )
        self.rest = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear((fields + 1) * width, 1)

    def forward(self, categories: Tensor, number: Tensor) -> Tensor:
        """(batch, fields) and (batch, 1) to a probability."""
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        x = torch.stack([*parts, self.number(number)], 1)
        for attend, rest in zip(self.layers, self.rest, strict=True):
            x = torch.relu(attend(x, x, x, need_weights=False)[0] + rest(x))
        return torch.sigmoid(self.out(x.flatten(1)))


class C3d(nn.Module):
    """Clips by Convs of three dimensions (Tran et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, convs, pool in ((16, 1, (1, 2, 2)), (32, 1, 2), (64, 2, 2), (64, 2, 2)):
            for _ in range(convs):
                layers += [nn.Conv3d(inputs, width, 3, padding=1), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool3d(pool, pool))
        self.maps = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(64 * 1 * 3 * 3, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, 8, 48, 48) to ten classes."""
        return self.head(self.maps(x).flatten(1))


class ContextGuided(nn.Module):
    """A block of CGNet: near and far neighbours, and the whole map as a gate."""

    def __init__(self, inputs: int, width: int, dilation: int, down: bool) -> None:
        super().__init__()
        half = width // 2
        first = width if down else half
        self.first = conv_norm(
            inputs, first, 3 if down else 1, 2 if down else 1, act=nn.PReLU(first)
        )
        self.near = nn.Conv2d(first, first, 3, 1, 1, groups=first, bias=False)
        self.far = nn.Conv2d(
            first, first, 3, 1, dilation, groups=first, dilation=dilation, bias=False
        )
        self.norm = nn.BatchNorm2d(2 * first)
        self.act = nn.PReLU(2 * first)
        self.narrow = nn.Conv2d(2 * first, width, 1, bias=False) if down else nn.Identity()
        self.gate = nn.Sequential(
            nn.Linear(width, width // 8), nn.ReLU(), nn.Linear(width // 8, width), nn.Sigmoid()
        )
        self.adds = not down

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps."""
        y = self.first(x)
        y = self.act(self.norm(torch.cat([self.near(y), self.far(y)], 1)))
        y = self.narrow(y)
        y = y * self.gate(y.mean((2, 3)))[:, :, None, None]
        return x + y if self.adds else y


class CgNet(nn.Module):
    """Segmentation with context at each stage (Wu et al. 2018)."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 32, 3, 2, nn.PReLU(32)), conv_norm(32, 32, 3, 1, nn.PReLU(32))
        )
        self.halved, self.quarter = nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1)
        self.norm1 = nn.Sequential(nn.BatchNorm2d(35), nn.PReLU(35))
        self.stage2 = nn.ModuleList(
            [ContextGuided(35, 64, 2, True), ContextGuided(64, 64, 2, False)]
        )
        self.norm2 = nn.Sequential(nn.BatchNorm2d(131), nn.PReLU(131))
        self.stage3 = nn.ModuleList(
            [ContextGuided(131, 128, 4, True)]
            + [ContextGuided(128, 128, 4, False) for _ in range(3)]
        )
        self.norm3 = nn.Sequential(nn.BatchNorm2d(256), nn.PReLU(256))
        self.head = nn.Conv2d(256, classes, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """An image to scores of its size."""
        small = self.halved(x)
        y = self.norm1(torch.cat([self.stem(x), small], 1))
        first = self.stage2[0](y)
        y = self.norm2(torch.cat([self.stage2[1](first), first, self.quarter(small)], 1))
        first = y = self.stage3[0](y)
        for block in list(self.stage3)[1:]:
            y = block(y)
        y = self.head(self.norm3(torch.cat([first, y], 1)))
        return functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


class CondensedDense(nn.Module):
    """A layer of CondenseNet as deployed: chosen channels, Convs of groups, shuffled."""

    def __init__(self, inputs: int, growth: int, groups: int = 4) -> None:
        super().__init__()
        self.register_buffer("chosen", torch.randperm(inputs)[: inputs // groups * groups])
        self.norm = nn.BatchNorm2d(len(self.chosen))
        self.first = nn.Conv2d(len(self.chosen), 4 * growth, 1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.second = nn.Conv2d(4 * growth, growth, 3, padding=1, groups=groups, bias=False)
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Maps to these and ``growth`` more."""
        y = torch.index_select(x, 1, self.chosen)
        y = self.norm2(self.first(torch.relu(self.norm(y))))
        b, c, h, w = y.shape
        y = y.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        return torch.cat([x, self.second(torch.relu(y))], 1)


class CondenseNet(nn.Module):
    """Dense blocks of Convs of groups (Huang et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False)]
        width = 16
        for growth, count in ((8, 3), (16, 3), (32, 3)):
            for _ in range(count):
                layers.append(CondensedDense(width, growth))
                width += growth
            layers.append(nn.AvgPool2d(2))
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        """An image to ten classes."""
        return self.layers(x)


class Dgcnn(nn.Module):
    """Points and their nearest neighbours in each layer's space (Wang et al. 2019)."""

    def __init__(self, neighbours: int = 8) -> None:
        super().__init__()
        self.neighbours = neighbours
        act = nn.LeakyReLU(0.2)
        self.edges = nn.ModuleList(
            [conv_norm(2 * i, o, 1, act=act) for i, o in ((3, 32), (32, 32), (32, 64))]
        )
        self.join = nn.Sequential(
            nn.Conv1d(128, 128, 1, bias=False), nn.BatchNorm1d(128), nn.LeakyReLU(0.2)
        )
        self.head = nn.Sequential(
            nn.Linear(256, 64, bias=False), nn.BatchNorm1d(64), act, nn.Linear(64, 10)
        )

    def _edges(self, x: Tensor) -> Tensor:
        b, c, n = x.shape
        inner = 2 * torch.matmul(x.transpose(1, 2), x)
        squares = (x**2).sum(1, keepdim=True)
        nearest = (inner - squares - squares.transpose(1, 2)).topk(self.neighbours, dim=-1)[1]
        index = nearest.reshape(b, 1, n * self.neighbours).expand(b, c, n * self.neighbours)
        near = torch.gather(x, 2, index).reshape(b, c, n, self.neighbours)
        own = x[..., None].expand(b, c, n, self.neighbours)
        return torch.cat([near - own, own], 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, points) to ten classes."""
        found = []
        for edge in self.edges:
            x = edge(self._edges(x)).max(-1)[0]
            found.append(x)
        y = self.join(torch.cat(found, 1))
        return self.head(torch.cat([y.max(-1)[0], y.mean(-1)], 1))


class Factorized(nn.Module):
    """A unit of ESNet: Convs along one axis, one after another."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        pad = size // 2
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, (size, 1), padding=(pad, 0)),
            nn.ReLU(),
            nn.Conv2d(width, width, (1, size), padding=(0, pad), bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, (size, 1), padding=(pad, 0)),
            nn.ReLU(),
            nn.Conv2d(width, width, (1, size), padding=(0, pad), bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps."""
        return torch.relu(x + self.layers(x))


class Downsampler(nn.Module):
    """A Conv and a MaxPool side by side."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width - inputs, 3, 2, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps of half the size."""
        return torch.relu(self.norm(torch.cat([self.conv(x), functional.max_pool2d(x, 2, 2)], 1)))


class EsNet(nn.Module):
    """A symmetric network for segmentation (Wang et al. 2019)."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()

        def up(inputs: int, width: int) -> nn.Sequential:
            turned = nn.ConvTranspose2d(inputs, width, 3, 2, 1, 1, bias=False)
            return nn.Sequential(turned, nn.BatchNorm2d(width), nn.ReLU())

        self.layers = nn.Sequential(
            Downsampler(3, 16),
            Factorized(16, 3),
            Factorized(16, 3),
            Downsampler(16, 64),
            Factorized(64, 5),
            Downsampler(64, 128),
            Factorized(128, 3),
            up(128, 64),
            Factorized(64, 5),
            up(64, 16),
            Factorized(16, 3),
            nn.ConvTranspose2d(16, classes, 2, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        """An image to scores of its size."""
        return self.layers(x)


class HalfNorm(nn.Module):
    """A block of HINet: one half of the channels is normalized over its map."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.skip = nn.Conv2d(inputs, width, 1)
        self.first = nn.Conv2d(inputs, width, 3, padding=1)
        self.norm = nn.InstanceNorm2d(width // 2, affine=True)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps."""
        one, other = self.first(x).chunk(2, 1)
        y = functional.leaky_relu(torch.cat([self.norm(one), other], 1), 0.2)
        return functional.leaky_relu(self.second(y), 0.2) + self.skip(x)


class HiNet(nn.Module):
    """Restores images (Chen et al. 2021): one of its two U-Nets, with supervised attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([HalfNorm(width << i, width << i + 1) for i in range(2)])
        self.halve = nn.ModuleList(
            [nn.Conv2d(width << i + 1, width << i + 1, 4, 2, 1) for i in range(2)]
        )
        self.deep = HalfNorm(width << 2, width << 2)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(width << 2 - i, width << 2 - i, 2, 2) for i in range(2)]
        )
        self.mix = nn.ModuleList([HalfNorm((width << 2 - i) * 2, width << 1 - i) for i in range(2)])
        self.image, self.gate = (
            nn.Conv2d(width, 3, 3, padding=1),
            nn.Conv2d(3, width, 3, padding=1),
        )
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """An image to another one."""
        y, kept = self.first(x), []
        for block, half in zip(self.down, self.halve, strict=True):
            y = block(y)
            kept.append(y)
            y = half(y)
        y = self.deep(y)
        for up, mix, skip in zip(self.up, self.mix, reversed(kept), strict=True):
            y = mix(torch.cat([up(y), skip], 1))
        image = self.image(y) + x
        return self.last(y * torch.sigmoid(self.gate(image)) + y) + image


class Inception1d(nn.Module):
    """A module of InceptionTime: a bottleneck, three widths of Conv, and a pool."""

    def __init__(self, inputs: int, width: int = 32) -> None:
        super().__init__()
        self.narrow = nn.Conv1d(inputs, width, 1, bias=False)
        self.convs = nn.ModuleList(
            [nn.Conv1d(width, width, k, padding=k // 2, bias=False) for k in (39, 19, 9)]
        )
        self.pool = nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(inputs, width, 1, bias=False))
        self.norm = nn.BatchNorm1d(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Series to series."""
        y = self.narrow(x)
        return torch.relu(
            self.norm(torch.cat([conv(y) for conv in self.convs] + [self.pool(x)], 1))
        )


class InceptionTime(nn.Module):
    """Classifies series (Fawaz et al. 2020): six modules, a shortcut around three."""

    def __init__(self, inputs: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Inception1d(inputs if i == 0 else 128) for i in range(6)])
        self.skips = nn.ModuleList(
            [
                nn.Sequential(nn.Conv1d(i, 128, 1, bias=False), nn.BatchNorm1d(128))
                for i in (inputs, 128)
            ]
        )
        self.head = nn.Linear(128, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4, steps) to five classes."""
        rest = x
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number % 3 == 2:
                rest = x = torch.relu(x + self.skips[number // 3](rest))
        return self.head(x.mean(-1))


class JasperBlock(nn.Module):
    """Two Convs over time, and dense shortcuts from all earlier blocks."""

    def __init__(self, inputs: list[int], width: int, size: int) -> None:
        super().__init__()
        pad = size // 2
        self.convs = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv1d(i, width, size, padding=pad, bias=False), nn.BatchNorm1d(width)
                )
                for i in (inputs[-1], width)
            ]
        )
        self.skips = nn.ModuleList(
            [
                nn.Sequential(nn.Conv1d(i, width, 1, bias=False), nn.BatchNorm1d(width))
                for i in inputs
            ]
        )

    def forward(self, parts: list[Tensor]) -> Tensor:
        """What all earlier blocks made to this block's."""
        y = self.convs[1](torch.relu(self.convs[0](parts[-1])))
        for part, skip in zip(parts, self.skips, strict=True):
            y = y + skip(part)
        return torch.relu(y)


class Jasper(nn.Module):
    """Speech to letters by Convs with dense shortcuts (Li et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(40, 64, 11, 2, 5, bias=False), nn.BatchNorm1d(64), nn.ReLU()
        )
        widths = [64, 64, 96, 128]
        self.blocks = nn.ModuleList(
            [
                JasperBlock(widths[: i + 1], widths[i + 1], size)
                for i, size in enumerate((11, 13, 17))
            ]
        )
        self.last = nn.Sequential(
            nn.Conv1d(128, 160, 29, padding=28, dilation=2, bias=False),
            nn.BatchNorm1d(160),
            nn.ReLU(),
            nn.Conv1d(160, 160, 1, bias=False),
            nn.BatchNorm1d(160),
            nn.ReLU(),
            nn.Conv1d(160, 29, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 40, frames) to log probabilities of letters."""
        parts = [self.first(x)]
        for block in self.blocks:
            parts.append(block(parts))
        return self.last(parts[-1]).transpose(1, 2).log_softmax(-1)


class LapSrn(nn.Module):
    """Enlarges images by a pyramid of residuals (Lai et al. 2017), four times."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        act = nn.LeakyReLU(0.2)
        self.first = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), act)

        def features() -> nn.Sequential:
            convs = [
                nn.Sequential(nn.Conv2d(width, width, 3, padding=1), act) for _ in range(depth)
            ]
            return nn.Sequential(*convs, nn.ConvTranspose2d(width, width, 4, 2, 1), act)

        self.features = nn.ModuleList([features() for _ in range(2)])
        self.residuals = nn.ModuleList([nn.Conv2d(width, 1, 3, padding=1) for _ in range(2)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(1, 1, 4, 2, 1) for _ in range(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A channel to it at twice and four times its size."""
        y, made = self.first(x), []
        for features, residual, up in zip(self.features, self.residuals, self.up, strict=True):
            y = features(y)
            x = up(x) + residual(y)
            made.append(x)
        return made[0], made[1]


class PeleeStem(nn.Module):
    """Convs and a pool side by side."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = conv_norm(3, width, 3, 2)
        self.left = nn.Sequential(
            conv_norm(width, width // 2, 1), conv_norm(width // 2, width, 3, 2)
        )
        self.join = conv_norm(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """An image to maps of a quarter of its size."""
        y = self.first(x)
        return self.join(torch.cat([self.left(y), functional.max_pool2d(y, 2, 2)], 1))


class TwoWayDense(nn.Module):
    """A layer of PeleeNet: one Conv and two Convs side by side, joined with what they read."""

    def __init__(self, inputs: int, growth: int, narrow: int) -> None:
        super().__init__()
        half = growth // 2
        self.left = nn.Sequential(conv_norm(inputs, narrow, 1), conv_norm(narrow, half))
        self.right = nn.Sequential(
            conv_norm(inputs, narrow, 1), conv_norm(narrow, half), conv_norm(half, half)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps to these and ``growth`` more."""
        return torch.cat([x, self.left(x), self.right(x)], 1)


class PeleeNet(nn.Module):
    """Dense blocks of two ways (Wang et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [PeleeStem()]
        width = 32
        for stage, count in enumerate((3, 4, 4, 3)):
            for _ in range(count):
                layers.append(TwoWayDense(width, 32, 16 * (1 << min(stage, 1))))
                width += 32
            layers.append(conv_norm(width, width, 1))
            if stage < 3:
                layers.append(nn.AvgPool2d(2))
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """An image to ten classes."""
        return self.layers(x)


class Psm(nn.Module):
    """Depth from two images (Chang and Chen 2018): pyramid, a volume of costs, 3-D Convs."""

    def __init__(self, width: int = 16, shifts: int = 8) -> None:
        super().__init__()
        self.shifts = shifts
        self.maps = nn.Sequential(
            conv_norm(3, width, 3, 2), conv_norm(width, width, 3, 2), conv_norm(width, width)
        )
        self.pools = nn.ModuleList(
            [nn.Sequential(nn.AvgPool2d(k), conv_norm(width, 8, 1)) for k in (4, 2)]
        )
        self.join = nn.Sequential(conv_norm(width + 16, width), nn.Conv2d(width, width, 1))

        def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
            made = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
            return nn.Sequential(made, nn.BatchNorm3d(outputs))

        self.first = nn.Sequential(conv(2 * width, width), nn.ReLU(), conv(width, width), nn.ReLU())
        self.residual = nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width))
        self.down = nn.Sequential(conv(width, 2 * width, 2), nn.ReLU(), conv(2 * width, 2 * width))
        self.up = nn.Sequential(
            nn.ConvTranspose3d(2 * width, width, 3, 2, 1, 1, bias=False), nn.BatchNorm3d(width)
        )
        self.last = nn.Sequential(
            conv(width, width), nn.ReLU(), nn.Conv3d(width, 1, 3, padding=1, bias=False)
        )

    def _features(self, x: Tensor) -> Tensor:
        y = self.maps(x)
        size = y.shape[2:]
        far = [
            functional.interpolate(pool(y), size=size, mode="bilinear", align_corners=False)
            for pool in self.pools
        ]
        return self.join(torch.cat([y, *far], 1))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Two images to shifts at a quarter of their size."""
        one, other = self._features(left), self._features(right)
        costs = []
        for shift in range(self.shifts):
            moved = functional.pad(other, (shift, 0))[..., : other.shape[-1]]
            costs.append(torch.cat([one, moved], 1))
        y = self.first(torch.stack(costs, 2))
        y = y + self.residual(y)
        y = torch.relu(y + self.up(torch.relu(self.down(y))))
        weights = self.last(y)[:, 0].softmax(1)
        steps = torch.arange(self.shifts, dtype=weights.dtype).view(1, -1, 1, 1)
        return (weights * steps).sum(1)


class SeparableText(nn.Module):
    """A block of QANet: norms, depthwise Convs over words, attention and a linear layer."""

    def __init__(self, width: int, heads: int, convs: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(convs)])
        self.convs = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv1d(width, width, 7, padding=3, groups=width, bias=False),
                    nn.Conv1d(width, width, 1),
                    nn.ReLU(),
                )
                for _ in range(convs)
            ]
        )
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.first, self.second = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, words, width) to the same."""
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + conv(norm(x).transpose(1, 2)).transpose(1, 2)
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        y = self.last_norm(x).transpose(1, 2)
        return x + self.second(torch.relu(self.first(y))).transpose(1, 2)


class QaNet(nn.Module):
    """Finds answers in a text (Yu et al. 2018), with attention from text to question and back."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 48)
        self.widen = nn.Conv1d(48, width, 1)
        self.highway = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.encoder = SeparableText(width, 4, 2)
        self.weight = nn.Parameter(torch.randn(3, width) * 0.1)
        self.resize = nn.Conv1d(4 * width, width, 1)
        self.model = SeparableText(width, 4, 1)
        self.start, self.end = nn.Linear(2 * width, 1), nn.Linear(2 * width, 1)

    def _encoded(self, words: Tensor) -> Tensor:
        x = self.widen(self.table(words).transpose(1, 2)).transpose(1, 2)
        gate = torch.sigmoid(self.highway[0](x))
        x = gate * torch.relu(self.highway[1](x)) + (1 - gate) * x
        return self.encoder(x)

    def forward(self, text: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        """Words of both to scores of where the answer starts and ends."""
        c, q = self._encoded(text), self._encoded(question)
        scores = (
            (c @ self.weight[0])[:, :, None]
            + (q @ self.weight[1])[:, None]
            + (c * self.weight[2]) @ q.transpose(1, 2)
        )
        rows, columns = scores.softmax(2), scores.softmax(1)
        a = rows @ q
        b = rows @ columns.transpose(1, 2) @ c
        x = torch.cat([c, a, c * a, c * b], 2)
        first = self.model(self.resize(x.transpose(1, 2)).transpose(1, 2))
        second = self.model(first)
        third = self.model(second)
        start = self.start(torch.cat([first, second], 2))
        return start[..., 0], self.end(torch.cat([first, third], 2))[..., 0]


class TopBlock(nn.Module):
    """A transformer block of TopFormer on maps: 1x1 Convs and a depthwise one."""

    def __init__(self, width: int, heads: int = 4, key: int = 8) -> None:
        super().__init__()
        self.heads, self.key, self.value = heads, key, 2 * key
        self.q = conv_norm(width, heads * key, 1, act=nn.Identity())
        self.k = conv_norm(width, heads * key, 1, act=nn.Identity())
        self.v = conv_norm(width, heads * self.value, 1, act=nn.Identity())
        self.out = nn.Sequential(
            nn.ReLU6(), conv_norm(heads * self.value, width, 1, act=nn.Identity())
        )
        self.mlp = nn.Sequential(
            conv_norm(width, 2 * width, 1, act=nn.Identity()),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width),
            nn.ReLU6(),
            conv_norm(2 * width, width, 1, act=nn.Identity()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps."""
        b, _, h, w = x.shape
        q = self.q(x).reshape(b, self.heads, self.key, h * w).permute(0, 1, 3, 2)
        k = self.k(x).reshape(b, self.heads, self.key, h * w)
        v = self.v(x).reshape(b, self.heads, self.value, h * w).permute(0, 1, 3, 2)
        y = torch.matmul(torch.matmul(q, k).softmax(-1), v)
        x = x + self.out(y.permute(0, 1, 3, 2).reshape(b, self.heads * self.value, h, w))
        return x + self.mlp(x)


class TopFormer(nn.Module):
    """Segmentation (Zhang et al. 2022): tokens of a pyramid, injected back into its maps."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        widths = (16, 32, 64)

        def inverted(inputs: int, width: int) -> nn.Sequential:
            wide = 4 * inputs
            return nn.Sequential(
                conv_norm(inputs, wide, 1, act=nn.ReLU6()),
                conv_norm(wide, wide, 3, 2, act=nn.ReLU6(), groups=wide),
                conv_norm(wide, width, 1, act=nn.Identity()),
            )

        self.first = conv_norm(3, 16, 3, 2, nn.ReLU6())
        self.stages = nn.ModuleList(
            [inverted(i, o) for i, o in zip((16, *widths[:2]), widths, strict=True)]
        )
        self.blocks = nn.Sequential(*[TopBlock(sum(widths)) for _ in range(2)])
        self.widths = widths
        self.local = nn.ModuleList([conv_norm(w, 64, 1, act=nn.Identity()) for w in widths])
        self.whole = nn.ModuleList([conv_norm(w, 64, 1, act=nn.Identity()) for w in widths])
        self.gates = nn.ModuleList([conv_norm(w, 64, 1, act=nn.Hardsigmoid()) for w in widths])
        self.head = nn.Sequential(conv_norm(64, 64, 1), nn.Conv2d(64, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """An image to scores at an eighth of its size."""
        y, maps = self.first(x), []
        for stage in self.stages:
            y = stage(y)
            maps.append(y)
        size = (y.shape[2] // 2, y.shape[3] // 2)
        tokens = torch.cat([functional.adaptive_avg_pool2d(m, size) for m in maps], 1)
        parts = self.blocks(tokens).split(self.widths, 1)
        total: Tensor | None = None
        for m, part, local, whole, gate in zip(
            maps, parts, self.local, self.whole, self.gates, strict=True
        ):
            to = {"size": m.shape[2:], "mode": "bilinear", "align_corners": False}
            y = local(m) * functional.interpolate(gate(part), **to)
            y = y + functional.interpolate(whole(part), **to)
            if total is None:
                total = y
            else:
                total = total + functional.interpolate(
                    y, size=total.shape[2:], mode="bilinear", align_corners=False
                )
        return self.head(total)
