"""Networks of 16 to 80 MB of weights and little work for each of them, as the last stages of large
ones: they tell what layers take more in networks with many weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx

from placer.fitting.net import Act, Net, attention, excited, gelu, linear, normed, relu, silu

# Of FP32 weights that the blocks of a network have at least; the last one may exceed it.
_LEAST_MB = (8, 14, 20, 30, 45, 60)
_MB = 4e-6


class _Stage(NamedTuple):
    """Blocks of one kind: their numbers of channels, and the weights of one of ``c`` channels."""

    channels: tuple[int, ...]
    weights: Callable[[int], float]
    block: Callable[[Net, str, Act, np.random.Generator], str]


def _residual(net: Net, x: str, act: Act, _rng: np.random.Generator) -> str:
    channels = net.shape[1]
    y = act(net, net.conv(x, channels, 3))
    return act(net, net.add("Add", net.conv(y, channels, 3), x))


def _bottleneck(net: Net, x: str, act: Act, _rng: np.random.Generator) -> str:
    channels = net.shape[1]
    y = act(net, net.conv(x, channels // 4, 1))
    y = act(net, net.conv(y, channels // 4, 3))
    return act(net, net.add("Add", net.conv(y, channels, 1), x))


def _inverted(net: Net, x: str, act: Act, rng: np.random.Generator) -> str:
    channels = net.shape[1]
    y = act(net, net.conv(x, 6 * channels, 1))
    y = act(net, net.conv(y, 6 * channels, 5 if rng.random() < 0.5 else 3, depthwise=True))
    y = excited(net, y) if rng.random() < 0.5 else y
    return net.add("Add", net.conv(y, channels, 1), x)


_STAGES = (
    _Stage((256, 384, 512), lambda c: 18 * c**2, _residual),
    _Stage((768, 1024, 1536), lambda c: 2 * c * (c // 4) + 9 * (c // 4) ** 2, _bottleneck),
    _Stage((96, 160, 224), lambda c: 12 * c**2, _inverted),
)


def _of_images(
    stage: _Stage, least_mb: float, rng: np.random.Generator, seed: int
) -> onnx.ModelProto:
    act: Act = (relu, silu)[int(rng.integers(2))]
    size, channels = int(rng.choice([4, 5, 7])), int(rng.choice(stage.channels))
    net = Net((1, 64, size, size), seed)
    x, written_mb = act(net, net.conv("input", channels, 1)), 0.0
    while written_mb < least_mb:
        x = stage.block(net, x, act, rng)
        written_mb += _MB * stage.weights(channels)
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", flat, net.weight(channels, 100)))


def _of_tokens(least_mb: float, rng: np.random.Generator, seed: int) -> onnx.ModelProto:
    width, count = int(rng.choice([256, 384, 512])), int(rng.choice([16, 32]))
    net = Net((1, count, width), seed)
    x, written_mb = net.input, 0.0
    while written_mb < least_mb:
        x = net.add("Add", attention(net, normed(net, x), 4), x)
        y = gelu(net, linear(net, normed(net, x), width, 4 * width))
        x = net.add("Add", linear(net, y, 4 * width, width), x)
        written_mb += _MB * 12 * width**2
    return net.model(linear(net, normed(net, x), width, 64))


def blocks_of(seed: int) -> int:
    """Which kind of blocks the network of ``seed`` has."""
    return seed % (len(_STAGES) + 1)


def large(seed: int) -> onnx.ModelProto:
    """Blocks of one kind on a small map, or of a few tokens where ``seed`` is 3 modulo 4."""
    rng = np.random.default_rng(1000 + seed)
    least_mb = _LEAST_MB[seed % len(_LEAST_MB)]
    kind = blocks_of(seed)
    if kind == len(_STAGES):
        return _of_tokens(least_mb, rng, seed)
    return _of_images(_STAGES[kind], least_mb, rng, seed)
