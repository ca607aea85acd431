"""Networks that no prediction was mended with: how well it does on them tells how well it does.

As in ``topologies``: random weights, the structure of the papers, fewer blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.networks.topologies import Net, classifier


def densenet(size: int) -> onnx.ModelProto:
    """DenseNet (Huang et al. 2017), batch normalisation folded: every block reads all before."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 32, 3, 2)), 32
    for stage in range(3):
        for _ in range(4):
            y = net.relu(net.conv(x, channels, 64, 1))
            x = net.add("Concat", x, net.relu(net.conv(y, 64, 16, 3)), axis=1)
            channels += 16
        if stage < 2:
            x = net.relu(net.conv(x, channels, channels // 2, 1))
            x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    return classifier(net, x, channels)


def mobilenet_v3(size: int) -> onnx.ModelProto:
    """MobileNetV3 (Howard et al. 2019): hard swish, squeeze and excitation by hard sigmoid."""
    net = Net((1, 3, size, size))
    x, channels = net.add("HardSwish", net.conv(net.input, 3, 16, 3, 2)), 16
    for inner, outputs, stride in ((64, 24, 2), (72, 24, 1), (96, 40, 2), (240, 40, 1)):
        y = net.add("HardSwish", net.conv(x, channels, inner, 1))
        y = net.add("HardSwish", net.conv(y, inner, inner, 5, stride, inner))
        gate = net.relu(net.conv(net.add("GlobalAveragePool", y), inner, inner // 4, 1))
        gate = net.add("HardSigmoid", net.conv(gate, inner // 4, inner, 1))
        y = net.conv(net.add("Mul", y, gate), inner, outputs, 1)
        x = net.add("Add", x, y) if stride == 1 and channels == outputs else y
        channels = outputs
    return classifier(net, net.add("HardSwish", net.conv(x, channels, 240, 1)), 240)


def convnext(size: int) -> onnx.ModelProto:
    """ConvNeXt (Liu et al. 2022): depthwise 7x7, LayerNorm over channels, two products, GELU."""
    net = Net((1, 3, size, size))
    x, width = net.conv(net.input, 3, 64, 4, 4), 64
    for _ in range(3):
        y = net.add("Transpose", net.conv(x, width, width, 7, 1, width), perm=[0, 2, 3, 1])
        y = net.add("LayerNormalization", y, net.weight(width), net.weight(width), axis=-1)
        y = net.add(
            "Add", net.add("MatMul", y, net.weight(width, 4 * width)), net.weight(4 * width)
        )
        half = net.constant(np.array(0.5, np.float32))
        root = net.constant(np.array(2**0.5, np.float32))
        one = net.constant(np.array(1, np.float32))
        gate = net.add("Add", net.add("Erf", net.add("Div", y, root)), one)
        y = net.add("Mul", net.add("Mul", y, gate), half)
        y = net.add("Add", net.add("MatMul", y, net.weight(4 * width, width)), net.weight(width))
        x = net.add("Add", x, net.add("Transpose", y, perm=[0, 3, 1, 2]))
    return classifier(net, x, width)


def pyramid(size: int) -> onnx.ModelProto:
    """A feature pyramid (Lin et al. 2017) on a plain backbone, with a head at each scale."""
    net = Net((1, 3, size, size))
    x, channels, levels = net.relu(net.conv(net.input, 3, 32, 3, 2)), 32, []
    for width in (64, 128, 256):
        x = net.relu(net.conv(x, channels, width, 3, 2))
        x = net.relu(net.add("Add", x, net.conv(x, width, width, 3)))
        channels = width
        levels.append(net.conv(x, width, 64, 1))
    scales, up = net.constant(np.array([1, 1, 2, 2], np.float32)), levels[-1]
    merged = [up]
    for level in reversed(levels[:-1]):
        up = net.add("Add", level, net.add("Resize", up, "", scales, mode="nearest"))
        merged.append(up)
    heads = [net.conv(net.relu(net.conv(m, 64, 64, 3)), 64, 24, 1) for m in merged]
    return net.model(*heads)


UNSEEN: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "DenseNet": lambda: densenet(64),
    "MobileNetV3": lambda: mobilenet_v3(64),
    "ConvNeXt": lambda: convnext(64),
    "feature pyramid": lambda: pyramid(64),
}
