"""Networks of papers and tools that no package here has, with fewer and narrower blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    act: nn.Module | None = None,
    **options: int,
) -> nn.Sequential:
    """A convolution, a batch normalization and an activation."""
    padding = options.pop("padding", kernel // 2)
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False, **options),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([act] if act is not None else []))


class _RepBlock(nn.Module):
    """Two convolutions and a residual, the second one as RepVGG's blocks are deployed."""

    def __init__(self, width: int, shortcut: bool) -> None:
        super().__init__()
        self.first = _conv(width, width, 3, act=nn.SiLU())
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = shortcut

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        found = functional.silu(self.second(self.first(features)))
        return features + found if self.shortcut else found


class _EffectiveSe(nn.Module):
    """Effective squeeze-and-excitation: one 1x1 convolution of the means."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        return features * functional.hardsigmoid(self.fc(features.mean((2, 3), keepdim=True)))


class _CspStage(nn.Module):
    """A stage of CSPRepResNet, and of its pyramid (then without a stride and residuals)."""

    def __init__(
        self, inputs: int, outputs: int, blocks: int, down: bool, spp: bool = False
    ) -> None:
        super().__init__()
        middle = (inputs + outputs) // 2 if down else outputs
        self.down = _conv(inputs, middle, 3, 2, nn.SiLU()) if down else nn.Identity()
        start = middle if down else inputs
        self.one = _conv(start, middle // 2, 1, act=nn.SiLU())
        self.two = _conv(start, middle // 2, 1, act=nn.SiLU())
        self.blocks = nn.Sequential(*(_RepBlock(middle // 2, down) for _ in range(blocks)))
        self.spp = _conv(2 * middle, middle // 2, 1, act=nn.SiLU()) if spp else None
        self.attention = _EffectiveSe(middle) if down else nn.Identity()
        self.last = _conv(middle, outputs, 1, act=nn.SiLU())

    def forward(self, features: Tensor) -> Tensor:
        """A map of half the size, or of the same one."""
        features = self.down(features)
        one, two = self.one(features), self.blocks(self.two(features))
        if self.spp is not None:
            pools = [functional.max_pool2d(two, size, 1, size // 2) for size in (5, 9, 13)]
            two = self.spp(torch.cat([two, *pools], 1))
        return self.last(self.attention(torch.cat([one, two], 1)))


class _TaskHead(nn.Module):
    """A level of the efficient task-aligned head: gates by means, residuals, distributions."""

    def __init__(self, width: int, classes: int, bins: int = 8) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))
        self.mixes = nn.ModuleList(_conv(width, width, 1, act=nn.SiLU()) for _ in range(2))
        self.scores, self.boxes = (
            nn.Conv2d(width, classes, 3, padding=1),
            nn.Conv2d(width, 4 * bins, 3, padding=1),
        )
        self.register_buffer("bins", torch.arange(bins, dtype=torch.float32).reshape(1, bins, 1, 1))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, classes, places) and distances (N, 4, places)."""
        mean = functional.adaptive_avg_pool2d(features, 1)
        seen = [
            mix(features * gate(mean).sigmoid())
            for gate, mix in zip(self.gates, self.mixes, strict=True)
        ]
        scores = self.scores(seen[0] + features).sigmoid().flatten(2)
        boxes = self.boxes(seen[1]).reshape(len(features), 4, self.bins.shape[1], -1)
        return scores, (boxes.permute(0, 2, 1, 3).softmax(1) * self.bins).sum(1)


class PpYoloe(nn.Module):
    """PP-YOLOE (Xu et al. 2022) as it is deployed: scores and distances of all places."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        widths = (24, 48, 96, 128)
        self.stem = nn.Sequential(_conv(3, 16, 3, 2, nn.SiLU()), _conv(16, 24, 3, 1, nn.SiLU()))
        self.stages = nn.ModuleList(
            _CspStage(before, after, 1, down=True) for before, after in pairwise(widths)
        )
        self.top = _CspStage(128, 96, 1, down=False, spp=True)
        self.turn, self.middle = _conv(96, 48, 1, act=nn.SiLU()), _CspStage(144, 48, 1, down=False)
        self.turn_again, self.low = (
            _conv(48, 24, 1, act=nn.SiLU()),
            _CspStage(72, 48, 1, down=False),
        )
        self.down, self.out_middle = (
            _conv(48, 48, 3, 2, nn.SiLU()),
            _CspStage(96, 48, 1, down=False),
        )
        self.down_again, self.out_top = (
            _conv(48, 48, 3, 2, nn.SiLU()),
            _CspStage(144, 96, 1, down=False),
        )
        self.heads = nn.ModuleList(_TaskHead(width, classes) for width in (96, 48, 48))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """(N, classes, places) and (N, 4, places) of (N, 3, H, W)."""
        features, maps = self.stem(image), []
        for stage in self.stages:
            features = stage(features)
            maps.append(features)
        top = self.top(maps[2])
        middle = self.middle(torch.cat([_twice(self.turn(top)), maps[1]], 1))
        low = self.low(torch.cat([_twice(self.turn_again(middle)), maps[0]], 1))
        middle = self.out_middle(torch.cat([self.down(low), middle], 1))
        top = self.out_top(torch.cat([self.down_again(middle), top], 1))
        found = [head(level) for head, level in zip(self.heads, (top, middle, low), strict=True)]
        return torch.cat([scores for scores, _ in found], -1), torch.cat(
            [boxes for _, boxes in found], -1
        )


def _twice(features: Tensor) -> Tensor:
    return functional.interpolate(features, scale_factor=2.0, mode="nearest")


class _Basic(nn.Module):
    """A residual block of two 3x3 convolutions, the last Relu left out if asked for."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, last: bool = True) -> None:
        super().__init__()
        self.first, self.second = (
            _conv(inputs, outputs, 3, stride, nn.ReLU()),
            _conv(outputs, outputs, 3),
        )
        plain = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if plain else _conv(inputs, outputs, 1, stride)
        self.last = last

    def forward(self, features: Tensor) -> Tensor:
        """The residual's sum."""
        found = self.second(self.first(features)) + self.skip(features)
        return found.relu() if self.last else found


class _DeepPyramid(nn.Module):
    """DAPPM: means of growing windows, resized, added one after the other and joined."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(
            nn.Sequential(
                nn.AvgPool2d(size, stride, size // 2),
                nn.BatchNorm2d(inputs),
                nn.ReLU(),
                nn.Conv2d(inputs, width, 1, bias=False),
            )
            for size, stride in ((5, 2), (9, 4))
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inputs, width, 1, bias=False))
        self.start = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, width, 1, bias=False)
        )
        self.mixes = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)
            )
            for _ in range(3)
        )
        self.join = nn.Sequential(
            nn.BatchNorm2d(4 * width), nn.ReLU(), nn.Conv2d(4 * width, outputs, 1, bias=False)
        )
        self.skip = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W)."""
        size, found = features.shape[2:], [self.start(features)]
        for scale, mix in zip((*self.scales, self.whole), self.mixes, strict=True):
            larger = functional.interpolate(scale(features), size=size, mode="bilinear")
            found.append(mix(larger + found[-1]))
        return self.join(torch.cat(found, 1)) + self.skip(features)


class DdrNet(nn.Module):
    """DDRNet-23-slim (Hong et al. 2021): two resolutions that add to each other."""

    def __init__(self, classes: int = 5, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, width, 3, 2, nn.ReLU()),
            _conv(width, width, 3, 2, nn.ReLU()),
            _Basic(width, width),
            _Basic(width, 2 * width, 2),
        )
        self.low_1, self.high_1 = (
            _Basic(2 * width, 4 * width, 2, False),
            _Basic(2 * width, 2 * width, 1, False),
        )
        self.squeeze_1, self.spread_1 = (
            _conv(4 * width, 2 * width, 1),
            _conv(2 * width, 4 * width, 3, 2),
        )
        self.low_2, self.high_2 = (
            _Basic(4 * width, 8 * width, 2, False),
            _Basic(2 * width, 2 * width, 1, False),
        )
        self.squeeze_2 = _conv(8 * width, 2 * width, 1)
        self.spread_2 = nn.Sequential(
            _conv(2 * width, 4 * width, 3, 2, nn.ReLU()), _conv(4 * width, 8 * width, 3, 2)
        )
        self.pyramid = _DeepPyramid(8 * width, 32, 4 * width)
        self.last = _conv(2 * width, 4 * width, 1)
        self.head = nn.Sequential(
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.Conv2d(4 * width, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, classes, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Scores (N, classes, H / 8, W / 8)."""
        shared = self.stem(image)
        low, high = self.low_1(shared.relu()), self.high_1(shared.relu())
        size = high.shape[2:]
        both = low + self.spread_1(high.relu())
        high = high + functional.interpolate(self.squeeze_1(low.relu()), size=size, mode="bilinear")
        low, high = self.low_2(both.relu()), self.high_2(high.relu())
        both = low + self.spread_2(high.relu())
        high = high + functional.interpolate(self.squeeze_2(low.relu()), size=size, mode="bilinear")
        far = functional.interpolate(self.pyramid(both.relu()), size=size, mode="bilinear")
        return self.head(self.last(high.relu()) + far)


class _Block(nn.Module):
    """A block of a vision transformer, with one joint product of queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, tokens, width) to the same."""
        samples, length, width = tokens.shape
        joint = self.joint(self.before(tokens)).reshape(samples, length, 3, self.heads, -1)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        shares = (query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        tokens = tokens + self.out((shares @ value).transpose(1, 2).reshape(samples, length, width))
        return tokens + self.mlp(self.after(tokens))


class OsTrack(nn.Module):
    """OSTrack (Ye et al. 2022): template and search region in one transformer, heads of Convs."""

    def __init__(self, width: int = 96, depth: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.template_places = nn.Parameter(torch.randn(1, 16, width))
        self.search_places = nn.Parameter(torch.randn(1, 64, width))
        self.blocks, self.norm = (
            nn.Sequential(*(_Block(width, 4) for _ in range(depth))),
            nn.LayerNorm(width),
        )
        self.heads = nn.ModuleList(
            nn.Sequential(
                _conv(width, 64, 3, act=nn.ReLU()),
                _conv(64, 32, 3, act=nn.ReLU()),
                nn.Conv2d(32, count, 1),
            )
            for count in (1, 2, 2)
        )

    def forward(self, template: Tensor, search: Tensor) -> list[Tensor]:
        """Maps of scores, offsets and sizes, of images of 64 and 128 pixels."""
        parts = [
            self.patches(image).flatten(2).transpose(1, 2) + places
            for image, places in ((template, self.template_places), (search, self.search_places))
        ]
        tokens = self.norm(self.blocks(torch.cat(parts, 1)))
        found = tokens[:, -64:].transpose(1, 2).reshape(len(search), -1, 8, 8)
        return [head(found).sigmoid().clamp(1e-4, 1 - 1e-4) for head in self.heads]


class _DilatedBlock(nn.Module):
    """Lite-Mono's dilated depthwise convolution, with channels last behind it."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            width, width, 3, padding=dilation, dilation=dilation, groups=width, bias=False
        )
        self.norm = nn.BatchNorm2d(width)
        self.wide, self.narrow = nn.Linear(width, 6 * width), nn.Linear(6 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        rows = self.norm(self.depthwise(features)).permute(0, 2, 3, 1)
        rows = self.scale * self.narrow(functional.gelu(self.wide(rows)))
        return features + rows.permute(0, 3, 1, 2)


class _LocalGlobal(nn.Module):
    """Attention over channels (XCA) of all places, and an inverted bottleneck."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.wide, self.narrow = nn.Linear(width, 6 * width), nn.Linear(6 * width, width)

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        samples, width, height, columns = features.shape
        rows = features.reshape(samples, width, -1).permute(0, 2, 1)
        joint = self.joint(self.before(rows)).reshape(
            samples, -1, 3, self.heads, width // self.heads
        )
        query, key, value = joint.permute(2, 0, 3, 4, 1).unbind(0)
        query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        shares = (query @ key.transpose(-2, -1) * self.temperature).softmax(-1)
        rows = rows + self.out((shares @ value).permute(0, 3, 1, 2).reshape(samples, -1, width))
        rows = rows.reshape(samples, height, columns, width)
        found = self.narrow(functional.gelu(self.wide(self.after(rows))))
        return features + found.permute(0, 3, 1, 2)


class LiteMono(nn.Module):
    """Lite-Mono (Zhang et al. 2023): depth of one image, with the image's averages joined."""

    def __init__(self, widths: tuple[int, int, int] = (32, 48, 64)) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, widths[0], 3, 2, nn.GELU()), _conv(widths[0], widths[0], 3, 1, nn.GELU())
        )
        self.downs = nn.ModuleList([
            _conv(widths[0] + 3, widths[0], 3, 2),
            _conv(2 * widths[0] + 3, widths[1], 3, 2),
            _conv(2 * widths[1] + 3, widths[2], 3, 2),
        ])  # fmt: skip
        self.stages = nn.ModuleList(
            nn.Sequential(_DilatedBlock(width, 1), _DilatedBlock(width, 2), _LocalGlobal(width))
            for width in widths
        )
        ups = ((widths[2], 48, widths[1]), (48, 32, widths[0]), (32, 16, 0))
        self.ups = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.Conv2d(a, b, 3, padding=1, padding_mode="reflect"),
                    nn.Conv2d(b + c, b, 3, padding=1, padding_mode="reflect"),
                ]
            )
            for a, b, c in ups
        )
        self.depth = nn.Conv2d(16, 1, 3, padding=1, padding_mode="reflect")

    def forward(self, image: Tensor) -> Tensor:
        """Inverse depth (N, 1, H / 2, W / 2)."""
        images, features, maps = [image], self.stem(image), list[Tensor]()
        for _ in range(3):
            images.append(functional.avg_pool2d(images[-1], 3, 2, 1))
        joined = torch.cat([features, images[1]], 1)
        for index, (down, stage) in enumerate(zip(self.downs, self.stages, strict=True)):
            reduced = down(joined)
            maps.append(stage(reduced))
            if index < len(self.downs) - 1:
                joined = torch.cat([reduced, maps[-1], images[index + 2]], 1)
        features = maps[-1]
        for index, (first, second) in enumerate(self.ups):
            features = functional.interpolate(
                functional.elu(first(features)), scale_factor=2.0, mode="bilinear"
            )
            if index < len(maps) - 1:
                features = torch.cat([features, maps[1 - index]], 1)
            features = functional.elu(second(features))
        return self.depth(features).sigmoid()


class YuNet(nn.Module):
    """YuNet (Wu et al. 2023): faces by depthwise units, a small pyramid and heads of rows."""

    def __init__(self) -> None:
        super().__init__()

        def unit(inputs: int, outputs: int, act: bool = True) -> nn.Sequential:
            layers = [
                nn.Conv2d(inputs, outputs, 1),
                nn.Conv2d(outputs, outputs, 3, padding=1, groups=outputs),
            ]
            return nn.Sequential(*layers, *([nn.BatchNorm2d(outputs), nn.ReLU()] if act else []))

        self.stem = nn.Sequential(_conv(3, 16, 3, 2, nn.ReLU()), unit(16, 16))
        self.stages = nn.ModuleList(
            nn.Sequential(unit(a, a), unit(a, b))
            for a, b in ((16, 64), (64, 64), (64, 64), (64, 64))
        )
        self.laterals = nn.ModuleList(unit(64, 64) for _ in range(3))
        self.shared = nn.ModuleList(unit(64, 64) for _ in range(3))
        self.heads = nn.ModuleList(
            nn.ModuleList(unit(64, count, False) for count in (1, 4, 1, 10)) for _ in range(3)
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        """Scores, boxes, presence and landmarks of each of three levels, as rows."""
        features, maps = functional.max_pool2d(self.stem(image), 2), list[Tensor]()
        for stage in self.stages:
            features = stage(features)
            maps.append(features)
            features = functional.max_pool2d(features, 2)
        levels = maps[1:]
        levels[2] = self.laterals[2](levels[2])
        for index in (1, 0):
            levels[index] = self.laterals[index](levels[index] + _twice(levels[index + 1]))
        found = list[Tensor]()
        for level, shared, heads in zip(levels, self.shared, self.heads, strict=True):
            seen = shared(level)
            rows = [
                head(seen).permute(0, 2, 3, 1).reshape(len(image), -1, head[0].out_channels)
                for head in heads
            ]
            found += [rows[0].sigmoid(), rows[1], rows[2].sigmoid(), rows[3]]
        return found


class Parseq(nn.Module):
    """PARSeq (Bautista and Atienza 2022): queries of places read a ViT's tokens, once."""

    def __init__(self, width: int = 64, length: int = 26, classes: int = 95) -> None:
        super().__init__()
        self.patches, self.places = (
            nn.Conv2d(3, width, (4, 8), (4, 8)),
            nn.Parameter(torch.randn(1, 128, width)),
        )
        self.blocks, self.norm = (
            nn.Sequential(*(_Block(width, 4) for _ in range(3))),
            nn.LayerNorm(width),
        )
        self.queries, self.start = (
            nn.Parameter(torch.randn(1, length, width)),
            nn.Parameter(torch.randn(1, 1, width)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.content = nn.MultiheadAttention(width, 4, batch_first=True)
        self.images = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Scores (N, length, classes) of (N, 3, 32, 128)."""
        memory = self.norm(
            self.blocks(self.patches(image).flatten(2).transpose(1, 2) + self.places)
        )
        query, content = self.norms[0](self.queries), self.norms[1](self.start)
        query = self.queries + self.content(query, content, content, need_weights=False)[0]
        query = query + self.images(self.norms[2](query), memory, memory, need_weights=False)[0]
        return self.head(self.norms[3](query + self.mlp(query)))


class _Separable(nn.Module):
    """A block of Citrinet: separable convolutions over time, a gate of means, a residual."""

    def __init__(self, width: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        layers = list[nn.Module]()
        for index in range(3):
            step = stride if index == 2 else 1
            layers += [nn.Conv1d(width, width, kernel, step, kernel // 2, groups=width, bias=False)]
            layers += [nn.Conv1d(width, width, 1, bias=False), nn.BatchNorm1d(width)]
            layers += [nn.ReLU()] if index < 2 else []
        self.body = nn.Sequential(*layers)
        self.gate = nn.Sequential(
            nn.Linear(width, width // 8, bias=False),
            nn.ReLU(),
            nn.Linear(width // 8, width, bias=False),
        )
        self.skip = nn.Sequential(
            nn.Conv1d(width, width, 1, stride, bias=False), nn.BatchNorm1d(width)
        )

    def forward(self, sound: Tensor) -> Tensor:
        """(N, width, time) to the same, or half the time."""
        found = self.body(sound)
        means = self.gate(found.mean(-1, keepdim=True).transpose(1, 2)).transpose(1, 2)
        return (found * means.sigmoid() + self.skip(sound)).relu()


class Citrinet(nn.Module):
    """Citrinet (Majumdar et al. 2021): log probabilities of tokens of a spectrogram."""

    def __init__(self, width: int = 64, classes: int = 33) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(40, 40, 5, padding=2, groups=40, bias=False),
            nn.Conv1d(40, width, 1, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(
            *(
                _Separable(width, kernel, stride)
                for kernel, stride in ((11, 2), (13, 1), (15, 1), (17, 2), (19, 1))
            )
        )
        self.last = nn.Sequential(
            nn.Conv1d(width, width, 41, padding=20, groups=width, bias=False),
            nn.Conv1d(width, 2 * width, 1, bias=False),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
        )
        self.scores = nn.Conv1d(2 * width, classes, 1)

    def forward(self, sound: Tensor) -> Tensor:
        """(N, time / 4, classes) of (N, 40, time)."""
        return (
            self.scores(self.last(self.blocks(self.first(sound)))).transpose(1, 2).log_softmax(-1)
        )


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, width, 3, padding=1),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """The residual's sum behind a Relu."""
        return (features + self.second(self.first(features).relu())).relu()


class _Cascade(nn.Module):
    """What all parts so far wrote, joined and mixed, goes into the next part."""

    def __init__(self, width: int, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.mixes = nn.ModuleList(nn.Conv2d((i + 2) * width, width, 1) for i in range(len(parts)))

    def forward(self, features: Tensor) -> Tensor:
        """(N, width, H, W) to the same."""
        joined = mixed = features
        for part, mix in zip(self.parts, self.mixes, strict=True):
            joined = torch.cat([joined, part(mixed)], 1)
            mixed = mix(joined).relu()
        return mixed


class Carn(nn.Module):
    """CARN (Ahn et al. 2018): an image twice as large by cascades of cascades."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.entry, self.exit = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.body = _Cascade(
            width, [_Cascade(width, [_Residual(width) for _ in range(3)]) for _ in range(3)]
        )
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.ReLU(), nn.PixelShuffle(2)
        )

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, 2 H, 2 W) of (N, 3, H, W)."""
        return self.exit(self.up(self.body(self.entry(image))))


class _BottleneckX3d(nn.Module):
    """A block of X3D: depthwise over time and places, a gate, Swish."""

    def __init__(self, inputs: int, outputs: int, stride: int, gated: bool) -> None:
        super().__init__()
        middle = outputs * 9 // 4 // 8 * 8
        self.wide = nn.Sequential(
            nn.Conv3d(inputs, middle, 1, bias=False), nn.BatchNorm3d(middle), nn.ReLU()
        )
        self.depthwise = nn.Sequential(
            nn.Conv3d(middle, middle, 3, (1, stride, stride), 1, groups=middle, bias=False),
            nn.BatchNorm3d(middle),
        )
        gate = (
            nn.AdaptiveAvgPool3d(1),
            nn.Conv3d(middle, 8, 1),
            nn.ReLU(),
            nn.Conv3d(8, middle, 1),
        )
        self.gate = nn.Sequential(*gate, nn.Sigmoid()) if gated else None
        self.narrow = nn.Sequential(
            nn.Conv3d(middle, outputs, 1, bias=False), nn.BatchNorm3d(outputs)
        )
        plain = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if plain else nn.Sequential(
            nn.Conv3d(inputs, outputs, 1, (1, stride, stride), bias=False), nn.BatchNorm3d(outputs)
        )  # fmt: skip

    def forward(self, clip: Tensor) -> Tensor:
        """(N, inputs, time, H, W) to (N, outputs, time, H / stride, W / stride)."""
        found = self.depthwise(self.wide(clip))
        if self.gate is not None:
            found = found * self.gate(found)
        return (self.narrow(functional.silu(found)) + self.skip(clip)).relu()


class X3d(nn.Module):
    """X3D-XS (Feichtenhofer 2020): classes of a clip."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 16, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.Conv3d(16, 16, (5, 1, 1), padding=(2, 0, 0), groups=16, bias=False),
            nn.BatchNorm3d(16), nn.ReLU(),
        )  # fmt: skip
        plan = (
            (16, 16, 2, True),
            (16, 16, 1, False),
            (16, 32, 2, True),
            (32, 32, 1, False),
            (32, 64, 2, True),
        )
        self.blocks = nn.Sequential(*(_BottleneckX3d(*block) for block in plan))
        self.last = nn.Sequential(
            nn.Conv3d(64, 128, 1, bias=False),
            nn.BatchNorm3d(128),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
        )
        self.wide, self.scores = nn.Conv3d(128, 256, 1, bias=False), nn.Linear(256, classes)

    def forward(self, clip: Tensor) -> Tensor:
        """Scores (N, classes) of (N, 3, time, H, W)."""
        found = self.wide(self.last(self.blocks(self.stem(clip)))).relu()
        return self.scores(found.permute(0, 2, 3, 4, 1)).softmax(-1).mean((1, 2, 3))


class SimpleBaseline(nn.Module):
    """Heat maps of joints by a residual network and three transposed Convs (Xiao et al. 2018)."""

    def __init__(self, joints: int = 17) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 32, 7, 2, nn.ReLU()), nn.MaxPool2d(3, 2, 1))
        plan = ((32, 32, 1), (32, 64, 2), (64, 96, 2), (96, 128, 2))
        self.body = nn.Sequential(
            *(nn.Sequential(_Basic(a, b, s), _Basic(b, b)) for a, b, s in plan)
        )
        ups = list[nn.Module]()
        for before in (128, 64, 64):
            ups += [
                nn.ConvTranspose2d(before, 64, 4, 2, 1, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(),
            ]
        self.ups, self.last = nn.Sequential(*ups), nn.Conv2d(64, joints, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(N, joints, H / 4, W / 4)."""
        return self.last(self.ups(self.body(self.stem(image))))
