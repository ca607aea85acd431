"""Networks of images of the twenty-third set that no package here has, written from papers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(
    given: int,
    made: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: nn.Module | None = None,
) -> nn.Sequential:
    parts = [nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False)]
    return nn.Sequential(*parts, nn.BatchNorm2d(made), activation or nn.Identity())


def _separable(given: int, made: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        _conv(given, given, size, stride, given, nn.ReLU()), _conv(given, made, 1, 1, 1, nn.ReLU())
    )


class FastDepth(nn.Module):
    """FastDepth (Wofk et al. 2019): a MobileNet, resized maps of separable Convs, added skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.stem = _conv(3, w, 3, 2, 1, nn.ReLU())
        shapes = [(w, 2 * w, 1), (2 * w, 4 * w, 2), (4 * w, 4 * w, 1), (4 * w, 8 * w, 2)]
        shapes += [(8 * w, 8 * w, 1), (8 * w, 16 * w, 2), (16 * w, 16 * w, 1)]
        self.layers = nn.ModuleList([_separable(*shape) for shape in shapes])
        self.up = nn.ModuleList(
            [_separable(a * w, b * w, 1, 5) for a, b in ((16, 8), (8, 4), (4, 2), (2, 1))]
        )
        self.last = _conv(w, 1, 1, 1, 1, nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        """The depth."""
        made, kept = self.stem(image), []
        for index, layer in enumerate(self.layers):
            made = layer(made)
            if index in (0, 2, 4):
                kept.append(made)
        for index, up in enumerate(self.up):
            made = functional.interpolate(up(made), scale_factor=2.0, mode="nearest")
            if index < 3:
                made = made + kept[2 - index]
        depth: Tensor = self.last(made)
        return depth


class _FaceBlock(nn.Module):
    """An inverted residual with PReLUs."""

    def __init__(self, given: int, made: int, wide: int, stride: int) -> None:
        super().__init__()
        self.made = nn.Sequential(
            _conv(given, wide, 1, 1, 1, nn.PReLU(wide)),
            _conv(wide, wide, 3, stride, wide, nn.PReLU(wide)),
            _conv(wide, made, 1),
        )
        self.adds = stride == 1 and given == made

    def forward(self, given: Tensor) -> Tensor:
        made: Tensor = self.made(given)
        return given + made if self.adds else made


class MobileFaceNet(nn.Module):
    """MobileFaceNet (Chen et al. 2018), of half its depth."""

    def __init__(self, width: int = 32, embedding: int = 128) -> None:
        super().__init__()
        w = width
        shapes = [(w, w, 2 * w, 2), (w, w, 2 * w, 1), (w, w, 2 * w, 1), (w, 2 * w, 4 * w, 2)]
        shapes += [(2 * w, 2 * w, 4 * w, 1), (2 * w, 2 * w, 8 * w, 2), (2 * w, 2 * w, 4 * w, 1)]
        self.stem = nn.Sequential(
            _conv(3, w, 3, 2, 1, nn.PReLU(w)), _conv(w, w, 3, 1, w, nn.PReLU(w))
        )
        self.blocks = nn.Sequential(*[_FaceBlock(*shape) for shape in shapes])
        self.wide = _conv(2 * w, 8 * w, 1, 1, 1, nn.PReLU(8 * w))
        self.depthwise = nn.Conv2d(8 * w, 8 * w, 7, groups=8 * w, bias=False)
        self.norm, self.last = nn.BatchNorm2d(8 * w), nn.Linear(8 * w, embedding, bias=False)
        self.final = nn.BatchNorm1d(embedding)

    def forward(self, image: Tensor) -> Tensor:
        """The embedding of the face, of length one."""
        made = self.wide(self.blocks(self.stem(image)))
        row = self.norm(self.depthwise(made)).flatten(1)
        return functional.normalize(self.final(self.last(row)))


class _ShuffleBlock(nn.Module):
    """ShuffleNetV2's block with LeakyReLU."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        half, read = made // 2, given if stride == 2 else made // 2
        self.down = (
            nn.Sequential(
                _conv(given, given, 3, 2, given), _conv(given, half, 1, 1, 1, nn.LeakyReLU(0.1))
            )
            if stride == 2
            else None
        )
        self.deep = nn.Sequential(
            _conv(read, half, 1, 1, 1, nn.LeakyReLU(0.1)),
            _conv(half, half, 3, stride, half),
            _conv(half, half, 1, 1, 1, nn.LeakyReLU(0.1)),
        )

    def forward(self, given: Tensor) -> Tensor:
        if self.down is None:
            first, second = given.chunk(2, 1)
            made = torch.cat((first, self.deep(second)), 1)
        else:
            made = torch.cat((self.down(given), self.deep(given)), 1)
        batch, channels, height, width = made.shape
        made = made.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return made.reshape(batch, channels, height, width)


class _GhostBlock(nn.Module):
    """GhostNet's bottleneck with a shortcut of separable Convs."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        act = nn.LeakyReLU(0.1)
        self.first = _conv(given, made // 2, 1, 1, 1, act)
        self.cheap = _conv(made // 2, made // 2, 3, 1, made // 2, act)
        self.second, self.cheaper = (
            _conv(made, made // 2, 1),
            _conv(made // 2, made // 2, 3, 1, made // 2),
        )
        self.short = nn.Sequential(_conv(given, given, 5, 1, given), _conv(given, made, 1))

    def forward(self, given: Tensor) -> Tensor:
        made = self.first(given)
        made = torch.cat((made, self.cheap(made)), 1)
        made = self.second(made)
        made = torch.cat((made, self.cheaper(made)), 1)
        shortened: Tensor = self.short(given)
        return made + shortened


class NanoDet(nn.Module):
    """NanoDet-Plus: ShuffleNetV2, GhostPAN, depthwise heads whose rows are joined."""

    def __init__(self, width: int = 48, head: int = 48, classes: int = 10, bins: int = 8) -> None:
        super().__init__()
        act, counts = nn.LeakyReLU(0.1), (2, 3, 2)
        self.stem = nn.Sequential(_conv(3, 24, 3, 2, 1, act), nn.MaxPool2d(3, 2, 1))
        stages, given = [], 24
        for index, count in enumerate(counts):
            made = width << index
            blocks = [_ShuffleBlock(given, made, 2)]
            stages.append(
                nn.Sequential(*blocks, *(_ShuffleBlock(made, made, 1) for _ in range(count)))
            )
            given = made
        self.stages = nn.ModuleList(stages)
        self.reduce = nn.ModuleList([_conv(width << i, head, 1, 1, 1, act) for i in range(3)])
        self.top = nn.ModuleList([_GhostBlock(2 * head, head) for _ in "12"])
        self.down = nn.ModuleList([self._depthwise(head, 5, 2) for _ in "12"])
        self.bottom = nn.ModuleList([_GhostBlock(2 * head, head) for _ in "12"])
        self.extra = nn.ModuleList([self._depthwise(head, 5, 2) for _ in "12"])
        self.heads = nn.ModuleList(
            [
                nn.Sequential(self._depthwise(head, 5, 1), self._depthwise(head, 5, 1))
                for _ in range(4)
            ]
        )
        self.outs = nn.ModuleList([nn.Conv2d(head, classes + 4 * bins, 1) for _ in range(4)])
        self.classes = classes

    @staticmethod
    def _depthwise(width: int, size: int, stride: int) -> nn.Sequential:
        act = nn.LeakyReLU(0.1)
        return nn.Sequential(
            _conv(width, width, size, stride, width, act), _conv(width, width, 1, 1, 1, act)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Scores and distributions of distances at all places."""
        made, maps = self.stem(image), []
        for stage, reduce in zip(self.stages, self.reduce, strict=True):
            made = stage(made)
            maps.append(reduce(made))
        up = functional.interpolate(maps[2], scale_factor=2.0, mode="bilinear")
        middle = self.top[0](torch.cat((up, maps[1]), 1))
        up = functional.interpolate(middle, scale_factor=2.0, mode="bilinear")
        low = self.top[1](torch.cat((up, maps[0]), 1))
        mid = self.bottom[0](torch.cat((self.down[0](low), middle), 1))
        high = self.bottom[1](torch.cat((self.down[1](mid), maps[2]), 1))
        levels = [low, mid, high, self.extra[0](maps[2]) + self.extra[1](high)]
        found = []
        for level, head, out in zip(levels, self.heads, self.outs, strict=True):
            scores, sides = out(head(level)).split((self.classes, out.out_channels - 10), 1)
            found.append(torch.cat((scores.sigmoid(), sides), 1).flatten(2))
        return torch.cat(found, 2).permute(0, 2, 1)


class _Strips(nn.Module):
    """SegNeXt's attention: depthwise Convs of strips of three lengths gate the map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 1)
        self.local = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.strips = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv2d(width, width, (1, size), padding=(0, size // 2), groups=width),
                    nn.Conv2d(width, width, (size, 1), padding=(size // 2, 0), groups=width),
                )
                for size in (7, 11, 21)
            ]
        )
        self.mix, self.last = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)

    def forward(self, given: Tensor) -> Tensor:
        made = functional.gelu(self.first(given))
        gate = local = self.local(made)
        for strip in self.strips:
            gate = gate + strip(local)
        made = self.mix(gate) * made
        attended: Tensor = self.last(made)
        return attended + given


class _SegNextBlock(nn.Module):
    """Attention of strips and a Conv-FFN, each scaled and added."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in "12"])
        self.attention = _Strips(width)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(width, 1, 1)) for _ in "12"])
        self.first, self.last = nn.Conv2d(width, wide, 1), nn.Conv2d(wide, width, 1)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)

    def forward(self, given: Tensor) -> Tensor:
        given = given + self.scales[0] * self.attention(self.norms[0](given))
        made = functional.gelu(self.depthwise(self.first(self.norms[1](given))))
        added: Tensor = given + self.scales[1] * self.last(made)
        return added


class SegNext(nn.Module):
    """SegNeXt (Guo et al. 2022): MSCAN with a decoder of resized, joined maps and a hamburger."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        self.downs = nn.ModuleList(
            [
                nn.Sequential(
                    _conv(3, width // 2, 3, 2, 1, nn.GELU()), _conv(width // 2, width, 3, 2)
                ),
                _conv(width, 2 * width, 3, 2),
                _conv(2 * width, 4 * width, 3, 2),
            ]
        )
        self.stages = nn.ModuleList(
            [nn.Sequential(*[_SegNextBlock(w, 4 * w) for _ in "12"]) for w in widths]
        )
        self.squeeze = _conv(sum(widths), 64, 1, 1, 1, nn.ReLU())
        self.into, self.out = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 1, bias=False)
        self.bases = nn.Parameter(torch.rand(1, 64, 16))
        self.norm, self.last = nn.BatchNorm2d(64), nn.Conv2d(64, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """The classes of all places of a map of a quarter of the size."""
        made, maps = image, []
        for down, stage in zip(self.downs, self.stages, strict=True):
            made = stage(down(made))
            maps.append(made)
        size = maps[0].shape[2:]
        resized = [functional.interpolate(m, size=size, mode="bilinear") for m in maps[1:]]
        joined = self.squeeze(torch.cat((maps[0], *resized), 1))
        ham = self._factorized(functional.relu(self.into(joined)))
        scores: Tensor = self.last(functional.relu(joined + self.norm(self.out(ham))))
        return scores

    def _factorized(self, given: Tensor) -> Tensor:
        """A non-negative factorization of the map, by three multiplicative updates."""
        batch, channels, height, width = given.shape
        values, bases = given.view(batch, channels, height * width), self.bases
        codes = functional.softmax(values.transpose(1, 2) @ bases, -1)
        for _ in "123":
            top, low = values.transpose(1, 2) @ bases, codes @ (bases.transpose(1, 2) @ bases)
            codes = codes * top / (low + 1e-4)
            top, low = values @ codes, bases @ (codes.transpose(1, 2) @ codes)
            bases = bases * top / (low + 1e-4)
        return (bases @ codes.transpose(1, 2)).view(batch, channels, height, width)


class _ChannelNorm(nn.Module):
    """A LayerNorm over channels of a map, by way of rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, given: Tensor) -> Tensor:
        batch, channels, height, width = given.shape
        made = self.norm(given.flatten(2).transpose(1, 2)).transpose(1, 2)
        return made.reshape(batch, channels, height, width)


class _TransposedAttention(nn.Module):
    """Restormer's attention over channels, queries and keys of length one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, nn.Parameter(torch.ones(heads, 1, 1))
        self.joint = nn.Conv2d(width, 3 * width, 1, bias=False)
        self.depthwise = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width, bias=False)
        self.last = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        batch, channels, height, width = given.shape
        parts = self.depthwise(self.joint(given)).chunk(3, 1)
        query, key, value = (
            part.reshape(batch, self.heads, channels // self.heads, height * width)
            for part in parts
        )
        query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        weights = (query @ key.transpose(-2, -1) * self.scale).softmax(-1)
        made: Tensor = self.last((weights @ value).reshape(batch, channels, height, width))
        return made


class _GatedForward(nn.Module):
    """Restormer's feed-forward: halves of a depthwise Conv, one of which gates the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 2 * width
        self.first = nn.Conv2d(width, 2 * wide, 1, bias=False)
        self.depthwise = nn.Conv2d(2 * wide, 2 * wide, 3, padding=1, groups=2 * wide, bias=False)
        self.last = nn.Conv2d(wide, width, 1, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        first, second = self.depthwise(self.first(given)).chunk(2, 1)
        made: Tensor = self.last(functional.gelu(first) * second)
        return made


class _RestormerBlock(nn.Module):
    """Norms, attention and feed-forward, each added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_ChannelNorm(width) for _ in "12"])
        self.attention, self.forwards = _TransposedAttention(width, heads), _GatedForward(width)

    def forward(self, given: Tensor) -> Tensor:
        given = given + self.attention(self.norms[0](given))
        added: Tensor = given + self.forwards(self.norms[1](given))
        return added


class Restormer(nn.Module):
    """Restormer (Zamir et al. 2022) of two levels, one block each."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.encoder, self.inner = _RestormerBlock(width, 1), _RestormerBlock(2 * width, 2)
        self.down = nn.Sequential(
            nn.Conv2d(width, width // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2)
        )
        self.up = nn.Sequential(
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False), nn.PixelShuffle(2)
        )
        self.decoder = _RestormerBlock(2 * width, 1)
        self.last = nn.Conv2d(2 * width, 3, 3, padding=1, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        """The restored image."""
        first = self.encoder(self.embed(image))
        made = self.decoder(torch.cat((self.up(self.inner(self.down(first))), first), 1))
        restored: Tensor = self.last(made) + image
        return restored


class YamNet(nn.Module):
    """YAMNet: MobileNet v1 of log-mel patches, which tags sounds."""

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        w = width
        shapes = [(w, 2 * w, 1), (2 * w, 4 * w, 2), (4 * w, 4 * w, 1), (4 * w, 8 * w, 2)]
        shapes += [(8 * w, 8 * w, 1), (8 * w, 16 * w, 2), (16 * w, 16 * w, 1)]
        self.stem = _conv(1, w, 3, 2, 1, nn.ReLU())
        self.layers = nn.Sequential(*[_separable(*shape) for shape in shapes])
        self.last = nn.Linear(16 * w, classes)

    def forward(self, patch: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the classes and the embedding."""
        embedding = self.layers(self.stem(patch)).mean((2, 3))
        return self.last(embedding).sigmoid(), embedding
