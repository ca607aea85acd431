"""Networks of openvino_sixth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


class FullSubNet(nn.Module):
    """Speech enhancement by an LSTM over all bands and one over each (Hao et al. 2021)."""

    def __init__(self, bands: int = 33, near: int = 3) -> None:
        super().__init__()
        self.near = near
        self.full, self.full_out = nn.LSTM(bands, 64, 2, batch_first=True), nn.Linear(64, bands)
        self.sub = nn.LSTM(2 * near + 2, 32, 2, batch_first=True)
        self.sub_out = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 1, bands, time) to a mask of two channels."""
        x = x / (x.mean(dim=(1, 2, 3), keepdim=True) + 1e-5)
        rows = x.flatten(0, 1).transpose(1, 2)
        full = torch.relu(self.full_out(self.full(rows)[0])).transpose(1, 2)
        padded = functional.pad(x, (0, 0, self.near, self.near), mode="reflect")
        bands = x.shape[2]
        parts = [padded[:, 0, i : i + bands] for i in range(2 * self.near + 1)]
        units = torch.stack([*parts, full], dim=2)
        units = units / (units.mean(dim=(1, 2, 3), keepdim=True) + 1e-5)
        mask = self.sub_out(self.sub(units.squeeze(0).transpose(1, 2))[0])
        made: Tensor = mask.permute(2, 0, 1).unsqueeze(0)
        return made


class Tacotron2(nn.Module):
    """Encoder and postnet of Tacotron 2 (Shen et al. 2017), with a linear layer for the decoder."""

    def __init__(self, width: int = 64, mels: int = 40, letters: int = 50) -> None:
        super().__init__()
        self.table = nn.Embedding(letters, width)
        self.maps = nn.Sequential(*(self._block(width, width, nn.ReLU()) for _ in range(3)))
        self.rows = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.mels = nn.Linear(width, mels)
        self.post = nn.Sequential(
            self._block(mels, width, nn.Tanh()), self._block(width, width, nn.Tanh()),
            self._block(width, mels, nn.Identity()),
        )  # fmt: skip

    @staticmethod
    def _block(inputs: int, width: int, act: nn.Module) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(inputs, width, 5, padding=2), nn.BatchNorm1d(width), act)

    def forward(self, letters: Tensor) -> Tensor:
        """(1, letters) to a spectrogram."""
        y = self.maps(self.table(letters).transpose(1, 2)).transpose(1, 2)
        mels = self.mels(self.rows(y)[0]).transpose(1, 2)
        made: Tensor = mels + self.post(mels)
        return made


class _InfoDistillation(nn.Module):
    """Convs that each keep a quarter of the channels, with contrast-aware attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept, self.rest = width // 4, width - width // 4
        self.first = nn.Conv2d(width, width, 3, 1, 1)
        self.more = nn.ModuleList(nn.Conv2d(self.rest, width, 3, 1, 1) for _ in range(2))
        self.last = nn.Conv2d(self.rest, self.kept, 3, 1, 1)
        self.gate = nn.Sequential(
            nn.Conv2d(width, width // 4, 1), nn.ReLU(), nn.Conv2d(width // 4, width, 1),
            nn.Sigmoid(),
        )  # fmt: skip
        self.join = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, y = [], functional.leaky_relu(self.first(x), 0.05)
        for conv in self.more:
            part, rest = torch.split(y, (self.kept, self.rest), dim=1)
            kept.append(part)
            y = functional.leaky_relu(conv(rest), 0.05)
        part, rest = torch.split(y, (self.kept, self.rest), dim=1)
        y = torch.cat([*kept, part, self.last(rest)], dim=1)
        mean = y.mean((2, 3), keepdim=True)
        contrast = ((y - mean) ** 2).mean((2, 3), keepdim=True) ** 0.5
        made: Tensor = x + self.join(y * self.gate(contrast + mean))
        return made


class Imdn(nn.Module):
    """Super-resolution by distilled information (Hui et al. 2019)."""

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.blocks = nn.ModuleList(_InfoDistillation(width) for _ in range(blocks))
        self.join = nn.Sequential(nn.Conv2d(width * blocks, width, 1), nn.LeakyReLU(0.05))
        self.near = nn.Conv2d(width, width, 3, 1, 1)
        self.up = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        """An image to one of twice the size."""
        x = self.first(image)
        made, y = [], x
        for block in self.blocks:
            y = block(y)
            made.append(y)
        found: Tensor = self.up(x + self.near(self.join(torch.cat(made, dim=1))))
        return found


class _LocalFeatures(nn.Module):
    """Three Convs and enhanced spatial attention."""

    def __init__(self, width: int, inner: int = 8) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            *(m for _ in range(3) for m in (nn.Conv2d(width, width, 3, 1, 1), nn.ReLU()))
        )
        self.last = nn.Conv2d(width, width, 1)
        self.down, self.skip = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, inner, 1)
        self.strided, self.wide = nn.Conv2d(inner, inner, 3, 2), nn.Conv2d(inner, inner, 3, 1, 1)
        self.gate = nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.maps(x) + x)
        small = self.down(y)
        z = self.wide(functional.max_pool2d(self.strided(small), 7, 3))
        z = functional.interpolate(z, y.shape[2:], mode="bilinear", align_corners=False)
        made: Tensor = y * torch.sigmoid(self.gate(z + self.skip(small)))
        return made


class Rlfn(nn.Module):
    """Super-resolution by residual local features (Kong et al. 2022)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.near = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.blocks = nn.Sequential(*(_LocalFeatures(width) for _ in range(3)))
        self.up = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        """An image to one of twice the size."""
        x = self.first(image)
        made: Tensor = self.up(self.near(self.blocks(x)) + x)
        return made


class IcNet(nn.Module):
    """Segmentation of three sizes of an image, joined in a cascade (Zhao et al. 2017)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.shared = nn.Sequential(
            conv_norm(3, 16, 3, 2), conv_norm(16, 32, 3, 2), conv_norm(32, 48, 3, 2)
        )
        self.low = nn.Sequential(
            conv_norm(48, 64, 3, 1, dilation=2), conv_norm(64, 64, 3, 1, dilation=4)
        )
        self.high = nn.Sequential(
            conv_norm(3, 16, 3, 2), conv_norm(16, 16, 3, 2), conv_norm(16, 32, 3, 2)
        )
        plain = nn.Identity()
        self.near = nn.ModuleList(
            [conv_norm(48, 32, 1, act=plain), conv_norm(32, 32, 1, act=plain)]
        )
        self.far = nn.ModuleList(
            conv_norm(width, 32, 3, 1, act=plain, dilation=2) for width in (64, 32)
        )
        self.out = nn.Conv2d(32, classes, 1)

    @staticmethod
    def _resized(x: Tensor, factor: float) -> Tensor:
        return functional.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=True)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores at a quarter of the size."""
        half = self._resized(image, 0.5)
        middle = self.shared(half)
        low = self.low(self.shared(self._resized(half, 0.5)))
        pooled = [
            functional.interpolate(
                functional.adaptive_avg_pool2d(low, size), low.shape[2:], mode="bilinear"
            )
            for size in (1, 2, 4)
        ]
        low = low + pooled[0] + pooled[1] + pooled[2]
        y = torch.relu(self.far[0](self._resized(low, 2.0)) + self.near[0](middle))
        y = torch.relu(self.far[1](self._resized(y, 2.0)) + self.near[1](self.high(image)))
        made: Tensor = self.out(self._resized(y, 2.0))
        return made


class CenterNet(nn.Module):
    """Points of objects, with the maxima of their maps (Zhou et al. 2019)."""

    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.down = nn.ModuleList([conv_norm(3, 16, 7, 2), *self._stages()])
        self.up = nn.ModuleList(
            nn.Sequential(
                conv_norm(inputs, width), nn.ConvTranspose2d(width, width, 4, 2, 1, bias=False),
                nn.BatchNorm2d(width), nn.ReLU(),
            )
            for inputs, width in ((64, 48), (48, 32))
        )  # fmt: skip
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, width, 1))
            for width in (classes, 2, 2)
        )

    @staticmethod
    def _stages() -> list[nn.Module]:
        return [
            nn.Sequential(conv_norm(a, b, 3, 2), conv_norm(b, b)) for a, b in ((16, 32), (32, 64))
        ]

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the peaks, and sizes beside offsets."""
        x = image
        for stage in (*self.down, *self.up):
            x = stage(x)
        heat, size, offset = (head(x) for head in self.heads)
        heat = torch.sigmoid(heat)
        peaks = functional.max_pool2d(heat, 3, 1, 1)
        return heat * (peaks == heat).float(), torch.cat([size, offset], dim=1)


class UNet3Plus(nn.Module):
    """Segmentation with skip connections of all scales (Huang et al. 2020)."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(conv_norm(a, b), conv_norm(b, b))
            for a, b in zip((3, *widths), widths, strict=False)
        )
        self.near = nn.ModuleList(
            nn.ModuleList(conv_norm(a, width) for a in given)
            for given in ((widths[0], widths[1], widths[2]), (widths[0], 3 * width, widths[2]))
        )
        self.join = nn.ModuleList(conv_norm(3 * width, 3 * width) for _ in range(2))
        self.out = nn.Conv2d(3 * width, classes, 3, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        maps, x = [], image
        for number, stage in enumerate(self.down):
            x = stage(functional.max_pool2d(x, 2) if number else x)
            maps.append(x)
        first, second, third = maps

        def up(value: Tensor, factor: float) -> Tensor:
            return functional.interpolate(value, scale_factor=factor, mode="bilinear")

        given = (functional.max_pool2d(first, 2), second, up(third, 2.0))
        middle = self.join[0](
            torch.cat([conv(y) for conv, y in zip(self.near[0], given, strict=True)], dim=1)
        )
        given = (first, up(middle, 2.0), up(third, 4.0))
        y = self.join[1](
            torch.cat([conv(z) for conv, z in zip(self.near[1], given, strict=True)], dim=1)
        )
        made: Tensor = self.out(y)
        return made
