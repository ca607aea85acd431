"""Networks of openvino_fifth_set, written from their papers, narrower and with fewer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks.pytorch.openvino_third_set_modules import conv_norm


def _separable(inputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """A depthwise Conv and a pointwise one, each with a norm and a Relu."""
    return nn.Sequential(
        conv_norm(inputs, inputs, 3, stride, groups=inputs), conv_norm(inputs, width, 1)
    )


class _InvertedResidual(nn.Module):
    """Wider inside than outside (Sandler et al. 2018)."""

    def __init__(self, inputs: int, width: int, stride: int = 1, factor: int = 4) -> None:
        super().__init__()
        mid = factor * inputs
        self.main = nn.Sequential(
            conv_norm(inputs, mid, 1),
            conv_norm(mid, mid, 3, stride, groups=mid),
            conv_norm(mid, width, 1, act=nn.Identity()),
        )
        self.adds = stride == 1 and inputs == width

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.main(x)
        return x + made if self.adds else made


class ContextNet(nn.Module):
    """Segmentation by a deep path of a small image and a shallow one (Poudel et al. 2018)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.deep = nn.Sequential(
            conv_norm(3, 16, 3, 2), _InvertedResidual(16, 16), _InvertedResidual(16, 24, 2),
            _InvertedResidual(24, 24), _InvertedResidual(24, 48, 2), _InvertedResidual(48, 48),
            conv_norm(48, 64),
        )  # fmt: skip
        self.shallow = nn.Sequential(
            conv_norm(3, 16, 3, 2), _separable(16, 32, 2), _separable(32, 64, 2), _separable(64, 64)
        )
        self.far = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=4, dilation=4, groups=64, bias=False),
            nn.BatchNorm2d(64), nn.ReLU(), conv_norm(64, 64, 1, act=nn.Identity()),
        )  # fmt: skip
        self.near = conv_norm(64, 64, 1, act=nn.Identity())
        self.out = nn.Sequential(_separable(64, 64), nn.Conv2d(64, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        small = functional.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
        deep = functional.interpolate(self.deep(small), scale_factor=2.0, mode="bilinear")
        y = self.out(torch.relu(self.far(deep) + self.near(self.shallow(x))))
        return functional.interpolate(y, scale_factor=8.0, mode="bilinear")


class DeepConvLstm(nn.Module):
    """Activities from sensors by Convs along time and LSTMs (Ordonez and Roggen 2016)."""

    def __init__(self, channels: int = 12, width: int = 32, classes: int = 18) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for given in (1, width, width, width):
            layers += [nn.Conv2d(given, width, (5, 1)), nn.ReLU()]
        self.maps = nn.Sequential(*layers)
        self.rows = nn.LSTM(width * channels, 64, 2, batch_first=True)
        self.out = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, time, channels) to scores."""
        y = self.maps(x).permute(0, 2, 1, 3).flatten(2)
        made: Tensor = self.out(self.rows(y)[0][:, -1])
        return made


class DeepSpeech2(nn.Module):
    """Speech by two Convs with a clipped Relu and LSTMs of both directions (Amodei et al. 2015)."""

    def __init__(self, width: int = 16, hidden: int = 64, classes: int = 29) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(1, width, (21, 11), (2, 2), (10, 5)), nn.BatchNorm2d(width),
            nn.Hardtanh(0, 20),
            nn.Conv2d(width, width, (11, 11), (2, 1), (5, 5)), nn.BatchNorm2d(width),
            nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.rows = nn.LSTM(width * 20, hidden, 2, bidirectional=True)
        self.out = nn.Sequential(nn.LayerNorm(2 * hidden), nn.Linear(2 * hidden, classes))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 80, frames) to (frames / 2, batch, classes)."""
        y = self.maps(x).flatten(1, 2).permute(2, 0, 1)
        made: Tensor = self.out(self.rows(y)[0]).softmax(-1)
        return made


class _KernelAttention(nn.Module):
    """A Conv whose kernel is a weighted sum of four (Chen et al. 2020)."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, width * inputs * 9) / (9 * inputs) ** 0.5)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, inputs // 4), nn.ReLU(),
            nn.Linear(inputs // 4, 4), nn.Softmax(-1),
        )  # fmt: skip
        self.norm = nn.BatchNorm2d(width)
        self.shape, self.stride = (width, inputs, 3, 3), stride

    def forward(self, x: Tensor) -> Tensor:
        kernel = (self.gate(x) @ self.weights).reshape(self.shape)
        return torch.relu(self.norm(functional.conv2d(x, kernel, None, self.stride, 1)))


class DynamicConv(nn.Module):
    """Attention over kernels for one image (Chen et al. 2020)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            conv_norm(3, 24, 3, 2), _KernelAttention(24, 32), conv_norm(32, 48, 3, 2),
            _KernelAttention(48, 48), conv_norm(48, 96, 3, 2), _KernelAttention(96, 96),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.out = nn.Linear(96, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, height, width) to scores."""
        made: Tensor = self.out(self.maps(x))
        return made


class _SplitShuffle(nn.Module):
    """Halves of the channels by asymmetric Convs in either order, joined and shuffled."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        half = width // 2
        self.left = self._branch(half, dilation, ((3, 1), (1, 3)))
        self.right = self._branch(half, dilation, ((1, 3), (3, 1)))

    @staticmethod
    def _branch(
        width: int, far: int, sizes: tuple[tuple[int, int], tuple[int, int]]
    ) -> nn.Sequential:
        layers: list[nn.Module] = []
        for number, size in enumerate(sizes * 2):
            d = far if number > 1 else 1
            dilation = tuple(d if side > 1 else 1 for side in size)
            pad = tuple(d if side > 1 else 0 for side in size)
            layers.append(nn.Conv2d(width, width, size, 1, pad, dilation))
            layers += [nn.BatchNorm2d(width)] * (number % 2)
            layers.append(nn.ReLU())
        return nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, 1)
        y = torch.relu(torch.cat((self.left(one), self.right(two)), 1) + x)
        b, c, h, w = y.shape
        return y.reshape(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


class LedNet(nn.Module):
    """Segmentation by split and shuffled asymmetric Convs (Wang et al. 2019)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_norm(3, 29, 3, 2)
        self.blocks = nn.Sequential(
            _SplitShuffle(32, 1), conv_norm(32, 64, 3, 2), _SplitShuffle(64, 1),
            conv_norm(64, 128, 3, 2), _SplitShuffle(128, 2), _SplitShuffle(128, 5),
        )  # fmt: skip
        self.down = conv_norm(128, 32, 5, 2)
        self.side, self.out = conv_norm(32, classes, 1), conv_norm(128, classes, 1)
        self.whole = conv_norm(128, classes, 1, act=nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores of each pixel."""
        y = self.blocks(torch.cat((self.stem(x), functional.max_pool2d(x, 2)), 1))
        gate = functional.interpolate(self.side(self.down(y)), scale_factor=2.0, mode="bilinear")
        y = self.out(y) * gate + self.whole(y.mean((2, 3), keepdim=True))
        return functional.interpolate(y, scale_factor=8.0, mode="bilinear")


class M5(nn.Module):
    """Sounds from the waveform by Convs in one dimension (Dai et al. 2016)."""

    def __init__(self, width: int = 32, classes: int = 35) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for given, made, size, stride in (
            (1, width, 80, 16),
            (width, width, 3, 1),
            (width, 2 * width, 3, 1),
            (2 * width, 2 * width, 3, 1),
        ):
            layers += [
                nn.Conv1d(given, made, size, stride), nn.BatchNorm1d(made), nn.ReLU(),
                nn.MaxPool1d(4),
            ]  # fmt: skip
        self.maps = nn.Sequential(*layers)
        self.out = nn.Linear(2 * width, classes)

    def forward(self, wave: Tensor) -> Tensor:
        """(batch, 1, 8000) to logarithms of probabilities."""
        made: Tensor = self.out(self.maps(wave).mean(-1)).log_softmax(-1)
        return made


class MatchboxNet(nn.Module):
    """Keywords by separable Convs in one dimension with residuals (Majumdar and Ginsburg 2020)."""

    def __init__(self, width: int = 64, classes: int = 30) -> None:
        super().__init__()
        self.first = self._part(64, 128, 11)
        blocks = []
        inputs = 128
        for size in (13, 15, 17):
            parts = [self._part(inputs, width, size), self._part(width, width, size, False)]
            short = nn.Sequential(nn.Conv1d(inputs, width, 1, bias=False), nn.BatchNorm1d(width))
            blocks.append(nn.ModuleList([nn.Sequential(*parts), short]))
            inputs = width
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Sequential(self._part(width, 128, 29), self._part(128, 128, 1))
        self.out = nn.Conv1d(128, classes, 1)

    @staticmethod
    def _part(inputs: int, width: int, size: int, relu: bool = True) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv1d(inputs, inputs, size, padding=size // 2, groups=inputs, bias=False),
            nn.Conv1d(inputs, width, 1, bias=False), nn.BatchNorm1d(width),
            nn.ReLU() if relu else nn.Identity(),
        )  # fmt: skip

    def forward(self, features: Tensor) -> Tensor:
        """(batch, 64, frames) to scores."""
        x = self.first(features)
        for main, short in self.blocks:
            x = torch.relu(main(x) + short(x))
        made: Tensor = self.out(self.last(x)).mean(-1)
        return made


class OpenPose(nn.Module):
    """Poses by stages that see the first maps again (Cao et al. 2018)."""

    def __init__(self, width: int = 64, joints: int = 14, limbs: int = 24) -> None:
        super().__init__()
        w = width
        self.maps = nn.Sequential(
            conv_norm(3, w // 2, 3, 2), _separable(w // 2, w, 2), _separable(w, w),
            conv_norm(w, w, 3),
        )  # fmt: skip
        self.stages = nn.ModuleList()
        inputs = w
        for _ in range(3):
            parts = [self._dense(inputs, w), self._dense(w, w)]
            heads = [self._head(w, joints), self._head(w, limbs)]
            self.stages.append(nn.ModuleList([nn.Sequential(*parts), *heads]))
            inputs = w + joints + limbs

    @staticmethod
    def _dense(inputs: int, width: int) -> nn.Sequential:
        convs = [nn.Conv2d(inputs, width, 1), nn.Conv2d(width, width, 3, padding=1)]
        return nn.Sequential(convs[0], nn.PReLU(width), convs[1], nn.PReLU(width))

    @staticmethod
    def _head(width: int, made: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(width, width, 1), nn.PReLU(width), nn.Conv2d(width, made, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width) to maps of joints and of limbs."""
        first = seen = self.maps(x)
        joints = limbs = first
        for trunk, of_joints, of_limbs in self.stages:
            y = trunk(seen)
            joints, limbs = of_joints(y), of_limbs(y)
            seen = torch.cat((first, joints, limbs), 1)
        return joints, limbs


class PointPillars(nn.Module):
    """Features of points in pillars by their maximum, then Convs (Lang et al. 2019)."""

    def __init__(self, width: int = 32, anchors: int = 2) -> None:
        super().__init__()
        w = width
        self.points = nn.Sequential(nn.Linear(9, w, bias=False), nn.LayerNorm(w), nn.ReLU())
        self.first = nn.Sequential(conv_norm(w, w, 3, 2), conv_norm(w, w), conv_norm(w, w))
        self.second = nn.Sequential(conv_norm(w, 2 * w, 3, 2), conv_norm(2 * w, 2 * w))
        self.up = nn.Sequential(nn.Conv2d(w, w, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU())
        self.up2 = nn.Sequential(
            nn.ConvTranspose2d(2 * w, w, 2, 2, bias=False), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.scores, self.boxes = nn.Conv2d(2 * w, anchors, 1), nn.Conv2d(2 * w, 7 * anchors, 1)

    def forward(self, pillars: Tensor) -> tuple[Tensor, Tensor]:
        """(1, 1024 pillars of 32 x 32, 16 points, 9) to scores and boxes."""
        x = self.points(pillars).amax(2).transpose(1, 2).reshape(1, -1, 32, 32)
        one = self.first(x)
        joined = torch.cat((self.up(one), self.up2(self.second(one))), 1)
        return torch.sigmoid(self.scores(joined)), self.boxes(joined)


class _DenseResidual(nn.Module):
    """Convs that read all before them, joined and added to what came in."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(width + n * growth, growth, 3, padding=1) for n in range(3)]
        )
        self.join = nn.Conv2d(width + 3 * growth, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for conv in self.convs:
            seen.append(torch.relu(conv(torch.cat(seen, 1))))
        made: Tensor = self.join(torch.cat(seen, 1)) + x
        return made


class Rdn(nn.Module):
    """Twice as many pixels by dense residual blocks (Zhang et al. 2018)."""

    def __init__(self, width: int = 32, growth: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.blocks = nn.ModuleList([_DenseResidual(width, growth) for _ in range(3)])
        self.join = nn.Sequential(
            nn.Conv2d(3 * width, width, 1), nn.Conv2d(width, width, 3, padding=1)
        )
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, 3, 2 * height, 2 * width)."""
        first = self.first(x)
        y, made = self.second(first), []
        for block in self.blocks:
            y = block(y)
            made.append(y)
        out: Tensor = self.up(self.join(torch.cat(made, 1)) + first)
        return out


class _SplitAttention(nn.Module):
    """Groups of a Conv's channels, weighted by each other (Zhang et al. 2020)."""

    def __init__(self, width: int, radix: int = 2) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(width, width * radix, 3, 1, 1, groups=radix, bias=False),
            nn.BatchNorm2d(width * radix), nn.ReLU(),
        )  # fmt: skip
        mid = max(width // 4, 16)
        self.gate = nn.Sequential(
            nn.Conv2d(width, mid, 1), nn.BatchNorm2d(mid), nn.ReLU(),
            nn.Conv2d(mid, width * radix, 1),
        )  # fmt: skip
        self.radix = radix

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        b, c = y.shape[:2]
        parts = y.split(c // self.radix, 1)
        gate = self.gate(sum(parts).mean((2, 3), keepdim=True))
        weights = gate.reshape(b, self.radix, -1).softmax(1).reshape(b, -1, 1, 1)
        both = zip(weights.split(c // self.radix, 1), parts, strict=True)
        made: Tensor = sum(weight * part for weight, part in both)
        return made


class _ResNeStBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        half = width // 2
        pool = nn.AvgPool2d(3, stride, 1) if stride > 1 else nn.Identity()
        self.main = nn.Sequential(
            conv_norm(inputs, half, 1), _SplitAttention(half), pool,
            conv_norm(half, width, 1, act=nn.Identity()),
        )  # fmt: skip
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            down = nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False)
            self.short = nn.Sequential(down, conv_norm(inputs, width, 1, act=nn.Identity()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.short(x))


class ResNeSt(nn.Module):
    """A ResNet whose groups of channels are weighted by each other (Zhang et al. 2020)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            conv_norm(3, 16, 3, 2), conv_norm(16, 32), nn.MaxPool2d(3, 2, 1),
            _ResNeStBlock(32, 64, 1), _ResNeStBlock(64, 64, 1), _ResNeStBlock(64, 128, 2),
            _ResNeStBlock(128, 128, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to scores."""
        made: Tensor = self.out(self.maps(x))
        return made


class Segan(nn.Module):
    """Cleaner speech by strided Convs with PRelus and their transposed ones (Pascual 2017)."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inputs = 1
        for level in range(depth):
            w = width * 2**level
            self.down.append(nn.Sequential(nn.Conv1d(inputs, w, 31, 2, 15), nn.PReLU(w)))
            wide = w if level == depth - 1 else 2 * w
            made = nn.ConvTranspose1d(wide, inputs, 32, 2, 15)
            last: nn.Module = nn.PReLU(inputs) if level else nn.Tanh()
            self.up.insert(0, nn.Sequential(made, last))
            inputs = w

    def forward(self, wave: Tensor) -> Tensor:
        """(batch, 1, samples) to as many samples."""
        kept = []
        x = wave
        for down in self.down:
            x = down(x)
            kept.append(x)
        kept.pop()
        for up in self.up:
            x = up(x)
            x = torch.cat((x, kept.pop()), 1) if kept else x
        return x


class _Fire(nn.Module):
    """Few channels by a 1x1 Conv, then many by two Convs whose outputs are joined."""

    def __init__(self, inputs: int, few: int, many: int) -> None:
        super().__init__()
        self.few = nn.Conv2d(inputs, few, 1)
        self.one, self.three = nn.Conv2d(few, many, 1), nn.Conv2d(few, many, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.few(x))
        return torch.cat((torch.relu(self.one(y)), torch.relu(self.three(y))), 1)


class SqueezeDet(nn.Module):
    """Detection by a SqueezeNet and one Conv (Wu et al. 2016)."""

    def __init__(self, classes: int = 3, anchors: int = 9) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), _Fire(32, 8, 32),
            _Fire(64, 8, 32), nn.MaxPool2d(3, 2, 1), _Fire(64, 16, 64), _Fire(128, 16, 64),
            nn.MaxPool2d(3, 2, 1), _Fire(128, 24, 96), _Fire(192, 32, 128), nn.Dropout(0.5),
        )  # fmt: skip
        self.out = nn.Conv2d(256, anchors * (classes + 5), 3, padding=1)
        self.classes = classes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1, 3, height, width) to probabilities, confidences and boxes."""
        y = self.out(self.maps(x)).permute(0, 2, 3, 1).reshape(1, -1, self.classes + 5)
        scores, confidence, boxes = y.split((self.classes, 1, 4), -1)
        return scores.softmax(-1), torch.sigmoid(confidence), boxes


class VggIsh(nn.Module):
    """Embeddings of sounds by a VGG of spectrograms (Hershey et al. 2017)."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for made in (width, -1, 2 * width, -1, 4 * width, 4 * width, -1, 8 * width, -1):
            if made < 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(inputs, made, 3, 1, 1), nn.ReLU()]
            inputs = made
        self.maps = nn.Sequential(*layers)
        self.out = nn.Sequential(
            nn.Linear(8 * width * 24, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 96, 64) to (batch, 128)."""
        made: Tensor = self.out(self.maps(x).permute(0, 2, 3, 1).flatten(1))
        return made
