"""Networks of the twenty-second set that no package here has, written from their papers."""

from __future__ import annotations

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(given: int, made: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(made),
        nn.SiLU(),
    )


class _NextBlock(nn.Module):
    """A 3x3 Conv, a depthwise one of 5x5, and what both read."""

    def __init__(self, width: int, adds: bool) -> None:
        super().__init__()
        self.first = _conv(width, width)
        self.second = nn.Sequential(_conv(width, width, 5, groups=width), _conv(width, width, 1))
        self.adds = adds

    def forward(self, given: Tensor) -> Tensor:
        made: Tensor = self.second(self.first(given))
        return given + made if self.adds else made


class _CspLayer(nn.Module):
    """Two branches that are joined, with attention to channels where ``attends``."""

    def __init__(self, given: int, made: int, count: int, adds: bool, attends: bool) -> None:
        super().__init__()
        half = made // 2
        self.main, self.short = _conv(given, half, 1), _conv(given, half, 1)
        self.blocks = nn.Sequential(*[_NextBlock(half, adds) for _ in range(count)])
        self.gate = nn.Conv2d(made, made, 1) if attends else None
        self.last = _conv(made, made, 1)

    def forward(self, given: Tensor) -> Tensor:
        made = torch.cat((self.blocks(self.main(given)), self.short(given)), 1)
        if self.gate is not None:
            gate = functional.hardsigmoid(self.gate(functional.adaptive_avg_pool2d(made, 1)))
            made = made * gate
        joined: Tensor = self.last(made)
        return joined


class RtmDet(nn.Module):
    """RTMDet (Lyu et al. 2022): CSPNeXt, PAFPN, heads with shared Convs, boxes decoded."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        w = [width, 2 * width, 4 * width, 8 * width, 16 * width]
        self.stem = nn.Sequential(_conv(3, w[0] // 2, 3, 2), _conv(w[0] // 2, w[0]))
        stages = []
        for index in range(4):
            count = 2 if index in (1, 2) else 1
            adds, made = index < 3, w[index + 1]
            layers: list[nn.Module] = [_conv(w[index], made, 3, 2)]
            layers += [_SppBlock(made)] if index == 3 else []
            stages.append(nn.Sequential(*layers, _CspLayer(made, made, count, adds, True)))
        self.stages = nn.ModuleList(stages)
        c3, c4, c5 = w[2:]
        self.reduce5, self.reduce4 = _conv(c5, c4, 1), _conv(c4, c3, 1)
        self.top4 = _CspLayer(2 * c4, c4, 1, False, False)
        self.top3 = _CspLayer(2 * c3, c3, 1, False, False)
        self.down3, self.down4 = _conv(c3, c3, 3, 2), _conv(c4, c4, 3, 2)
        self.bottom4 = _CspLayer(2 * c3, c4, 1, False, False)
        self.bottom5 = _CspLayer(2 * c4, c5, 1, False, False)
        head = 4 * width
        self.outs = nn.ModuleList([_conv(c, head) for c in (c3, c4, c5)])
        self.scores = nn.Sequential(_conv(head, head), _conv(head, head))
        self.sides = nn.Sequential(_conv(head, head), _conv(head, head))
        self.to_scores = nn.ModuleList([nn.Conv2d(head, classes, 1) for _ in "123"])
        self.to_sides = nn.ModuleList([nn.Conv2d(head, 4, 1) for _ in "123"])
        self.scales = nn.Parameter(torch.ones(3))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and corners of the boxes at all places."""
        features, maps = self.stem(image), []
        for stage in self.stages:
            features = stage(features)
            maps.append(features)
        _, map3, map4, map5 = maps
        high = self.reduce5(map5)
        up = functional.interpolate(high, scale_factor=2.0, mode="nearest")
        middle = self.top4(torch.cat((up, map4), 1))
        low = self.reduce4(middle)
        up = functional.interpolate(low, scale_factor=2.0, mode="nearest")
        out3 = self.top3(torch.cat((up, map3), 1))
        out4 = self.bottom4(torch.cat((self.down3(out3), low), 1))
        out5 = self.bottom5(torch.cat((self.down4(out4), high), 1))
        scores, corners = [], []
        for level, found in enumerate((out3, out4, out5)):
            made, stride = self.outs[level](found), float(8 << level)
            scores.append(self.to_scores[level](self.scores(made)).flatten(2).sigmoid())
            sides = self.to_sides[level](self.sides(made)) * self.scales[level]
            sides = sides.exp().flatten(2) * stride
            rows, columns = torch.meshgrid(
                torch.arange(made.shape[2]), torch.arange(made.shape[3]), indexing="ij"
            )
            places = torch.stack((columns, rows)).flatten(1)[None] * stride
            corners.append(torch.cat((places - sides[:, :2], places + sides[:, 2:]), 1))
        return torch.cat(scores, 2).transpose(1, 2), torch.cat(corners, 2).transpose(1, 2)


class _SppBlock(nn.Module):
    """Pools of three windows beside the map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _conv(width, width // 2, 1), _conv(2 * width, width, 1)
        self.pools = nn.ModuleList([nn.MaxPool2d(k, 1, k // 2) for k in (5, 9, 13)])

    def forward(self, given: Tensor) -> Tensor:
        made = self.first(given)
        joined: Tensor = self.last(torch.cat([made, *(pool(made) for pool in self.pools)], 1))
        return joined


class _EdgeConv(nn.Module):
    """A 1x1 Conv of each point's nearest neighbours less the point, and their maximum."""

    def __init__(self, given: int, made: int, near: int) -> None:
        super().__init__()
        self.conv, self.near = nn.Conv2d(2 * given, made, 1, bias=False), near
        self.norm = nn.BatchNorm2d(made)

    def forward(self, points: Tensor) -> Tensor:
        inner = 2 * torch.matmul(points.transpose(1, 2), points)
        squares = (points**2).sum(1, keepdim=True)
        distances = inner - squares - squares.transpose(1, 2)
        chosen = distances.topk(self.near, dim=-1).indices
        rows = points.transpose(1, 2)[0]
        near = rows[chosen[0].reshape(-1)].view(rows.shape[0], self.near, rows.shape[1])
        own = rows[:, None].expand(-1, self.near, -1)
        edges = torch.cat((near - own, own), 2).permute(2, 0, 1)[None]
        made = functional.leaky_relu(self.norm(self.conv(edges)), 0.2)
        return made.max(dim=-1).values


class Dgcnn(nn.Module):
    """DGCNN (Wang et al. 2019) for one cloud, of three EdgeConvs."""

    def __init__(self, near: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [_EdgeConv(3, 32, near), _EdgeConv(32, 32, near), _EdgeConv(32, 64, near)]
        )
        self.join = nn.Sequential(
            nn.Conv1d(128, 256, 1, bias=False), nn.BatchNorm1d(256), nn.LeakyReLU(0.2)
        )
        self.head = nn.Sequential(
            nn.Linear(512, 128), nn.BatchNorm1d(128), nn.LeakyReLU(0.2), nn.Linear(128, classes)
        )

    def forward(self, points: Tensor) -> Tensor:
        """The classes of the cloud."""
        found = []
        for conv in self.convs:
            points = conv(points)
            found.append(points)
        made = self.join(torch.cat(found, 1))
        row = torch.cat((made.amax(2), made.mean(2)), 1)
        classes: Tensor = self.head(row)
        return classes


class _InceptionBlock(nn.Module):
    """Convs of three lengths and a pool of one line, joined."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        self.narrow = nn.Conv1d(given, width, 1, bias=False)
        self.convs = nn.ModuleList(
            [nn.Conv1d(width, width, size, padding=size // 2, bias=False) for size in (39, 19, 9)]
        )
        self.pool = nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(given, width, 1, bias=False))
        self.norm = nn.BatchNorm1d(4 * width)

    def forward(self, given: Tensor) -> Tensor:
        narrow = self.narrow(given)
        made = torch.cat([*(conv(narrow) for conv in self.convs), self.pool(given)], 1)
        return functional.relu(self.norm(made))


class InceptionTime(nn.Module):
    """InceptionTime (Fawaz et al. 2020): six blocks, a residual around each three."""

    def __init__(self, channels: int = 6, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        given = [channels] + [4 * width] * 5
        self.blocks = nn.ModuleList([_InceptionBlock(g, width) for g in given])
        self.shortcuts = nn.ModuleList(
            [
                nn.Sequential(nn.Conv1d(g, 4 * width, 1, bias=False), nn.BatchNorm1d(4 * width))
                for g in (channels, 4 * width)
            ]
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, series: Tensor) -> Tensor:
        """The classes of the series."""
        before = series
        for index, block in enumerate(self.blocks):
            series = block(series)
            if index % 3 == 2:
                series = functional.relu(series + self.shortcuts[index // 3](before))
                before = series
        classes: Tensor = self.head(series.mean(2))
        return classes


class _ConditionalNorm(nn.Module):
    """A BatchNorm whose scale and shift are made of a row."""

    def __init__(self, width: int, row: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.scale, self.shift = (nn.Linear(row, width, bias=False) for _ in "12")

    def forward(self, given: Tensor, row: Tensor) -> Tensor:
        scale, shift = self.scale(row)[:, :, None, None], self.shift(row)[:, :, None, None]
        made: Tensor = self.norm(given) * (1 + scale) + shift
        return made


class _GeneratorBlock(nn.Module):
    """Two Convs with norms that a row conditions, behind an upsampling."""

    def __init__(self, given: int, made: int, row: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_ConditionalNorm(given, row), _ConditionalNorm(made, row)])
        self.first = nn.Conv2d(given, made, 3, padding=1)
        self.second = nn.Conv2d(made, made, 3, padding=1)
        self.shortcut = nn.Conv2d(given, made, 1)

    def forward(self, given: Tensor, row: Tensor) -> Tensor:
        made = functional.relu(self.norms[0](given, row))
        made = self.first(functional.interpolate(made, scale_factor=2.0))
        made = self.second(functional.relu(self.norms[1](made, row)))
        short: Tensor = self.shortcut(functional.interpolate(given, scale_factor=2.0))
        return short + made


class _MapAttention(nn.Module):
    """Attention of one head over the places of a map, whose keys are pooled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Conv2d(width, width // 8, 1, bias=False) for _ in "12")
        self.value = nn.Conv2d(width, width // 2, 1, bias=False)
        self.last = nn.Conv2d(width // 2, width, 1, bias=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, given: Tensor) -> Tensor:
        query = self.query(given).flatten(2)
        key = functional.max_pool2d(self.key(given), 2).flatten(2)
        value = functional.max_pool2d(self.value(given), 2).flatten(2)
        weights = functional.softmax(torch.bmm(query.transpose(1, 2), key), -1)
        made = torch.bmm(value, weights.transpose(1, 2))
        made = made.view(given.shape[0], -1, given.shape[2], given.shape[3])
        return self.scale * self.last(made) + given


class BigGan(nn.Module):
    """BigGAN's generator (Brock et al. 2019) for images of 32 x 32."""

    def __init__(self, width: int = 32, noise: int = 20, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(classes, 32, bias=False)
        self.noise, self.width = noise, width
        self.first = nn.Linear(noise, 16 * 4 * width)
        row = noise + 32
        self.blocks = nn.ModuleList(
            [_GeneratorBlock(width * 4 >> i, width * 4 >> (i + 1), row) for i in range(3)]
        )
        self.attention = _MapAttention(width)
        self.norm, self.last = nn.BatchNorm2d(width // 2), nn.Conv2d(width // 2, 3, 3, padding=1)

    def forward(self, noise: Tensor, classes: Tensor) -> Tensor:
        """An image."""
        pieces = noise.split(self.noise, 1)
        embedded = self.embed(classes)
        made = self.first(pieces[0]).view(-1, 4 * self.width, 4, 4)
        for index, block in enumerate(self.blocks):
            made = block(made, torch.cat((pieces[index + 1], embedded), 1))
            if index == 1:
                made = self.attention(made)
        return torch.tanh(self.last(functional.relu(self.norm(made))))


class _SanmLayer(nn.Module):
    """Attention beside a memory of the values, and two Linears."""

    def __init__(self, given: int, width: int, heads: int, memory: int = 11) -> None:
        super().__init__()
        self.heads, self.adds = heads, given == width
        self.first, self.second = nn.LayerNorm(given), nn.LayerNorm(width)
        self.joint, self.last = nn.Linear(given, 3 * width), nn.Linear(width, width)
        self.pad = nn.ConstantPad1d(((memory - 1) // 2, memory // 2), 0.0)
        self.memory = nn.Conv1d(width, width, memory, groups=width, bias=False)
        self.forward_1, self.forward_2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.joint(self.first(rows)).chunk(3, -1)
        memory = self.memory(self.pad(value.transpose(1, 2))).transpose(1, 2) + value
        batch, count, width = value.shape
        shape = (batch, count, self.heads, width // self.heads)
        heads = [part.reshape(shape).transpose(1, 2) for part in (query, key, value)]
        scores = heads[0] * shape[-1] ** -0.5 @ heads[1].transpose(-2, -1)
        mixed = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(batch, count, width)
        made = self.last(mixed) + memory
        rows = rows + made if self.adds else made
        done: Tensor = self.forward_2(functional.relu(self.forward_1(self.second(rows))))
        return rows + done


class Paraformer(nn.Module):
    """The encoder of Paraformer (Gao et al. 2022), of three layers, with CTC's scores."""

    def __init__(self, given: int = 80, width: int = 64, classes: int = 50) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [_SanmLayer(given, width, 4), *(_SanmLayer(width, width, 4) for _ in "12")]
        )
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Logarithms of the scores of all frames."""
        width = rows.shape[2]
        places = torch.arange(1, rows.shape[1] + 1)[:, None].float()
        steps = torch.exp(torch.arange(width // 2) * (-9.21 / (width / 2 - 1)))
        angles = places * steps
        rows = rows * 8.0 + torch.cat((angles.sin(), angles.cos()), 1)[None]
        for layer in self.layers:
            rows = layer(rows)
        return functional.log_softmax(self.last(self.norm(rows)), -1)


class Monodepth2(nn.Module):
    """Monodepth2 (Godard et al. 2019): a ResNet-18 and Convs of reflected maps, four depths."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = timm.create_model("resnet18", pretrained=False, features_only=True)
        given, made = self.encoder.feature_info.channels(), (16, 32, 64, 128, 256)
        self.up = nn.ModuleList(
            [self._conv(given[4] if i == 4 else made[i + 1], made[i]) for i in range(5)]
        )
        self.mix = nn.ModuleList(
            [self._conv(made[i] + (given[i - 1] if i else 0), made[i]) for i in range(5)]
        )
        self.depth = nn.ModuleList([self._conv(made[i], 1) for i in range(4)])

    @staticmethod
    def _conv(given: int, made: int) -> nn.Module:
        return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(given, made, 3))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Disparities at four sizes."""
        found = self.encoder((image - 0.45) / 0.225)
        made, depths = found[-1], []
        for level in range(4, -1, -1):
            made = functional.elu(self.up[level](made))
            made = functional.interpolate(made, scale_factor=2.0, mode="nearest")
            if level:
                made = torch.cat((made, found[level - 1]), 1)
            made = functional.elu(self.mix[level](made))
            if level < 4:
                depths.append(torch.sigmoid(self.depth[level](made)))
        return tuple(depths)


class _GatherExpand(nn.Module):
    """BiSeNet v2's block: a 3x3 Conv, depthwise Convs of more channels, and a shortcut."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        wide = 6 * given
        self.first = _rectified(given, given)
        deep = [_rectified(given, wide, stride, given, relu=False)] if stride == 2 else []
        inner = wide if stride == 2 else given
        self.deep = nn.Sequential(*deep, _rectified(inner, wide, 1, inner, relu=stride == 1))
        self.last = nn.Sequential(nn.Conv2d(wide, made, 1, bias=False), nn.BatchNorm2d(made))
        self.short = nn.Sequential(
            _rectified(given, given, stride, given, relu=False),
            nn.Conv2d(given, made, 1, bias=False),
            nn.BatchNorm2d(made),
        )
        self.plain = stride == 1

    def forward(self, given: Tensor) -> Tensor:
        made = self.last(self.deep(self.first(given)))
        return functional.relu(made + (given if self.plain else self.short(given)))


def _rectified(
    given: int, made: int, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Module:
    layers = [nn.Conv2d(given, made, 3, stride, 1, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(made), *([nn.ReLU()] if relu else []))


class BiSeNetV2(nn.Module):
    """BiSeNet v2 (Yu et al. 2020): two branches that guide each other."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers = [(3, 32, 2), (32, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 64, 1)]
        self.detail = nn.Sequential(*[_rectified(*layer) for layer in layers])
        self.stem = _rectified(3, 16, 2)
        self.left = nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU(), _rectified(8, 16, 2))
        self.pool, self.join = nn.MaxPool2d(3, 2, 1), _rectified(32, 16)
        blocks = [(16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        self.semantic = nn.Sequential(*[_GatherExpand(*block) for block in blocks])
        self.context = nn.Sequential(nn.BatchNorm2d(128), nn.Conv2d(128, 64, 1), nn.ReLU())
        self.widen, self.narrow = nn.Conv2d(64, 128, 1), _rectified(128, 64)
        self.keep_1 = nn.Sequential(_rectified(64, 64, 1, 64, relu=False), nn.Conv2d(64, 64, 1))
        self.keep_2 = nn.Sequential(_rectified(64, 64, 1, 64, relu=False), nn.Conv2d(64, 64, 1))
        self.shrink = nn.Sequential(_rectified(64, 64, 2, relu=False), nn.AvgPool2d(3, 2, 1))
        self.grow, self.mix = _rectified(64, 64, relu=False), _rectified(64, 64, relu=False)
        self.head = nn.Sequential(_rectified(64, 64), nn.Conv2d(64, classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Classes of all pixels."""
        detail, start = self.detail(image), self.stem(image)
        start = self.join(torch.cat((self.left(start), self.pool(start)), 1))
        found = self.semantic(start)
        found = found + self.widen(self.context(found.mean((2, 3), keepdim=True)))
        found = self.narrow(found)
        grown = torch.sigmoid(functional.interpolate(self.grow(found), scale_factor=4.0))
        fine = self.keep_1(detail) * grown
        coarse = torch.sigmoid(self.keep_2(found)) * self.shrink(detail)
        mixed = self.mix(fine + functional.interpolate(coarse, scale_factor=4.0))
        made: Tensor = self.head(mixed)
        return functional.interpolate(made, scale_factor=8.0, mode="bilinear", align_corners=False)


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, rows: Tensor) -> Tensor:
        squares = rows.pow(2).mean(-1, keepdim=True)
        return self.scale * (rows * torch.rsqrt(squares + 1e-5))


def _turned(heads: Tensor) -> Tensor:
    """``heads`` (batch, heads, words, width) with rotary positions."""
    count, width = heads.shape[2:]
    steps = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * steps
    cos, sin = angles.cos(), angles.sin()
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class _SinkAttention(nn.Module):
    """Heads that share keys and values, and a learned score that takes part in each Softmax."""

    def __init__(self, width: int, heads: int, shared: int, window: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.query, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, shared * self.size) for _ in "12")
        self.sinks, self.window = nn.Parameter(torch.zeros(heads)), window

    def forward(self, rows: Tensor) -> Tensor:
        batch, count, width = rows.shape
        query, key, value = (
            part.view(batch, count, -1, self.size).transpose(1, 2)
            for part in (self.query(rows), self.key(rows), self.value(rows))
        )
        query, key = _turned(query), _turned(key)
        key, value = (x.repeat_interleave(self.heads // self.shared, 1) for x in (key, value))
        later = torch.ones(count, count).triu(1) + torch.ones(count, count).tril(-self.window)
        scores = query @ key.transpose(2, 3) * self.size**-0.5 - 1e4 * later
        sinks = self.sinks[None, :, None, None].expand(batch, -1, count, 1)
        weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        mixed: Tensor = self.last((weights @ value).transpose(1, 2).reshape(batch, count, width))
        return mixed


class _Experts(nn.Module):
    """A mixture of experts, each of which computes all rows."""

    def __init__(self, width: int, inner: int, count: int, chosen: int) -> None:
        super().__init__()
        self.router, self.chosen = nn.Linear(width, count), chosen
        self.up = nn.Parameter(torch.randn(count, width, 2 * inner) * width**-0.5)
        self.up_bias = nn.Parameter(torch.randn(count, 1, 2 * inner) * 0.1)
        self.down = nn.Parameter(torch.randn(count, inner, width) * inner**-0.5)
        self.down_bias = nn.Parameter(torch.randn(count, 1, width) * 0.1)

    def forward(self, rows: Tensor) -> Tensor:
        scores = self.router(rows)
        best, chosen = scores.topk(self.chosen, dim=-1)
        weights = torch.zeros_like(scores).scatter(1, chosen, best.softmax(-1))
        given = rows[None].expand(self.up.shape[0], -1, -1)
        gate, up = (torch.bmm(given, self.up) + self.up_bias).chunk(2, -1)
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        made = (up + 1) * gate * torch.sigmoid(1.702 * gate)
        made = torch.bmm(made, self.down) + self.down_bias
        return (made * weights.t()[:, :, None]).sum(0)


class GptOss(nn.Module):
    """gpt-oss (OpenAI 2025): sinks, windows in every second layer, a mixture of experts."""

    def __init__(self, width: int = 64, layers: int = 2, words: int = 100) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.attentions = nn.ModuleList(
            [_SinkAttention(width, 4, 2, 24 if i % 2 else 8) for i in range(layers)]
        )
        self.experts = nn.ModuleList([_Experts(width, 64, 4, 2) for _ in range(layers)])
        self.norms = nn.ModuleList([_RmsNorm(width) for _ in range(2 * layers + 1)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next words."""
        rows = self.words(tokens)
        for index, (attention, experts) in enumerate(
            zip(self.attentions, self.experts, strict=True)
        ):
            rows = rows + attention(self.norms[2 * index](rows))
            rows = rows + experts(self.norms[2 * index + 1](rows)[0])[None]
        scores: Tensor = self.head(self.norms[-1](rows))
        return scores
