"""Networks of papers that no package here has, with fewer and narrower blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class _ChannelNorm(nn.Module):
    """LayerNorm over the channels of a map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        mean = features.mean(1, keepdim=True)
        spread = (features - mean).pow(2).mean(1, keepdim=True)
        normed = (features - mean) / torch.sqrt(spread + 1e-6)
        return self.scale[:, None, None] * normed + self.shift[:, None, None]


class _Modulation(nn.Module):
    """Spatially adaptive modulation: channels in four groups, each at a scale of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        part = width // 4
        self.depthwise = nn.ModuleList(nn.Conv2d(part, part, 3, 1, 1, groups=part) for _ in "1234")
        self.joined = nn.Conv2d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        height, width = features.shape[-2:]
        parts = list(features.chunk(4, dim=1))
        found = [self.depthwise[0](parts[0])]
        for level in (1, 2, 3):
            factor = 2**level
            small = functional.adaptive_max_pool2d(
                parts[level], (height // factor, width // factor)
            )
            small = self.depthwise[level](small)
            found.append(functional.interpolate(small, size=(height, width), mode="nearest"))
        gate = functional.gelu(self.joined(torch.cat(found, dim=1)))
        return gate * features


class Safmn(nn.Module):
    """SAFMN (Sun et al. 2023): super-resolution by four."""

    def __init__(self, width: int = 36, blocks: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.norms = nn.ModuleList(_ChannelNorm(width) for _ in range(2 * blocks))
        self.modulations = nn.ModuleList(_Modulation(width) for _ in range(blocks))
        self.mixers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, 2 * width, 3, 1, 1), nn.GELU(), nn.Conv2d(2 * width, width, 1)
            )
            for _ in range(blocks)
        )
        self.last = nn.Sequential(nn.Conv2d(width, 48, 3, 1, 1), nn.PixelShuffle(4))

    def forward(self, image: Tensor) -> Tensor:
        first = features = self.first(image)
        for index, (modulate, mix) in enumerate(zip(self.modulations, self.mixers, strict=True)):
            features = modulate(self.norms[2 * index](features)) + features
            features = mix(self.norms[2 * index + 1](features)) + features
        return self.last(features + first)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, 1, groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


class _Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.adds = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *([_conv(inputs, inner, 1)] if expansion > 1 else []),
            _conv(inner, inner, 3, stride, inner),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, features: Tensor) -> Tensor:
        return features + self.body(features) if self.adds else self.body(features)


class MoveNet(nn.Module):
    """MoveNet (single pose): MobileNetV2 with a pyramid, four heads, and the choice of points."""

    def __init__(self, size: int, width: int = 24, points: int = 17) -> None:
        super().__init__()
        self.points, self.side = points, size // 4
        stages = ((16, 1, 1, 1), (24, 2, 2, 6), (32, 2, 2, 6), (64, 2, 2, 6))
        self.stem, last, self.stages = _conv(3, 16, 3, 2), 16, nn.ModuleList()
        for outputs, count, stride, expansion in stages:
            blocks = [_Inverted(last, outputs, stride, expansion)]
            blocks += [_Inverted(outputs, outputs, 1, expansion) for _ in range(count - 1)]
            self.stages.append(nn.Sequential(*blocks))
            last = outputs
        self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (24, 32, 64))
        self.smooth = nn.ModuleList(
            nn.Sequential(_conv(width, width, 3, 1, width), _conv(width, width, 1)) for _ in "12"
        )
        self.heads = nn.ModuleList(
            self._head(width, n) for n in (1, 2 * points, points, 2 * points)
        )
        rows, columns = torch.meshgrid(*2 * (torch.arange(self.side).float(),), indexing="ij")
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        centre = (self.side - 1) / 2
        distance = ((rows - centre) ** 2 + (columns - centre) ** 2).sqrt()
        self.register_buffer("central", 1 / (distance + self.side / 2))

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            _conv(width, width, 3, 1, width), _conv(width, 2 * width, 1),
            nn.Conv2d(2 * width, outputs, 1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        features, levels = self.stem(image * 2 - 1), []
        for stage in self.stages:
            features = stage(features)
            levels.append(features)
        maps = [lateral(x) for lateral, x in zip(self.lateral, levels[1:], strict=True)]
        found = maps[-1]
        for smooth, finer in zip(self.smooth, maps[-2::-1], strict=True):
            wide = functional.interpolate(found, scale_factor=2.0, mode="bilinear")
            found = smooth(wide + finer)
        centre, regressed, heat, offsets = (head(found) for head in self.heads)
        return self._chosen(torch.sigmoid(centre), regressed, torch.sigmoid(heat), offsets)

    def _chosen(self, centre: Tensor, regressed: Tensor, heat: Tensor, offsets: Tensor) -> Tensor:
        """Rows, columns and scores of the points, (1, points, 3)."""
        best = (centre * self.central).flatten(1).argmax(1)
        at = regressed.flatten(2)[:, :, best].reshape(2, self.points)
        row = at[0] + torch.div(best, self.side, rounding_mode="floor").float()
        column = at[1] + (best % self.side).float()
        down = (self.rows[None] - row[:, None, None]) ** 2
        along = (self.columns[None] - column[:, None, None]) ** 2
        weighted = heat[0] / ((down + along).sqrt() + 1.8)
        places = weighted.flatten(1).argmax(1)
        score = heat[0].flatten(1).gather(1, places[:, None])[:, 0]
        shifts = offsets[0].flatten(1).gather(1, places.repeat(2)[:, None])[:, 0]
        rows = torch.div(places, self.side, rounding_mode="floor").float() + shifts[: self.points]
        columns = (places % self.side).float() + shifts[self.points :]
        return torch.stack((rows / self.side, columns / self.side, score), 1)[None]


class DcnV2(nn.Module):
    """DCN v2 (Wang et al. 2021): embeddings and numbers, low-rank crosses beside an MLP."""

    def __init__(self, sizes: Sequence[int], numbers: int, depth: int = 16, rank: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, depth) for size in sizes)
        width = len(sizes) * depth + numbers
        self.into = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(3))
        self.out_of = nn.ModuleList(nn.Linear(rank, width) for _ in range(3))
        self.deep = nn.Sequential(
            nn.Linear(width, 128), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Linear(width + 64, 1)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        embedded = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        first = crossed = torch.cat((*embedded, numbers), 1)
        for into, out_of in zip(self.into, self.out_of, strict=True):
            crossed = first * out_of(into(crossed)) + crossed
        return torch.sigmoid(self.last(torch.cat((crossed, self.deep(first)), 1)))
