"""Networks of the twenty-ninth set that no package here has, written from papers."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional


def _conv(read: int, written: int, size: int = 3, step: int = 1, dilation: int = 1) -> nn.Module:
    padding = dilation * (size // 2)
    return nn.Sequential(
        nn.Conv2d(read, written, size, step, padding, dilation, bias=False),
        nn.BatchNorm2d(written),
        nn.ReLU(),
    )


class _Stages(nn.Module):
    """The last two maps of a ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        whole = torchvision.models.resnet18(weights=None)
        self.first = nn.Sequential(
            whole.conv1, whole.bn1, whole.relu, whole.maxpool, whole.layer1, whole.layer2,
            whole.layer3,
        )  # fmt: skip
        self.last = whole.layer4

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Maps of a 16th and a 32nd of the image's size."""
        values = self.first(image)
        return values, self.last(values)


class DenseAspp(nn.Module):
    """DenseASPP (Yang et al. 2018): dilated convolutions, each of which reads all before."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = _Stages()
        self.reduced = _conv(512, 128, 1)
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(128 + 32 * index), nn.ReLU(), nn.Conv2d(128 + 32 * index, 64, 1),
                nn.BatchNorm2d(64), nn.ReLU(),
                nn.Conv2d(64, 32, 3, padding=dilation, dilation=dilation),
            )
            for index, dilation in enumerate((1, 2, 3, 4))
        )  # fmt: skip
        self.scores = nn.Conv2d(128 + 4 * 32, 6, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of six classes, as large as the image."""
        values = self.reduced(self.stages(image)[1])
        for branch in self.branches:
            values = torch.cat([branch(values), values], 1)
        return functional.interpolate(self.scores(values), scale_factor=32.0, mode="bilinear")


class OcrNet(nn.Module):
    """OCRNet (Yuan et al. 2020): pixels attend to what the pixels of each class have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = _Stages()
        self.soft = nn.Sequential(_conv(256, 64), nn.Conv2d(64, 6, 1))
        self.pixels = _conv(512, 96)
        self.queries = nn.Sequential(_conv(96, 48, 1), _conv(48, 48, 1))
        self.keys = nn.Sequential(_conv(96, 48, 1), _conv(48, 48, 1))
        self.values, self.up = _conv(96, 48, 1), _conv(48, 96, 1)
        self.joined = _conv(192, 96, 1)
        self.scores = nn.Conv2d(96, 6, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the soft regions and the final ones."""
        earlier, last = self.stages(image)
        soft, pixels = self.soft(earlier), self.pixels(last)
        pixels = functional.interpolate(pixels, scale_factor=2.0, mode="bilinear")
        regions = torch.softmax(soft.flatten(2), -1) @ pixels.flatten(2).transpose(1, 2)
        regions = regions.transpose(1, 2)[..., None]
        queries = self.queries(pixels).flatten(2).transpose(1, 2)
        keys = self.keys(regions).flatten(2)
        values = self.values(regions).flatten(2).transpose(1, 2)
        context = torch.softmax(queries @ keys * 48**-0.5, -1) @ values
        context = self.up(context.transpose(1, 2).reshape(1, 48, *pixels.shape[2:]))
        return soft, self.scores(self.joined(torch.cat([context, pixels], 1)))


class _Receptive(nn.Module):
    """A receptive-field block: branches of growing dilation, scaled and added to a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 8
        self.branches = nn.ModuleList(
            nn.Sequential(
                _conv(width, inner, 1), *([_conv(inner, inner)] if dilation > 1 else []),
                nn.Conv2d(inner, inner, 3, padding=dilation, dilation=dilation, bias=False),
                nn.BatchNorm2d(inner),
            )
            for dilation in (1, 3, 5)
        )  # fmt: skip
        self.joined = nn.Sequential(nn.Conv2d(3 * inner, width, 1), nn.BatchNorm2d(width))
        self.shortcut = nn.Sequential(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))

    def forward(self, values: Tensor) -> Tensor:
        """A map of the same size."""
        joined = self.joined(torch.cat([branch(values) for branch in self.branches], 1))
        return torch.relu(joined * 0.1 + self.shortcut(values))


class RfbNet(nn.Module):
    """RFBNet (Liu et al. 2018): a single-shot detector with receptive-field blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = _Stages()
        self.blocks = nn.ModuleList([_Receptive(256), _Receptive(512)])
        self.further = nn.Sequential(_conv(512, 64, 1), _conv(64, 128, 3, 2))
        self.boxes = nn.ModuleList(nn.Conv2d(w, 4 * 4, 3, padding=1) for w in (256, 512, 128))
        self.scores = nn.ModuleList(nn.Conv2d(w, 4 * 7, 3, padding=1) for w in (256, 512, 128))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes and scores of seven classes for each anchor."""
        stages = self.stages(image)
        maps = [block(read) for block, read in zip(self.blocks, stages, strict=True)]
        maps.append(self.further(maps[-1]))
        boxes = [
            head(read).permute(0, 2, 3, 1) for head, read in zip(self.boxes, maps, strict=True)
        ]
        scores = [
            head(read).permute(0, 2, 3, 1) for head, read in zip(self.scores, maps, strict=True)
        ]
        return (
            torch.cat([part.reshape(1, -1, 4) for part in boxes], 1),
            torch.softmax(torch.cat([part.reshape(1, -1, 7) for part in scores], 1), -1),
        )


class _Residual(nn.Module):
    """A residual block of an hourglass."""

    def __init__(self, read: int, written: int, step: int = 1) -> None:
        super().__init__()
        self.main = nn.Sequential(
            _conv(read, written, 3, step),
            nn.Conv2d(written, written, 3, padding=1, bias=False),
            nn.BatchNorm2d(written),
        )
        self.skip = (
            nn.Identity()
            if read == written and step == 1
            else nn.Sequential(
                nn.Conv2d(read, written, 1, step, bias=False), nn.BatchNorm2d(written)
            )
        )

    def forward(self, values: Tensor) -> Tensor:
        """A map of ``written`` channels."""
        return torch.relu(self.main(values) + self.skip(values))


class CornerNet(nn.Module):
    """CornerNet (Law and Deng 2018): corners of boxes, with directed maxima as sums of pools."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 32, 7, 2), _Residual(32, 48, 2))
        self.down = nn.ModuleList([_Residual(48, 64, 2), _Residual(64, 96, 2)])
        self.up = nn.ModuleList([_Residual(64, 48), _Residual(96, 64)])
        self.sides = nn.ModuleList([_Residual(48, 48), _Residual(64, 64)])
        self.corners = nn.ModuleList(
            nn.ModuleList([_conv(48, 32), _conv(48, 32), nn.Conv2d(32, 48, 3, padding=1),
                           nn.Conv2d(48, 48, 1), _conv(48, 48)])
            for _ in range(2)
        )  # fmt: skip
        self.heads = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(_conv(48, 48), nn.Conv2d(48, count, 1)) for count in (5, 1, 2)
            )
            for _ in range(2)
        )

    def _hourglass(self, values: Tensor, level: int = 0) -> Tensor:
        if level == len(self.down):
            return values
        below = self.up[level](self._hourglass(self.down[level](values), level + 1))
        return self.sides[level](values) + functional.interpolate(below, scale_factor=2.0)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Heatmaps, embeddings and offsets of both corners."""
        values = self._hourglass(self.stem(image))
        found: list[Tensor] = []
        for (first, second, after, skip, last), heads in zip(self.corners, self.heads, strict=True):
            tall = functional.max_pool2d(first(values), (7, 1), 1, (3, 0))
            wide = functional.max_pool2d(second(values), (1, 7), 1, (0, 3))
            corner = last(torch.relu(after(tall + wide) + skip(values)))
            maps = [head(corner) for head in heads]
            found += [torch.sigmoid(maps[0]), *maps[1:]]
        return tuple(found)


class CbdNet(nn.Module):
    """CBDNet (Guo et al. 2019): a map of the noise, then a U-Net that subtracts it."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(r, w, 3, padding=1), nn.ReLU())
              for r, w in ((3, 32), (32, 32), (32, 32), (32, 3)))
        )  # fmt: skip
        self.first = self._pair(6, 48)
        self.second = nn.Sequential(nn.AvgPool2d(2), self._pair(48, 96))
        self.third = nn.Sequential(nn.AvgPool2d(2), self._pair(96, 128))
        self.up1, self.up2 = nn.ConvTranspose2d(128, 96, 2, 2), nn.ConvTranspose2d(96, 48, 2, 2)
        self.fourth, self.fifth = self._pair(96, 96), self._pair(48, 48)
        self.last = nn.Conv2d(48, 3, 1)

    @staticmethod
    def _pair(read: int, written: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(read, written, 3, padding=1), nn.ReLU(),
            nn.Conv2d(written, written, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The noise and the cleaned image."""
        noise = self.noise(image)
        first = self.first(torch.cat([image, noise], 1))
        second = self.second(first)
        values = self.fourth(self.up1(self.third(second)) + second)
        return noise, image + self.last(self.fifth(self.up2(values) + first))


class _Attended(nn.Module):
    """A block with channel attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )  # fmt: skip
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1, bias=False), nn.ReLU(),
            nn.Conv2d(width // 4, width, 1, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, values: Tensor) -> Tensor:
        """A map of the same size."""
        found = self.body(values)
        return found * self.gate(found) + values


class MprNet(nn.Module):
    """MPRNet (Zamir et al. 2021) of two stages: an encoder-decoder whose result gates the next."""

    def __init__(self) -> None:
        super().__init__()
        width, wider = 32, 48
        self.shallow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(3, width, 3, padding=1), _Attended(width)) for _ in range(2)
        )
        self.encoder, self.inner = _Attended(width), _Attended(wider)
        self.down, self.up = nn.Conv2d(width, wider, 1), nn.Conv2d(wider, width, 1)
        self.skip, self.decoder = _Attended(width), _Attended(width)
        self.kept, self.shown, self.gate = (
            nn.Conv2d(r, w, 3, padding=1) for r, w in ((width, width), (width, 3), (3, width))
        )
        self.joined = nn.Conv2d(2 * width, width, 3, padding=1)
        self.blocks = nn.Sequential(*(_Attended(width) for _ in range(2)))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The restored image of both stages."""
        first = self.encoder(self.shallow[0](image))
        small = functional.interpolate(first, scale_factor=0.5, mode="bilinear")
        large = functional.interpolate(
            self.inner(self.down(small)), scale_factor=2.0, mode="bilinear"
        )
        values = self.decoder(self.up(large) + self.skip(first))
        shown = self.shown(values) + image
        gated = self.kept(values) * torch.sigmoid(self.gate(shown)) + values
        joined = self.joined(torch.cat([self.shallow[1](image), gated], 1))
        return shown, self.last(self.blocks(joined) + joined) + image


class _Branches(nn.Module):
    """A layer of E-Branchformer: attention and a gated convolution side by side."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.ahead, self.behind = (
            nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width))
            for _ in range(2)
        )
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner // 2, width)
        self.gate_norm = nn.LayerNorm(inner // 2)
        self.gate = nn.Conv1d(inner // 2, inner // 2, 15, padding=7, groups=inner // 2)
        self.mixed = nn.Conv1d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.merged = nn.Linear(2 * width, width)
        self.heads = heads

    def _attention(self, values: Tensor) -> Tensor:
        batch, length, width = values.shape
        parts = [
            product(values).view(batch, length, self.heads, -1).transpose(1, 2)
            for product in (self.queries, self.keys, self.values)
        ]
        scores = parts[0] @ parts[1].transpose(2, 3) / (width // self.heads) ** 0.5
        found = torch.softmax(scores, -1) @ parts[2]
        return self.out(found.transpose(1, 2).reshape(batch, length, width))

    def _gated(self, values: Tensor) -> Tensor:
        kept, gate = functional.gelu(self.wide(values)).chunk(2, -1)
        gate = self.gate(self.gate_norm(gate).transpose(1, 2)).transpose(1, 2)
        return self.narrow(kept * gate)

    def forward(self, values: Tensor) -> Tensor:
        """Rows of the same width."""
        values = values + 0.5 * self.ahead(self.norms[0](values))
        both = torch.cat(
            [self._attention(self.norms[1](values)), self._gated(self.norms[2](values))], -1
        )
        both = both + self.mixed(both.transpose(1, 2)).transpose(1, 2)
        values = values + self.merged(both)
        return self.norms[4](values + 0.5 * self.behind(self.norms[3](values)))


class EBranchformer(nn.Module):
    """E-Branchformer (Kim et al. 2023) for speech, without relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU()
        )
        self.rows = nn.Linear(32 * 19, 64)
        self.layers = nn.ModuleList(_Branches(64, 192, 4) for _ in range(2))
        self.scores = nn.Linear(64, 40)

    def forward(self, sound: Tensor) -> Tensor:
        """Logarithms of probabilities of 40 tokens."""
        values = self.convs(sound[:, None]).transpose(1, 2).flatten(2)
        values = self.rows(values)
        for layer in self.layers:
            values = layer(values)
        return torch.log_softmax(self.scores(values), -1)


class _Receptors(nn.Module):
    """Residual blocks of one kernel size, of growing dilations."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.ModuleList([
                nn.Conv1d(width, width, size, 1, size // 2 * dilation, dilation),
                nn.Conv1d(width, width, size, 1, size // 2),
            ])
            for dilation in (1, 3, 5)
        )  # fmt: skip

    def forward(self, values: Tensor) -> Tensor:
        """A line of the same length."""
        for first, second in self.pairs:
            found = first(functional.leaky_relu(values, 0.1))
            values = second(functional.leaky_relu(found, 0.1)) + values
        return values


class HifiGan(nn.Module):
    """HiFi-GAN's generator (Kong et al. 2020), of two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, 64, 7, padding=3)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(64 >> index, 32 >> index, 8, 4, 2) for index in range(2)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(_Receptors(32 >> index, size) for size in (3, 7)) for index in range(2)
        )
        self.last = nn.Conv1d(16, 1, 7, padding=3)

    def forward(self, sound: Tensor) -> Tensor:
        """A wave of 16 samples a frame."""
        values = self.first(sound)
        for up, blocks in zip(self.up, self.blocks, strict=True):
            values = up(functional.leaky_relu(values, 0.1))
            values = (blocks[0](values) + blocks[1](values)) / 2
        return torch.tanh(self.last(functional.leaky_relu(values)))
