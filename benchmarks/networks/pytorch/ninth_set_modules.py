"""Networks of the ninth set that no library has, as their papers describe them, and smaller."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.seventh_set_modules import Residual


def _conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1),
    )


class Hed(nn.Module):
    """Edges at five scales of a VGG, each resized to the image, and joined (Xie and Tu 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.sides, width = nn.ModuleList(), nn.ModuleList(), 3
        for number, outputs in enumerate((16, 32, 48, 64, 64)):
            layers: list[nn.Module] = [nn.MaxPool2d(2)] if number else []
            for _ in range(2 if number < 2 else 3):
                layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.ReLU()]
                width = outputs
            self.stages.append(nn.Sequential(*layers))
            self.sides.append(nn.Conv2d(outputs, 1, 1))
        self.join = nn.Conv2d(5, 1, 1)

    def forward(self, image: Tensor) -> list[Tensor]:
        """How likely each pixel is an edge, by each scale and all of them."""
        found, features = [], image
        for stage, side in zip(self.stages, self.sides, strict=True):
            features = stage(features)
            edges = side(features)
            found.append(
                functional.interpolate(edges, image.shape[2:], mode="bilinear", align_corners=False)
            )
        joined = self.join(torch.cat(found, 1))
        return [torch.sigmoid(edges) for edges in (*found, joined)]


class _Context(nn.Module):
    """Three windows of different sizes, joined (SSH)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half, quarter = width // 2, width // 4
        self.near = nn.Sequential(
            nn.Conv2d(width, half, 3, padding=1, bias=False), nn.BatchNorm2d(half)
        )
        self.start = _conv(width, quarter)
        self.middle = nn.Sequential(
            nn.Conv2d(quarter, quarter, 3, padding=1, bias=False), nn.BatchNorm2d(quarter)
        )
        self.far = nn.Sequential(
            _conv(quarter, quarter),
            nn.Conv2d(quarter, quarter, 3, padding=1, bias=False),
            nn.BatchNorm2d(quarter),
        )

    def forward(self, given: Tensor) -> Tensor:
        """Features of all windows."""
        start = self.start(given)
        return torch.relu(torch.cat([self.near(given), self.middle(start), self.far(start)], 1))


class RetinaFace(nn.Module):
    """Faces on maps of three levels of a MobileNet (Deng et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, width = nn.ModuleList([self._stage(3, 16, 3)]), 16
        for outputs in (32, 64):
            self.stages.append(self._stage(width, outputs, 2))
            width = outputs
        self.lift = nn.ModuleList([_conv(width, 32, size=1) for width in (16, 32, 64)])
        self.merge = nn.ModuleList([_conv(32, 32) for _ in range(2)])
        self.contexts = nn.ModuleList([_Context(32) for _ in range(3)])
        self.heads = nn.ModuleList(
            [nn.ModuleList([nn.Conv2d(32, 2 * each, 1) for each in (2, 4, 10)]) for _ in range(3)]
        )

    def _stage(self, width: int, outputs: int, halvings: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for _ in range(halvings):
            grouped = width > 3
            if grouped:
                layers += [
                    nn.Conv2d(width, width, 3, 2, 1, groups=width, bias=False),
                    nn.BatchNorm2d(width),
                    nn.LeakyReLU(0.1),
                    _conv(width, outputs, size=1),
                ]
            else:
                layers.append(_conv(width, outputs, 2))
            width = outputs
        return nn.Sequential(*layers)

    def forward(self, image: Tensor) -> list[Tensor]:
        """Classes, boxes and landmarks of all places."""
        maps, given = [], image
        for stage, lift in zip(self.stages, self.lift, strict=True):
            given = stage(given)
            maps.append(lift(given))
        for level in (1, 0):
            above = functional.interpolate(maps[level + 1], maps[level].shape[2:], mode="nearest")
            maps[level] = self.merge[level](maps[level] + above)
        found: list[list[Tensor]] = [[], [], []]
        for features, context, heads in zip(maps, self.contexts, self.heads, strict=True):
            seen = context(features)
            for kind, (head, each) in enumerate(zip(heads, (2, 4, 10), strict=True)):
                found[kind].append(head(seen).permute(0, 2, 3, 1).reshape(1, -1, each))
        classes, boxes, landmarks = (torch.cat(kind, 1) for kind in found)
        return [torch.softmax(classes, -1), boxes, landmarks]


class FlowNet(nn.Module):
    """Optical flow of two images that are joined, refined level by level (Dosovitskiy 2015)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 48, 64, 64)
        self.down, inputs = nn.ModuleList(), 6
        for number, width in enumerate(widths):
            size = (7, 5, 5, 3, 3)[number]
            self.down.append(nn.Sequential(_conv(inputs, width, 2, size), _conv(width, width)))
            inputs = width
        self.flows, self.up, self.lift = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for width in reversed(widths[1:-1]):
            self.flows.append(nn.Conv2d(inputs, 2, 3, padding=1))
            self.up.append(
                nn.Sequential(nn.ConvTranspose2d(inputs, width // 2, 4, 2, 1), nn.LeakyReLU(0.1))
            )
            self.lift.append(nn.ConvTranspose2d(2, 2, 4, 2, 1))
            inputs = width + width // 2 + 2
        self.last = nn.Conv2d(inputs, 2, 3, padding=1)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Flows of four levels, the finest one last."""
        maps, given = [], images
        for stage in self.down:
            given = stage(given)
            maps.append(given)
        flows, steps = [], zip(self.flows, self.up, self.lift, maps[-2:0:-1], strict=True)
        for flow, up, lift, beside in steps:
            flows.append(flow(given))
            given = torch.cat([beside, up(given), lift(flows[-1])], 1)
        return [*flows, self.last(given)]


class CycleGan(nn.Module):
    """The generator of CycleGAN (Zhu et al. 2017): reflected borders, norms of each map."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(3, 16, 7), nn.InstanceNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.InstanceNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1), nn.InstanceNorm2d(64), nn.ReLU(),
            Residual(64), Residual(64), Residual(64),
            nn.ConvTranspose2d(64, 32, 3, 2, 1, 1), nn.InstanceNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.InstanceNorm2d(16), nn.ReLU(),
            nn.ReflectionPad2d(3), nn.Conv2d(16, 3, 7), nn.Tanh(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """The image in the other style."""
        return self.body(image)


class _Broadcast(nn.Module):
    """A block that works on frequencies, then on their mean, which it adds to all of them."""

    def __init__(self, inputs: int, outputs: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.same = inputs == outputs and stride == 1
        change = [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.change = nn.Sequential(*([] if self.same else change))
        self.frequencies = nn.Sequential(
            nn.Conv2d(outputs, outputs, (3, 1), (stride, 1), (1, 0), groups=outputs, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.times = nn.Sequential(
            nn.Conv2d(
                outputs, outputs, (1, 3), padding=(0, dilation), dilation=(1, dilation),
                groups=outputs, bias=False,
            ),
            nn.BatchNorm2d(outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 1, bias=False),
        )  # fmt: skip

    def forward(self, given: Tensor) -> Tensor:
        """Features of as many times."""
        found = self.frequencies(self.change(given))
        whole = found + self.times(found.mean(2, keepdim=True))
        return torch.relu(whole + given if self.same else whole)


class BcResNet(nn.Module):
    """Keywords by broadcast residuals (Kim et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, (2, 1), 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            _Broadcast(16, 8, 1, 1), _Broadcast(8, 8, 1, 1), _Broadcast(8, 12, 2, 2),
            _Broadcast(12, 12, 1, 2), _Broadcast(12, 16, 2, 4), _Broadcast(16, 16, 1, 4),
            nn.Conv2d(16, 16, 5, groups=16, padding=(0, 2), bias=False), nn.Conv2d(16, 32, 1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 12, 1),
        )  # fmt: skip

    def forward(self, sound: Tensor) -> Tensor:
        """Scores of words."""
        return self.body(sound).flatten(1)
