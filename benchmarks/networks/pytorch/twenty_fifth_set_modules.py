"""Networks of the twenty-fifth set that no package here has, written from papers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class MelGan(nn.Module):
    """MelGAN's generator (Kumar et al. 2019): transposed Convs, dilated residuals of a line."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.ReflectionPad1d(3), nn.Conv1d(40, width, 7))
        self.up, self.blocks = nn.ModuleList(), nn.ModuleList()
        for factor in (4, 2):
            half = width // 2
            self.up.append(nn.ConvTranspose1d(width, half, 2 * factor, factor, padding=factor // 2))
            self.blocks.append(nn.ModuleList(_Dilated(half, 3**power) for power in range(3)))
            width = half
        self.last = nn.Sequential(nn.ReflectionPad1d(3), nn.Conv1d(width, 1, 7), nn.Tanh())

    def forward(self, spectrogram: Tensor) -> Tensor:
        """The wave."""
        made = self.first(spectrogram)
        for up, blocks in zip(self.up, self.blocks, strict=True):
            made = up(functional.leaky_relu(made, 0.2))
            for block in blocks:
                made = block(made)
        wave: Tensor = self.last(functional.leaky_relu(made, 0.2))
        return wave


class _Dilated(nn.Module):
    """A residual block of MelGAN, whose shortcut is a 1x1 Conv."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.LeakyReLU(0.2), nn.ReflectionPad1d(dilation),
            nn.Conv1d(width, width, 3, dilation=dilation),
            nn.LeakyReLU(0.2), nn.Conv1d(width, width, 1),
        )  # fmt: skip
        self.shortcut = nn.Conv1d(width, width, 1)

    def forward(self, line: Tensor) -> Tensor:
        """Both added."""
        added: Tensor = self.shortcut(line) + self.block(line)
        return added


class Vocos(nn.Module):
    """Vocos (Siuzdak 2023) up to its inverse transform: ConvNeXt blocks of one dimension."""

    def __init__(self, width: int = 64, blocks: int = 3, bins: int = 33) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv1d(40, width, 7, padding=3), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(_Line(width) for _ in range(blocks))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 2 * bins)

    def forward(self, spectrogram: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary part of each bin."""
        made = self.norm(self.embed(spectrogram).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            made = block(made)
        made = self.head(self.last(made.transpose(1, 2))).transpose(1, 2)
        size, phase = made.chunk(2, 1)
        size = torch.exp(size).clamp(max=1e2)
        return size * torch.cos(phase), size * torch.sin(phase)


class _Line(nn.Module):
    """A block of ConvNeXt of one dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, line: Tensor) -> Tensor:
        """A residual of (N, channels, time)."""
        rows = self.norm(self.conv(line).transpose(1, 2))
        rows = self.scale * self.narrow(functional.gelu(self.wide(rows)))
        return line + rows.transpose(1, 2)


class GraphAttention(nn.Module):
    """GAT (Velickovic et al. 2018) on a dense adjacency: scores of pairs from two columns."""

    def __init__(self, given: int = 24, width: int = 16, heads: int = 4, classes: int = 7) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [_Attended(given, width, heads), _Attended(width * heads, width, heads)]
        )
        self.last = _Attended(width * heads, classes, 1)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        """Scores of each node's classes."""
        masked = (1 - adjacency) * -1e4
        for layer in self.layers:
            nodes = functional.elu(layer(nodes, masked))
        return torch.log_softmax(self.last(nodes, masked), -1)


class _Attended(nn.Module):
    """A layer of GAT."""

    def __init__(self, given: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.linear = nn.Linear(given, heads * width, bias=False)
        self.source = nn.Parameter(0.3 * torch.randn(heads, width))
        self.target = nn.Parameter(0.3 * torch.randn(heads, width))

    def forward(self, nodes: Tensor, masked: Tensor) -> Tensor:
        """(N, nodes, heads * width)."""
        samples, count, _ = nodes.shape
        made = self.linear(nodes).view(samples, count, self.heads, self.width)
        source, target = (made * self.source).sum(-1), (made * self.target).sum(-1)
        scores = source.transpose(1, 2)[..., None] + target.transpose(1, 2)[:, :, None]
        weights = torch.softmax(functional.leaky_relu(scores, 0.2) + masked[:, None], -1)
        summed = weights @ made.transpose(1, 2)
        return summed.transpose(1, 2).reshape(samples, count, self.heads * self.width)


class GraphSage(nn.Module):
    """GraphSAGE (Hamilton et al. 2017) on a dense adjacency: means of neighbours are joined."""

    def __init__(self, given: int = 24, width: int = 64, classes: int = 7) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(2 * given, width), nn.Linear(2 * width, width), nn.Linear(2 * width, width)]
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, nodes: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of each node, and of the graph."""
        count = adjacency.sum(-1, keepdim=True) + 1
        for layer in self.layers:
            mean = (adjacency @ nodes) / count
            nodes = functional.relu(layer(torch.cat([nodes, mean], -1)))
            nodes = functional.normalize(nodes, dim=-1)
        return self.head(nodes), self.head(nodes.amax(1))


class KerasMobileNet(nn.Module):
    """MobileNet as Keras has it: images with channels last, padded at two sides, ReLU6."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, width, 3, 2, bias=False), nn.BatchNorm2d(width)
        self.deep, self.deep_norms = nn.ModuleList(), nn.ModuleList()
        self.wide, self.wide_norms = nn.ModuleList(), nn.ModuleList()
        self.strides = (1, 2, 1, 2, 1, 2)
        for stride in self.strides:
            padding = 1 if stride == 1 else 0
            self.deep.append(nn.Conv2d(width, width, 3, stride, padding, groups=width, bias=False))
            self.deep_norms.append(nn.BatchNorm2d(width))
            made = width * (2 if stride == 2 else 1)
            self.wide.append(nn.Conv2d(width, made, 1, bias=False))
            self.wide_norms.append(nn.BatchNorm2d(made))
            width = made
        self.weight = nn.Parameter(0.1 * torch.randn(width, classes))
        self.bias = nn.Parameter(0.1 * torch.randn(classes))

    def forward(self, image: Tensor) -> Tensor:
        """Probabilities of an image (N, H, W, 3)."""
        made = functional.pad(image.permute(0, 3, 1, 2), (0, 1, 0, 1))
        made = functional.relu6(self.stem_norm(self.stem(made)))
        layers = zip(
            self.strides, self.deep, self.deep_norms, self.wide, self.wide_norms, strict=True
        )
        for stride, deep, deep_norm, wide, wide_norm in layers:
            made = made if stride == 1 else functional.pad(made, (0, 1, 0, 1))
            made = functional.relu6(deep_norm(deep(made)))
            made = functional.relu6(wide_norm(wide(made)))
        return torch.softmax(made.mean((2, 3)) @ self.weight + self.bias, -1)


class KerasXception(nn.Module):
    """Xception as Keras has it, small: separable Convs behind a Relu, pools, shortcuts."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        )  # fmt: skip
        widths = (2 * width, 4 * width, 8 * width)
        self.entry = nn.ModuleList()
        self.shortcuts = nn.ModuleList()
        for given, made in pairwise(widths):
            self.entry.append(
                nn.Sequential(
                    *_separable(given, made), nn.ReLU(), *_separable(made, made),
                    nn.MaxPool2d(3, 2, 1),
                )
            )  # fmt: skip
            self.shortcuts.append(
                nn.Sequential(nn.Conv2d(given, made, 1, 2, bias=False), nn.BatchNorm2d(made))
            )
        last = widths[-1]
        self.middle = nn.ModuleList(
            nn.Sequential(
                *(layer for _ in range(3) for layer in (nn.ReLU(), *_separable(last, last)))
            )
            for _ in range(2)
        )
        self.last = nn.Sequential(*_separable(last, 2 * last), nn.ReLU())
        self.weight = nn.Parameter(0.1 * torch.randn(2 * last, classes))
        self.bias = nn.Parameter(0.1 * torch.randn(classes))

    def forward(self, image: Tensor) -> Tensor:
        """Probabilities of an image (N, H, W, 3)."""
        made = self.stem(image.permute(0, 3, 1, 2))
        for block, shortcut in zip(self.entry, self.shortcuts, strict=True):
            made = block(made) + shortcut(made)
        for block in self.middle:
            made = block(made) + made
        made = self.last(made).mean((2, 3))
        return torch.softmax(made @ self.weight + self.bias, -1)


def _separable(given: int, made: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(given, given, 3, padding=1, groups=given, bias=False),
        nn.Conv2d(given, made, 1, bias=False),
        nn.BatchNorm2d(made),
    )


class Rfdn(nn.Module):
    """RFDN (Liu et al. 2020): distilled features, attention to places, pixel shuffle."""

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(_Distilled(width) for _ in range(blocks))
        self.join = nn.Sequential(nn.Conv2d(width * blocks, width, 1), nn.LeakyReLU(0.05))
        self.last = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        """The image at twice its size."""
        first = self.first(image)
        made, all_made = first, []
        for block in self.blocks:
            made = block(made)
            all_made.append(made)
        larger: Tensor = self.up(self.last(self.join(torch.cat(all_made, 1))) + first)
        return larger


class _Distilled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.kept = nn.ModuleList(nn.Conv2d(width, half, 1) for _ in range(3))
        self.passed = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(width, half, 3, padding=1)
        self.join = nn.Conv2d(4 * half, width, 1)
        self.gate = _Places(width)

    def forward(self, image: Tensor) -> Tensor:
        kept, made = [], image
        for keep, go_on in zip(self.kept, self.passed, strict=True):
            kept.append(functional.leaky_relu(keep(made), 0.05))
            made = functional.leaky_relu(go_on(made) + made, 0.05)
        kept.append(functional.leaky_relu(self.last(made), 0.05))
        gated: Tensor = self.gate(self.join(torch.cat(kept, 1)))
        return gated


class _Places(nn.Module):
    """Enhanced attention to places: a pooled map, resized to the image's size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        few = width // 4
        self.narrow, self.side = nn.Conv2d(width, few, 1), nn.Conv2d(few, few, 1)
        self.step = nn.Conv2d(few, few, 3, 2)
        self.convs = nn.Sequential(
            nn.Conv2d(few, few, 3, padding=1), nn.ReLU(), nn.Conv2d(few, few, 3, padding=1)
        )
        self.wide = nn.Conv2d(few, width, 1)

    def forward(self, image: Tensor) -> Tensor:
        few = self.narrow(image)
        pooled = self.convs(functional.max_pool2d(self.step(few), 7, 3))
        pooled = functional.interpolate(pooled, image.shape[2:], mode="bilinear")
        gated: Tensor = image * torch.sigmoid(self.wide(pooled + self.side(few)))
        return gated


class Msrn(nn.Module):
    """MSRN (Li et al. 2018): two windows side by side, exchanged, and all blocks joined."""

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(_TwoWindows(width) for _ in range(blocks))
        self.join = nn.Conv2d(width * (blocks + 1), width, 1)
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """The image at twice its size."""
        all_made = [self.first(image)]
        for block in self.blocks:
            all_made.append(block(all_made[-1]))
        larger: Tensor = self.up(self.join(torch.cat(all_made, 1)))
        return larger


class _TwoWindows(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.small = nn.Conv2d(width, width, 3, padding=1)
        self.large = nn.Conv2d(width, width, 5, padding=2)
        self.small_again = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.large_again = nn.Conv2d(2 * width, 2 * width, 5, padding=2)
        self.join = nn.Conv2d(4 * width, width, 1)

    def forward(self, image: Tensor) -> Tensor:
        small, large = self.small(image).relu(), self.large(image).relu()
        both, turned = torch.cat([small, large], 1), torch.cat([large, small], 1)
        joined = torch.cat([self.small_again(both).relu(), self.large_again(turned).relu()], 1)
        added: Tensor = self.join(joined) + image
        return added
