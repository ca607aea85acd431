"""Blocks of a stage that convolve: residual, grouped, split and joined ones."""

from __future__ import annotations

from placer.fitting.net import Act, Net, relu, sized_conv
from placer.fitting.stage_pieces import (
    batch_norm,
    dense_conv,
    dense_or_point,
    depthwise_conv,
    excited,
    point_conv,
    split,
)


def residual(net: Net, x: str, act: Act) -> str:
    """Two 3x3 convolutions and a sum (He et al. 2015)."""
    channels = net.shape[1]
    y = act(net, dense_conv(net, x, channels))
    return act(net, net.add("Add", dense_or_point(net, y, channels), x))


def bottleneck(net: Net, x: str, act: Act) -> str:
    """He et al. 2015."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, max(16, channels // 2)))
    y = act(net, dense_conv(net, y, max(16, channels // 2)))
    return act(net, net.add("Add", point_conv(net, y, channels), x))


def grouped(net: Net, x: str, act: Act) -> str:
    """Groups of 8 to 40 channels, a gate behind some (Radosavovic et al. 2020)."""
    channels = net.shape[1]
    each = int(net.rng.choice([8, 16, 24, 32, 40]))
    width = -(-channels // each) * each
    y = act(net, point_conv(net, x, width))
    y = act(net, sized_conv(net, y, width, (3, 3), group=width // each))
    y = excited(net, y) if net.rng.random() < 0.5 else y
    return act(net, net.add("Add", point_conv(net, y, channels), x))


def eight_groups(net: Net, x: str, act: Act) -> str:
    """Twice as many channels in eight groups (Chen et al. 2021, Visformer)."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, 2 * channels))
    y = act(net, sized_conv(net, y, 2 * channels, (3, 3), group=8))
    return net.add("Add", point_conv(net, y, channels), x)


def several_each(net: Net, x: str, act: Act) -> str:
    """Two outputs of each channel, from windows of 3x3 or 7x7 (Vasu et al. 2023, FastViT)."""
    channels = net.shape[1]
    kernel = 7 if net.shape[2] <= 16 and net.rng.random() < 0.5 else 3
    y = sized_conv(net, x, 2 * channels, (kernel, kernel), group=channels)
    return net.add("Add", point_conv(net, act(net, y), channels), x)


def inverted(net: Net, x: str, act: Act) -> str:
    """Sandler et al. 2018, Tan & Le 2019."""
    channels = net.shape[1]
    y = act(net, point_conv(net, x, channels * int(net.rng.choice([3, 4, 6]))))
    y = act(net, depthwise_conv(net, y, int(net.rng.choice([3, 5, 7]))))
    y = excited(net, y) if net.rng.random() < 0.5 else y
    return net.add("Add", point_conv(net, y, channels), x)


def ghost(net: Net, x: str, act: Act) -> str:
    """Half of the channels by a depthwise convolution of the others (Han et al. 2020)."""
    whole = net.shape
    first = act(net, point_conv(net, x, whole[1]))
    joined = net.add("Concat", first, act(net, depthwise_conv(net, first, 3)), axis=1)
    net.shape = (1, 2 * whole[1], *whole[2:])
    joined = excited(net, joined) if net.rng.random() < 0.3 else joined
    return net.add("Add", point_conv(net, joined, whole[1]), x)


def partial(net: Net, x: str, act: Act) -> str:
    """A convolution of a quarter of the channels (Chen et al. 2023, FasterNet)."""
    whole = net.shape
    quarter = whole[1] // 4
    first, rest = split(net, x, quarter, whole[1] - quarter)
    net.shape = (1, quarter, *whole[2:])
    y = net.add("Concat", dense_or_point(net, first, quarter), rest, axis=1)
    net.shape = whole
    y = act(net, point_conv(net, y, 2 * whole[1]))
    return net.add("Add", point_conv(net, y, whole[1]), x)


def branched_sum(net: Net, x: str, act: Act) -> str:
    """A 3x3 and a 1x1 convolution and a norm, summed (Ding et al. 2021)."""
    channels = net.shape[1]
    depthwise = net.rng.random() < 0.5
    wide = depthwise_conv(net, x, 3) if depthwise else dense_or_point(net, x, channels)
    group = channels if depthwise else 1
    narrow = sized_conv(net, x, channels, (1, 1), group=group)
    return act(net, net.add("Add", net.add("Add", wide, narrow), batch_norm(net, x)))


def in_scales(net: Net, x: str, act: Act) -> str:
    """Quarters of the channels, each convolved with what became of the last (Gao et al. 2019)."""
    whole = net.shape
    quarter = whole[1] // 4
    parts = split(net, act(net, point_conv(net, x, 4 * quarter)), *(quarter,) * 4)
    made = [parts[0]]
    for part in parts[1:]:
        net.shape = (1, quarter, *whole[2:])
        y = part if len(made) == 1 else net.add("Add", part, made[-1])
        made.append(act(net, dense_or_point(net, y, quarter)))
    net.shape = (1, 4 * quarter, *whole[2:])
    y = point_conv(net, net.add("Concat", *made, axis=1), whole[1])
    return act(net, net.add("Add", y, x))


def densely(net: Net, x: str, _act: Act) -> str:
    """Norms before convolutions, which read all before them (Huang et al. 2017)."""
    whole, growth = net.shape, 32
    for _ in range(2):
        channels = net.shape[1]
        y = point_conv(net, relu(net, batch_norm(net, x)), 4 * growth)
        y = sized_conv(net, relu(net, batch_norm(net, y)), growth, (3, 3))
        x = net.add("Concat", x, y, axis=1)
        net.shape = (1, channels + growth, *whole[2:])
    return point_conv(net, relu(net, batch_norm(net, x)), whole[1])


def unequal(net: Net, x: str, act: Act) -> str:
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


def cross_stage(net: Net, x: str, act: Act) -> str:
    """Half of the channels through a bottleneck (Wang et al. 2020)."""
    whole = net.shape
    half = max(16, whole[1] // 2)
    left = act(net, point_conv(net, x, half))
    net.shape = whole
    right = act(net, point_conv(net, x, half))
    y = act(net, dense_or_point(net, act(net, point_conv(net, right, half)), half))
    y = net.add("Concat", left, net.add("Add", y, right), axis=1)
    net.shape = (1, 2 * half, *whole[2:])
    return act(net, point_conv(net, y, whole[1]))
