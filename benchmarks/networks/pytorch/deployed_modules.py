"""Modules of PyTorch for ``further_deployed``: as in the papers, fewer blocks."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, **options: int) -> nn.Module:
    """A convolution with batch normalization and ReLU."""
    padding = options.pop("padding", kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False, **options),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class CenterNet(nn.Module):
    """Objects as points (Zhou et al. 2019): ResNet18, transposed convolutions, three heads."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        whole = torchvision.models.resnet18(weights=None)
        self.body = nn.Sequential(*list(whole.children())[:-2])
        ups, inputs = list[nn.Module](), 512
        for outputs in (256, 128, 64):
            ups += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)]
            ups += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.ups = nn.Sequential(*ups)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, count, 1))
            for count in (classes, 2, 2)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Peaks of the heat map, sizes and offsets."""
        features = self.ups(self.body(image))
        heat, size, offset = (head(features) for head in self.heads)
        heat = heat.sigmoid()
        peaks = functional.max_pool2d(heat, 3, 1, 1)
        return heat * (peaks == heat).float(), size, offset


class _Gathered(nn.Module):
    """A gather-and-expansion layer of BiSeNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = inputs * 6
        self.body = nn.Sequential(
            conv(inputs, inputs),
            nn.Conv2d(inputs, wide, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.side = nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.is_short = stride == 1

    def forward(self, features: Tensor) -> Tensor:
        """A map, half as large with stride 2."""
        short = features if self.is_short else self.side(features)
        return functional.relu(self.body(features) + short)


class BiSeNetV2(nn.Module):
    """Details and semantics apart, which guide each other in the end (Yu et al. 2020)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.detail = nn.Sequential(
            conv(3, 32, stride=2), conv(32, 32), conv(32, 64, stride=2), conv(64, 64),
            conv(64, 64, stride=2), conv(64, 64),
        )  # fmt: skip
        self.stem = conv(3, 16, stride=2)
        self.left = nn.Sequential(conv(16, 8, 1), conv(8, 16, stride=2))
        self.right = nn.MaxPool2d(3, 2, 1)
        self.joined = conv(32, 16)
        self.semantic = nn.Sequential(
            _Gathered(16, 32, 2), _Gathered(32, 32, 1), _Gathered(32, 64, 2), _Gathered(64, 64, 2),
        )  # fmt: skip
        self.context = nn.Sequential(nn.BatchNorm2d(64), conv(64, 64, 1))
        self.last = nn.Conv2d(64, 64, 3, padding=1)
        self.fine, self.coarse = self._guide(1), self._guide(1)
        self.fine_down = nn.Sequential(
            nn.Conv2d(64, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.AvgPool2d(3, 2, 1)
        )
        self.coarse_up = nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64))
        self.head = nn.Sequential(conv(64, 64), nn.Conv2d(64, classes, 1))

    @staticmethod
    def _guide(stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(64, 64, 3, stride, 1, groups=64, bias=False),
            nn.BatchNorm2d(64),
            nn.Conv2d(64, 64, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Scores of each class at each pixel."""
        detail, semantic = self.detail(image), self.stem(image)
        semantic = self.joined(torch.cat([self.left(semantic), self.right(semantic)], 1))
        semantic = self.semantic(semantic)
        mean = semantic.mean((2, 3), keepdim=True)
        semantic = self.last(self.context(mean) + semantic)
        size = detail.shape[2:]
        up = functional.interpolate(self.coarse_up(semantic), size=size, mode="bilinear")
        fine = self.fine(detail) * torch.sigmoid(up)
        coarse = self.fine_down(detail) * torch.sigmoid(self.coarse(semantic))
        coarse = functional.interpolate(coarse, size=size, mode="bilinear")
        scores = self.head(fine + coarse)
        return functional.interpolate(scores, size=image.shape[2:], mode="bilinear")


class _ResidualU(nn.Module):
    """A U-shaped block of U2-Net; ``depth``: how often the map is halved."""

    def __init__(self, inputs: int, middle: int, outputs: int, depth: int) -> None:
        super().__init__()
        self.first = conv(inputs, outputs)
        self.down = nn.ModuleList(conv(outputs if i == 0 else middle, middle) for i in range(depth))
        self.lowest = conv(middle, middle, padding=2, dilation=2)
        self.up = nn.ModuleList(
            conv(2 * middle, middle if i < depth - 1 else outputs) for i in range(depth)
        )

    def forward(self, image: Tensor) -> Tensor:
        """A map of the size of ``image``."""
        first = features = self.first(image)
        skips = list[Tensor]()
        for index, layer in enumerate(self.down):
            if index:
                features = functional.max_pool2d(features, 2, 2, ceil_mode=True)
            features = layer(features)
            skips.append(features)
        features = self.lowest(features)
        for layer in self.up:
            skip = skips.pop()
            if features.shape != skip.shape:
                features = functional.interpolate(features, size=skip.shape[2:], mode="bilinear")
            features = layer(torch.cat([features, skip], 1))
        return features + first


class U2Net(nn.Module):
    """What is in front, by nested U-shapes (Qin et al. 2020): the small variant."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _ResidualU(3 if i == 0 else 32, 16, 32, depth) for i, depth in enumerate((4, 3, 2))
        )
        self.up = nn.ModuleList(_ResidualU(64, 16, 32, depth) for depth in (3, 4))
        self.sides = nn.ModuleList(nn.Conv2d(32, 1, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(3, 1, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """The mask, and those of each size."""
        features, skips = image, list[Tensor]()
        for index, block in enumerate(self.down):
            if index:
                features = functional.max_pool2d(features, 2, 2, ceil_mode=True)
            features = block(features)
            skips.append(features)
        found = [skips.pop()]
        for block in self.up:
            skip = skips.pop()
            up = functional.interpolate(found[0], size=skip.shape[2:], mode="bilinear")
            found.insert(0, block(torch.cat([up, skip], 1)))
        masks = [
            functional.interpolate(side(features), size=image.shape[2:], mode="bilinear")
            for side, features in zip(self.sides, found, strict=True)
        ]
        whole = self.out(torch.cat(masks, 1))
        return tuple(torch.sigmoid(mask) for mask in (whole, *masks))


class _FaceBlock(nn.Module):
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
        self.side = nn.Identity()
        if stride > 1:
            self.side = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, features: Tensor) -> Tensor:
        """A map, half as large with stride 2."""
        return self.body(features) + self.side(features)


class ArcFace(nn.Module):
    """The improved ResNet of ArcFace (Deng et al. 2019): an embedding of a face."""

    def __init__(self) -> None:
        super().__init__()
        blocks, inputs = list[nn.Module](), 32
        for outputs in (32, 64, 128, 128):
            blocks += [_FaceBlock(inputs, outputs, 2), _FaceBlock(outputs, outputs, 1)]
            inputs = outputs
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.PReLU(32), *blocks
        )
        self.norm, self.linear = nn.BatchNorm2d(128), nn.Linear(128 * 7 * 7, 128)
        self.last = nn.BatchNorm1d(128)

    def forward(self, image: Tensor) -> Tensor:
        """The embedding of an image of 112 by 112 pixels."""
        return self.last(self.linear(torch.flatten(self.norm(self.body(image)), 1)))


class _Paths(nn.Module):
    """Attention within pieces, then across them, as in SepFormer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.within, self.across = (
            nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(2))

    def forward(self, pieces: Tensor) -> Tensor:
        """Features of shape (1, width, piece, pieces), as given."""
        _, width, length, count = pieces.shape
        rows = pieces.permute(0, 3, 2, 1).reshape(count, length, width)
        rows = self.within(rows).reshape(1, count, length, width).permute(0, 3, 2, 1)
        pieces = self.norms[0](rows) + pieces
        rows = pieces.permute(0, 2, 3, 1).reshape(length, count, width)
        rows = self.across(rows).reshape(1, length, count, width).permute(0, 3, 1, 2)
        return self.norms[1](rows) + pieces


class SepFormer(nn.Module):
    """Speakers apart by attention alone (Subakan et al. 2021)."""

    def __init__(self, width: int, piece: int) -> None:
        super().__init__()
        self.piece = piece
        self.encoder = nn.Conv1d(1, width, 16, 8, bias=False)
        self.norm, self.front = nn.GroupNorm(1, width), nn.Conv1d(width, width, 1, bias=False)
        self.paths = _Paths(width)
        self.between = nn.Sequential(nn.PReLU(), nn.Conv2d(width, 2 * width, 1))
        self.value = nn.Sequential(nn.Conv1d(width, width, 1), nn.Tanh())
        self.gate = nn.Sequential(nn.Conv1d(width, width, 1), nn.Sigmoid())
        self.mask = nn.Conv1d(width, width, 1, bias=False)
        self.decoder = nn.ConvTranspose1d(width, 1, 16, 8, bias=False)

    def forward(self, sound: Tensor) -> Tensor:
        """Two sounds, of one whose encoding is whole pieces long."""
        mixed = functional.relu(self.encoder(sound))
        _, width, length = mixed.shape
        features = self.front(self.norm(mixed)).view(1, width, -1, self.piece).transpose(2, 3)
        features = self.between(self.paths(features)).view(2, width, self.piece, -1)
        features = features.transpose(2, 3).reshape(2, width, length)
        masks = functional.relu(self.mask(self.value(features) * self.gate(features)))
        return self.decoder(masks * mixed)


class _Distilled(nn.Module):
    """An information multi-distillation block: parts of the channels are kept at each step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept = width // 4
        self.first = nn.Conv2d(width, width, 3, 1, 1)
        rest = width - self.kept
        self.second, self.third = nn.Conv2d(rest, width, 3, 1, 1), nn.Conv2d(rest, width, 3, 1, 1)
        self.fourth = nn.Conv2d(rest, self.kept, 3, 1, 1)
        self.attend = nn.Sequential(
            nn.Conv2d(width, width // 8, 1), nn.ReLU(), nn.Conv2d(width // 8, width, 1)
        )
        self.last = nn.Conv2d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        """A map of the same shape."""
        found, rest = list[Tensor](), features
        for layer in (self.first, self.second, self.third):
            new = functional.leaky_relu(layer(rest), 0.05)
            kept, rest = torch.split(new, (self.kept, new.shape[1] - self.kept), 1)
            found.append(kept)
        joined = torch.cat([*found, self.fourth(rest)], 1)
        mean = joined.mean((2, 3), keepdim=True)
        spread = (joined - mean).pow(2).mean((2, 3), keepdim=True).sqrt()
        return self.last(joined * torch.sigmoid(self.attend(spread + mean))) + features


class Imdn(nn.Module):
    """Larger images by distilled features (Hui et al. 2019), with a PixelShuffle in the end."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.blocks = nn.ModuleList(_Distilled(width) for _ in range(blocks))
        self.joined = nn.Sequential(nn.Conv2d(width * blocks, width, 1), nn.LeakyReLU(0.05))
        self.smooth = nn.Conv2d(width, width, 3, 1, 1)
        self.up = nn.Sequential(nn.Conv2d(width, 3 * 16, 3, 1, 1), nn.PixelShuffle(4))

    def forward(self, image: Tensor) -> Tensor:
        """An image four times as wide and high."""
        first = features = self.first(image)
        found = list[Tensor]()
        for block in self.blocks:
            features = block(features)
            found.append(features)
        return self.up(self.smooth(self.joined(torch.cat(found, 1))) + first)
