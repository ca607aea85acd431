"""Modules of PyTorch for ``exported``: the structure of the papers, fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class PointNet(nn.Module):
    """PointNet (Qi et al. 2017): points turned by a predicted matrix, shared layers, a maximum."""

    def __init__(self, points: int) -> None:
        super().__init__()
        self.points = points
        self.turn = nn.Sequential(*self._shared(3, 32), *self._shared(32, 64))
        self.matrix = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 9))
        self.layers = nn.Sequential(*self._shared(3, 32), *self._shared(32, 128))
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    @staticmethod
    def _shared(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]

    def forward(self, cloud: Tensor) -> Tensor:
        """Scores of the cloud, shape (1, 3, points)."""
        pooled = torch.max(self.turn(cloud), 2)[0]
        matrix = self.matrix(pooled).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(cloud.transpose(2, 1), matrix).transpose(2, 1)
        return functional.log_softmax(self.head(torch.max(self.layers(turned), 2)[0]), dim=-1)


class DeepSpeech(nn.Module):
    """Deep Speech 2 (Amodei et al. 2015): 2-D convolutions, GRUs of both directions, letters."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 16, (11, 5), (2, 2), (5, 2)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (11, 5), (2, 1), (5, 2)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
        )
        inputs = 16 * (bands // 4)
        self.recurrent = nn.GRU(inputs, width, num_layers=2, bidirectional=True)
        self.letters = nn.Linear(2 * width, 29)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """Scores of each letter at each step of a spectrogram, shape (1, 1, bands, steps)."""
        features = self.front(spectrogram).flatten(1, 2).permute(2, 0, 1)
        found, _ = self.recurrent(features)
        return functional.softmax(self.letters(found).transpose(0, 1), dim=-1)


class Decoder(nn.Module):
    """The decoder of the Transformer (Vaswani et al. 2017), with a causal mask."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, layers)
        self.words = nn.Linear(width, 100)

    def forward(self, target: Tensor, memory: Tensor) -> Tensor:
        """Scores of the next word; ``target`` and ``memory``: (1, tokens, width)."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.words(self.decoder(target, memory, mask, tgt_is_causal=True))


class _StyledConv(nn.Module):
    """Normalised, scaled and shifted by the style, then noise (StyleGAN)."""

    def __init__(self, inputs: int, outputs: int, style: int, side: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.InstanceNorm2d(outputs)
        self.style = nn.Linear(style, 2 * outputs)
        self.noise = nn.Parameter(0.1 * torch.randn(1, 1, side, side))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        y = functional.leaky_relu(self.conv(x) + self.noise, 0.2)
        scale, shift = self.style(style)[:, :, None, None].chunk(2, 1)
        return self.norm(y) * (1 + scale) + shift


class StyleGenerator(nn.Module):
    """StyleGAN's generator (Karras et al. 2019): two blocks, bilinear between them."""

    def __init__(self, style: int) -> None:
        super().__init__()
        self.mapping = nn.Sequential(
            nn.Linear(style, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2)
        )
        self.start = nn.Parameter(torch.randn(1, 64, 8, 8))
        self.first = _StyledConv(64, 64, 64, 8)
        self.second = _StyledConv(64, 48, 64, 16)
        self.third = _StyledConv(48, 32, 64, 16)
        self.image = nn.Conv2d(32, 3, 1)

    def forward(self, latent: Tensor) -> Tensor:
        """An image of 16x16 pixels from ``latent``, shape (1, style)."""
        normed = latent * torch.rsqrt(latent.pow(2).mean(1, keepdim=True) + 1e-8)
        style = self.mapping(normed)
        x = self.first(self.start, style)
        x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.image(self.third(self.second(x, style), style)))


class _NafBlock(nn.Module):
    """Simple gates instead of activations, simplified channel attention (NAFNet)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(2))
        self.wide = nn.Conv2d(width, 2 * width, 1)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.attention = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.narrow = nn.Conv2d(width, width, 1)
        self.mlp = nn.ModuleList([nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)])
        self.beta = nn.Parameter(torch.full((1, width, 1, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.depthwise(self.wide(self.norms[0](x))).chunk(2, 1)
        y = left * right
        x = x + self.narrow(y * self.attention(y)) * self.beta
        left, right = self.mlp[0](self.norms[1](x)).chunk(2, 1)
        return x + self.mlp[1](left * right) * self.beta


class NafNet(nn.Module):
    """NAFNet (Chen et al. 2022): a U of restoring blocks, pixels from channels on the way up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.encoder = nn.Sequential(_NafBlock(width), _NafBlock(width))
        self.down = nn.Conv2d(width, 2 * width, 2, 2)
        self.middle = _NafBlock(2 * width)
        self.up = nn.Sequential(nn.Conv2d(2 * width, 4 * width, 1, bias=False), nn.PixelShuffle(2))
        self.decoder = _NafBlock(width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """The image restored."""
        skip = self.encoder(self.first(image))
        x = self.up(self.middle(self.down(skip)))
        return image + self.last(self.decoder(x + skip))


class GraphNetwork(nn.Module):
    """Attention over edges (Velickovic et al. 2018): Gather, messages, ScatterElements."""

    def __init__(self, edges: Tensor, nodes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.nodes = nodes
        self.project = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.score = nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(2))
        self.out = nn.Linear(width, 10)

    def forward(self, features: Tensor) -> Tensor:
        """Scores of each node, shape (nodes, 10)."""
        sources, targets = self.edges[0], self.edges[1]
        for project, score in zip(self.project, self.score, strict=True):
            h = project(features)
            pairs = torch.cat([h[sources], h[targets]], dim=1)
            weight = torch.sigmoid(functional.leaky_relu(score(pairs), 0.2))
            total = torch.zeros_like(h).index_add(0, targets, weight * h[sources])
            features = features + functional.elu(total)
        return self.out(features)


class _Separable(nn.Module):
    """1x1, PReLU, norm, depthwise dilated, PReLU, norm, residual (Conv-TasNet)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        wide = 2 * width
        self.body = nn.Sequential(
            nn.Conv1d(width, wide, 1),
            nn.PReLU(),
            nn.GroupNorm(1, wide),
            nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide),
            nn.PReLU(),
            nn.GroupNorm(1, wide),
            nn.Conv1d(wide, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class ConvTasNet(nn.Module):
    """Conv-TasNet (Luo and Mesgarani 2019): a learned filter bank, masks, the bank's inverse."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.encoder = nn.Conv1d(1, width, 16, 8, bias=False)
        self.separator = nn.Sequential(
            nn.GroupNorm(1, width),
            nn.Conv1d(width, width, 1),
            *(_Separable(width, 2**power) for power in range(4)),
            nn.PReLU(),
            nn.Conv1d(width, 2 * width, 1),
        )
        self.decoder = nn.ConvTranspose1d(width, 1, 16, 8, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        """Two voices of ``mixture``, shape (1, 1, samples)."""
        basis = functional.relu(self.encoder(mixture))
        masks = torch.sigmoid(self.separator(basis)).view(2, self.width, -1)
        return self.decoder(basis * masks)


class HiFiGan(nn.Module):
    """HiFi-GAN's generator (Kong et al. 2020): ConvTranspose, sums of dilated residual blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> i, width >> i + 1, 8, 4, 2) for i in range(2)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(self._block(width >> i + 1, kernel) for kernel in (3, 7))
            for i in range(2)
        )
        self.last = nn.Conv1d(width >> 2, 1, 7, padding=3)

    @staticmethod
    def _block(channels: int, kernel: int) -> nn.ModuleList:
        return nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=d * (kernel - 1) // 2, dilation=d)
            for d in (1, 3)
        )

    def forward(self, mel: Tensor) -> Tensor:
        """Samples of a mel spectrogram, shape (1, 80, frames)."""
        x = self.first(mel)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            sums = [self._residual(x, block) for block in blocks]
            x = (sums[0] + sums[1]) / len(sums)
        return torch.tanh(self.last(functional.leaky_relu(x)))

    @staticmethod
    def _residual(x: Tensor, block: nn.ModuleList) -> Tensor:
        for conv in block:
            x = x + conv(functional.leaky_relu(x, 0.1))
        return x
