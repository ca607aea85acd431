"""Networks of the twenty-seventh set that no package here has, written from papers."""

from __future__ import annotations

from itertools import pairwise

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional


def _conv(read: int, written: int, size: int = 3, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (size // 2)
    return nn.Sequential(
        nn.Conv2d(read, written, size, 1, padding, dilation, bias=False),
        nn.BatchNorm2d(written),
        nn.ReLU(),
    )


class _Stages(nn.Module):
    """The four maps of a ResNet-18, from a quarter of the image's size on."""

    def __init__(self) -> None:
        super().__init__()
        whole = torchvision.models.resnet18(weights=None)
        self.stem = nn.Sequential(whole.conv1, whole.bn1, whole.relu, whole.maxpool)
        self.stages = nn.ModuleList([whole.layer1, whole.layer2, whole.layer3, whole.layer4])

    def forward(self, image: Tensor) -> list[Tensor]:
        """The largest map first."""
        maps, values = [], self.stem(image)
        for stage in self.stages:
            values = stage(values)
            maps.append(values)
        return maps


class East(nn.Module):
    """EAST (Zhou et al. 2017): scores of text, distances to its edges and its angle."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = _Stages()
        self.merges = nn.ModuleList(
            nn.Sequential(_conv(read, written, 1), _conv(written, written))
            for read, written in ((512 + 256, 64), (64 + 128, 32), (32 + 64, 16))
        )
        self.last = _conv(16, 16)
        self.score, self.edges, self.angle = (nn.Conv2d(16, count, 1) for count in (1, 4, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, and edges joined with angles."""
        *others, values = self.stages(image)
        for merge, other in zip(self.merges, reversed(others), strict=True):
            larger = functional.interpolate(values, scale_factor=2.0, mode="bilinear")
            values = merge(torch.cat([larger, other], 1))
        values = self.last(values)
        edges = torch.sigmoid(self.edges(values)) * 512
        angle = (torch.sigmoid(self.angle(values)) - 0.5) * torch.pi
        return torch.sigmoid(self.score(values)), torch.cat([edges, angle], 1)


class _Dilated(nn.Module):
    """A residual block of YOLOF's encoder."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            _conv(width, width // 4, 1), _conv(width // 4, width // 4, 3, dilation),
            _conv(width // 4, width, 1),
        )  # fmt: skip

    def forward(self, values: Tensor) -> Tensor:
        """A map of the same size."""
        added: Tensor = values + self.convs(values)
        return added


class Yolof(nn.Module):
    """YOLOF (Chen et al. 2021) on a ResNet-18: one level, whose scores know of objects."""

    def __init__(self, width: int = 128, anchors: int = 5, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.stages = _Stages()
        self.before = nn.Sequential(
            nn.Conv2d(512, width, 1), nn.BatchNorm2d(width),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.blocks = nn.Sequential(*(_Dilated(width, dilation) for dilation in (2, 4, 6, 8)))
        self.named = nn.Sequential(*(_conv(width, width) for _ in range(2)))
        self.placed = nn.Sequential(*(_conv(width, width) for _ in range(4)))
        self.scores = nn.Conv2d(width, anchors * classes, 3, padding=1)
        self.boxes = nn.Conv2d(width, anchors * 4, 3, padding=1)
        self.objects = nn.Conv2d(width, anchors, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of classes, normalized by those of objects, and boxes."""
        values = self.blocks(self.before(self.stages(image)[-1]))
        placed = self.placed(values)
        scores = self.scores(self.named(values))
        count, _channels, height, width = scores.shape
        scores = scores.view(count, -1, self.classes, height, width)
        objects = self.objects(placed).view(count, -1, 1, height, width)
        both = torch.log(
            1 + torch.clamp(scores.exp(), max=1e4) + torch.clamp(objects.exp(), max=1e4)
        )
        return (scores + objects - both).view(count, -1, height, width), self.boxes(placed)


class _Selected(nn.Module):
    """MIRNet's fusion of resolutions: weights for each, by a Softmax over them."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.squeezed = nn.Sequential(nn.Conv2d(width, 8, 1, bias=False), nn.PReLU())
        self.weights = nn.ModuleList(nn.Conv2d(8, width, 1, bias=False) for _ in range(count))

    def forward(self, maps: list[Tensor]) -> Tensor:
        """The weighted sum of ``maps``, which have one size."""
        squeezed = self.squeezed(sum(maps[1:], maps[0]).mean((2, 3), keepdim=True))
        weights = torch.stack([weight(squeezed) for weight in self.weights], 1).softmax(1)
        return (torch.stack(maps, 1) * weights).sum(1)


class _Attentive(nn.Module):
    """MIRNet's block of attention to channels and to places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )  # fmt: skip
        self.place = nn.Conv2d(2, 1, 5, padding=2, bias=False)
        self.channel = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 8, 1), nn.ReLU(),
            nn.Conv2d(width // 8, width, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.last = nn.Conv2d(2 * width, width, 1)

    def forward(self, image: Tensor) -> Tensor:
        """A map of the same size."""
        values = self.body(image)
        pooled = torch.cat([values.amax(1, True), values.mean(1, True)], 1)
        gated = [values * torch.sigmoid(self.place(pooled)), values * self.channel(values)]
        made: Tensor = self.last(torch.cat(gated, 1)) + image
        return made


class Mirnet(nn.Module):
    """MIRNet (Zamir et al. 2020), small: two resolutions that exchange what they know."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.last = (
            nn.Conv2d(read, written, 3, padding=1) for read, written in ((3, width), (width, 3))
        )
        self.down = nn.ModuleList(
            nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(width, 2 * width, 1)) for _ in range(2)
        )
        self.up = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(2 * width, width, 1), nn.Upsample(scale_factor=2, mode="bilinear")
            )
            for _ in range(2)
        )
        self.blocks = nn.ModuleList(_Attentive(size) for size in (width, 2 * width) * 2)
        self.fused = nn.ModuleList(_Selected(size, 2) for size in (width, 2 * width, width))
        self.body = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """The restored image."""
        start = self.first(image)
        large, small = self.blocks[0](start), self.blocks[1](self.down[0](start))
        both = (
            self.fused[0]([large, self.up[0](small)]),
            self.fused[1]([self.down[1](large), small]),
        )
        large, small = self.blocks[2](both[0]), self.blocks[3](both[1])
        fused = self.fused[2]([large, self.up[1](small)])
        restored: Tensor = image + self.last(start + self.body(fused))
        return restored


class _Windows(nn.Module):
    """Uformer's block: attention inside windows, and Linears around a depthwise Conv."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.queries, self.pairs = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.joined = nn.Linear(width, width)
        self.bias = nn.Parameter(0.1 * torch.randn(heads, window**2, window**2))
        self.wider, self.narrower = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.local = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)

    def _attended(self, image: Tensor) -> Tensor:
        count, side, _side, width = image.shape
        parts, window = side // self.window, self.window
        cut = image.view(count, parts, window, parts, window, width).transpose(2, 3)
        rows = cut.reshape(-1, window**2, width)
        shape = (rows.shape[0], window**2, -1, self.heads, width // self.heads)
        (queries,) = self.queries(rows).view(shape).permute(2, 0, 3, 1, 4)
        keys, values = self.pairs(rows).view(shape).permute(2, 0, 3, 1, 4)
        scores = queries * (width // self.heads) ** -0.5 @ keys.transpose(-2, -1) + self.bias
        made = self.joined((scores.softmax(-1) @ values).transpose(1, 2).reshape(rows.shape))
        back: Tensor = made.view(count, parts, parts, window, window, width).transpose(2, 3)
        return back.reshape(image.shape)

    def _computed(self, rows: Tensor, side: int) -> Tensor:
        wide = functional.gelu(self.wider(rows)).transpose(1, 2).unflatten(2, (side, side))
        wide = functional.gelu(self.local(wide)).flatten(2).transpose(1, 2)
        narrow: Tensor = self.narrower(wide)
        return narrow

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of a square map's places, as they were."""
        side = int(rows.shape[1] ** 0.5)
        squares = self.norms[0](rows).unflatten(1, (side, side))
        rows = rows + self._attended(squares).flatten(1, 2)
        return rows + self._computed(self.norms[1](rows), side)


def _map(rows: Tensor) -> Tensor:
    side = int(rows.shape[1] ** 0.5)
    return rows.transpose(1, 2).unflatten(2, (side, side))


class Uformer(nn.Module):
    """Uformer (Wang et al. 2022), small: a U-Net of windows with one level below the first."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.LeakyReLU())
        self.last = nn.Conv2d(2 * width, 3, 3, padding=1)
        self.before, self.after = _Windows(width, 1, 8), _Windows(2 * width, 2, 8)
        self.lower = nn.Sequential(_Windows(2 * width, 2, 8), _Windows(2 * width, 2, 8))
        self.down = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)

    def forward(self, image: Tensor) -> Tensor:
        """The restored image."""
        rows = self.before(self.first(image).flatten(2).transpose(1, 2))
        lower = self.lower(self.down(_map(rows)).flatten(2).transpose(1, 2))
        upper = self.up(_map(lower)).flatten(2).transpose(1, 2)
        rows = self.after(torch.cat([upper, rows], 2))
        restored: Tensor = image + self.last(_map(rows))
        return restored


class XDeepFm(nn.Module):
    """xDeepFM (Lian et al. 2018): products of fields by Convs, beside Linears and a sum."""

    def __init__(self, fields: int = 12, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.table, self.single = nn.Embedding(words, width), nn.Embedding(words, 1)
        sizes = [fields, 24, 24]
        self.crossed = nn.ModuleList(
            nn.Conv1d(fields * size, written, 1) for size, written in pairwise(sizes)
        )
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32),
            nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1),
        )  # fmt: skip
        self.last = nn.Linear(48, 1)

    def forward(self, fields: Tensor) -> Tensor:
        """How likely a click is, for each row of fields."""
        first = self.table(fields)
        values, sums = first, []
        for conv in self.crossed:
            products = torch.einsum("bhd,bmd->bhmd", values, first).flatten(1, 2)
            values = torch.relu(conv(products))
            sums.append(values.sum(2))
        logits = self.single(fields).sum(1) + self.deep(first.flatten(1))
        return torch.sigmoid(logits + self.last(torch.cat(sums, 1)))


class _Hierarchical(nn.Module):
    """N-HiTS's block: a pool, Linears, and knots that are interpolated."""

    def __init__(self, past: int, future: int, pool: int, knots: int) -> None:
        super().__init__()
        self.past, self.future = past, future
        self.pool = nn.MaxPool1d(pool, pool)
        self.linears = nn.Sequential(
            nn.Linear(past // pool, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
            nn.Linear(64, past + knots),
        )  # fmt: skip

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        """What of the past is explained, and what of the future is known."""
        found = self.linears(self.pool(series[:, None]).squeeze(1))
        back, knots = found[:, : self.past], found[:, self.past :]
        known = functional.interpolate(knots[:, None], size=self.future, mode="linear")
        return back, known.squeeze(1)


class NHits(nn.Module):
    """N-HiTS (Challu et al. 2023): three stacks of blocks of different resolutions."""

    def __init__(self, past: int = 96, future: int = 24) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _Hierarchical(past, future, *sizes) for sizes in ((8, 3), (4, 6), (1, 24))
        )

    def forward(self, series: Tensor) -> Tensor:
        """The future of each series."""
        rest, future = series, series[:, -1:]
        for block in self.blocks:
            back, known = block(rest)
            rest, future = rest - back, future + known
        return future


class Gin(nn.Module):
    """GIN (Xu et al. 2019) for graphs whose edges are a dense matrix, with a sum of each layer."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        widths = [16, *[width] * layers]
        self.own = nn.Parameter(0.1 * torch.ones(layers))
        self.inner = nn.ModuleList(nn.Linear(read, width) for read in widths[:-1])
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.readers = nn.ModuleList(nn.Linear(read, 10) for read in widths)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Scores of each graph's classes."""
        scores = self.readers[0](nodes.sum(1))
        for index, inner in enumerate(self.inner):
            sums = edges @ nodes + (1 + self.own[index]) * nodes
            hidden = self.norms[index](inner(sums).transpose(1, 2)).transpose(1, 2)
            nodes = torch.relu(self.outer[index](torch.relu(hidden)))
            scores = scores + self.readers[index + 1](nodes.sum(1))
        return scores


class _Grouped(nn.Module):
    """PointNet++'s set abstraction: neighbours of a point, relative to it, and their maximum."""

    def __init__(self, read: int, *widths: int) -> None:
        super().__init__()
        sizes = [read, *widths]
        self.convs = nn.Sequential(*map(_one, sizes, widths))

    def forward(
        self, places: Tensor, values: Tensor, centres: Tensor, neighbours: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Places and values of the points ``centres``."""
        kept = places[:, centres]
        near = places[:, neighbours] - kept[:, :, None]
        grouped = torch.cat([near, values[:, neighbours]], -1).permute(0, 3, 2, 1)
        return kept, self.convs(grouped).amax(2).transpose(1, 2)


def _one(read: int, written: int) -> nn.Sequential:
    return _conv(read, written, 1)


class PointNet2(nn.Module):
    """PointNet++ (Qi et al. 2017) for classes; sampling and search are fixed."""

    def __init__(self, points: int = 128) -> None:
        super().__init__()
        self.first, self.second = _Grouped(6, 32, 32, 64), _Grouped(67, 64, 64, 128)
        self.whole = nn.Sequential(*map(_one, (131, 128), (128, 256)))
        self.last = nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)
        )
        drawn = torch.Generator().manual_seed(0)
        for name, count, of in (("near", points, 64), ("far", 64, 16)):
            self.register_buffer(name, torch.randint(0, count, (of, 8), generator=drawn))
            self.register_buffer(f"{name}_kept", torch.randperm(count, generator=drawn)[:of])

    def forward(self, points: Tensor) -> Tensor:
        """Scores of classes for points of three places and three values."""
        places, values = points[..., :3], points[..., 3:]
        places, values = self.first(places, values, self.near_kept, self.near)
        places, values = self.second(places, values, self.far_kept, self.far)
        joined = torch.cat([places, values], -1).transpose(1, 2)[..., None]
        scores: Tensor = self.last(self.whole(joined).amax((2, 3)))
        return scores
