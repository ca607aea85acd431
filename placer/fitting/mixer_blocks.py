"""Blocks of a stage that mix pixels by depthwise convolutions, pools and gates."""

from __future__ import annotations

import numpy as np

from placer.fitting.net import Act, Net, gelu, linear, normed, relu, relu6, sized_conv
from placer.fitting.stage_pieces import batch_norm, depthwise_conv, point_conv, split


def layers_last(net: Net, x: str, _act: Act) -> str:
    """A large depthwise convolution, a norm and linear layers by pixel (Liu et al. 2022)."""
    channels = net.shape[1]
    y = normed(net, net.transpose(depthwise_conv(net, x, 7), 0, 2, 3, 1))
    y = linear(net, gelu(net, linear(net, y, channels, 4 * channels)), 4 * channels, channels)
    y = net.add("Mul", y, net.constant(np.full(channels, 0.5, np.float32)))
    return net.add("Add", net.transpose(y, 0, 3, 1, 2), x)


def layers_first(net: Net, x: str, act: Act) -> str:
    """The same by 1x1 convolutions, a norm by channel between them."""
    channels = net.shape[1]
    y = batch_norm(net, act(net, depthwise_conv(net, x, int(net.rng.choice([5, 7, 9])))))
    y = act(net, point_conv(net, y, 3 * channels))
    return net.add("Add", point_conv(net, y, channels), x)


def pooled(net: Net, x: str, act: Act) -> str:
    """What a pool takes away, and 1x1 convolutions (Yu et al. 2022)."""
    channels = net.shape[1]
    pool = net.add(
        "AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=0
    )
    scale = net.constant(np.full((channels, 1, 1), 0.5, np.float32))
    x = net.add("Add", net.add("Mul", net.add("Sub", pool, x), scale), x)
    y = act(net, point_conv(net, x, 4 * channels))
    return net.add("Add", point_conv(net, y, channels), x)


def star(net: Net, x: str, _act: Act) -> str:
    """The product of two 1x1 convolutions (Ma et al. 2024)."""
    whole = net.shape
    y = depthwise_conv(net, x, 7)
    one = relu6(net, point_conv(net, y, 3 * whole[1]))
    net.shape = whole
    y = net.add("Mul", one, point_conv(net, y, 3 * whole[1]))
    return net.add("Add", depthwise_conv(net, point_conv(net, y, whole[1]), 7), x)


def gated(net: Net, x: str, act: Act) -> str:
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


def focal(net: Net, x: str, _act: Act) -> str:
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


def split_attention(net: Net, x: str, act: Act) -> str:
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
