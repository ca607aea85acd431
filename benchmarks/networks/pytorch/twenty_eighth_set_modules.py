"""Networks of the twenty-eighth set that no package here has, written from papers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Match(nn.Module):
    """A layer of LightGlue: attention within an image, then between the two."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.crossed = nn.Linear(width, width)
        self.within, self.between = (
            nn.Sequential(
                nn.Linear(2 * width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(2)
        )  # fmt: skip

    def _split(self, values: Tensor) -> Tensor:
        count, points, width = values.shape
        return values.reshape(count, points, self.heads, width // self.heads).transpose(1, 2)

    def _attended(self, values: Tensor, angles: Tensor) -> Tensor:
        count, points, width = values.shape
        joint = self.joint(values).reshape(count, points, self.heads, width // self.heads, 3)
        queries, keys, read = (joint[..., part].transpose(1, 2) for part in range(3))
        queries, keys = (
            part * angles.cos()
            + torch.stack((-part[..., 1::2], part[..., ::2]), -1).reshape(part.shape) * angles.sin()
            for part in (queries, keys)
        )  # fmt: skip
        found = functional.scaled_dot_product_attention(queries, keys, read)
        message = self.out(found.transpose(1, 2).flatten(-2))
        added: Tensor = values + self.within(torch.cat([values, message], -1))
        return added

    def forward(
        self, first: Tensor, second: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Descriptors of both images."""
        first, second = self._attended(first, angles[0]), self._attended(second, angles[1])
        keys = self._split(self.key(first)), self._split(self.key(second))
        scores = keys[0] @ keys[1].transpose(-1, -2) * keys[0].shape[-1] ** -0.5
        read = scores.softmax(-1) @ self._split(self.value(second))
        other = scores.transpose(-1, -2).softmax(-1) @ self._split(self.value(first))
        made = []
        for values, found in ((first, read), (second, other)):
            message = self.crossed(found.transpose(1, 2).flatten(-2))
            made.append(values + self.between(torch.cat([values, message], -1)))
        return made[0], made[1]


class LightGlue(nn.Module):
    """LightGlue (Lindenberger et al. 2023): scores of matches of two images' points."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.turned = nn.Linear(2, width // heads // 2, bias=False)
        self.layers = nn.ModuleList(_Match(width, heads) for _ in range(2))
        self.last, self.known = nn.Linear(width, width), nn.Linear(width, 1)

    def _angles(self, places: Tensor) -> Tensor:
        turned = self.turned(places)
        return torch.stack((turned, turned), -1).flatten(-2).unsqueeze(1)

    def forward(self, first: Tensor, second: Tensor, at: Tensor, to: Tensor) -> Tensor:
        """Logarithms of the scores of all pairs."""
        angles = self._angles(at), self._angles(to)
        for layer in self.layers:
            first, second = layer(first, second, angles)
        scores = self.last(first) @ self.last(second).transpose(-1, -2) / 8
        sure = functional.logsigmoid(self.known(first)) + functional.logsigmoid(
            self.known(second)
        ).transpose(-1, -2)
        return scores.log_softmax(-1) + scores.log_softmax(-2) + sure


class _Mixed(nn.Module):
    """TimeMixer's block: seasons are mixed from fine to coarse, trends the other way."""

    def __init__(self, length: int, width: int, levels: int) -> None:
        super().__init__()
        sizes = [length >> level for level in range(levels)]

        def mixers(read: list[int], written: list[int]) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Sequential(nn.Linear(first, second), nn.GELU(), nn.Linear(second, second))
                for first, second in zip(read, written, strict=True)
            )

        self.down = mixers(sizes[:-1], sizes[1:])
        self.up = mixers(sizes[:0:-1], sizes[-2::-1])
        self.crossed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.mean = nn.AvgPool1d(9, 1, 4, count_include_pad=False)

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        """Scales of the same sizes."""
        trends = [self.mean(values.transpose(1, 2)) for values in scales]
        seasons = [
            values.transpose(1, 2) - trend for values, trend in zip(scales, trends, strict=True)
        ]
        for level, mix in enumerate(self.down):
            seasons[level + 1] = seasons[level + 1] + mix(seasons[level])
        for level, mix in zip(range(len(trends) - 2, -1, -1), self.up, strict=True):
            trends[level] = trends[level] + mix(trends[level + 1])
        return [
            values + self.crossed((season + trend).transpose(1, 2))
            for values, season, trend in zip(scales, seasons, trends, strict=True)
        ]


class TimeMixer(nn.Module):
    """TimeMixer (Wang et al. 2024): forecasts of three scales of a series, added up."""

    def __init__(self, length: int = 96, ahead: int = 24, width: int = 32) -> None:
        super().__init__()
        self.pool = nn.AvgPool1d(2)
        self.embedded = nn.Conv1d(1, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(_Mixed(length, width, 3) for _ in range(2))
        self.ahead = nn.ModuleList(nn.Linear(length >> level, ahead) for level in range(3))
        self.read = nn.Linear(width, 1)

    def forward(self, series: Tensor) -> Tensor:
        """``ahead`` values of each variable of ``series``: samples x length x variables."""
        count, _length, variables = series.shape
        middle = series.mean(1, keepdim=True)
        spread = (((series - middle) ** 2).mean(1, keepdim=True) + 1e-5).sqrt()
        values = ((series - middle) / spread).transpose(1, 2)
        scales = [values, self.pool(values), self.pool(self.pool(values))]
        scales = [
            self.embedded(scale.reshape(count * variables, 1, -1)).transpose(1, 2)
            for scale in scales
        ]
        for block in self.blocks:
            scales = block(scales)
        found = [
            self.read(ahead(values.transpose(1, 2)).transpose(1, 2))
            for values, ahead in zip(scales, self.ahead, strict=True)
        ]
        total = (found[0] + found[1] + found[2]).reshape(count, variables, -1).transpose(1, 2)
        added: Tensor = total * spread + middle
        return added


class _Equivariant(nn.Module):
    """A layer of EGNN: messages of all pairs of atoms move atoms and change features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.gate = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid())
        self.moved = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.changed = nn.Sequential(
            nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, features: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Features and places of the same sizes."""
        count, atoms, width = features.shape
        between = places[:, :, None] - places[:, None]
        squared = (between**2).sum(-1, keepdim=True)
        first = features[:, :, None].expand(count, atoms, atoms, width)
        second = features[:, None].expand(count, atoms, atoms, width)
        message = self.message(torch.cat([first, second, squared], -1))
        message = message * self.gate(message)
        places = places + (between / (squared.sqrt() + 1) * self.moved(message)).mean(2)
        return features + self.changed(torch.cat([features, message.sum(2)], -1)), places


class Egnn(nn.Module):
    """EGNN (Satorras et al. 2021): a property of molecules, from atoms and their places."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedded = nn.Linear(8, width)
        self.layers = nn.ModuleList(_Equivariant(width) for _ in range(3))
        self.last = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, atoms: Tensor, places: Tensor) -> Tensor:
        """One number for each molecule."""
        features = self.embedded(atoms)
        for layer in self.layers:
            features, places = layer(features, places)
        found: Tensor = self.last(features.sum(1))
        return found


class _Conditioned(nn.Module):
    """Two Convs of a line with GroupNorm and Mish, scaled and shifted by the condition between."""

    def __init__(self, read: int, written: int, condition: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.Conv1d(width, written, 5, padding=2), nn.GroupNorm(8, written), nn.Mish()
            )
            for width in (read, written)
        )  # fmt: skip
        self.condition = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * written))
        self.skip = nn.Conv1d(read, written, 1) if read != written else nn.Identity()

    def forward(self, values: Tensor, condition: Tensor) -> Tensor:
        """A line of the same length."""
        scale, shift = self.condition(condition).unsqueeze(-1).chunk(2, 1)
        added: Tensor = self.second(scale * self.first(values) + shift) + self.skip(values)
        return added


class DiffusionPolicy(nn.Module):
    """The one-dimensional U-Net of Diffusion Policy (Chi et al. 2023): noise of actions."""

    def __init__(self, actions: int = 8, seen: int = 24, width: int = 32) -> None:
        super().__init__()
        self.step = nn.Sequential(
            nn.Linear(width, 4 * width), nn.Mish(), nn.Linear(4 * width, width)
        )
        condition = width + seen
        self.down = nn.ModuleList(
            _Conditioned(read, written, condition)
            for read, written in ((actions, width), (width, width), (width, 64), (64, 64))
        )
        self.smaller = nn.Conv1d(width, width, 3, 2, 1)
        self.middle = nn.ModuleList(_Conditioned(64, 64, condition) for _ in range(2))
        self.up = nn.ModuleList(
            _Conditioned(read, written, condition)
            for read, written in ((128, width), (width, width))
        )
        self.larger = nn.ConvTranspose1d(width, width, 4, 2, 1)
        self.last = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2), nn.GroupNorm(8, width), nn.Mish(),
            nn.Conv1d(width, actions, 1),
        )  # fmt: skip
        self.register_buffer("rates", torch.exp(-torch.arange(width // 2) * 0.6))

    def forward(self, noisy: Tensor, step: Tensor, seen: Tensor) -> Tensor:
        """``noisy``: samples x actions x length; ``step``: samples x 1."""
        angles = step * self.rates
        condition = torch.cat([self.step(torch.cat([angles.sin(), angles.cos()], -1)), seen], -1)
        values = self.down[1](self.down[0](noisy, condition), condition)
        values = self.down[3](self.down[2](self.smaller(values), condition), condition)
        kept = values
        for block in self.middle:
            values = block(values, condition)
        values = self.up[0](torch.cat([values, kept], 1), condition)
        found: Tensor = self.last(self.larger(self.up[1](values, condition)))
        return found


class _Triangle(nn.Module):
    """A multiplicative update of pairs by the edges that start, or end, in a third residue."""

    def __init__(self, width: int, ends: bool) -> None:
        super().__init__()
        self.ends = ends
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.first, self.second, self.out = (nn.Linear(width, width) for _ in range(3))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, pairs: Tensor) -> Tensor:
        """The update."""
        pairs = self.norm(pairs)
        first = self.first(pairs) * self.gates[0](pairs).sigmoid()
        second = self.second(pairs) * self.gates[1](pairs).sigmoid()
        order = (2, 1, 0) if self.ends else (2, 0, 1)
        first, second = first.permute(order), second.permute(order)
        summed = (first @ second.transpose(-1, -2)).permute(1, 2, 0)
        found: Tensor = self.out(self.last(summed)) * self.gates[2](pairs).sigmoid()
        return found


class _RowAttention(nn.Module):
    """Gated attention along rows, biased by pairs."""

    def __init__(self, width: int, pair: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.bias = nn.LayerNorm(width), nn.Linear(pair, heads, bias=False)
        self.joint = nn.Linear(width, 3 * width, bias=False)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, rows: Tensor, pairs: Tensor) -> Tensor:
        """The update of ``rows``: sequences x residues x width."""
        rows = self.norm(rows)
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.joint(rows).chunk(3, -1)
        )
        scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
        weights = (scores + self.bias(pairs).permute(2, 0, 1)).softmax(-1)
        found = (weights @ values).transpose(1, 2).flatten(-2)
        gated: Tensor = self.out(found * self.gate(rows).sigmoid())
        return gated


class _Block(nn.Module):
    """A block of the Evoformer, without attention along columns."""

    def __init__(self, width: int, pair: int) -> None:
        super().__init__()
        self.rows = _RowAttention(width, pair)
        self.wide, self.wide_pairs = (
            nn.Sequential(
                nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size)
            )
            for size in (width, pair)
        )
        self.norm = nn.LayerNorm(width)
        self.left, self.right, self.outer = (
            nn.Linear(width, 8), nn.Linear(width, 8), nn.Linear(64, pair)
        )  # fmt: skip
        self.starts, self.ends = _Triangle(pair, False), _Triangle(pair, True)
        self.attended = _RowAttention(pair, pair)

    def forward(self, rows: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and pairs of the same sizes."""
        rows = rows + self.rows(rows, pairs)
        rows = rows + self.wide(rows)
        normed = self.norm(rows)
        sequences, residues, _width = rows.shape
        left = self.left(normed).reshape(sequences, -1).transpose(0, 1)
        product = left @ self.right(normed).reshape(sequences, -1) / sequences
        product = product.reshape(residues, 8, residues, 8).transpose(1, 2)
        pairs = pairs + self.outer(product.reshape(residues, residues, 64))
        pairs = pairs + self.starts(pairs)
        pairs = pairs + self.ends(pairs)
        pairs = pairs + self.attended(pairs, pairs)
        return rows, pairs + self.wide_pairs(pairs)


class Evoformer(nn.Module):
    """AlphaFold 2's trunk (Jumper et al. 2021), two blocks: distances between residues."""

    def __init__(self, width: int = 64, pair: int = 32) -> None:
        super().__init__()
        self.rows, self.pairs = nn.Linear(23, width), nn.Linear(16, pair)
        self.blocks = nn.ModuleList(_Block(width, pair) for _ in range(2))
        self.last = nn.Linear(pair, 16)

    def forward(self, sequences: Tensor, pairs: Tensor) -> Tensor:
        """Scores of distances."""
        rows, pairs = self.rows(sequences), self.pairs(pairs)
        for block in self.blocks:
            rows, pairs = block(rows, pairs)
        found: Tensor = self.last(pairs + pairs.transpose(0, 1))
        return found


class _Separable(nn.Module):
    """A block of TitaNet: separable Convs of a line, a gate and a residual."""

    def __init__(self, width: int, size: int, repeated: int = 2) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(repeated):
            layers += [
                nn.Conv1d(width, width, size, padding=size // 2, groups=width, bias=False),
                nn.Conv1d(width, width, 1, bias=False), nn.BatchNorm1d(width),
            ]  # fmt: skip
            layers += [nn.ReLU()] if index + 1 < repeated else []
        self.body = nn.Sequential(*layers)
        self.gate = nn.Sequential(
            nn.Linear(width, width // 8, bias=False), nn.ReLU(),
            nn.Linear(width // 8, width, bias=False), nn.Sigmoid(),
        )  # fmt: skip
        self.skip = nn.Sequential(nn.Conv1d(width, width, 1, bias=False), nn.BatchNorm1d(width))

    def forward(self, values: Tensor) -> Tensor:
        """A line of the same length."""
        made = self.body(values)
        made = made * self.gate(made.mean(-1)).unsqueeze(-1)
        return functional.relu(made + self.skip(values))


class TitaNet(nn.Module):
    """TitaNet (Koluguri et al. 2022): an embedding of who speaks."""

    def __init__(self, bands: int = 80, width: int = 96) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(bands, width, 3, padding=1, bias=False), nn.BatchNorm1d(width), nn.ReLU(),
            _Separable(width, 7), _Separable(width, 11), _Separable(width, 15),
            nn.Conv1d(width, 2 * width, 1, bias=False), nn.BatchNorm1d(2 * width), nn.ReLU(),
        )  # fmt: skip
        self.weights = nn.Sequential(
            nn.Conv1d(2 * width, 32, 1), nn.ReLU(), nn.BatchNorm1d(32), nn.Tanh(),
            nn.Conv1d(32, 2 * width, 1), nn.Softmax(-1),
        )  # fmt: skip
        self.last = nn.Sequential(nn.BatchNorm1d(4 * width), nn.Linear(4 * width, 48))

    def forward(self, spectrum: Tensor) -> Tensor:
        """``spectrum``: samples x bands x length."""
        values = self.body(spectrum)
        weights = self.weights(values)
        mean = (weights * values).sum(-1)
        spread = ((weights * values * values).sum(-1) - mean * mean).clamp(min=1e-5).sqrt()
        found: Tensor = self.last(torch.cat([mean, spread], 1))
        return found


def _conv3(read: int, written: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(read, written, 3, padding=1, bias=False), nn.BatchNorm3d(written), nn.ReLU()
    )


class StereoNet(nn.Module):
    """PSMNet (Chang and Chen 2018), reduced: disparities of two images by a volume of costs."""

    def __init__(self, width: int = 16, shifts: int = 8) -> None:
        super().__init__()
        self.shifts = shifts

        def conv(read: int, written: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(read, written, 3, stride, 1, bias=False),
                nn.BatchNorm2d(written), nn.ReLU(),
            )  # fmt: skip

        self.first = nn.Sequential(conv(3, width, 2), conv(width, width), conv(width, 32, 2))
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AvgPool2d(size), conv(32, width)) for size in (8, 4)
        )
        self.joined = nn.Sequential(conv(32 + 2 * width, 32), nn.Conv2d(32, width, 1, bias=False))
        self.costs = nn.Sequential(_conv3(2 * width, width), _conv3(width, width))
        self.body = nn.Sequential(_conv3(width, width), nn.Conv3d(width, width, 3, padding=1))
        self.last = nn.Sequential(_conv3(width, width), nn.Conv3d(width, 1, 3, padding=1))

    def _features(self, image: Tensor) -> Tensor:
        values = self.first(image)
        pooled = [
            functional.interpolate(pool(values), values.shape[-2:], mode="bilinear")
            for pool in self.pools
        ]
        found: Tensor = self.joined(torch.cat([values, *pooled], 1))
        return found

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Disparities of ``left``, of its size."""
        first, second = self._features(left), self._features(right)
        size = first.shape[-1]
        volume = torch.stack(
            [
                torch.cat([first, functional.pad(second, (shift, 0, 0, 0))[..., :size]], 1)
                for shift in range(self.shifts)
            ],
            2,
        )
        costs = self.costs(volume)
        scores = self.last(costs + self.body(costs))
        larger = functional.interpolate(scores, scale_factor=4.0, mode="trilinear").squeeze(1)
        places = torch.arange(4 * self.shifts, dtype=torch.float32)[None, :, None, None]
        return (larger.softmax(1) * places).sum(1)
