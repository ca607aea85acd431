"""Networks of what ``networks`` and ``short_networks`` hold little of: what detectors, language
models and decoders do between their convolutions and products.

Slices, splits and pads, turned positions, norms of responses, recurrent layers of
several kinds, transposed convolutions with maps beside them, boxes from scores.
"""

from __future__ import annotations

import numpy as np
import onnx

from placer.fitting.net import (
    ACTIVATIONS,
    Act,
    Net,
    gelu,
    hard_swish,
    linear,
    normed,
    relu,
    silu,
    sized_conv,
)

_WIDTHS = (12, 16, 24, 32, 40, 64, 80, 128)


# --- images ---------------------------------------------------------------------------------


def _width(net: Net, kernel: int) -> int:
    """A random number of channels with which a convolution takes no more than 8 million MACs."""
    _, channels, size, _ = net.shape
    fits = [w for w in _WIDTHS if w * channels * (kernel * size) ** 2 <= 8e6]
    return int(net.rng.choice(fits or _WIDTHS[:1]))


def _stem(net: Net, x: str, act: Act) -> str:
    kernel, stride = ((3, 2), (6, 2), (4, 4))[int(net.rng.integers(3))]
    _, channels, size, _ = net.shape
    outputs = int(net.rng.choice([16, 24, 32, 40]))
    pad = (kernel - stride + 1) // 2
    bias = net.constant(net.rng.normal(0, 0.1, outputs).astype(np.float32))
    y = net.add(
        "Conv", x, net.weight(outputs, channels, kernel, kernel), bias,
        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
    )  # fmt: skip
    size = (size + 2 * pad - kernel) // stride + 1
    net.shape = (1, outputs, size, size)
    return act(net, y)


def _slice(net: Net, x: str, start: int, end: int, axis: int) -> str:
    """``x`` from ``start`` to ``end`` along ``axis``; the shape of ``net`` follows."""
    shape = list(net.shape)
    shape[axis] = len(range(*slice(start, end).indices(shape[axis])))
    net.shape = tuple(shape)
    values = (net.constant(np.array([v], np.int64)) for v in (start, end, axis, 1))
    return net.add("Slice", x, *values)


def _split(net: Net, x: str, parts: tuple[int, ...], axis: int) -> tuple[str, ...]:
    sizes = net.constant(np.array(parts, np.int64))
    return net.add_many("Split", (x, sizes), len(parts), axis=axis)


def _in_turn(net: Net, x: str, act: Act) -> str:
    """Half of the channels on through blocks, all results concatenated (as YOLOv8's C2f)."""
    half = max(8, _width(net, 1) // 2)
    y = act(net, sized_conv(net, x, 2 * half, (1, 1)))
    whole = net.shape
    parts = list(_split(net, y, (half, half), 1))
    for _ in range(int(net.rng.integers(1, 3))):
        net.shape = (1, half, *whole[2:])
        z = act(net, sized_conv(net, parts[-1], half, (3, 3)))
        z = act(net, sized_conv(net, z, half, (3, 3)))
        parts.append(net.add("Add", z, parts[-1]) if net.rng.random() < 0.5 else z)
    net.shape = (1, half * len(parts), *whole[2:])
    return act(net, sized_conv(net, net.add("Concat", *parts, axis=1), 2 * half, (1, 1)))


def _responses(net: Net, x: str, _act: Act) -> str:
    """Pixels with channels last and a norm of responses (Woo et al. 2023)."""
    channels = net.shape[1]
    y = sized_conv(net, x, channels, (7, 7), group=channels)
    y = normed(net, net.transpose(y, 0, 2, 3, 1))
    y = gelu(net, linear(net, y, channels, 4 * channels))
    norm = net.add("ReduceL2", y, axes=[1, 2])
    mean = net.add("Add", net.add("ReduceMean", norm, axes=[-1]), net.scalar(1e-6))
    scaled = net.add("Mul", y, net.add("Div", norm, mean))
    gain, shift = (net.constant(np.full(4 * channels, v, np.float32)) for v in (0.5, 0.1))
    y = net.add("Add", net.add("Add", net.add("Mul", scaled, gain), shift), y)
    y = linear(net, y, 4 * channels, channels)
    return net.add("Add", net.transpose(y, 0, 3, 1, 2), x)


def _down_and_up(net: Net, x: str, act: Act) -> str:
    """To half the size and back by a transposed convolution, the map before it beside."""
    _, channels, size, _ = net.shape
    if size % 2:
        return act(net, sized_conv(net, x, _width(net, 3), (3, 3)))
    width = int(net.rng.choice([16, 32, 48]))
    y = act(net, sized_conv(net, x, width, (3, 3), 2))
    y = act(net, sized_conv(net, y, width, (3, 3)))
    y = net.add("ConvTranspose", y, net.weight(width, channels, 2, 2),
                kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip
    net.shape = (1, 2 * channels, size, size)
    return act(net, sized_conv(net, net.add("Concat", y, x, axis=1), channels, (3, 3)))


def _padded(net: Net, x: str, act: Act) -> str:
    """Padded by a node of its own, then convolved without padding."""
    _, channels, size, _ = net.shape
    outputs = _width(net, 3)
    pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    mode = str(net.rng.choice(["constant", "reflect"]))
    padded = net.add("Pad", x, pads, mode=mode)
    bias = net.constant(net.rng.normal(0, 0.1, outputs).astype(np.float32))
    y = net.add("Conv", padded, net.weight(outputs, channels, 3, 3), bias, kernel_shape=[3, 3])
    net.shape = (1, outputs, size, size)
    return act(net, y)


def _grouped(net: Net, x: str, act: Act) -> str:
    """Grouped convolutions between 1x1 ones, and a gate from means (Radosavovic et al. 2020)."""
    width = max(16, _width(net, 1) // 16 * 16)
    y = act(net, sized_conv(net, x, width, (1, 1)))
    y = act(net, sized_conv(net, y, width, (3, 3), group=width // int(net.rng.choice([4, 8, 16]))))
    whole = net.shape
    gate = net.add("ReduceMean", y, axes=[2, 3], keepdims=1)
    net.shape = (1, width, 1, 1)
    gate = relu(net, sized_conv(net, gate, max(4, width // 8), (1, 1)))
    gate = net.add("Sigmoid", sized_conv(net, gate, width, (1, 1)))
    net.shape = whole
    return act(net, sized_conv(net, net.add("Mul", y, gate), width, (1, 1)))


def _attended(net: Net, x: str, _act: Act) -> str:
    """Attention over the pixels of a small map, by 1x1 convolutions (Graham et al. 2021)."""
    _, channels, size, _ = net.shape
    if size > 16:
        return hard_swish(net, sized_conv(net, x, _width(net, 3), (3, 3), 2))
    heads, each = 2, 16
    y = sized_conv(net, x, 3 * heads * each, (1, 1))
    y = net.reshape(y, 1, heads, 3 * each, size * size)
    q, k, v = _split(net, y, (each,) * 3, 2)
    weights = net.add("MatMul", net.add("Transpose", q, perm=[0, 1, 3, 2]), k)
    weights = net.add("Softmax", net.add("Mul", weights, net.scalar(each**-0.5)), axis=-1)
    mixed = net.add("MatMul", v, net.add("Transpose", weights, perm=[0, 1, 3, 2]))
    y = hard_swish(net, net.reshape(mixed, 1, heads * each, size, size))
    return net.add("Add", sized_conv(net, y, channels, (1, 1)), x)


def _weighed(net: Net, x: str, act: Act) -> str:
    """Differences and maxima of two branches, as pyramids and keypoint heads compute them."""
    width = _width(net, 3)
    start = net.shape
    one = act(net, sized_conv(net, x, width, (3, 3)))
    net.shape = start
    other = sized_conv(net, x, width, (1, 1))
    op = str(net.rng.choice(["Sub", "Max", "Mul", "Add"]))
    return act(net, net.add(op, one, other))


_BLOCKS = (
    _in_turn, _responses, _down_and_up, _padded, _grouped, _attended, _weighed, _in_turn,
)  # fmt: skip


def _boxes(net: Net, x: str, act: Act) -> tuple[str, ...]:
    """Distances to the sides of boxes as means of distributions, and scores (Li et al. 2020)."""
    start = net.shape
    pixels, bins = start[2] * start[3], 8
    distances = sized_conv(net, act(net, sized_conv(net, x, 32, (3, 3))), 4 * bins, (1, 1))
    y = net.transpose(net.reshape(distances, 1, 4, bins, pixels), 0, 2, 1, 3)
    y = net.add("Softmax", y, axis=1)
    net.shape = (1, bins, 4, pixels)
    y = net.reshape(sized_conv(net, y, 1, (1, 1)), 1, 4, pixels)
    least, most = _slice(net, y, 0, 2, 1), ""
    net.shape = (1, 4, pixels)
    most = _slice(net, y, 2, 4, 1)
    centres = net.constant(net.rng.random((1, 2, pixels)).astype(np.float32))
    boxes = net.add("Concat", net.add("Sub", centres, least), net.add("Add", centres, most), axis=1)
    net.shape = start
    scores = net.reshape(sized_conv(net, x, 20, (1, 1)), 1, 20, pixels)
    return (net.add("Concat", boxes, net.add("Sigmoid", scores), axis=1),)


def _anchors(net: Net, x: str, _act: Act) -> tuple[str, ...]:
    """Boxes relative to anchors, cut out of one map of scores (Redmon & Farhadi 2018)."""
    size = net.shape[2]
    y = sized_conv(net, x, 3 * 12, (1, 1))
    y = net.add("Sigmoid", net.transpose(net.reshape(y, 1, 3, 12, size, size), 0, 1, 3, 4, 2))
    whole = net.shape
    grid = net.constant(net.rng.random((1, 1, size, size, 2)).astype(np.float32))
    places = net.add("Mul", net.add("Add", _slice(net, y, 0, 2, 4), grid), net.scalar(8))
    net.shape = whole
    sizes = net.add("Exp", _slice(net, y, 2, 4, 4))
    net.shape = whole
    scores = _slice(net, y, 4, 12, 4)
    return (net.add("Concat", places, sizes, scores, axis=-1),)


def _map(net: Net, x: str, _act: Act) -> tuple[str, ...]:
    return (net.add("Sigmoid", sized_conv(net, x, int(net.rng.choice([1, 2, 6, 32])), (1, 1))),)


def _classes(net: Net, x: str, _act: Act) -> tuple[str, ...]:
    channels = net.shape[1]
    mean = net.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    return (net.add("Gemm", mean, net.weight(channels, 50)),)


_HEADS = (_boxes, _anchors, _map, _classes)


def _of_images(seed: int) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    size = int(rng.choice([32, 48, 64, 96]))
    net = Net((1, int(rng.choice([1, 3, 4])), size, size), seed)
    act = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    x = _stem(net, net.input, act)
    order = np.random.default_rng(seed // 4).permutation(len(_BLOCKS))
    for index in order[seed // 2 % 2 :: 2]:
        x = _BLOCKS[index](net, x, act)
    return net.model(*_HEADS[seed // 2 % len(_HEADS)](net, x, act))


# --- tokens ---------------------------------------------------------------------------------


def _of_tokens(seed: int) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    count, width = int(rng.choice([16, 32, 48])), int(rng.choice([32, 64, 96, 128]))
    net = Net((1, count, width), seed)
    act: Act = (gelu, relu, silu)[int(rng.integers(3))]
    x = normed(net, net.add("Add", net.input, _positions(net)))
    mix = (_turned, _masked, _recurrent, _convolved)[seed // 2 % 4]
    for _ in range(int(rng.integers(1, 3))):
        y = mix(net, normed(net, x) if seed % 4 < 2 else x)
        x = net.add("Add", y, x)
        x = x if seed % 4 < 2 else normed(net, x)
        y = linear(net, act(net, linear(net, x, width, 2 * width)), 2 * width, width)
        x = net.add("Add", y, x)
    if rng.random() < 0.5:
        first = net.reshape(_slice(net, x, 0, 1, 1), 1, width)
        return net.model(net.add("Gemm", net.add("Tanh", first), net.weight(width, 8)))
    return net.model(linear(net, normed(net, x), width, 32))


def _positions(net: Net) -> str:
    """What is added to each token for its place."""
    _, count, width = net.shape
    table = net.rng.normal(0, 0.1, (64, width)).astype(np.float32)
    return net.constant(table[None, :count])


def _heads(net: Net, x: str, heads: int) -> str:
    _, count, width = net.shape
    split = net.constant(np.array([1, count, heads, width // heads], np.int64))
    return net.add("Transpose", net.add("Reshape", x, split), perm=[0, 2, 1, 3])


def _joined(net: Net, q: str, k: str, v: str, mask: bool) -> str:
    """Attention of heads, shape (1, heads, tokens, width), and a linear layer."""
    _, count, width = net.shape
    weights = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    weights = net.add("Div", weights, net.scalar(4))
    if mask:
        hidden = np.triu(np.full((1, 1, count, count), -1e4, np.float32), 1)
        weights = net.add("Add", weights, net.constant(hidden))
    mixed = net.add("MatMul", net.add("Softmax", weights, axis=-1), v)
    mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.constant(np.array([1, count, width], np.int64))
    return linear(net, net.add("Reshape", mixed, joined), width, width)


def _masked(net: Net, x: str) -> str:
    """One product for queries, keys and values, split, and what is ahead hidden."""
    width = net.shape[2]
    parts = _split(net, linear(net, x, width, 3 * width), (width,) * 3, 2)
    q, k, v = (_heads(net, part, 2) for part in parts)
    return _joined(net, q, k, v, mask=True)


def _turned(net: Net, x: str) -> str:
    """Queries and keys turned by their position (Su et al. 2021)."""
    _, count, width = whole = net.shape
    heads = 2
    each = width // heads
    angles = [net.constant(net.rng.random((1, 1, count, each)).astype(np.float32)) for _ in "cs"]

    def turned(y: str) -> str:
        net.shape = (1, heads, count, each)
        low = _slice(net, y, 0, each // 2, 3)
        net.shape = (1, heads, count, each)
        high = _slice(net, y, each // 2, each, 3)
        swapped = net.add("Concat", net.add("Neg", high), low, axis=-1)
        net.shape = whole
        return net.add("Add", net.add("Mul", y, angles[0]), net.add("Mul", swapped, angles[1]))

    q, k, v = (_heads(net, linear(net, x, width, width), heads) for _ in range(3))
    return _joined(net, turned(q), turned(k), v, mask=False)


def _recurrent(net: Net, x: str) -> str:
    """A GRU or LSTM over the tokens, in one direction or both, and what is behind it."""
    _, count, width = net.shape
    op = str(net.rng.choice(["GRU", "LSTM"]))
    both = int(net.rng.integers(1, 3))
    hidden = width // both
    gates = {"GRU": 3, "LSTM": 4}[op]
    weights = (
        net.constant(net.rng.normal(0, 0.1, (both, gates * hidden, size)).astype(np.float32))
        for size in (width, hidden)
    )
    y = net.transpose(x, 1, 0, 2)
    direction = ("forward", "bidirectional")[both - 1]
    y = net.add_many(op, (y, *weights), 2, hidden_size=hidden, direction=direction)[0]
    y = net.add("Transpose", y, perm=[0, 2, 1, 3])
    net.shape = (count, 1, width)
    y = net.reshape(y, count, 1, width)
    return net.transpose(linear(net, y, width, width), 1, 0, 2)


def _convolved(net: Net, x: str) -> str:
    """A gated, causal convolution over the tokens, padded by a node of its own."""
    _, count, width = net.shape
    y = linear(net, x, width, 2 * width)
    one, other = _split(net, y, (width, width), 2)
    y = net.transpose(net.add("Mul", one, net.add("Sigmoid", other)), 0, 2, 1)
    y = net.add("Pad", y, net.constant(np.array([0, 0, 3, 0, 0, 0], np.int64)))
    y = net.add("Conv", y, net.weight(width, 1, 4), kernel_shape=[4], group=width)
    net.shape = (1, width, count)
    return net.transpose(silu(net, y), 0, 2, 1)


def mixed(seed: int) -> onnx.ModelProto:
    """One of images for every even ``seed``, one of tokens for every odd one."""
    return _of_tokens(seed) if seed % 2 else _of_images(seed)
