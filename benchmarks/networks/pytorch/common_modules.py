"""Networks that are deployed often, written in PyTorch for ``common``."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """Conv, norm, SiLU, as in all YOLOs since v5."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class Bottleneck(nn.Module):
    """Two 3x3 Convs and a residual (YOLOv8)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, width // 2, 3), conv(width // 2, width, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x + self.body(x)


class C3k(nn.Module):
    """A cross-stage partial block of two bottlenecks (YOLO11)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.first, self.second = conv(width, half), conv(width, half)
        self.body = nn.Sequential(Bottleneck(half), Bottleneck(half))
        self.last = conv(2 * half, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.last(torch.cat((self.body(self.first(x)), self.second(x)), 1))


class C3k2(nn.Module):
    """YOLO11's main block: halves, the second of which goes on."""

    def __init__(self, inputs: int, outputs: int, deep: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.first = conv(inputs, 2 * half)
        self.body = C3k(half) if deep else Bottleneck(half)
        self.last = conv(3 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """``outputs`` channels."""
        parts = list(self.first(x).chunk(2, 1))
        parts.append(self.body(parts[-1]))
        return self.last(torch.cat(parts, 1))


class AreaAttention(nn.Module):
    """Attention over a map, with a depthwise position encoding (YOLO11's C2PSA)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.key = self.head // 2
        self.qkv = nn.Conv2d(width, width + 2 * self.key * heads, 1)
        self.project, self.position = (
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 3, padding=1, groups=width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        batch, width, height, columns = x.shape
        qkv = self.qkv(x).view(batch, self.heads, 2 * self.key + self.head, height * columns)
        q, k, v = qkv.split([self.key, self.key, self.head], dim=2)
        scores = (q.transpose(-2, -1) @ k * self.key**-0.5).softmax(-1)
        out = (v @ scores.transpose(-2, -1)).view(batch, width, height, columns)
        return self.project(out + self.position(v.reshape(batch, width, height, columns)))


class Psa(nn.Module):
    """Attention and a feed-forward net of Convs on half of the channels (C2PSA)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.first, self.last = conv(width, width), conv(width, width)
        self.attention = AreaAttention(half, 2)
        self.feed = nn.Sequential(conv(half, 2 * half), nn.Conv2d(2 * half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        first, second = self.first(x).chunk(2, 1)
        second = second + self.attention(second)
        second = second + self.feed(second)
        return self.last(torch.cat((first, second), 1))


class Sppf(nn.Module):
    """Three MaxPools in a row (YOLOv5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = conv(width, width // 2), conv(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        maps = [self.first(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.last(torch.cat(maps, 1))


class Yolo11(nn.Module):
    """YOLO11 (Jocher 2024) with one step up and down, decoded boxes and scores of two scales."""

    def __init__(self, classes: int = 10, bins: int = 16) -> None:
        super().__init__()
        self.bins, self.classes = bins, classes
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), C3k2(32, 64, deep=False))
        self.middle = nn.Sequential(conv(64, 64, 3, 2), C3k2(64, 64, deep=False))
        self.deep = nn.Sequential(
            conv(64, 128, 3, 2), C3k2(128, 128, deep=True), Sppf(128), Psa(128)
        )
        self.up = C3k2(192, 64, deep=False)
        self.down, self.merge = conv(64, 64, 3, 2), C3k2(192, 128, deep=True)
        self.boxes = nn.ModuleList(
            nn.Sequential(conv(w, 64, 3), conv(64, 64, 3), nn.Conv2d(64, 4 * bins, 1))
            for w in (64, 128)
        )
        self.scores = nn.ModuleList(
            nn.Sequential(
                conv(w, w, 3, groups=w),
                conv(w, 64),
                conv(64, 64, 3, groups=64),
                conv(64, 64),
                nn.Conv2d(64, classes, 1),
            )
            for w in (64, 128)
        )
        self.register_buffer("weights", torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1))
        places = [
            (x + 0.5, y + 0.5, s) for s, n in ((8, 8), (16, 4)) for y in range(n) for x in range(n)
        ]
        self.register_buffer("anchors", torch.tensor(places).t()[None])

    def forward(self, image: Tensor) -> Tensor:
        """Boxes in pixels and scores: batch x (4 + classes) x places."""
        middle = self.middle(self.stem(image))
        deep = self.deep(middle)
        high = self.up(torch.cat((functional.interpolate(deep, scale_factor=2.0), middle), 1))
        low = self.merge(torch.cat((self.down(high), deep), 1))
        heads = [
            torch.cat((boxes(x), scores(x)), 1).flatten(2)
            for x, boxes, scores in zip((high, low), self.boxes, self.scores, strict=True)
        ]
        boxes, scores = torch.cat(heads, 2).split((4 * self.bins, self.classes), 1)
        batch, _, count = boxes.shape
        spread = boxes.view(batch, 4, self.bins, count).transpose(2, 1).softmax(1)
        sides = functional.conv2d(spread, self.weights).view(batch, 4, count)
        before, behind = sides.chunk(2, 1)
        places, strides = self.anchors[:, :2], self.anchors[:, 2:]
        low_corner, high_corner = places - before, places + behind
        centre = (low_corner + high_corner) / 2
        found = torch.cat((centre, high_corner - low_corner), 1) * strides
        return torch.cat((found, scores.sigmoid()), 1)


class Elan(nn.Module):
    """Four maps of a row of Convs side by side (YOLOv7)."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = conv(inputs, width), conv(inputs, width)
        self.third = nn.Sequential(conv(width, width, 3), conv(width, width, 3))
        self.fourth = nn.Sequential(conv(width, width, 3), conv(width, width, 3))
        self.last = conv(4 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """``outputs`` channels."""
        second = self.second(x)
        third = self.third(second)
        return self.last(torch.cat((self.fourth(third), third, second, self.first(x)), 1))


class Halve(nn.Module):
    """A MaxPool and a strided Conv side by side (YOLOv7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooled = nn.Sequential(nn.MaxPool2d(2), conv(width, width // 2))
        self.strided = nn.Sequential(conv(width, width // 2), conv(width // 2, width // 2, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Half the size."""
        return torch.cat((self.strided(x), self.pooled(x)), 1)


class Yolo7(nn.Module):
    """YOLOv7-tiny's kind (Wang et al. 2022), with anchors decoded from split Sigmoids."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.values = 5 + classes
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Elan(32, 16, 64))
        self.middle = nn.Sequential(Halve(64), Elan(64, 32, 64))
        self.deep = nn.Sequential(Halve(64), Elan(64, 32, 128))
        self.side, self.above, self.up = conv(64, 64), conv(128, 64), Elan(128, 32, 64)
        self.heads = nn.ModuleList(nn.Conv2d(w, 3 * self.values, 1) for w in (64, 128))
        for index, size in enumerate((8, 4)):
            steps = torch.arange(size, dtype=torch.float)
            grid = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)
            self.register_buffer(f"grid{index}", grid.view(1, 1, size, size, 2) - 0.5)
            self.register_buffer(f"anchor{index}", 8.0 + torch.rand(1, 3, 1, 1, 2))

    def forward(self, image: Tensor) -> Tensor:
        """Boxes, objectness and scores: batch x places x (5 + classes)."""
        middle = self.middle(self.stem(image))
        deep = self.deep(middle)
        above = functional.interpolate(self.above(deep), scale_factor=2.0)
        high = self.up(torch.cat((self.side(middle), above), 1))
        found = []
        for index, (x, head) in enumerate(zip((high, deep), self.heads, strict=True)):
            y = head(x)
            batch, _, rows, columns = y.shape
            y = y.view(batch, 3, self.values, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
            place, size, scores = y.split((2, 2, self.values - 4), 4)
            place = (place * 2.0 + getattr(self, f"grid{index}")) * (8 << index)
            size = (size * 2) ** 2 * getattr(self, f"anchor{index}")
            found.append(torch.cat((place, size, scores), 4).view(batch, -1, self.values))
        return torch.cat(found, 1)


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) with norms and ConvTransposes."""

    def __init__(self, width: int, depth: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = _twice(3, width)
        steps = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(_twice(a, b) for a, b in steps)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(steps))
        self.merge = nn.ModuleList(_twice(2 * a, a) for a, _ in reversed(steps))
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of each pixel."""
        maps = [self.first(image)]
        for block in self.down:
            maps.append(block(functional.max_pool2d(maps[-1], 2)))
        x = maps.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((maps.pop(), up(x)), 1))
        return self.last(x)


class Crnn(nn.Module):
    """CRNN (Shi et al. 2015): Convs, two LSTMs of both directions, letters of each column."""

    def __init__(self, letters: int = 37) -> None:
        super().__init__()
        rows: list[nn.Module] = []
        plan = ((1, 32, 2), (32, 64, 2), (64, 96, (2, 1)), (96, 96, (2, 1)))
        for inputs, outputs, pool in plan:
            rows += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            rows.append(nn.MaxPool2d(pool))
        rows += [nn.Conv2d(96, 96, (2, 1)), nn.BatchNorm2d(96), nn.ReLU()]
        self.maps = nn.Sequential(*rows)
        self.first = nn.LSTM(96, 48, bidirectional=True)
        self.middle = nn.Linear(96, 48)
        self.second = nn.LSTM(48, 48, bidirectional=True)
        self.last = nn.Linear(96, letters)

    def forward(self, image: Tensor) -> Tensor:
        """Logarithms of probabilities: columns x batch x letters."""
        tokens = self.maps(image).squeeze(2).permute(2, 0, 1)
        tokens = self.middle(self.first(tokens)[0])
        return self.last(self.second(tokens)[0]).log_softmax(2)


class SrVgg(nn.Module):
    """Real-ESRGAN's compact generator (Wang et al. 2021): Convs with PReLU, pixels of channels."""

    def __init__(self, width: int, depth: int, factor: int = 4) -> None:
        super().__init__()
        rows: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.PReLU(width)]
        for _ in range(depth):
            rows += [nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width)]
        rows.append(nn.Conv2d(width, 3 * factor**2, 3, padding=1))
        self.body, self.shuffle = nn.Sequential(*rows), nn.PixelShuffle(factor)
        self.factor = factor

    def forward(self, image: Tensor) -> Tensor:
        """A larger image."""
        base = functional.interpolate(image, scale_factor=float(self.factor), mode="nearest")
        return self.shuffle(self.body(image)) + base


class TimedBlock(nn.Module):
    """GroupNorm, SiLU, Conv, twice, with what the time adds between (Stable Diffusion)."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Linear(time, outputs)
        self.second = nn.Sequential(
            nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """``outputs`` channels."""
        y = self.first(x) + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(y)


class CrossAttention(nn.Module):
    """Attention over ``context`` by PyTorch's own function."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context, width, bias=False)
        self.v = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """The shape of ``x``."""
        q, k, v = (
            t.view(t.shape[0], -1, self.heads, t.shape[-1] // self.heads).transpose(1, 2)
            for t in (self.q(x), self.k(context), self.v(context))
        )
        found = functional.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).reshape(x.shape))


class MapTransformer(nn.Module):
    """Self-attention, attention over a text, a gated feed-forward net (Stable Diffusion)."""

    def __init__(self, width: int, text: int, heads: int) -> None:
        super().__init__()
        self.norm, self.into, self.out = (
            nn.GroupNorm(8, width),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = (
            CrossAttention(width, width, heads),
            CrossAttention(width, text, heads),
        )
        self.gated, self.last = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """The shape of ``x``."""
        batch, width, height, columns = x.shape
        tokens = self.into(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, -1, width)
        y = self.norms[0](tokens)
        tokens = tokens + self.own(y, y)
        tokens = tokens + self.cross(self.norms[1](tokens), text)
        value, gate = self.gated(self.norms[2](tokens)).chunk(2, dim=-1)
        tokens = tokens + self.last(value * functional.gelu(gate))
        return x + self.out(tokens.reshape(batch, height, columns, width).permute(0, 3, 1, 2))


class LatentUNet(nn.Module):
    """A small U-Net of Stable Diffusion's kind (Rombach et al. 2022)."""

    def __init__(self, width: int = 32, text: int = 48) -> None:
        super().__init__()
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down = TimedBlock(width, width, time)
        self.halve = nn.Conv2d(width, width, 3, 2, 1)
        self.deep, self.look = (
            TimedBlock(width, 2 * width, time),
            MapTransformer(2 * width, text, 4),
        )
        self.up = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.merge = TimedBlock(3 * width, width, time)
        self.last = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)
        )

    def forward(self, latent: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """The noise of ``latent``."""
        time = self.time(time)
        first = self.down(self.first(latent), time)
        deep = self.look(self.deep(self.halve(first), time), text)
        up = self.up(functional.interpolate(deep, scale_factor=2.0, mode="nearest"))
        return self.last(self.merge(torch.cat((up, first), 1), time))
