"""Blocks of a stage in which pixels are tokens: attention, and linear layers over them."""

from __future__ import annotations

import numpy as np

from placer.fitting.mixer_blocks import layers_first
from placer.fitting.net import Act, Net, attention, linear, normed, relu
from placer.fitting.stage_pieces import as_maps, depthwise_conv, pixels, point_conv, split

_MOST_TOKENS = 256


def _behind(net: Net, tokens: str, act: Act) -> str:
    """The two linear layers behind an attention, and what they add to."""
    width = net.shape[-1]
    y = act(net, linear(net, normed(net, tokens), width, 4 * width))
    return net.add("Add", linear(net, y, 4 * width, width), tokens)


def _heads(channels: int) -> int:
    """Of 32 channels each, or one."""
    return channels // 32 if channels % 32 == 0 else 1


def attended(net: Net, x: str, act: Act) -> str:
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
        maps = as_maps(net, queries, whole)
        net.shape = whole
        fewer = net.same_conv(maps, net.weight(channels, channels, stride, stride), stride)
        fewer_size = (size + 2 * (stride // 2) - stride) // stride + 1
        net.shape = (1, channels, fewer_size, fewer_size)
        y = _to_fewer(net, queries, normed(net, pixels(net, fewer)), size**2, heads)
    net.shape = (1, size**2, channels)
    y = _behind(net, net.add("Add", y, tokens), act)
    return as_maps(net, y, whole)


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


def windows(net: Net, x: str, act: Act) -> str:
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


def linear_attention(net: Net, x: str, act: Act) -> str:
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


def over_channels(net: Net, x: str, act: Act) -> str:
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
    return as_maps(net, y, whole)


def over_tokens(net: Net, x: str, act: Act) -> str:
    """Linear layers over pixels, then over channels (Tolstikhin et al. 2021)."""
    whole = net.shape
    size = whole[2]
    if size**2 > _MOST_TOKENS:
        return layers_first(net, x, act)
    tokens, count = pixels(net, x), size**2
    y = net.transpose(normed(net, tokens), 0, 2, 1)
    y = net.transpose(linear(net, act(net, linear(net, y, count, count)), count, count), 0, 2, 1)
    y = _behind(net, net.add("Add", y, tokens), act)
    return as_maps(net, y, whole)
