"""Modules of networks that run on CPUs: faces, cut-outs, poses, denoising, speakers, tables."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class FaceBlock(nn.Module):
    """IResNet's block: norms in front of and behind 3x3 Convs, PReLU between them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.PReLU(outputs),
            nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """An image to an image."""
        return self.body(x) + self.skip(x)


class ArcFace(nn.Module):
    """IResNet-18 of (1, 3, 112, 112) to an embedding."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = (width, width, 2 * width, 4 * width, 8 * width)
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.PReLU(width),
        ]
        for inputs, outputs in pairwise(widths):
            layers += [FaceBlock(inputs, outputs, 2), FaceBlock(outputs, outputs, 1)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(8 * width))
        self.embed = nn.Linear(8 * width * 49, 128)
        self.norm = nn.BatchNorm1d(128)

    def forward(self, x: Tensor) -> Tensor:
        """An image to an embedding."""
        return self.norm(self.embed(self.layers(x).flatten(1)))


class ConvReluNorm(nn.Module):
    """U2-Net's Conv, norm and Relu, dilated."""

    def __init__(self, inputs: int, outputs: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 1, dilation, dilation)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """An image to an image."""
        return functional.relu(self.norm(self.conv(x)))


class ResidualU(nn.Module):
    """A U-Net of ``depth`` scales whose result is added to its input."""

    def __init__(self, depth: int, inputs: int, middle: int, outputs: int) -> None:
        super().__init__()
        self.first = ConvReluNorm(inputs, outputs)
        self.down = nn.ModuleList(
            ConvReluNorm(middle if i else outputs, middle) for i in range(depth - 1)
        )
        self.bottom = ConvReluNorm(middle, middle, 2)
        self.up = nn.ModuleList(
            ConvReluNorm(2 * middle, outputs if i == 0 else middle) for i in range(depth - 1)
        )
        self.pool = nn.MaxPool2d(2, stride=2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        """An image to an image."""
        first = y = self.first(x)
        kept = []
        for index, layer in enumerate(self.down):
            y = layer(self.pool(y) if index else y)
            kept.append(y)
        y = self.bottom(y)
        for index in reversed(range(len(self.up))):
            y = self.up[index](torch.cat((y, kept[index]), 1))
            if index:
                y = _resized(y, kept[index - 1])
        return y + first


def _resized(x: Tensor, like: Tensor) -> Tensor:
    size = (int(like.shape[2]), int(like.shape[3]))
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=False)


class U2Net(nn.Module):
    """U2-Net, small: side outputs of every scale are resized and joined."""

    def __init__(self, width: int = 32, middle: int = 16) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(
            (
                ResidualU(4, 3, middle, width),
                ResidualU(3, width, middle, width),
                ResidualU(3, width, middle, width),
            )
        )
        self.decoder = nn.ModuleList(ResidualU(3, 2 * width, middle, width) for _ in range(2))
        self.sides = nn.ModuleList(nn.Conv2d(width, 1, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(3, 1, 1)
        self.pool = nn.MaxPool2d(2, stride=2, ceil_mode=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """An image to masks, the joined one first."""
        one = self.encoder[0](x)
        two = self.encoder[1](self.pool(one))
        y = self.encoder[2](self.pool(two))
        maps = [self.sides[2](y)]
        for index, kept in ((1, two), (0, one)):
            y = self.decoder[index](torch.cat((_resized(y, kept), kept), 1))
            maps.append(self.sides[index](y))
        maps = [_resized(m, one) for m in maps]
        return tuple(torch.sigmoid(m) for m in (self.out(torch.cat(maps, 1)), *maps))


class Csp(nn.Module):
    """CSPNeXt's stage: depthwise 5x5 blocks on half of the channels, attention over channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.halve = _conv(inputs, outputs, 3, 2)
        self.main, self.short = _conv(outputs, half), _conv(outputs, half)
        self.block = nn.Sequential(_conv(half, half, 3), _conv(half, half, 5, groups=half))
        self.point = _conv(half, half)
        self.gate = nn.Conv2d(outputs, outputs, 1)
        self.out = _conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """An image to one of half the size."""
        x = self.halve(x)
        main = self.main(x)
        y = torch.cat((main + self.point(self.block(main)), self.short(x)), 1)
        gate = functional.hardsigmoid(self.gate(functional.adaptive_avg_pool2d(y, 1)))
        return self.out(y * gate)


def _conv(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU())


class ScaleNorm(nn.Module):
    """Rows divided by their lengths, times one number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.g = width**-0.5, nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape."""
        norm = torch.linalg.norm(x, dim=-1, keepdim=True) * self.scale
        return x / norm.clamp(min=1e-5) * self.g


class GatedAttention(nn.Module):
    """RTMPose's unit: one product for gate, values and base, squared Relu for Softmax."""

    def __init__(self, width: int, base: int) -> None:
        super().__init__()
        self.base, self.inner = base, 2 * width
        self.norm = ScaleNorm(width)
        self.parts = nn.Linear(width, 2 * self.inner + base, bias=False)
        self.gamma, self.beta = nn.Parameter(torch.rand(2, base)), nn.Parameter(torch.rand(2, base))
        self.out = nn.Linear(self.inner, width, bias=False)
        self.residual = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to tokens."""
        parts = functional.silu(self.parts(self.norm(x)))
        u, v, base = torch.split(parts, [self.inner, self.inner, self.base], dim=2)
        q, k = torch.unbind(base.unsqueeze(2) * self.gamma[None, None] + self.beta, dim=2)
        scores = torch.square(functional.relu(torch.bmm(q, k.permute(0, 2, 1)) / self.base**0.5))
        return x * self.residual + self.out(u * torch.bmm(scores, v))


class RtmPose(nn.Module):
    """CSPNeXt and a head that classifies coordinates (SimCC)."""

    def __init__(self, width: int = 32, points: int = 17) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, width, 3, 2), _conv(width, width, 3))
        self.stages = nn.Sequential(
            Csp(width, 2 * width), Csp(2 * width, 4 * width), Csp(4 * width, 8 * width)
        )
        self.final = nn.Conv2d(8 * width, points, 7, padding=3)
        self.norm, self.tokens = ScaleNorm(48), nn.Linear(48, 128, bias=False)
        self.attention = GatedAttention(128, 64)
        self.x, self.y = nn.Linear(128, 192, bias=False), nn.Linear(128, 256, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """An image to distributions of both coordinates of each point."""
        y = self.final(self.stages(self.stem(x))).flatten(2)
        y = self.attention(self.tokens(self.norm(y)))
        return self.x(y), self.y(y)


class Separation(nn.Module):
    """DTLN's core: two LSTM and a mask."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.one = nn.LSTM(size, width, batch_first=True)
        self.two = nn.LSTM(width, width, batch_first=True)
        self.mask = nn.Linear(width, size)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, size) to a mask of the same shape."""
        y, _ = self.one(x)
        y, _ = self.two(y)
        return torch.sigmoid(self.mask(y))


class Dtln(nn.Module):
    """DTLN behind the Fourier transform: magnitudes masked, then a learned basis."""

    def __init__(self, size: int = 257, width: int = 128, frame: int = 512) -> None:
        super().__init__()
        self.first = Separation(size, width)
        self.encode = nn.Conv1d(size, 256, 1, bias=False)
        self.gamma, self.beta = nn.Parameter(torch.ones(256)), nn.Parameter(torch.zeros(256))
        self.second = Separation(256, width)
        self.decode = nn.Conv1d(256, frame, 1, bias=False)

    def forward(self, magnitude: Tensor) -> Tensor:
        """(batch, time, size) to frames of samples; signs are dropped, so that any data suit."""
        magnitude = magnitude.abs()
        masked = magnitude * self.first(torch.log(magnitude + 1e-7))
        encoded = self.encode(masked.permute(0, 2, 1)).permute(0, 2, 1)
        mean = encoded.mean(-1, keepdim=True)
        centred = encoded - mean
        root = torch.sqrt(torch.square(centred).mean(-1, keepdim=True) + 1e-7)
        mask = self.second(centred / root * self.gamma + self.beta)
        return self.decode((encoded * mask).permute(0, 2, 1)).permute(0, 2, 1)


class Speakers(nn.Module):
    """PyanNet: band-pass Convs of samples, LSTMs in both directions, linear layers."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(1, affine=True)
        self.convs = nn.ModuleList(
            (nn.Conv1d(1, 80, 251, 10), nn.Conv1d(80, 60, 5), nn.Conv1d(60, 60, 5))
        )
        self.norms = nn.ModuleList(nn.InstanceNorm1d(n, affine=True) for n in (80, 60, 60))
        self.lstm = nn.LSTM(60, 64, 2, bidirectional=True, batch_first=True)
        self.linear = nn.Sequential(
            nn.Linear(128, 128), nn.LeakyReLU(), nn.Linear(128, 128), nn.LeakyReLU()
        )
        self.classes = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, samples) to logarithms of probabilities."""
        x = self.norm(x)
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = conv(x)
            x = functional.max_pool1d(torch.abs(x) if index == 0 else x, 3, 3)
            x = functional.leaky_relu(norm(x))
        y, _ = self.lstm(x.permute(0, 2, 1))
        return functional.log_softmax(self.classes(self.linear(y)), -1)


class Tables(nn.Module):
    """FT-Transformer: numbers and categories as tokens, norms in front, ReGLU."""

    def __init__(self, numbers: int = 10, width: int = 96, heads: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, width))
        self.bias = nn.Parameter(torch.randn(numbers, width))
        self.categories = nn.Embedding(40, width)
        self.register_buffer("offsets", torch.tensor([0, 10, 20, 30]))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.ModuleList(
            nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        """Numbers and categories of one row each to scores."""
        y = x[..., None] * self.weight + self.bias
        y = torch.cat(
            (self.token.expand(x.shape[0], -1, -1), y, self.categories(kinds + self.offsets)), 1
        )
        for index in range(2):
            z = self.norms[2 * index](y)
            y = y + self.attention[index](z, z, z, need_weights=False)[0]
            a, b = self.wide[index](self.norms[2 * index + 1](y)).chunk(2, -1)
            y = y + self.narrow[index](a * functional.relu(b))
        return self.head(functional.relu(self.norms[4](y[:, 0])))
