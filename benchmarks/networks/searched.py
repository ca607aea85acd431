"""The networks on which searches are compared.

Latency depends on shapes alone, so weights are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from benchmarks.networks.topologies import Net, classifier


class ShapeNet(Net):
    """A net whose weights are zeros: only their shapes matter."""

    def __init__(self, *shape: int) -> None:
        super().__init__(shape)
        self.batch = shape[0]

    def weight(self, *shape: int) -> str:
        """Append zeros."""
        return self.constant(np.zeros(shape, np.float32))

    def block(self, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        """Convolution and Relu."""
        return self.relu(self.conv(x, inputs, outputs, kernel, stride))

    def unit(self, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> str:
        """Convolution and SiLU."""
        return self.silu(self.conv(x, inputs, outputs, kernel, stride))

    def pool(self, x: str, kernel: int, stride: int) -> str:
        """MaxPool with same padding."""
        pads = [(kernel - 1) // 2] * 4
        return self.add("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def up(self, x: str) -> str:
        """Nearest Resize to twice the size."""
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.add("Resize", x, "", scales, mode="nearest")

    def transposed(self, x: str, inputs: int, outputs: int) -> str:
        """ConvTranspose to twice the size, and Relu."""
        weight, bias = self.weight(inputs, outputs, 2, 2), self.weight(outputs)
        return self.relu(self.add("ConvTranspose", x, weight, bias, strides=[2, 2]))

    def concat(self, *parts: str) -> str:
        """Concat of channels."""
        return self.add("Concat", *parts, axis=1)

    def halves(self, x: str, channels: int) -> list[str]:
        """Split of channels in two."""
        return list(self.split(x, channels // 2, channels // 2))


def residual_net(
    batch: int, size: int, blocks: Sequence[int], *, bottleneck: bool, groups: int = 1
) -> onnx.ModelProto:
    """ResNet (He et al. 2015), or ResNeXt (Xie et al. 2016) with ``groups``."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.pool(net.block(net.input, 3, 64, 7, 2), 3, 2), 64
    for stage, count in enumerate(blocks):
        width = (64 << stage) * (2 if groups > 1 else 1)
        outputs = (256 << stage) if bottleneck else width
        for index in range(count):
            stride = 2 if stage and not index else 1
            if bottleneck:
                main = net.block(x, channels, width, 1)
                main = net.relu(net.conv(main, width, width, 3, stride, groups))
                main = net.conv(main, width, outputs, 1)
            else:
                main = net.conv(net.block(x, channels, width, 3, stride), width, width, 3)
            if stride != 1 or channels != outputs:
                x = net.conv(x, channels, outputs, 1, stride)
            x, channels = net.relu(net.add("Add", main, x)), outputs
    return classifier(net, x, channels)


def mobile_net(batch: int, size: int) -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al. 2018)."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.relu6(net.conv(net.input, 3, 32, 3, 2)), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for expansion, outputs, count, first in (*stages, (6, 160, 3, 2), (6, 320, 1, 1)):
        for index in range(count):
            stride, wide = (1 if index else first), channels * expansion
            y = net.relu6(net.conv(x, channels, wide, 1)) if expansion > 1 else x
            y = net.conv(net.relu6(net.conv(y, wide, wide, 3, stride, wide)), wide, outputs, 1)
            x = net.add("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    return classifier(net, net.relu6(net.conv(x, channels, 1280, 1)), 1280)


def efficient_net(batch: int, size: int) -> onnx.ModelProto:
    """EfficientNet-B0 (Tan & Le 2019): depthwise, SiLU, squeeze and excite."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.unit(net.input, 3, 32, 3, 2), 32
    stages = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
    for expansion, outputs, count, first, kernel in (*stages, (6, 112, 3, 1, 5), (6, 192, 4, 2, 5)):
        for index in range(count):
            stride, wide = (1 if index else first), channels * expansion
            y = net.unit(x, channels, wide) if expansion > 1 else x
            y = net.silu(net.conv(y, wide, wide, kernel, stride, wide))
            squeezed = net.unit(net.add("GlobalAveragePool", y), wide, max(8, channels // 4))
            excited = net.add("Sigmoid", net.conv(squeezed, max(8, channels // 4), wide, 1))
            y = net.conv(net.add("Mul", y, excited), wide, outputs, 1)
            x = net.add("Add", y, x) if stride == 1 and channels == outputs else y
            channels = outputs
    return classifier(net, net.unit(x, channels, 1280), 1280)


def u_net(batch: int, size: int, widths: Sequence[int]) -> onnx.ModelProto:
    """U-Net (Ronneberger et al. 2015): ConvTranspose, then Concat with the skip."""
    net = ShapeNet(batch, 3, size, size)
    skips, x, channels = [], net.input, 3
    for width in widths[:-1]:
        x = net.block(net.block(x, channels, width), width, width)
        skips.append((x, width))
        x, channels = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), width
    x = net.block(net.block(x, channels, widths[-1]), widths[-1], widths[-1])
    channels = widths[-1]
    for skip, width in reversed(skips):
        x = net.concat(net.transposed(x, channels, width), skip)
        x, channels = net.block(net.block(x, 2 * width, width), width, width), width
    return net.model(net.add("Sigmoid", net.conv(x, channels, 1, 1)))


def yolo(batch: int, size: int, width: int, repeats: int) -> onnx.ModelProto:
    """A YOLOv8-like net: C2f blocks, SPPF, a neck with nearest Resize, two heads."""
    net = ShapeNet(batch, 3, size, size)

    def c2f(x: str, inputs: int, outputs: int, *, shortcut: bool) -> str:
        half = outputs // 2
        parts = net.halves(net.unit(x, inputs, outputs), outputs)
        for _ in range(repeats):
            inner = net.unit(net.unit(parts[-1], half, half, 3), half, half, 3)
            parts.append(net.add("Add", parts[-1], inner) if shortcut else inner)
        return net.unit(net.concat(*parts), half * len(parts), outputs)

    x, channels, stages = net.unit(net.input, 3, width, 3, 2), width, []
    for _ in range(4):
        x = c2f(
            net.unit(x, channels, 2 * channels, 3, 2), 2 * channels, 2 * channels, shortcut=True
        )
        channels *= 2
        stages.append((x, channels))
    pools = [net.unit(x, channels, channels // 2)]
    for _ in range(3):
        pools.append(net.pool(pools[-1], 5, 1))
    x = net.unit(net.concat(*pools), 2 * channels, channels)
    outputs = []
    for skip, wide in reversed(stages[1:3]):
        x = c2f(net.concat(net.up(x), skip), channels + wide, wide, shortcut=False)
        channels = wide
        for classes in (64, 80):
            y = net.unit(net.unit(x, wide, wide, 3), wide, wide, 3)
            outputs.append(net.conv(y, wide, classes, 1))
    return net.model(*outputs)


def dense_net(batch: int, size: int, blocks: Sequence[int], growth: int = 32) -> onnx.ModelProto:
    """DenseNet (Huang et al. 2017): every layer reads the Concat of all before it."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.pool(net.block(net.input, 3, 2 * growth, 7, 2), 3, 2), 2 * growth
    for index, count in enumerate(blocks):
        for _ in range(count):
            wide = net.block(x, channels, 4 * growth, 1)
            x = net.concat(x, net.block(wide, 4 * growth, growth))
            channels += growth
        if index < len(blocks) - 1:
            x, channels = net.block(x, channels, channels // 2, 1), channels // 2
            x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return classifier(net, x, channels)


def inception(batch: int, size: int, count: int) -> onnx.ModelProto:
    """Modules of four branches and a Concat (Szegedy et al. 2014)."""
    net = ShapeNet(batch, 3, size, size)
    x = net.pool(net.block(net.pool(net.block(net.input, 3, 64, 7, 2), 3, 2), 64, 192), 3, 2)
    channels = 192
    for index in range(count):
        wide = 64 + 32 * index
        x = net.concat(
            net.block(x, channels, wide, 1),
            net.block(net.block(x, channels, wide, 1), wide, 2 * wide),
            net.block(net.block(x, channels, 32, 1), 32, 64, 5),
            net.block(net.pool(x, 3, 1), channels, 64, 1),
        )
        channels = 3 * wide + 128
    return classifier(net, x, channels)


def pyramid(batch: int, size: int) -> onnx.ModelProto:
    """A feature pyramid (Lin et al. 2016) on plain stages: nearest Resize and Add."""
    net = ShapeNet(batch, 3, size, size)
    x, channels, stages = net.block(net.input, 3, 32, 3, 2), 32, []
    for width in (64, 128, 256):
        x = net.block(net.block(x, channels, width, 3, 2), width, width)
        channels = width
        stages.append((x, width))
    top = net.conv(x, channels, 128, 1)
    outputs = [net.conv(net.block(top, 128, 128), 128, 16, 1)]
    for skip, width in reversed(stages[:-1]):
        top = net.add("Add", net.conv(skip, width, 128, 1), net.up(top))
        outputs.append(net.conv(net.block(top, 128, 128), 128, 16, 1))
    return net.model(*outputs)


def decoder(batch: int, size: int, widths: Sequence[int]) -> onnx.ModelProto:
    """A generator: ConvTranspose and two residual convolutions per level."""
    net = ShapeNet(batch, widths[0], size, size)
    x, channels = net.input, widths[0]
    for width in widths[1:]:
        x = net.transposed(x, channels, width)
        x = net.relu(net.add("Add", net.conv(net.block(x, width, width), width, width, 3), x))
        channels = width
    return net.model(net.add("Tanh", net.conv(x, channels, 3, 3)))


def transformer(batch: int, tokens: int, width: int, stages: Sequence[int]) -> onnx.ModelProto:
    """A ViT (Dosovitskiy et al. 2020) of several stages: between them a quarter of the tokens is
    left, each twice as wide (Wang et al. 2021, Pyramid Vision Transformer).
    """
    net = ShapeNet(batch, tokens, width)

    def norm(x: str, width: int) -> str:
        return net.add("LayerNormalization", x, net.weight(width), net.weight(width))

    def linear(x: str, inputs: int, outputs: int) -> str:
        product = net.add("MatMul", x, net.weight(inputs, outputs))
        return net.add("Add", product, net.weight(outputs))

    def shaped(x: str, *shape: int) -> str:
        return net.add("Reshape", x, net.constant(np.array((batch, *shape), np.int64)))

    def split(x: str, perm: Sequence[int]) -> str:
        return net.add("Transpose", shaped(x, tokens, width // 64, 64), perm=perm)

    def gelu(x: str) -> str:
        root, one, half = (net.constant(np.array(v, np.float32)) for v in (math.sqrt(2), 1, 0.5))
        error = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
        return net.add("Mul", net.add("Mul", x, error), half)

    def block(x: str) -> str:
        normed = norm(x, width)
        q, k, v = (linear(normed, width, width) for _ in range(3))
        scores = net.add("MatMul", split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
        scaled = net.add("Mul", scores, net.constant(np.array(1 / 8, np.float32)))
        mixed = net.add("MatMul", net.add("Softmax", scaled, axis=-1), split(v, (0, 2, 1, 3)))
        joined = shaped(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), tokens, width)
        x = net.add("Add", x, linear(joined, width, width))
        hidden = gelu(linear(norm(x, width), width, 4 * width))
        return net.add("Add", x, linear(hidden, 4 * width, width))

    x = net.input
    for stage, count in enumerate(stages):
        if stage:
            x = linear(shaped(x, tokens // 4, 4 * width), 4 * width, 2 * width)
            tokens, width = tokens // 4, 2 * width
        for _ in range(count):
            x = block(x)
    return net.model(norm(x, width))
