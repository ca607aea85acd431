"""Networks of the twenty-first set that no package here has, written from their papers."""

from __future__ import annotations

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional


class BiFpn(nn.Module):
    """One layer of EfficientDet's pyramid (Tan et al. 2020): weighted sums, up and down again."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.up = nn.ModuleList([self._conv(width) for _ in range(levels - 1)])
        self.down = nn.ModuleList([self._conv(width) for _ in range(levels - 1)])
        self.up_weights = nn.Parameter(torch.ones(levels - 1, 2))
        self.down_weights = nn.Parameter(torch.ones(levels - 1, 3))

    @staticmethod
    def _conv(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.Conv2d(width, width, 1),
            nn.BatchNorm2d(width),
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """The maps, the largest first, each with what the others know."""
        last = len(maps) - 1
        middle = {last: maps[last]}
        for level in range(last - 1, -1, -1):
            weights = functional.relu(self.up_weights[level])
            weights = weights / (weights.sum() + 1e-4)
            above = functional.interpolate(middle[level + 1], scale_factor=2.0, mode="nearest")
            mixed = weights[0] * maps[level] + weights[1] * above
            middle[level] = self.up[level](functional.silu(mixed))
        made = [middle[0]]
        for level in range(1, last + 1):
            weights = functional.relu(self.down_weights[level - 1])
            weights = weights / (weights.sum() + 1e-4)
            below = functional.max_pool2d(made[-1], 3, 2, 1)
            mixed = weights[0] * maps[level] + weights[1] * middle[level] + weights[2] * below
            made.append(self.down[level - 1](functional.silu(mixed)))
        return made


class EfficientDet(nn.Module):
    """EfficientDet-D0's layers on EfficientNet-B0, of two pyramids and five levels."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.backbone = timm.create_model(
            "efficientnet_b0", pretrained=False, features_only=True, out_indices=(2, 3, 4)
        )
        channels = self.backbone.feature_info.channels()
        self.narrow = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(c, width, 1), nn.BatchNorm2d(width)) for c in channels]
        )
        self.sixth = nn.Sequential(nn.Conv2d(channels[-1], width, 1), nn.BatchNorm2d(width))
        self.pyramids = nn.ModuleList([BiFpn(width, 5) for _ in "12"])
        self.classes = self._head(width, 9 * classes)
        self.boxes = self._head(width, 36)

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for made in (width, width, outputs):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)]
            layers += [nn.Conv2d(width, made, 1)]
            layers += [nn.BatchNorm2d(made), nn.SiLU()] if made == width else []
        return nn.Sequential(*layers)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and boxes of all anchors."""
        found = self.backbone(image)
        maps = [narrow(features) for narrow, features in zip(self.narrow, found, strict=True)]
        maps.append(functional.max_pool2d(self.sixth(found[-1]), 3, 2, 1))
        maps.append(functional.max_pool2d(maps[-1], 3, 2, 1))
        for pyramid in self.pyramids:
            maps = pyramid(maps)
        scores = [self.classes(features).permute(0, 2, 3, 1).flatten(1, 2) for features in maps]
        boxes = [self.boxes(features).permute(0, 2, 3, 1).flatten(1, 2) for features in maps]
        return torch.cat(scores, 1).sigmoid(), torch.cat(boxes, 1)


class _WindowBlock(nn.Module):
    """A Swin block on a map's tokens, with windows of ``window`` places, half of them shifted."""

    def __init__(self, width: int, heads: int, window: int, shift: int, size: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift, self.size = heads, window, shift, size
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in "12"])
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2) * 0.02)

    def forward(self, rows: Tensor) -> Tensor:
        """Tokens of the same shape."""
        batch, _, width = rows.shape
        n, w = self.size // self.window, self.window
        found = self.norms[0](rows).view(batch, self.size, self.size, width)
        if self.shift:
            found = torch.roll(found, (-self.shift, -self.shift), (1, 2))
        found = found.view(batch, n, w, n, w, width).permute(0, 1, 3, 2, 4, 5)
        joint = self.joint(found.reshape(-1, w * w, width))
        joint = joint.view(-1, w * w, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        queries, keys, values = joint[0], joint[1], joint[2]
        scores = (queries * (width // self.heads) ** -0.5) @ keys.transpose(-2, -1)
        mixed = (scores + self.bias).softmax(-1) @ values
        found = self.out(mixed.transpose(1, 2).reshape(-1, w * w, width))
        found = found.view(batch, n, n, w, w, width).permute(0, 1, 3, 2, 4, 5)
        found = found.reshape(batch, self.size, self.size, width)
        if self.shift:
            found = torch.roll(found, (self.shift, self.shift), (1, 2))
        rows = rows + found.view(batch, -1, width)
        return rows + self.mlp(self.norms[1](rows))


class SwinIr(nn.Module):
    """SwinIR (Liang et al. 2021): two groups of window blocks, each with a Conv and a residual."""

    def __init__(self, width: int = 60, size: int = 32) -> None:
        super().__init__()
        self.size = size
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.groups = nn.ModuleList(
            [
                nn.ModuleList([_WindowBlock(width, 6, 8, shift, size) for shift in (0, 4)])
                for _ in "12"
            ]
        )
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in "12"])
        self.norm = nn.LayerNorm(width)
        self.behind = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        """The image, twice as large."""
        first = self.first(image)
        rows = first.flatten(2).transpose(1, 2)
        for blocks, conv in zip(self.groups, self.convs, strict=True):
            found = rows
            for block in blocks:
                found = block(found)
            rows = rows + conv(self._map(found)).flatten(2).transpose(1, 2)
        upscaled: Tensor = self.last(self.behind(self._map(self.norm(rows))) + first)
        return upscaled

    def _map(self, rows: Tensor) -> Tensor:
        return rows.transpose(1, 2).reshape(rows.shape[0], -1, self.size, self.size)


class _Dilated(nn.Module):
    def __init__(self, inputs: int, width: int, dilation: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv1d(inputs, width, 1), nn.Conv1d(width, inputs, 1)
        self.depth = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation, groups=width)
        self.acts = nn.ModuleList([nn.PReLU() for _ in "12"])
        self.norms = nn.ModuleList([nn.GroupNorm(1, width, eps=1e-8) for _ in "12"])

    def forward(self, sound: Tensor) -> Tensor:
        found = self.norms[0](self.acts[0](self.wide(sound)))
        found = self.norms[1](self.acts[1](self.depth(found)))
        narrow: Tensor = self.narrow(found)
        return sound + narrow


class ConvTasNet(nn.Module):
    """Conv-TasNet (Luo, Mesgarani 2019) of two speakers and six dilated blocks."""

    def __init__(self, filters: int = 128, inputs: int = 64, width: int = 128) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.norm, self.narrow = nn.GroupNorm(1, filters), nn.Conv1d(filters, inputs, 1)
        self.blocks = nn.Sequential(*[_Dilated(inputs, width, 2 ** (i % 3)) for i in range(6)])
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(inputs, 2 * filters, 1))
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)

    def forward(self, sound: Tensor) -> Tensor:
        """The sounds of both speakers."""
        coded = functional.relu(self.encoder(sound))
        masks = self.masks(self.blocks(self.narrow(self.norm(coded)))).sigmoid()
        first, second = masks.chunk(2, dim=1)
        return torch.cat([self.decoder(first * coded), self.decoder(second * coded)], dim=1)
