"""Networks of openvino_tenth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


def _halved(x: Tensor) -> Tensor:
    made: Tensor = functional.avg_pool2d(x, 2)
    return made


def _doubled(x: Tensor) -> Tensor:
    made: Tensor = functional.interpolate(x, scale_factor=2, mode="nearest")
    return made


class _Octave(nn.Module):
    """Convs between a map and one of half the size, each with a norm and a Relu."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            [nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(2)])

    def forward(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        to_fine = self.ways[0](fine) + _doubled(self.ways[1](coarse))
        to_coarse = self.ways[2](coarse) + self.ways[3](_halved(fine))
        return functional.relu(self.norms[0](to_fine)), functional.relu(self.norms[1](to_coarse))


class OctaveNet(nn.Module):
    """Octave convolutions (Chen et al. 2019) with residual connections in both frequencies."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.first, self.coarse = conv_norm(3, width, 3, 2), conv_norm(width, width)
        self.blocks = nn.ModuleList([_Octave(width) for _ in range(6)])
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.coarse(_halved(fine))
        for one, other in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            made = other(*one(fine, coarse))
            fine, coarse = fine + made[0], coarse + made[1]
        pooled = torch.cat((fine.mean((2, 3)), coarse.mean((2, 3))), 1)
        scores: Tensor = self.last(pooled)
        return scores


class VanillaNet(nn.Module):
    """VanillaNet (Chen et al. 2023) as deployed: Convs, pools and activations of shifted copies."""

    def __init__(self, width: int = 48, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 4, 4)
        widths = (width, 2 * width, 4 * width, 4 * width)
        self.mixing = nn.ModuleList([nn.Conv2d(a, b, 1) for a, b in pairwise(widths)])
        self.shifted = nn.ModuleList(
            [nn.Conv2d(b, b, 7, padding=3, groups=b) for b in (width, *widths[1:])]
        )
        self.last = nn.Conv2d(widths[-1], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shifted[0](functional.relu(self.first(x)))
        for mix, shift in zip(self.mixing, self.shifted[1:], strict=True):
            x = shift(functional.relu(functional.max_pool2d(mix(x), 2)))
        scores: Tensor = self.last(functional.adaptive_avg_pool2d(x, 1)).flatten(1)
        return scores


class PixelSegments(nn.Module):
    """PSENet (Wang et al. 2019): a pyramid whose maps are joined, and kernels of several scales."""

    def __init__(self, width: int = 16, kernels: int = 6) -> None:
        super().__init__()
        widths = (width, width, 2 * width, 4 * width, 4 * width)
        self.stem = conv_norm(3, width, 7, 2)
        self.stages = nn.ModuleList(
            [nn.Sequential(conv_norm(a, b, 3, 2), conv_norm(b, b)) for a, b in pairwise(widths)]
        )
        self.sides = nn.ModuleList([conv_norm(b, width, 1) for b in widths[1:]])
        self.smooth = nn.ModuleList([conv_norm(width, width) for _ in range(3)])
        self.joined = conv_norm(4 * width, width)
        self.last = nn.Conv2d(width, kernels, 1)

    def forward(self, x: Tensor) -> Tensor:
        size, x = x.shape[2:], self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        levels = [self.sides[-1](maps[-1])]
        for index in (2, 1, 0):
            up = functional.interpolate(
                levels[0], size=maps[index].shape[2:], mode="bilinear", align_corners=False
            )
            levels.insert(0, self.smooth[index](up + self.sides[index](maps[index])))
        fine = levels[0].shape[2:]
        resized = [levels[0]] + [
            functional.interpolate(one, size=fine, mode="bilinear", align_corners=False)
            for one in levels[1:]
        ]
        made = self.last(self.joined(torch.cat(resized, 1)))
        scores: Tensor = functional.interpolate(
            made, size=size, mode="bilinear", align_corners=False
        )
        return scores


class DenseAspp(nn.Module):
    """DenseASPP (Yang et al. 2018): dilated Convs, each of which reads all maps before it."""

    def __init__(self, width: int = 24, growth: int = 16, classes: int = 6) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(3, width, 3, 2), conv_norm(width, width, 3, 2), conv_norm(width, 2 * width)
        )
        inputs = [2 * width + index * growth for index in range(5)]
        rates = (3, 6, 12, 18, 24)
        self.dilated = nn.ModuleList(
            [
                nn.Sequential(conv_norm(count, 32, 1), conv_norm(32, growth, 3, 1, dilation=rate))
                for count, rate in zip(inputs, rates, strict=True)
            ]
        )
        self.last = nn.Conv2d(2 * width + 5 * growth, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        size, made = x.shape[2:], self.body(x)
        for branch in self.dilated:
            made = torch.cat((branch(made), made), 1)
        scores: Tensor = functional.interpolate(
            self.last(made), size=size, mode="bilinear", align_corners=False
        )
        return scores


class CrowdCounter(nn.Module):
    """CSRNet (Li et al. 2018): a VGG with biases and no norms, and dilated Convs behind it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for step in (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8):
            if step:
                layers += [nn.Conv2d(inputs, step * width, 3, padding=1), nn.ReLU()]
                inputs = step * width
            else:
                layers.append(nn.MaxPool2d(2))
        for step in (8, 8, 4, 2):
            layers += [nn.Conv2d(inputs, step * width, 3, padding=2, dilation=2), nn.ReLU()]
            inputs = step * width
        self.layers = nn.Sequential(*layers, nn.Conv2d(inputs, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        density: Tensor = self.layers(x)
        return density


class WideSuperResolution(nn.Module):
    """WDSR-B (Yu et al. 2018): wide activations in residual blocks, and pixels shuffled."""

    def __init__(self, width: int = 16, blocks: int = 4, scale: int = 2) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv2d(width, 6 * width, 1),
                    nn.ReLU(),
                    nn.Conv2d(6 * width, 13, 1),
                    nn.Conv2d(13, width, 3, padding=1),
                )
                for _ in range(blocks)
            ]
        )
        self.tail = nn.Conv2d(width, 3 * scale**2, 3, padding=1)
        self.past = nn.Conv2d(3, 3 * scale**2, 5, padding=2)
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, x: Tensor) -> Tensor:
        x = x - 0.45
        made = self.head(x)
        for block in self.blocks:
            made = made + block(made)
        larger: Tensor = self.shuffle(self.tail(made)) + self.shuffle(self.past(x))
        return larger + 0.45


class _MaxOut(nn.Module):
    """The larger of two halves of the channels."""

    def __init__(self, inputs: int, width: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, 2 * width, size, padding=size // 2)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.conv(x).chunk(2, 1)
        return torch.maximum(one, other)


class LightCnn(nn.Module):
    """LCNN of spoofed speech (Lavrentyeva et al. 2019): max feature maps instead of Relus."""

    def __init__(self, width: int = 16, classes: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _MaxOut(1, width, 5),
            nn.MaxPool2d(2),
            _MaxOut(width, width, 1),
            nn.BatchNorm2d(width),
            _MaxOut(width, 2 * width, 3),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(2 * width),
            _MaxOut(2 * width, 2 * width, 1),
            nn.BatchNorm2d(2 * width),
            _MaxOut(2 * width, 3 * width, 3),
            nn.MaxPool2d(2),
            _MaxOut(3 * width, 2 * width, 3),
        )
        self.first, self.last = nn.Linear(2 * width, 64), nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.layers(x).mean((2, 3))
        one, other = self.first(pooled).chunk(2, 1)
        scores: Tensor = self.last(torch.maximum(one, other))
        return scores


class _Scaled(nn.Module):
    """A residual block along one axis whose channels are scaled and shifted by their means."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm1d(inputs), nn.LeakyReLU(0.3))
        self.convs = nn.Sequential(
            nn.Conv1d(inputs, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.LeakyReLU(0.3),
            nn.Conv1d(width, width, 3, padding=1),
        )
        self.past = nn.Conv1d(inputs, width, 1) if inputs != width else nn.Identity()
        self.scale = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool1d(self.convs(self.before(x)) + self.past(x), 3)
        gate = torch.sigmoid(self.scale(x.mean(2)))[:, :, None]
        made: Tensor = x * gate + gate
        return made


class RawNet(nn.Module):
    """RawNet2 (Jung et al. 2020) of waveforms, with a mean over time instead of its GRU."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, width, 129, 3), nn.MaxPool1d(3))
        widths = (width, width, 2 * width, 2 * width)
        self.blocks = nn.Sequential(*(_Scaled(a, b) for a, b in pairwise(widths)))
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        made = functional.leaky_relu(self.blocks(self.first(x)), 0.3)
        scores: Tensor = self.last(made.mean(2))
        return scores


class _LargeKernel(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.into = conv_norm(width, width, 1)
        self.large = nn.Conv2d(width, width, size, padding=size // 2, groups=width)
        self.back = conv_norm(width, width, 1, 1, nn.Identity())
        self.mlp = nn.Sequential(
            nn.BatchNorm2d(width),
            conv_norm(width, 4 * width, 1, 1, nn.GELU()),
            conv_norm(4 * width, width, 1, 1, nn.Identity()),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.back(functional.relu(self.large(self.into(self.norm(x)))))
        made: Tensor = x + self.mlp(x)
        return made


class LargeKernels(nn.Module):
    """RepLKNet (Ding et al. 2022) as deployed, with kernels up to 31x31."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, width, 3, 2),
            conv_norm(width, width, groups=width),
            conv_norm(width, width, 1),
            conv_norm(width, width, 3, 2, groups=width),
        )
        self.fine = nn.Sequential(_LargeKernel(width, 31), _LargeKernel(width, 29))
        self.down = nn.Sequential(
            conv_norm(width, 2 * width, 1), conv_norm(2 * width, 2 * width, 3, 2, groups=2 * width)
        )
        self.coarse = nn.Sequential(_LargeKernel(2 * width, 27), _LargeKernel(2 * width, 13))
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        made = self.coarse(self.down(self.fine(self.stem(x))))
        scores: Tensor = self.last(made.mean((2, 3)))
        return scores
