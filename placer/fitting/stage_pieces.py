"""Pieces of the blocks of a stage: convolutions of a bounded size, norms, gates, tokens."""

from __future__ import annotations

import numpy as np

from placer.fitting.net import Net, relu, sized_conv

_MOST_MACS = 130e6  # Of one convolution, as a 3x3 one of 64 channels on 56x56.


def dense_conv(net: Net, x: str, outputs: int) -> str:
    """A 3x3 convolution, of fewer outputs where it took too long."""
    _, channels, size, _ = net.shape
    most = int(_MOST_MACS / (channels * (3 * size) ** 2))
    return sized_conv(net, x, min(outputs, max(16, most // 8 * 8)), (3, 3))


def dense_or_point(net: Net, x: str, outputs: int) -> str:
    """A 3x3 convolution with all ``outputs``, or a 1x1 one where that took too long."""
    _, channels, size, _ = net.shape
    kernel = 3 if outputs * channels * (3 * size) ** 2 <= _MOST_MACS else 1
    return sized_conv(net, x, outputs, (kernel, kernel))


def point_conv(net: Net, x: str, outputs: int) -> str:
    """A 1x1 convolution."""
    return sized_conv(net, x, outputs, (1, 1))


def depthwise_conv(net: Net, x: str, kernel: int, stride: int = 1) -> str:
    """A convolution of each channel alone, with a square kernel."""
    return sized_conv(net, x, net.shape[1], (kernel, kernel), stride, group=net.shape[1])


def batch_norm(net: Net, x: str) -> str:
    """A norm that no convolution before it takes up."""
    gain, shift, mean, variance = (
        net.constant(np.full(net.shape[1], v, np.float32)) for v in (0.9, 0.1, 0.05, 1)
    )
    return net.add("BatchNormalization", x, gain, shift, mean, variance)


def split(net: Net, x: str, *parts: int, axis: int = 1) -> tuple[str, ...]:
    """``x`` in ``parts`` of these sizes along ``axis``."""
    sizes = net.constant(np.array(parts, np.int64))
    return net.add_many("Split", (x, sizes), len(parts), axis=axis)


def excited(net: Net, x: str) -> str:
    """Squeeze and excitation (Hu et al. 2018), as exported: means by ReduceMean."""
    whole = net.shape
    gate = net.add("ReduceMean", x, axes=[2, 3], keepdims=1)
    net.shape = (1, whole[1], 1, 1)
    gate = relu(net, point_conv(net, gate, max(8, whole[1] // 16 * 4)))
    gate = net.add(str(net.rng.choice(["Sigmoid", "HardSigmoid"])), point_conv(net, gate, whole[1]))
    net.shape = whole
    return net.add("Mul", x, gate)


def pixels(net: Net, x: str) -> str:
    """Maps as tokens, shape (1, pixels, channels)."""
    _, channels, height, width = net.shape
    return net.transpose(net.reshape(x, 1, channels, height * width), 0, 2, 1)


def as_maps(net: Net, x: str, shape: tuple[int, ...]) -> str:
    """Tokens as maps of ``shape`` again."""
    return net.reshape(net.transpose(x, 0, 2, 1), *shape)
