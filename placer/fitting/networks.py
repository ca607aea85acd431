"""The networks that are measured: small, of random blocks and weights that a seed fixes.

A fifth are of well-known architectures (``architectures.py``). Each other one is a chain of blocks
as they stand in well-known networks (residual, depthwise separable,
squeeze and excitation, cross stage partial, attention, ...), with random widths and sizes, so that
costs are asked of many shapes and of operators in many neighbourhoods. A sixth read images of the
size that deployed networks read (``staged_networks.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from placer.fitting.architectures import architecture, architecture_names
from placer.fitting.large_networks import blocks_of, large
from placer.fitting.mixed_networks import mixed
from placer.fitting.net import (
    ACTIVATIONS,
    Act,
    Net,
    attention,
    excited,
    gelu,
    linear,
    normed,
    relu,
    silu,
)
from placer.fitting.short_networks import short
from placer.fitting.staged_networks import staged
from placer.fitting.token_networks import channels_last, few_tokens, sequence

CONVOLUTIONAL, TOKENS, WIDE = "convolutional", "tokens", "wide"
_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
_MOST_MACS = 60e6  # Of one convolution: a network is to run in milliseconds on one core.


# --- blocks of convolutional networks -------------------------------------------------------


def _width(net: Net, kernel: int, most: int = 256) -> int:
    """A random number of channels with which a convolution is not too slow."""
    _, channels, size, _ = net.shape
    fits = [w for w in _WIDTHS if w * channels * (kernel * size) ** 2 < _MOST_MACS and w <= most]
    return int(net.rng.choice(fits or [_WIDTHS[0]]))


def _plain(net: Net, x: str, act: Act) -> str:
    kernel = int(net.rng.choice([1, 3, 3, 5]))
    stride = int(net.rng.choice([1, 1, 2])) if net.shape[2] > 8 else 1
    return act(net, net.conv(x, _width(net, kernel), kernel, stride))


def _residual(net: Net, x: str, act: Act) -> str:
    channels = net.shape[1]
    if channels * channels * 9 * net.shape[2] ** 2 > _MOST_MACS:
        return _bottleneck(net, x, act)
    main = act(net, net.conv(x, channels, 3))
    return act(net, net.add("Add", net.conv(main, channels, 3), x))


def _bottleneck(net: Net, x: str, act: Act) -> str:
    channels = net.shape[1]
    main = act(net, net.conv(x, max(16, channels // 4), 1))
    main = act(net, net.conv(main, max(16, channels // 4), 3))
    return act(net, net.add("Add", net.conv(main, channels, 1), x))


def _separable(net: Net, x: str, act: Act) -> str:
    kernel = int(net.rng.choice([3, 3, 5]))
    stride = int(net.rng.choice([1, 1, 2])) if net.shape[2] > 8 else 1
    y = act(net, net.conv(x, net.shape[1], kernel, stride, depthwise=True))
    return act(net, net.conv(y, _width(net, 1), 1))


def _inverted(net: Net, x: str, act: Act) -> str:
    channels = net.shape[1]
    wide = min(4 * channels, 384)
    y = act(net, net.conv(x, wide, 1))
    y = act(net, net.conv(y, wide, 3, depthwise=True))
    if net.rng.random() < 0.5:
        y = excited(net, y)
    return net.add("Add", net.conv(y, channels, 1), x)


def _partial(net: Net, x: str, act: Act) -> str:
    """Cross stage partial (Wang et al. 2020): split, a branch, concatenated."""
    half = max(16, net.shape[1] // 2)
    start = net.shape
    left = act(net, net.conv(x, half, 1))
    net.shape = start
    right = act(net, net.conv(x, half, 1))
    deep = act(net, net.conv(right, half, 3))
    parts = (left, deep, right) if net.rng.random() < 0.5 else (left, deep)
    joined = net.add("Concat", *parts, axis=1)
    net.shape = (1, half * len(parts), *start[2:])
    return act(net, net.conv(joined, start[1], 1))


def _pooled(net: Net, x: str, act: Act) -> str:
    """Pools of one size beside each other (as in SPPF), or one that halves the size."""
    _, channels, size, _ = net.shape
    if net.rng.random() < 0.5 or size < 8:
        y = act(net, net.conv(x, max(16, channels // 2), 1))
        pools = [y]
        for _ in range(2):
            pool = net.add("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
            pools.append(pool)
        net.shape = (1, net.shape[1] * 3, size, size)
        return act(net, net.conv(net.add("Concat", *pools, axis=1), channels, 1))
    op = str(net.rng.choice(["MaxPool", "AveragePool"]))
    net.shape = (1, channels, size // 2, size // 2)
    return net.add(op, x, kernel_shape=[2, 2], strides=[2, 2])


def _up(net: Net, x: str, act: Act) -> str:
    """Twice the size by nearest neighbours or a transposed convolution, and a convolution."""
    _, channels, size, _ = net.shape
    if size > 32:
        return _plain(net, x, act)
    net.shape = (1, channels, 2 * size, 2 * size)
    if net.rng.random() < 0.7:
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        y = net.add("Resize", x, "", scales, mode="nearest",
                    coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    else:
        weight = net.weight(channels, channels, 2, 2)
        y = act(net, net.add("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2]))
    return act(net, net.conv(y, _width(net, 3, most=64), 3))


_BLOCKS = (
    _plain, _plain, _residual, _residual, _bottleneck, _separable, _separable, _inverted,
    _inverted, _partial, _partial, _pooled, _up,
)  # fmt: skip


def convolutional(seed: int) -> onnx.ModelProto:
    """A convolutional network: a stem, some blocks and a classifier or a map of scores."""
    size = int(np.random.default_rng(seed).choice([32, 48, 64, 96, 128]))
    net = Net((1, 3, size, size), seed)
    act = ACTIVATIONS[net.rng.integers(len(ACTIVATIONS))]
    stem = net.conv(
        "input", int(net.rng.choice([16, 24, 32, 48])), int(net.rng.choice([3, 3, 7])), 2
    )
    x = act(net, stem)
    for _ in range(int(net.rng.integers(4, 8))):
        x = _BLOCKS[net.rng.integers(len(_BLOCKS))](net, x, act)
    if net.rng.random() < 0.4:
        return net.model(net.conv(x, int(net.rng.choice([4, 16, 80])), 1))
    channels = net.shape[1]
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", flat, net.weight(channels, 100)))


# --- networks of tokens ---------------------------------------------------------------------


def tokens(seed: int) -> onnx.ModelProto:
    """A transformer: attention with heads and two linear layers, twice at most (Vaswani 2017)."""
    rng = np.random.default_rng(seed)
    count, width = int(rng.choice([32, 64, 128])), int(rng.choice([64, 128, 192, 256]))
    net = Net((1, count, width), seed)
    act: Act = (gelu, relu, silu)[int(rng.integers(3))]
    x = "input"
    for _ in range(int(rng.integers(1, 3))):
        x = net.add("Add", attention(net, normed(net, x), int(rng.choice([2, 4]))), x)
        wide = int(rng.choice([2, 4])) * width
        y = act(net, linear(net, normed(net, x), width, wide))
        x = net.add("Add", linear(net, y, wide, width), x)
    return net.model(linear(net, normed(net, x), width, 64))


def wide(seed: int) -> onnx.ModelProto:
    """The last stages of a ResNet (He et al. 2015): many channels, small maps."""
    rng = np.random.default_rng(seed)
    channels, size = (256, 384, 512)[seed % 3], int(rng.choice([4, 6, 8]))
    net = Net((1, channels // 2, size, size), seed)
    x = relu(net, net.conv("input", channels, 1))
    for _ in range(int(rng.integers(1, 4))):
        block = _residual if rng.random() < 0.6 else _bottleneck
        x = block(net, x, relu)
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", flat, net.weight(channels, 100)))


_MIXED, _LARGE, ARCHITECTURE = "mixed", "large", "architecture"
_STAGED = "staged"
_SHORT, _SEQUENCE, _CHANNELS_LAST, _FEW_TOKENS = "short", "sequence", "channels-last", "few-tokens"
_MAKERS = {
    CONVOLUTIONAL: convolutional,
    TOKENS: tokens,
    WIDE: wide,
    _SHORT: short,
    _SEQUENCE: sequence,
    _CHANNELS_LAST: channels_last,
    _FEW_TOKENS: few_tokens,
    _MIXED: mixed,
    _LARGE: large,
    _STAGED: staged,
    ARCHITECTURE: architecture,
}
_GOLDEN = (5**0.5 - 1) / 2
# Of how many networks of 140 there are of each kind but the first, which is all others.
_OF_140 = {
    TOKENS: 6, WIDE: 4, _SHORT: 12, _SEQUENCE: 9, _CHANNELS_LAST: 4, _FEW_TOKENS: 7, _MIXED: 20,
    _LARGE: 6, _STAGED: 24, ARCHITECTURE: 30,
}  # fmt: skip


def network_names(count: int) -> tuple[str, ...]:
    """The names of ``count`` networks, by kind.

    Of 140, 18 are convolutional, and all that the archive of architectures lacks.
    """
    few = {kind: count * share // 140 for kind, share in _OF_140.items()}
    few[ARCHITECTURE] = min(few[ARCHITECTURE], len(architecture_names()))
    counts = {CONVOLUTIONAL: count - sum(few.values()), **few}
    return tuple(f"{kind}-{number}" for kind, most in counts.items() for number in range(most))


def mixed_order(names: Sequence[str]) -> list[str]:
    """``names`` so that any first ones of them have the same share of each kind.

    A run that is cut short has then measured some of everything. Numbers are ordered by the
    fraction of their multiple of the golden ratio: those of any share lie evenly, since
    architectures that are alike lie beside each other.
    """
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]) * _GOLDEN % 1)


def generated_kind(name: str) -> str | None:
    """The kind of the network ``name``, of large ones their blocks'.

    None of given ones and of architectures, which are no more alike than any two networks.
    """
    kind, _, number = name.rpartition("-")
    if kind == ARCHITECTURE:
        return None
    if kind == _LARGE:
        return f"{kind} {blocks_of(int(number))}"
    return kind if kind in _MAKERS else None


def write_network(name: str, folder: Path) -> Path:
    """Write the network ``name`` of ``network_names`` to ``folder``."""
    kind, _, number = name.rpartition("-")
    path = folder / f"{name}.onnx"
    onnx.save(_MAKERS[kind](int(number)), path)
    return path
