"""Modules of PyTorch for ``paired``: the structure of the papers, fewer blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Bottleneck(nn.Module):
    """Normalised and activated before each convolution (He et al. 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.layers = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, half, 1),
            nn.BatchNorm2d(half), nn.ReLU(), nn.Conv2d(half, half, 3, padding=1),
            nn.BatchNorm2d(half), nn.ReLU(), nn.Conv2d(half, width, 1),
        )  # fmt: skip

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        return self.layers(maps) + maps


class _Hourglass(nn.Module):
    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.skip, self.down = _Bottleneck(width), _Bottleneck(width)
        self.inner = _Hourglass(depth - 1, width) if depth > 1 else _Bottleneck(width)
        self.up = _Bottleneck(width)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        small = self.up(self.inner(self.down(functional.max_pool2d(maps, 2))))
        return self.skip(maps) + functional.interpolate(small, scale_factor=2.0, mode="nearest")


class StackedHourglass(nn.Module):
    """Stacked hourglasses for poses (Newell et al. 2016), each with heat maps that are fed back."""

    def __init__(self, width: int, joints: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.glasses = nn.ModuleList(_Hourglass(3, width) for _ in range(2))
        self.features = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(2)
        )
        self.heads = nn.ModuleList(nn.Conv2d(width, joints, 1) for _ in range(2))
        self.back, self.kept = nn.Conv2d(joints, width, 1), nn.Conv2d(width, width, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The heat maps of both stacks."""
        maps = self.stem(image)
        features = self.features[0](self.glasses[0](maps))
        first = self.heads[0](features)
        maps = maps + self.kept(features) + self.back(first)
        return first, self.heads[1](self.features[1](self.glasses[1](maps)))


class _BlazeBlock(nn.Module):
    """Depthwise and pointwise, added to what was read, filled up with channels of zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.fill = stride, outputs - inputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inputs, 5, stride, 2, groups=inputs), nn.Conv2d(inputs, outputs, 1)
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of ``outputs`` channels."""
        kept = functional.max_pool2d(maps, 2) if self.stride == 2 else maps
        kept = functional.pad(kept, (0, 0, 0, 0, 0, self.fill)) if self.fill else kept
        return functional.relu(self.layers(maps) + kept)


class BlazeFace(nn.Module):
    """BlazeFace (Bazarevsky et al. 2019): anchors of two maps, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU())
        sizes = [(24, 24, 1), (24, 28, 1), (28, 32, 2), (32, 36, 1), (36, 48, 2), (48, 64, 1)]
        self.fine = nn.Sequential(*(_BlazeBlock(*size) for size in sizes))
        self.coarse = nn.Sequential(_BlazeBlock(64, 96, 2), _BlazeBlock(96, 96, 1))
        self.scores = nn.ModuleList([nn.Conv2d(64, 2, 1), nn.Conv2d(96, 6, 1)])
        self.boxes = nn.ModuleList([nn.Conv2d(64, 32, 1), nn.Conv2d(96, 96, 1)])

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and boxes of all anchors."""
        fine = self.fine(self.stem(image))
        maps = (fine, self.coarse(fine))
        scores = [self._rows(head(m), 1) for head, m in zip(self.scores, maps, strict=True)]
        boxes = [self._rows(head(m), 16) for head, m in zip(self.boxes, maps, strict=True)]
        return torch.cat(scores, 1).sigmoid(), torch.cat(boxes, 1)

    @staticmethod
    def _rows(maps: Tensor, size: int) -> Tensor:
        return maps.permute(0, 2, 3, 1).reshape(1, -1, size)


class _ChannelNorm(nn.Module):
    """LayerNorm over the channels of maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        return self.norm(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _TransposedAttention(nn.Module):
    """Attention between channels, with depthwise convolutions (Restormer)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = _ChannelNorm(width)
        self.joint = nn.Conv2d(width, 3 * width, 1)
        self.local = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width)
        self.heat = nn.Parameter(torch.ones(heads, 1, 1))
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        _, width, height, side = maps.shape
        parts = self.local(self.joint(self.norm(maps))).chunk(3, dim=1)
        queries, keys, values = (x.reshape(1, self.heads, -1, height * side) for x in parts)
        queries, keys = functional.normalize(queries, dim=-1), functional.normalize(keys, dim=-1)
        weights = (queries @ keys.transpose(-2, -1) * self.heat).softmax(dim=-1)
        return maps + self.out((weights @ values).reshape(1, width, height, side))


class _GatedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _ChannelNorm(width)
        self.wide = nn.Conv2d(width, 4 * width, 1)
        self.local = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.out = nn.Conv2d(2 * width, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        gate, kept = self.local(self.wide(self.norm(maps))).chunk(2, dim=1)
        return maps + self.out(functional.gelu(gate) * kept)


class Restormer(nn.Module):
    """Restormer (Zamir et al. 2022): two scales, joined by pixel shuffles."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def block(channels: int, heads: int) -> nn.Sequential:
            return nn.Sequential(_TransposedAttention(channels, heads), _GatedForward(channels))

        self.first, self.fine = nn.Conv2d(3, width, 3, padding=1), block(width, 1)
        self.down = nn.Sequential(nn.Conv2d(width, width // 2, 3, padding=1), nn.PixelUnshuffle(2))
        self.coarse = block(2 * width, 2)
        self.up = nn.Sequential(nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.PixelShuffle(2))
        self.joint, self.last = nn.Conv2d(2 * width, width, 1), block(width, 1)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """The restored image."""
        fine = self.fine(self.first(image))
        up = self.up(self.coarse(self.down(fine)))
        return self.out(self.last(self.joint(torch.cat([up, fine], 1)))) + image


class _DenseBlock(nn.Module):
    """Five convolutions, each of all before it; what they add is scaled by 0.2."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        sizes = [(width + i * growth, growth if i < 4 else width) for i in range(5)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in sizes)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        found = [maps]
        for conv in self.convs[:-1]:
            found.append(functional.leaky_relu(conv(torch.cat(found, 1)), 0.2))
        return maps + 0.2 * self.convs[-1](torch.cat(found, 1))


class EsrGan(nn.Module):
    """The generator of ESRGAN (Wang et al. 2018): dense blocks in residual blocks, enlarged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.trunk = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, 1, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(_DenseBlock(width, width // 2) for _ in range(2))) for _ in range(2)
        )
        self.ups = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.high, self.out = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """The enlarged image."""
        first = maps = self.first(image)
        for block in self.blocks:
            maps = maps + 0.2 * block(maps)
        maps = first + self.trunk(maps)
        for up in self.ups:
            maps = functional.interpolate(maps, scale_factor=2.0, mode="nearest")
            maps = functional.leaky_relu(up(maps), 0.2)
        return self.out(functional.leaky_relu(self.high(maps), 0.2))


class _RelativeAttention(nn.Module):
    """Attention with positions as in Transformer-XL (Dai et al. 2019): two biases, one shift."""

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.joint = nn.Linear(width, 3 * width)
        self.places, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.content = nn.Parameter(0.1 * torch.randn(heads, self.size))
        self.place = nn.Parameter(0.1 * torch.randn(heads, self.size))
        self.register_buffer("positions", torch.randn(2 * tokens - 1, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of the same shape."""
        rows, count, width = tokens.shape
        joint = self.joint(tokens).view(rows, count, 3, self.heads, self.size)
        queries, keys, values = joint.unbind(2)
        places = self.places(self.positions).view(-1, self.heads, self.size)
        alike = (queries + self.content).transpose(1, 2) @ keys.permute(0, 2, 3, 1)
        near = (queries + self.place).transpose(1, 2) @ places.permute(1, 2, 0)
        padded = functional.pad(near, (1, 0)).view(rows, self.heads, -1, count)
        near = padded[:, :, 1:].reshape(near.shape)[..., :count]
        weights = ((alike + near) / math.sqrt(self.size)).softmax(-1)
        found = (weights @ values.transpose(1, 2)).transpose(1, 2)
        return self.out(found.reshape(rows, count, width))


class _LinearAttention(nn.Module):
    """Attention of features, without a softmax (Katharopoulos et al. 2020)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, width)
        self.values, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of the same shape."""
        queries = functional.elu(self._split(self.queries(tokens))) + 1
        keys = functional.elu(self._split(self.keys(tokens))) + 1
        values = self._split(self.values(tokens))
        total = 1 / (torch.einsum("bhnd,bhd->bhn", queries, keys.sum(2)) + 1e-6)
        joint = torch.einsum("bhnd,bhne->bhde", keys, values)
        found = torch.einsum("bhnd,bhde,bhn->bhne", queries, joint, total)
        return self.out(found.transpose(1, 2).reshape(tokens.shape))

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.view(*tokens.shape[:2], self.heads, -1).transpose(1, 2)


class Encoder(nn.Module):
    """Blocks of attention, of either kind, and linear layers, with norms before or after."""

    def __init__(self, width: int, heads: int, tokens: int, relative: bool) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(
            _RelativeAttention(width, heads, tokens) if relative else _LinearAttention(width, heads)
            for _ in range(2)
        )
        act = nn.ReLU if relative else nn.GELU
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.after, self.head = relative, nn.Linear(width, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of each token, which are given as vectors of ``width``."""
        for index, (attention, wide) in enumerate(zip(self.attentions, self.wide, strict=True)):
            first, second = self.norms[2 * index], self.norms[2 * index + 1]
            if self.after:
                tokens = first(tokens + attention(tokens))
                tokens = second(tokens + wide(tokens))
            else:
                tokens = tokens + attention(first(tokens))
                tokens = tokens + wide(second(tokens))
        return self.head(tokens)


class _ExcitedRes2(nn.Module):
    """Dilated convolutions of parts that read each other, squeeze and excitation (ECAPA-TDNN)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        part = width // 4

        def conv(channels: int, size: int) -> nn.Sequential:
            pad = dilation if size > 1 else 0
            return nn.Sequential(
                nn.Conv1d(channels, channels, size, padding=pad, dilation=dilation),
                nn.ReLU(),
                nn.BatchNorm1d(channels),
            )

        self.first, self.last = conv(width, 1), conv(width, 1)
        self.parts = nn.ModuleList(conv(part, 3) for _ in range(3))
        self.gate = nn.Sequential(
            nn.Conv1d(width, width // 4, 1),
            nn.ReLU(),
            nn.Conv1d(width // 4, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Frames of the same shape."""
        parts = list(self.first(frames).chunk(4, dim=1))
        found = [parts[0]]
        for conv, part in zip(self.parts, parts[1:], strict=True):
            found.append(conv(part if len(found) == 1 else part + found[-1]))
        joined = self.last(torch.cat(found, 1))
        return frames + joined * self.gate(joined.mean(2, keepdim=True))


class Ecapa(nn.Module):
    """ECAPA-TDNN (Desplanques et al. 2020): an embedding of a voice by attentive statistics."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(bands, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width)
        )
        self.blocks = nn.ModuleList(_ExcitedRes2(width, dilation) for dilation in (2, 3, 4))
        self.joint = nn.Conv1d(3 * width, 3 * width, 1)
        self.attention = nn.Sequential(
            nn.Conv1d(9 * width, width, 1), nn.Tanh(), nn.Conv1d(width, 3 * width, 1)
        )
        self.norm, self.head = nn.BatchNorm1d(6 * width), nn.Linear(6 * width, 48)

    def forward(self, bands: Tensor) -> Tensor:
        """The embedding of a spectrogram, shape (1, bands, frames)."""
        frames = self.first(bands)
        found = []
        for block in self.blocks:
            frames = block(frames)
            found.append(frames)
        joined = functional.relu(self.joint(torch.cat(found, 1)))
        mean, spread = joined.mean(2, keepdim=True), joined.var(2, keepdim=True).clamp(1e-6).sqrt()
        context = torch.cat([joined, mean.expand_as(joined), spread.expand_as(joined)], 1)
        weights = self.attention(context).softmax(2)
        average = (weights * joined).sum(2)
        squares = (weights * joined * joined).sum(2)
        deviation = (squares - average * average).clamp(1e-6).sqrt()
        return self.head(self.norm(torch.cat([average, deviation], 1)))


class Demucs(nn.Module):
    """Demucs (Défossez et al. 2019): a U-Net of waves with gated linear units and an LSTM."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [(2, width), (width, 2 * width), (2 * width, 4 * width)]
        self.downs = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(dim=1)
            )
            for a, b in sizes
        )
        self.recurrent = nn.LSTM(4 * width, 4 * width, bidirectional=True)
        self.joint = nn.Linear(8 * width, 4 * width)
        self.ups = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(dim=1), nn.ConvTranspose1d(b, a, 8, 4, 2)
            )
            for a, b in reversed(sizes)
        )

    def forward(self, wave: Tensor) -> Tensor:
        """The separated wave, shape (1, 2, samples)."""
        skips = []
        for down in self.downs:
            wave = down(wave)
            skips.append(wave)
        found, _ = self.recurrent(wave.permute(2, 0, 1))
        wave = self.joint(found).permute(1, 2, 0)
        for index, up in enumerate(self.ups):
            wave = up(wave + skips.pop())
            wave = functional.relu(wave) if index < len(self.ups) - 1 else wave
        return wave
