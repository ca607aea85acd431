"""Modules of PyTorch for ``third_set``: as in the papers, fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution with batch normalization and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class DnCnn(nn.Module):
    """Noise of an image by plain convolutions (Zhang et al. 2017)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        inner = [conv(width, width) for _ in range(depth)]
        first = (nn.Conv2d(1, width, 3, padding=1), nn.ReLU(inplace=True))
        self.noise = nn.Sequential(*first, *inner, nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, image: Tensor) -> Tensor:
        """The image without its noise."""
        return image - self.noise(image)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
            nn.PReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, features: Tensor) -> Tensor:
        """Features of the same shape."""
        return features + self.body(features)


class SrResNet(nn.Module):
    """Super-resolution with residual blocks, PReLU and pixel shuffles (Ledig et al. 2017)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 9, padding=4), nn.PReLU())
        self.body = nn.Sequential(
            *(_Residual(width) for _ in range(depth)),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.up = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()
                )
                for _ in range(2)
            )
        )
        self.last = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, image: Tensor) -> Tensor:
        """An image four times as large."""
        features = self.first(image)
        return self.last(self.up(features + self.body(features)))


class UNetPlusPlus(nn.Module):
    """A U-Net with nested skips (Zhou et al. 2018), three levels."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(3)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, size), conv(size, size))
            for before, size in zip([3, *sizes], sizes, strict=False)
        )
        self.inner = nn.ModuleDict(
            {
                "01": conv(sizes[0] + sizes[1], sizes[0]),
                "11": conv(sizes[1] + sizes[2], sizes[1]),
                "02": conv(2 * sizes[0] + sizes[1], sizes[0]),
            }
        )
        self.last = nn.Conv2d(sizes[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of each class at each pixel."""
        first = self.down[0](image)
        second = self.down[1](functional.max_pool2d(first, 2))
        third = self.down[2](functional.max_pool2d(second, 2))
        one = self.inner["01"](torch.cat([first, self._up(second)], 1))
        deep = self.inner["11"](torch.cat([second, self._up(third)], 1))
        return self.last(self.inner["02"](torch.cat([first, one, self._up(deep)], 1)))

    def _up(self, features: Tensor) -> Tensor:
        return functional.interpolate(features, scale_factor=2.0, mode="bilinear")


class LinkNet(nn.Module):
    """Sums instead of joined skips, and transposed convolutions (Chaurasia et al. 2017)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.stem = conv(3, width, 7, 2)
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, size, stride=2), conv(size, size))
            for before, size in zip([width, *sizes], sizes, strict=False)
        )
        self.up = nn.ModuleList(
            self._decoder(size, before)
            for before, size in zip([width, *sizes], sizes, strict=False)
        )
        self.last = nn.ConvTranspose2d(width, classes, 2, 2)

    @staticmethod
    def _decoder(inputs: int, outputs: int) -> nn.Module:
        wide = inputs // 4
        return nn.Sequential(
            conv(inputs, wide, 1), nn.ConvTranspose2d(wide, wide, 4, 2, 1),
            nn.BatchNorm2d(wide), nn.ReLU(inplace=True), conv(wide, outputs, 1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Scores of each class at each pixel."""
        maps = [self.stem(image)]
        for down in self.down:
            maps.append(down(maps[-1]))
        features = maps[-1]
        for up, skip in zip(reversed(self.up), reversed(maps[:-1]), strict=True):
            features = up(features) + skip
        return self.last(features)


class Dbnet(nn.Module):
    """Text regions by a feature pyramid that is joined (Liao et al. 2020), a small body."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(4)]
        self.stem = conv(3, width, stride=2)
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, size, stride=2), conv(size, size))
            for before, size in zip([width, *sizes], sizes, strict=False)
        )
        self.side = nn.ModuleList(nn.Conv2d(size, width, 1, bias=False) for size in sizes)
        self.smooth = nn.ModuleList(
            nn.Conv2d(width, width // 4, 3, padding=1, bias=False) for _ in sizes
        )
        self.probability, self.threshold = self._head(width), self._head(width)

    @staticmethod
    def _head(width: int) -> nn.Module:
        return nn.Sequential(
            conv(width, width // 4), nn.ConvTranspose2d(width // 4, width // 4, 2, 2),
            nn.BatchNorm2d(width // 4), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width // 4, 1, 2, 2), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """The probability of text at each pixel, made sharp."""
        features, maps = self.stem(image), list[Tensor]()
        for down, side in zip(self.down, self.side, strict=True):
            features = down(features)
            maps.append(side(features))
        for level in (2, 1, 0):
            up = functional.interpolate(maps[level + 1], scale_factor=2.0, mode="nearest")
            maps[level] = maps[level] + up
        joined = [
            functional.interpolate(smooth(features), scale_factor=2.0**level, mode="nearest")
            for level, (smooth, features) in enumerate(zip(self.smooth, maps, strict=True))
        ]
        found = torch.cat(joined[::-1], 1)
        probability, threshold = self.probability(found), self.threshold(found)
        return torch.sigmoid(50 * (probability - threshold))


class _Lite(nn.Sequential):
    """OSNet's 3x3 convolution: pointwise, then channel by channel."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Conv2d(width, width, 1, bias=False),
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )


class _OmniScale(nn.Module):
    """Streams of several scales under one gate (OSNet)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        width = outputs // 4
        self.first = conv(inputs, width, 1)
        self.streams = nn.ModuleList(
            nn.Sequential(*(_Lite(width) for _ in range(count))) for count in (1, 2, 3)
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.ReLU(inplace=True),
            nn.Conv2d(width // 4, width, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.last = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.side = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, features: Tensor) -> Tensor:
        """A map of the same size."""
        first = self.first(features)
        streams = [stream(first) for stream in self.streams]
        gated = sum(stream * self.gate(stream) for stream in streams)
        return functional.relu(self.last(gated) + self.side(features))


class OsNet(nn.Module):
    """Persons known again at several scales (Zhou et al. 2019), two blocks."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1), _OmniScale(width, 4 * width),
            conv(4 * width, 4 * width, 1), nn.AvgPool2d(2), _OmniScale(4 * width, 6 * width),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * width, features),
            nn.BatchNorm1d(features), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """A vector of features."""
        return self.body(image)


class Pfld(nn.Module):
    """Landmarks of a face from three scales (Guo et al. 2019), few inverted residuals."""

    def __init__(self, points: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 32, stride=2), conv(32, 32, groups=32))
        self.blocks = nn.Sequential(*(self._block(32, 32) for _ in range(2)))
        self.down = nn.Sequential(self._block(32, 64, 2), self._block(64, 16))
        self.second = conv(16, 32, stride=2)
        self.third = nn.Sequential(nn.Conv2d(32, 64, 7), nn.ReLU(inplace=True))
        self.last = nn.Linear(16 + 32 + 64, 2 * points)

    @staticmethod
    def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
        wide = 2 * inputs
        return nn.Sequential(
            conv(inputs, wide, 1), conv(wide, wide, stride=stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Coordinates."""
        features = self.stem(image)
        for block in self.blocks:
            features = features + block(features)
        first = self.down(features)
        second = self.second(first)
        third = self.third(second)
        means = [
            functional.adaptive_avg_pool2d(first, 1),
            functional.adaptive_avg_pool2d(second, 1),
        ]
        return self.last(torch.cat([t.flatten(1) for t in (*means, third)], 1))
