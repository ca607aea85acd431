"""Blocks of a stage of a network for images, of families of which each has layers of its own kind.

Grouped and split convolutions, pooled and windowed attention, unfused norms, gates, sums of
resized maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from placer.fitting.net import (
    Act,
    Net,
    attention,
    gelu,
    linear,
    normed,
    relu,
    relu6,
    sized_conv,
)

_MOST_MACS = 130e6  # Of one convolution, as a 3x3 one of 64 channels on 56x56.
_MOST_TOKENS = 256


def _dense_conv(net: Net, x: str, outputs: int) -> str:
    """A 3x3 convolution, of fewer outputs where it took too long."""
    _, channels, size, _ = net.shape
    most = int(_MOST_MACS / (channels * (3 * size) ** 2))
    return sized_conv(net, x, min(outputs, max(16, most // 8 * 8)), (3, 3))


def point_conv(net: Net, x: str, outputs: int) -> str:
    return sized_conv(net, x, outputs, (1, 1))


def depthwise_conv(net: Net, x: str, kernel: int, stride: int = 1) -> str:
    return sized_conv(net, x, net.shape[1], (kernel, kernel), stride, group=net.shape[1])


def _batch_norm(net: Net, x: str) -> str:
    """A norm that no convolution before it takes up."""
    gain, shift, mean, variance = (
        net.constant(np.full(net.shape[1], v, np.float32)) for v in (0.9, 0.1, 0.05, 1)
    )
    return net.add("BatchNormalization", x, gain, shift, mean, variance)


def split(net: Net, x: str, *parts: int, axis: int = 1) -> tuple[str, ...]:
    sizes = net.constant(np.array(parts, np.int64))
    return net.add_many("Split", (x, sizes), len(parts), axis=axis)


def _excited(net: Net, x: str) -> str:
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


def _maps(net: Net, x: str, shape: tuple[int, ...]) -> str:
    """Tokens as maps of ``shape`` again."""
    return net.reshape(net.transpose(x, 0, 2, 1), *shape)


# --- convolutions ---------------------------------------------------------------------------


def _residual(net: Net, x: str, act: Act) -> str:
    channels = net.shape[1]
    y = act(net, _dense_conv(net, x, channels))
    return act(net, net.add("Add", _dense_or_point(net, y, channels), x))


def _dense_or_point(net: Net, x: str, outputs: int) -> str:
    """A 3x3 convolution with all ``outputs``, or a 1x1 one where that took too long."""
    _, channels, size, _ = net.shape
    kernel = 3 if outputs * channels * (3 * size) ** 2 <= _MOST_MACS else 1
    return sized_conv(net, x, outputs, (kernel, kernel))


def _bottleneck(net: Net, x: str, act: Act) -> str:
    """He et al. 2015."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, max(16, channels // 2)))
    y = act(net, _dense_conv(net, y, max(16, channels // 2)))
    return act(net, net.add("Add", point_conv(net, y, channels), x))


def _grouped(net: Net, x: str, act: Act) -> str:
    """Groups of 8 to 40 channels, a gate behind some (Radosavovic et al. 2020)."""
    channels = net.shape[1]
    each = int(net.rng.choice([8, 16, 24, 32, 40]))
    width = -(-channels // each) * each
    y = act(net, point_conv(net, x, width))
    y = act(net, sized_conv(net, y, width, (3, 3), group=width // each))
    y = _excited(net, y) if net.rng.random() < 0.5 else y
    return act(net, net.add("Add", point_conv(net, y, channels), x))


def _eight_groups(net: Net, x: str, act: Act) -> str:
    """Twice as many channels in eight groups (Chen et al. 2021, Visformer)."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, 2 * channels))
    y = act(net, sized_conv(net, y, 2 * channels, (3, 3), group=8))
    return net.add("Add", point_conv(net, y, channels), x)


def _several_each(net: Net, x: str, act: Act) -> str:
    """Two outputs of each channel, from windows of 3x3 or 7x7 (Vasu et al. 2023, FastViT)."""
    channels = net.shape[1]
    kernel = 7 if net.shape[2] <= 16 and net.rng.random() < 0.5 else 3
    y = sized_conv(net, x, 2 * channels, (kernel, kernel), group=channels)
    return net.add("Add", point_conv(net, act(net, y), channels), x)


def _inverted(net: Net, x: str, act: Act) -> str:
    """Sandler et al. 2018, Tan & Le 2019."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, channels * int(net.rng.choice([3, 4, 6]))))
    y = act(net, depthwise_conv(net, y, int(net.rng.choice([3, 5, 7]))))
    y = _excited(net, y) if net.rng.random() < 0.5 else y
    return net.add("Add", point_conv(net, y, channels), x)


def _ghost(net: Net, x: str, act: Act) -> str:
    """Half of the channels by a depthwise convolution of the others (Han et al. 2020)."""
    whole = net.shape
    first = act(net, point_conv(net, x, whole[1]))
    joined = net.add("Concat", first, act(net, depthwise_conv(net, first, 3)), axis=1)
    net.shape = (1, 2 * whole[1], *whole[2:])
    joined = _excited(net, joined) if net.rng.random() < 0.3 else joined
    return net.add("Add", point_conv(net, joined, whole[1]), x)


def _partial(net: Net, x: str, act: Act) -> str:
    """A convolution of a quarter of the channels (Chen et al. 2023, FasterNet)."""
    whole = net.shape
    quarter = whole[1] // 4
    first, rest = split(net, x, quarter, whole[1] - quarter)
    net.shape = (1, quarter, *whole[2:])
    y = net.add("Concat", _dense_or_point(net, first, quarter), rest, axis=1)
    net.shape = whole
    y = act(net, point_conv(net, y, 2 * whole[1]))
    return net.add("Add", point_conv(net, y, whole[1]), x)


def _branched_sum(net: Net, x: str, act: Act) -> str:
    """A 3x3 and a 1x1 convolution and a norm, summed (Ding et al. 2021)."""
    channels = net.shape[1]
    depthwise = net.rng.random() < 0.5
    wide = depthwise_conv(net, x, 3) if depthwise else _dense_or_point(net, x, channels)
    group = channels if depthwise else 1
    narrow = sized_conv(net, x, channels, (1, 1), group=group)
    return act(net, net.add("Add", net.add("Add", wide, narrow), _batch_norm(net, x)))


def _in_scales(net: Net, x: str, act: Act) -> str:
    """Quarters of the channels, each convolved with what became of the last (Gao et al. 2019)."""
    whole = net.shape
    quarter = whole[1] // 4
    parts = split(net, act(net, point_conv(net, x, 4 * quarter)), *(quarter,) * 4)
    made = [parts[0]]
    for part in parts[1:]:
        net.shape = (1, quarter, *whole[2:])
        y = part if len(made) == 1 else net.add("Add", part, made[-1])
        made.append(act(net, _dense_or_point(net, y, quarter)))
    net.shape = (1, 4 * quarter, *whole[2:])
    y = point_conv(net, net.add("Concat", *made, axis=1), whole[1])
    return act(net, net.add("Add", y, x))


def _densely(net: Net, x: str, _act: Act) -> str:
    """Norms before convolutions, which read all before them (Huang et al. 2017)."""
    whole, growth = net.shape, 32
    for _ in range(2):
        channels = net.shape[1]
        y = point_conv(net, relu(net, _batch_norm(net, x)), 4 * growth)
        y = sized_conv(net, relu(net, _batch_norm(net, y)), growth, (3, 3))
        x = net.add("Concat", x, y, axis=1)
        net.shape = (1, channels + growth, *whole[2:])
    return point_conv(net, relu(net, _batch_norm(net, x)), whole[1])


def _unequal(net: Net, x: str, act: Act) -> str:
    """Branches of a 1x1, a 1x7 and a 7x1 kernel and a pool (Szegedy et al. 2016)."""
    whole = net.shape
    width = max(16, whole[1] // 2)
    one = act(net, point_conv(net, x, width))
    net.shape = whole
    two = act(net, point_conv(net, x, width // 2))
    for kernel in ((1, 7), (7, 1)):
        two = act(net, sized_conv(net, two, width, kernel))
    net.shape = whole
    pool = net.add("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    three = act(net, point_conv(net, pool, width))
    net.shape = (1, 3 * width, *whole[2:])
    return act(net, point_conv(net, net.add("Concat", one, two, three, axis=1), whole[1]))


def _cross_stage(net: Net, x: str, act: Act) -> str:
    """Half of the channels through a bottleneck (Wang et al. 2020)."""
    whole = net.shape
    half = max(16, whole[1] // 2)
    left = act(net, point_conv(net, x, half))
    net.shape = whole
    right = act(net, point_conv(net, x, half))
    y = act(net, _dense_or_point(net, act(net, point_conv(net, right, half)), half))
    y = net.add("Concat", left, net.add("Add", y, right), axis=1)
    net.shape = (1, 2 * half, *whole[2:])
    return act(net, point_conv(net, y, whole[1]))


# --- mixers ---------------------------------------------------------------------------------


def _layers_last(net: Net, x: str, _act: Act) -> str:
    """A large depthwise convolution, a norm and linear layers by pixel (Liu et al. 2022)."""
    channels = net.shape[1]
    y = normed(net, net.transpose(depthwise_conv(net, x, 7), 0, 2, 3, 1))
    y = linear(net, gelu(net, linear(net, y, channels, 4 * channels)), 4 * channels, channels)
    y = net.add("Mul", y, net.constant(np.full(channels, 0.5, np.float32)))
    return net.add("Add", net.transpose(y, 0, 3, 1, 2), x)


def _layers_first(net: Net, x: str, act: Act) -> str:
    """The same by 1x1 convolutions, a norm by channel between them."""
    channels = net.shape[1]
    y = _batch_norm(net, act(net, depthwise_conv(net, x, int(net.rng.choice([5, 7, 9])))))
    y = act(net, point_conv(net, y, 3 * channels))
    return net.add("Add", point_conv(net, y, channels), x)


def _pooled(net: Net, x: str, act: Act) -> str:
    """What a pool takes away, and 1x1 convolutions (Yu et al. 2022)."""
    channels = net.shape[1]
    pool = net.add(
        "AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=0
    )
    scale = net.constant(np.full((channels, 1, 1), 0.5, np.float32))
    x = net.add("Add", net.add("Mul", net.add("Sub", pool, x), scale), x)
    y = act(net, point_conv(net, x, 4 * channels))
    return net.add("Add", point_conv(net, y, channels), x)


def _star(net: Net, x: str, _act: Act) -> str:
    """The product of two 1x1 convolutions (Ma et al. 2024)."""
    whole = net.shape
    y = depthwise_conv(net, x, 7)
    one = relu6(net, point_conv(net, y, 3 * whole[1]))
    net.shape = whole
    y = net.add("Mul", one, point_conv(net, y, 3 * whole[1]))
    return net.add("Add", depthwise_conv(net, point_conv(net, y, whole[1]), 7), x)


def _gated(net: Net, x: str, act: Act) -> str:
    """Part of the channels convolved, as a gate of others (Yu & Wang 2024, MambaOut)."""
    _, channels, *sizes = net.shape
    wide = 2 * channels
    y = linear(net, normed(net, net.transpose(x, 0, 2, 3, 1)), channels, 2 * wide)
    gate, kept, mixed = split(net, y, wide, wide - channels, channels, axis=3)
    net.shape = (1, channels, *sizes)
    maps = depthwise_conv(net, net.add("Transpose", mixed, perm=[0, 3, 1, 2]), 7)
    mixed = net.add("Transpose", maps, perm=[0, 2, 3, 1])
    y = net.add("Mul", act(net, gate), net.add("Concat", kept, mixed, axis=3))
    y = net.add("Transpose", linear(net, y, wide, channels), perm=[0, 3, 1, 2])
    return net.add("Add", y, x)


def _focal(net: Net, x: str, _act: Act) -> str:
    """A sum of contexts with a gate each, as a factor of the pixels (Yang et al. 2022)."""
    whole = net.shape
    levels = 2
    y = point_conv(net, x, 2 * whole[1] + levels)
    query, context, gates = split(net, y, whole[1], whole[1], levels)
    total = ""
    for level in range(levels):
        net.shape = whole
        context = gelu(net, depthwise_conv(net, context, 3 + 2 * level))
        bounds = (net.constant(np.array([v], np.int64)) for v in (level, level + 1, 1))
        part = net.add("Mul", context, net.add("Slice", gates, *bounds))
        total = net.add("Add", total, part) if total else part
    y = net.add("Mul", query, point_conv(net, total, whole[1]))
    return net.add("Add", point_conv(net, y, whole[1]), x)


def _split_attention(net: Net, x: str, act: Act) -> str:
    """A sum over branches that a softmax weighs (Li et al. 2019, Zhang et al. 2022)."""
    whole = net.shape
    group = int(net.rng.choice([1, 2]))
    width = max(16, whole[1] // 2)
    y = act(net, point_conv(net, x, width))
    y = act(net, sized_conv(net, y, 2 * width, (3, 3), group=2 * group))
    maps = (1, width, *whole[2:])
    branches = net.reshape(y, 1, 2, *maps[1:])
    axis = net.constant(np.array([1], np.int64))
    gate = net.add("GlobalAveragePool", net.add("ReduceSum", branches, axis, keepdims=0))
    net.shape = (1, width, 1, 1)
    gate = relu(net, point_conv(net, gate, max(16, width // 4)))
    gate = net.reshape(point_conv(net, gate, 2 * width), 1, 2, width, 1, 1)
    y = net.add("Mul", branches, net.add("Softmax", gate, axis=1))
    y = net.add("ReduceSum", y, axis, keepdims=0)
    net.shape = maps
    return act(net, net.add("Add", point_conv(net, y, whole[1]), x))


# --- attention ------------------------------------------------------------------------------


def _behind(net: Net, tokens: str, act: Act) -> str:
    """The two linear layers behind an attention, and what they add to."""
    width = net.shape[-1]
    y = act(net, linear(net, normed(net, tokens), width, 4 * width))
    return net.add("Add", linear(net, y, 4 * width, width), tokens)


def _heads(channels: int) -> int:
    """Of 32 channels each, or one."""
    return channels // 32 if channels % 32 == 0 else 1


def _attended(net: Net, x: str, act: Act) -> str:
    """All pixels with each other, or with fewer keys where there are many (Wang et al. 2021)."""
    whole = net.shape
    _, channels, size, _ = whole
    tokens = pixels(net, x)
    queries = normed(net, tokens)
    heads = _heads(channels)
    if size**2 <= _MOST_TOKENS:
        y = attention(net, queries, heads)
    else:
        stride = -(-size // 8)
        maps = _maps(net, queries, whole)
        net.shape = whole
        fewer = net.same_conv(maps, net.weight(channels, channels, stride, stride), stride)
        fewer_size = (size + 2 * (stride // 2) - stride) // stride + 1
        net.shape = (1, channels, fewer_size, fewer_size)
        y = _to_fewer(net, queries, normed(net, pixels(net, fewer)), size**2, heads)
    net.shape = (1, size**2, channels)
    y = _behind(net, net.add("Add", y, tokens), act)
    return _maps(net, y, whole)


def _to_fewer(net: Net, queries: str, keys: str, count: int, heads: int) -> str:
    """Attention of ``count`` queries to the tokens ``keys``, of which ``net`` has the shape."""
    _, fewer, width = net.shape
    each = width // heads
    shapes = (net.constant(np.array([1, n, heads, each], np.int64)) for n in (count, fewer, fewer))
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (
        net.add("Transpose", net.add("Reshape", linear(net, y, width, width), shape), perm=order)
        for y, shape, order in zip((queries, keys, keys), shapes, orders, strict=True)
    )
    weights = net.add("Mul", net.add("MatMul", q, k), net.scalar(each**-0.5))
    y = net.add("MatMul", net.add("Softmax", weights, axis=-1), v)
    y = net.add("Transpose", y, perm=[0, 2, 1, 3])
    y = net.add("Reshape", y, net.constant(np.array([1, count, width], np.int64)))
    return linear(net, y, width, width)


def _windows(net: Net, x: str, act: Act) -> str:
    """Attention within windows of up to 8x8 pixels (Liu et al. 2021)."""
    whole = net.shape
    _, channels, size, _ = whole
    side = max(n for n in range(1, 9) if size % n == 0)
    heads, many = _heads(channels), size // side
    each, windows, inside = channels // heads, many**2, side**2
    last = net.transpose(x, 0, 2, 3, 1)
    y = normed(net, last)
    y = net.reshape(y, 1, many, side, many, side, channels)
    y = net.reshape(net.transpose(y, 0, 1, 3, 2, 4, 5), windows, inside, channels)
    y = linear(net, y, channels, 3 * channels)
    y = net.transpose(net.reshape(y, windows, inside, 3, heads, each), 2, 0, 3, 1, 4)
    parts = (net.add("Gather", y, net.constant(np.array(n, np.int64)), axis=0) for n in range(3))
    q, k, v = parts
    q = net.add("Mul", q, net.scalar(each**-0.5))
    weights = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    places = net.rng.normal(0, 0.1, (1, heads, inside, inside)).astype(np.float32)
    weights = net.add("Softmax", net.add("Add", weights, net.constant(places)), axis=-1)
    net.shape = (windows, heads, inside, each)
    y = net.transpose(net.add("MatMul", weights, v), 0, 2, 1, 3)
    y = linear(net, net.reshape(y, windows, inside, channels), channels, channels)
    y = net.transpose(net.reshape(y, 1, many, many, side, side, channels), 0, 1, 3, 2, 4, 5)
    y = _behind(net, net.add("Add", net.reshape(y, 1, size, size, channels), last), act)
    net.shape = (1, size, size, channels)
    return net.transpose(y, 0, 3, 1, 2)


def _linear_attention(net: Net, x: str, act: Act) -> str:
    """Products of keys and values before queries, all of convolutions (Cai et al. 2023)."""
    whole = net.shape
    _, channels, size, _ = whole
    heads, each = max(1, channels // 16), 16
    y = point_conv(net, x, 3 * heads * each)
    y = net.add("Concat", y, depthwise_conv(net, y, 5), axis=1)
    y = net.reshape(y, 1, 2 * heads, 3 * each, size**2)
    q, k, v = split(net, y, each, each, each, axis=2)
    q, k = relu(net, q), net.add("Transpose", relu(net, k), perm=[0, 1, 3, 2])
    ones = net.add("ReduceSum", k, net.constant(np.array([2], np.int64)), keepdims=1)
    y = net.add("MatMul", net.add("MatMul", v, k), q)
    total = net.add("Add", net.add("MatMul", ones, q), net.scalar(1e-6))
    net.shape = (1, 2 * heads, each, size**2)
    y = net.reshape(net.add("Div", y, total), 1, 2 * heads * each, size, size)
    return net.add("Add", act(net, point_conv(net, y, channels)), x)


def _over_channels(net: Net, x: str, act: Act) -> str:
    """Attention between channels, of normed queries and keys (El-Nouby et al. 2021)."""
    whole = net.shape
    _, channels, size, _ = whole
    heads, count = _heads(channels), size**2
    tokens = pixels(net, x)
    y = linear(net, normed(net, tokens), channels, 3 * channels)
    y = net.transpose(net.reshape(y, 1, count, 3, heads, channels // heads), 2, 0, 3, 4, 1)
    q, k, v = (
        net.add("Squeeze", part, net.constant(np.array([0], np.int64)))
        for part in split(net, y, 1, 1, 1, axis=0)
    )
    q, k = (net.add("Div", y, net.add("ReduceL2", y, axes=[-1], keepdims=1)) for y in (q, k))
    weights = net.add("Softmax", net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2])))
    net.shape = (1, heads, channels // heads, count)
    y = net.transpose(net.add("MatMul", weights, v), 0, 3, 1, 2)
    y = linear(net, net.reshape(y, 1, count, channels), channels, channels)
    y = _behind(net, net.add("Add", y, tokens), act)
    return _maps(net, y, whole)


def _over_tokens(net: Net, x: str, act: Act) -> str:
    """Linear layers over pixels, then over channels (Tolstikhin et al. 2021)."""
    whole = net.shape
    size = whole[2]
    if size**2 > _MOST_TOKENS:
        return _layers_first(net, x, act)
    tokens, count = pixels(net, x), size**2
    y = net.transpose(normed(net, tokens), 0, 2, 1)
    y = net.transpose(linear(net, act(net, linear(net, y, count, count)), count, count), 0, 2, 1)
    y = _behind(net, net.add("Add", y, tokens), act)
    return _maps(net, y, whole)


# --- several sizes --------------------------------------------------------------------------


def _sizes_summed(net: Net, x: str, act: Act) -> str:
    """Maps of half the size resized and added, as in pyramids (Wang et al. 2019)."""
    whole = net.shape
    channels = whole[1]
    y = act(net, sized_conv(net, x, channels, (3, 3), 2, group=channels))
    y = act(net, _dense_or_point(net, y, channels))
    mode = str(net.rng.choice(["nearest", "linear", "linear", "cubic"]))
    how: dict[str, Any] = {}
    if mode == "nearest":
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif mode == "cubic":
        how = {"cubic_coeff_a": -0.75}
    sizes = net.constant(np.array(whole, np.int64))
    y = net.add("Resize", y, "", "", sizes, mode=mode, **how)
    net.shape = whole
    return act(net, net.add("Add", y, x))


def _transposed(net: Net, x: str, act: Act) -> str:
    """To half the size and back by a transposed convolution of each channel or all."""
    whole = net.shape
    _, channels, size, _ = whole
    if size % 2:
        return _residual(net, x, act)
    y = act(net, sized_conv(net, x, channels, (3, 3), 2, group=channels))
    kernel, group = ((2, 1), (3, channels))[int(net.rng.integers(2))]
    pads = {"pads": [1, 1, 1, 1], "output_padding": [1, 1]} if kernel == 3 else {}
    y = net.add("ConvTranspose", y, net.weight(channels, channels // group, kernel, kernel),
                kernel_shape=[kernel] * 2, strides=[2, 2], group=group, **pads)  # fmt: skip
    net.shape = whole
    return net.add("Add", y, x)


BLOCKS: tuple[Callable[[Net, str, Act], str], ...] = (
    _residual, _bottleneck, _grouped, _eight_groups, _several_each, _inverted, _ghost, _partial,
    _branched_sum, _in_scales, _densely, _unequal, _cross_stage, _layers_last, _layers_first,
    _pooled, _star, _gated, _focal, _split_attention, _attended, _windows, _linear_attention,
    _over_channels, _over_tokens, _sizes_summed, _transposed, _residual,
)  # fmt: skip
