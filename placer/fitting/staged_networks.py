"""Networks for images of the size that deployed ones read, in four stages as these have.

From stage to stage maps halve and channels double, so layers have the shapes that they have in
deployed networks: few channels on large maps, hundreds on 4x4 to 8x8. Each stage has two or three
blocks (``staged_blocks.py``).
"""

from __future__ import annotations

import numpy as np
import onnx

from placer.fitting.net import (
    Act,
    Net,
    attention,
    gelu,
    hard_swish,
    linear,
    normed,
    relu,
    relu6,
    silu,
    sized_conv,
)
from placer.fitting.stage_pieces import depthwise_conv, pixels, point_conv, split
from placer.fitting.staged_blocks import BLOCKS

_SIZES = (128, 160, 192, 224, 224, 256)
_WIDTHS = (16, 24, 32, 40, 48, 64)  # Of the first stage.
_ACTIVATIONS: tuple[Act, ...] = (relu, relu, silu, gelu, hard_swish, relu6)
_MOST_WIDTH_BY_SIZE = 48 * 192  # Larger images have fewer channels: networks take milliseconds.
_STAGES = 4
_TURNS = 4  # Among as many networks in a row each block stands once.


# --- stems, stages, heads -------------------------------------------------------------------


def staged(seed: int) -> onnx.ModelProto:
    """Four stages, or patches as tokens of one width where ``seed`` is 5 modulo 6."""
    number, kind = divmod(seed, 6)
    return _of_patches(number) if kind == 5 else _of_stages(5 * number + kind)


def _of_stages(seed: int) -> onnx.ModelProto:
    """A stem, four stages of seven blocks together, and a classifier or a map of scores."""
    rng = np.random.default_rng(2000 + seed)
    size = int(rng.choice(_SIZES))
    net = Net((1, 3, size, size), seed)
    act = _ACTIVATIONS[int(rng.integers(len(_ACTIVATIONS)))]
    width = int(rng.choice([width for width in _WIDTHS if width * size <= _MOST_WIDTH_BY_SIZE]))
    x = _stem(net, width, act)
    order = np.random.default_rng(3000 + seed // _TURNS).permutation(len(BLOCKS))
    own = order[seed % _TURNS :: _TURNS]
    for stage, blocks in enumerate(np.array_split(own, _STAGES)):
        x = _smaller(net, x, width * 2**stage, act) if stage else x
        for index in blocks:
            x = BLOCKS[index](net, x, act)
    return net.model(_head(net, x, act))


def _stem(net: Net, width: int, act: Act) -> str:
    """A quarter of the size: patches, a pool behind 7x7 windows, or two 3x3 convolutions."""
    size = net.shape[2]
    kind = int(net.rng.integers(4))
    if kind == 0:
        bias = net.constant(net.rng.normal(0, 0.1, width).astype(np.float32))
        y = net.add("Conv", "input", net.weight(width, 3, 4, 4), bias,
                    kernel_shape=[4, 4], strides=[4, 4])  # fmt: skip
        net.shape = (1, width, size // 4, size // 4)
        return y
    if kind == 1:
        y = act(net, sized_conv(net, "input", width, (7, 7), 2))
        net.shape = (1, width, size // 4, size // 4)
        return net.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = act(net, sized_conv(net, "input", width if kind == 2 else max(16, width // 2), (3, 3), 2))
    y = act(net, depthwise_conv(net, y, 3)) if kind == 3 else y
    return act(net, sized_conv(net, y, width, (3, 3), 2))


def _smaller(net: Net, x: str, outputs: int, act: Act) -> str:
    """Half the size, other channels."""
    _, channels, size, _ = net.shape
    kind = int(net.rng.integers(4))
    if kind == 0:
        return act(net, sized_conv(net, x, outputs, (3, 3), 2))
    if kind == 1:
        return point_conv(net, act(net, depthwise_conv(net, x, 3, 2)), outputs)
    half = (1, channels, size // 2, size // 2)
    if kind == 2 or size % 2:
        op = str(net.rng.choice(["MaxPool", "AveragePool"]))
        y = net.add(op, x, kernel_shape=[2, 2], strides=[2, 2])
        net.shape = half
        return point_conv(net, y, outputs)
    y = net.transpose(normed(net, net.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)
    y = net.add("Conv", y, net.weight(outputs, channels, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    net.shape = (1, outputs, *half[2:])
    return y


def _head(net: Net, x: str, act: Act) -> str:
    """Classes of means, behind a wider layer in some; or a map of scores."""
    channels = net.shape[1]
    kind = int(net.rng.integers(4))
    if kind == 0:
        return point_conv(net, x, 21)
    if kind == 1:
        x = act(net, point_conv(net, x, 1280))
    mean = net.add("GlobalAveragePool", x)
    if kind == 2:
        net.shape = (1, channels, 1, 1)
        mean = act(net, point_conv(net, mean, 1024))
    bias = net.constant(np.zeros(1000, np.float32))
    wide = net.shape[1]
    return net.add("Gemm", net.add("Flatten", mean), net.weight(wide, 1000), bias)


# --- tokens of one width --------------------------------------------------------------------


def _of_patches(seed: int) -> onnx.ModelProto:
    """Two or three layers of a transformer of patches, as wide as deployed ones."""
    rng = np.random.default_rng(4000 + seed)
    width, side = int(rng.choice([192, 256, 384, 512, 768])), int(rng.choice([8, 10, 12, 14]))
    patch = int(rng.choice([8, 16]))
    net = Net((1, 3, side * patch, side * patch), seed)
    bias = net.constant(net.rng.normal(0, 0.1, width).astype(np.float32))
    x = net.add("Conv", "input", net.weight(width, 3, patch, patch), bias,
                kernel_shape=[patch] * 2, strides=[patch] * 2)  # fmt: skip
    net.shape = (1, width, side, side)
    first = net.constant(net.rng.normal(0, 1, (1, 1, width)).astype(np.float32))
    x = net.add("Concat", first, pixels(net, x), axis=1)
    count = side**2 + 1
    net.shape = (1, count, width)
    places = net.constant(net.rng.normal(0, 0.1, (1, count, width)).astype(np.float32))
    x = net.add("Add", x, places)
    layer = (_pre_norm, _post_norm)[seed % 2]
    for _ in range(2 if width > 384 else 3):
        x = layer(net, x, seed // 2)
    y = net.add("Gather", normed(net, x), net.constant(np.array(0, np.int64)), axis=1)
    bias = net.constant(np.zeros(1000, np.float32))
    return net.model(net.add("Gemm", y, net.weight(width, 1000), bias))


def _pre_norm(net: Net, x: str, kind: int) -> str:
    y = net.add("Add", _joint_attention(net, normed(net, x)), x)
    return net.add("Add", _feed_forward(net, normed(net, y), kind), y)


def _post_norm(net: Net, x: str, kind: int) -> str:
    y = normed(net, net.add("Add", attention(net, x, net.shape[-1] // 64), x))
    return normed(net, net.add("Add", _feed_forward(net, y, kind), y))


def _feed_forward(net: Net, x: str, kind: int) -> str:
    """Two linear layers with a GELU or ReLU, or three with a gate (Shazeer 2020)."""
    width = net.shape[-1]
    wide = (4, 4, 2)[kind % 3] * width
    if kind % 3 == 2:
        gate = net.add("Mul", silu(net, linear(net, x, width, wide)), linear(net, x, width, wide))
        return linear(net, gate, wide, width)
    act = (gelu, relu)[kind % 3]
    return linear(net, act(net, linear(net, x, width, wide)), wide, width)


def _joint_attention(net: Net, x: str) -> str:
    """Attention whose queries, keys and values come of one linear layer."""
    _, count, width = net.shape
    heads, each = width // 64, 64
    y = linear(net, x, width, 3 * width)
    y = net.transpose(net.reshape(y, 1, count, 3, heads, each), 2, 0, 3, 1, 4)
    q, k, v = (
        net.add("Squeeze", part, net.constant(np.array([0], np.int64)))
        for part in split(net, y, 1, 1, 1, axis=0)
    )
    weights = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    weights = net.add("Softmax", net.add("Mul", weights, net.scalar(each**-0.5)), axis=-1)
    y = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    return linear(net, net.reshape(y, 1, count, width), width, width)
