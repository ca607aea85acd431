"""Networks that run for tenths of a millisecond, of blocks that ``networks`` lacks.

In short networks each layer's fixed time counts most. The blocks hold kinds of layers that stand in
few well-known networks each: dilated and grouped convolutions, branches of unequal kernels,
shuffled pixels and channels, norms of images, gates, sums of resized maps, several heads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from placer.fitting.net import ACTIVATIONS, Act, Net, relu, sized_conv

_WIDTHS = (8, 16, 24, 32, 48, 64, 96)


def _width(net: Net) -> int:
    """A random number of channels, fewer on large maps."""
    fits = [w for w in _WIDTHS if w * net.shape[2] ** 2 <= 96 * 16**2] or [_WIDTHS[0]]
    return int(net.rng.choice(fits))


def _branches(net: Net, x: str, *makers: Callable[[str], str]) -> str:
    """What ``makers`` make of ``x`` each, concatenated."""
    start, made, channels = net.shape, [], 0
    for make in makers:
        net.shape = start
        made.append(make(x))
        channels += net.shape[1]
    net.shape = (1, channels, *net.shape[2:])
    return net.add("Concat", *made, axis=1)


# --- blocks of images -----------------------------------------------------------------------


def _plain(net: Net, x: str, act: Act) -> str:
    stride = int(net.rng.choice([1, 2])) if net.shape[2] > 8 else 1
    return act(net, sized_conv(net, x, _width(net), (3, 3), stride))


def _residual(net: Net, x: str, act: Act) -> str:
    y = act(net, sized_conv(net, x, net.shape[1], (3, 3)))
    return act(net, net.add("Add", sized_conv(net, y, net.shape[1], (3, 3)), x))


def _inverted(net: Net, x: str, act: Act) -> str:
    channels = net.shape[1]
    kernel = int(net.rng.choice([3, 5, 7]))
    y = act(net, sized_conv(net, x, 4 * channels, (1, 1)))
    y = act(net, sized_conv(net, y, 4 * channels, (kernel, kernel), group=4 * channels))
    return net.add("Add", sized_conv(net, y, channels, (1, 1)), x)


def _dilated(net: Net, x: str, act: Act) -> str:
    return act(
        net, sized_conv(net, x, _width(net), (3, 3), dilation=int(net.rng.choice([2, 4, 6])))
    )


def _pyramid_of_dilations(net: Net, x: str, act: Act) -> str:
    """Dilated convolutions and the mean beside each other (Chen et al. 2017)."""
    width, size = _width(net), net.shape[2]

    def mean(y: str) -> str:
        y = net.add("GlobalAveragePool", y)
        net.shape = (1, net.shape[1], 1, 1)
        return _resized(net, act(net, sized_conv(net, y, width, (1, 1))), size)

    def dilated(dilation: int) -> Callable[[str], str]:
        return lambda y: act(net, sized_conv(net, y, width, (3, 3), dilation=dilation))

    y = _branches(
        net, x, lambda y: act(net, sized_conv(net, y, width, (1, 1))), dilated(2), dilated(4), mean
    )
    return act(net, sized_conv(net, y, width, (1, 1)))


def _resized(net: Net, x: str, size: int) -> str:
    channels, before = net.shape[1], net.shape[2]
    scales = net.constant(np.array([1, 1, size / before, size / before], np.float32))
    net.shape = (1, channels, size, size)
    if net.rng.random() < 0.5:
        return net.add("Resize", x, "", scales, mode="linear")
    return net.add("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                   coordinate_transformation_mode="asymmetric")  # fmt: skip


def _unequal(net: Net, x: str, act: Act) -> str:
    """Branches of 1x1, 3x3, 1x7 and 7x1 kernels and a pool (Szegedy et al. 2016)."""
    width = _width(net)
    pool = str(net.rng.choice(["AveragePool", "MaxPool"]))

    def chain(*kernels: tuple[int, int]) -> Callable[[str], str]:
        def make(y: str) -> str:
            for kernel in kernels:
                y = act(net, sized_conv(net, y, width, kernel))
            return y

        return make

    def pooled(y: str) -> str:
        y = net.add(pool, y, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        return act(net, sized_conv(net, y, width, (1, 1)))

    y = _branches(
        net, x, chain((1, 1)), chain((1, 1), (3, 3)), chain((1, 1), (1, 7), (7, 1)), pooled
    )
    return act(net, sized_conv(net, y, _width(net), (1, 1)))


def _grouped(net: Net, x: str, act: Act) -> str:
    """A bottleneck with a grouped convolution (Xie et al. 2017)."""
    channels = net.shape[1]
    y = act(net, sized_conv(net, x, 2 * channels, (1, 1)))
    y = act(net, sized_conv(net, y, 2 * channels, (3, 3), group=2 * channels // 8))
    return act(net, net.add("Add", sized_conv(net, y, channels, (1, 1)), x))


def _shuffled(net: Net, x: str, act: Act) -> str:
    """Half of the channels through a branch, all in another order (Ma et al. 2018)."""
    _, channels, size, _ = net.shape
    half = channels // 2
    parts = net.constant(np.array([half, half], np.int64))
    left, right = net.add_many("Split", (x, parts), 2, axis=1)
    net.shape = (1, half, size, size)
    y = act(net, sized_conv(net, right, half, (1, 1)))
    y = sized_conv(net, y, half, (3, 3), group=half)
    y = act(net, sized_conv(net, y, half, (1, 1)))
    y = net.reshape(net.add("Concat", left, y, axis=1), 1, 2, half, size, size)
    return net.reshape(net.transpose(y, 0, 2, 1, 3, 4), 1, channels, size, size)


def _gated(net: Net, x: str, act: Act) -> str:
    """Multiplied by a map of weights (Oktay et al. 2018)."""
    whole = net.shape
    one = sized_conv(net, x, max(8, whole[1] // 2), (1, 1))
    net.shape = whole
    other = sized_conv(net, x, max(8, whole[1] // 2), (1, 1))
    gate = net.add("Sigmoid", sized_conv(net, relu(net, net.add("Add", one, other)), 1, (1, 1)))
    net.shape = whole
    return act(net, sized_conv(net, net.add("Mul", x, gate), whole[1], (3, 3)))


def _weighed_sum(net: Net, x: str, act: Act) -> str:
    """A sum over two sizes of maps with weights (Tan et al. 2020), then a separable convolution."""
    _, channels, size, _ = net.shape
    low = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    net.shape = (1, channels, size // 2, size // 2)
    low = act(net, sized_conv(net, low, channels, (3, 3), group=channels))
    low = _resized(net, low, size // 2 * 2)
    if size % 2:
        return act(net, sized_conv(net, x, channels, (1, 1)))
    weighed = [net.add("Mul", y, net.scalar(w)) for y, w in ((x, 0.6), (low, 0.4))]
    y = act(net, net.add("Add", *weighed))
    y = sized_conv(net, y, channels, (3, 3), group=channels)
    return sized_conv(net, y, channels, (1, 1))


def _context(net: Net, x: str, act: Act) -> str:
    """Means over parts of the image beside the map itself (Zhao et al. 2017)."""
    _, channels, size, _ = net.shape
    window = size // 2

    def means(y: str) -> str:
        y = net.add("AveragePool", y, kernel_shape=[window] * 2, strides=[window] * 2)
        net.shape = (1, channels, size // window, size // window)
        y = act(net, sized_conv(net, y, max(8, channels // 2), (1, 1)))
        return _resized(net, y, size)

    y = _branches(net, x, lambda y: y, means)
    return act(net, sized_conv(net, y, channels, (3, 3)))


def _larger(net: Net, x: str, act: Act) -> str:
    """Twice the size by shuffled pixels (Shi et al. 2016) or a transposed convolution."""
    _, channels, size, _ = net.shape
    if size > 24:
        return _plain(net, x, act)
    width = int(net.rng.choice([8, 16]))
    if net.rng.random() < 0.6:
        y = net.add("DepthToSpace", sized_conv(net, x, 4 * width, (3, 3)), blocksize=2)
    else:
        weight = net.weight(channels, width, 2, 2)
        y = net.add("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2])
    net.shape = (1, width, 2 * size, 2 * size)
    return act(net, sized_conv(net, y, width, (3, 3)))


def _normalised(net: Net, x: str, act: Act) -> str:
    """Convolutions with norms of each image (Isensee et al. 2021)."""
    width = _width(net)
    y = sized_conv(net, x, width, (3, 3))
    gain, shift = (net.constant(np.full(width, v, np.float32)) for v in (1, 0))
    return act(net, net.add("InstanceNormalization", y, gain, shift))


def _sloped(net: Net, x: str, _act: Act) -> str:
    """Convolutions with a PRelu (He et al. 2015)."""
    width = _width(net)
    y = sized_conv(net, x, width, (3, 3))
    return net.add("PRelu", y, net.constant(np.full((width, 1, 1), 0.2, np.float32)))


def _dense(net: Net, x: str, act: Act) -> str:
    """Each convolution reads all before it (Huang et al. 2017)."""
    for _ in range(2):
        y = _branches(net, x, lambda y: y, lambda y: act(net, sized_conv(net, y, 16, (3, 3))))
        x = y
    return act(net, sized_conv(net, x, _width(net), (1, 1)))


def _squeezed(net: Net, x: str, act: Act) -> str:
    """Few channels, then 1x1 and 3x3 kernels beside each other (Iandola et al. 2016)."""
    width = _width(net)
    y = act(net, sized_conv(net, x, max(8, net.shape[1] // 4), (1, 1)))
    return _branches(
        net, y,
        lambda z: act(net, sized_conv(net, z, width, (1, 1))),
        lambda z: act(net, sized_conv(net, z, width, (3, 3))),
    )  # fmt: skip


def _excited(net: Net, x: str, act: Act) -> str:
    """Squeeze and excitation (Hu et al. 2018)."""
    whole = net.shape
    y = act(net, sized_conv(net, x, whole[1], (3, 3), group=whole[1]))
    gate = net.add("GlobalAveragePool", y)
    net.shape = (1, whole[1], 1, 1)
    gate = relu(net, sized_conv(net, gate, max(8, whole[1] // 4), (1, 1)))
    gate = net.add("Sigmoid", sized_conv(net, gate, whole[1], (1, 1)))
    net.shape = whole
    return sized_conv(net, net.add("Mul", y, gate), whole[1], (1, 1))


_BLOCKS = (
    _plain, _residual, _inverted, _dilated, _pyramid_of_dilations, _unequal, _grouped, _shuffled,
    _gated, _weighed_sum, _context, _larger, _normalised, _sloped, _dense, _squeezed, _excited,
)  # fmt: skip


def short(seed: int) -> onnx.ModelProto:
    """A small convolutional network: a stem, three to five blocks, and a head."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([16, 24, 32, 48, 64]))
    net = Net((1, 3, size, size), seed)
    act = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    x = _stem(net, act)
    # Neighbours in a random order: among any four networks in a row each block stands once.
    order = np.random.default_rng(seed // 4).permutation(len(_BLOCKS))
    for index in order[seed % 4 :: 4]:
        if net.shape[2] >= 4:
            x = _BLOCKS[index](net, x, act)
    return net.model(_HEADS[seed % len(_HEADS)](net, x, size))


def _stem(net: Net, act: Act) -> str:
    kernel = int(net.rng.choice([3, 3, 5, 7]))
    stride = 2 if net.shape[2] > 32 else int(net.rng.choice([1, 2]))
    x = act(
        net, sized_conv(net, "input", int(net.rng.choice([16, 24, 32])), (kernel, kernel), stride)
    )
    if net.shape[2] < 24 or net.rng.random() < 0.5:
        return x
    net.shape = (*net.shape[:2], -(-net.shape[2] // 2), -(-net.shape[3] // 2))
    return net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def _scores(net: Net, x: str, _size: int) -> str:
    return sized_conv(net, x, int(net.rng.choice([4, 16])), (1, 1))


def _scores_of_pixels(net: Net, x: str, size: int) -> str:
    """As large as the image (Long et al. 2015)."""
    x = sized_conv(net, x, int(net.rng.choice([3, 5, 20])), (1, 1))
    scale = size / net.shape[2]
    scales = net.constant(np.array([1, 1, scale, scale], np.float32))
    return net.add("Resize", x, "", scales, mode="linear")


def _classes(net: Net, x: str, _size: int) -> str:
    channels = net.shape[1]
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.add("Gemm", flat, net.weight(channels, 10))


def _classes_of_maps(net: Net, x: str, _size: int) -> str:
    """A hidden layer of all pixels (Simonyan & Zisserman 2015)."""
    pool = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.shape[1] * (net.shape[2] // 2) ** 2
    hidden = relu(net, net.add("Gemm", net.add("Flatten", pool), net.weight(flat, 64)))
    return net.add("Gemm", hidden, net.weight(64, 10))


_HEADS = (_scores, _classes, _scores_of_pixels, _classes, _classes_of_maps)
