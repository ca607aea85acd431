"""Eight networks of other families and exporters than any before, which predictions are mended for.

Chosen at random, one of each of eight pairs of a kind, before anything was measured; the other
eight are in ``exporters_aside``. Random weights, the structure of the papers, fewer blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import onnx

from benchmarks.networks.exporter_styles import (
    Build,
    conv1d,
    cut,
    gelu_in_parts,
    ints,
    keras_conv,
    norm_in_parts,
    reshape,
    scalar,
    scaled_attention,
    turn,
)
from benchmarks.networks.topologies import Net, linear


def dino(size: int, width: int, heads: int) -> onnx.ModelProto:
    """DINO's ViT (Caron et al. 2021) from dynamo: joint projection, parts squeezed, layer scale."""
    net = Net((1, 3, size, size))
    tokens, deep = (size // 14) ** 2, width // heads
    x = net.add("Conv", net.input, net.weight(width, 3, 14, 14), net.weight(width),
                strides=[14, 14])  # fmt: skip
    x = turn(net, reshape(net, x, 1, width, tokens), 0, 2, 1)
    x = net.add("Concat", net.weight(1, 1, width), x, axis=1)
    x, tokens = net.add("Add", x, net.weight(1, tokens + 1, width)), tokens + 1
    for _ in range(2):
        y = linear(net, norm_in_parts(net, x, (width,)), width, 3 * width)
        y = turn(net, reshape(net, y, 1, tokens, 3, heads, deep), 2, 0, 3, 1, 4)
        parts = net.add_many("Split", (y, ints(net, 1, 1, 1)), 3, axis=0)
        q, k, v = (net.add("Squeeze", part, ints(net, 0)) for part in parts)
        y = turn(net, scaled_attention(net, (q, k, v), deep), 0, 2, 1, 3)
        y = linear(net, reshape(net, y, 1, tokens, width), width, width)
        x = net.add("Add", x, net.add("Mul", y, net.weight(width)))
        y = linear(net, norm_in_parts(net, x, (width,)), width, 4 * width)
        y = linear(net, gelu_in_parts(net, y), 4 * width, width)
        x = net.add("Add", x, net.add("Mul", y, net.weight(width)))
    x = norm_in_parts(net, x, (width,))
    first = net.add("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    rest = net.add("ReduceMean", cut(net, x, 1, tokens, 1), axes=[1], keepdims=0)
    joined = net.add("Concat", first, rest, axis=-1)
    return net.model(net.add("Gemm", joined, net.weight(2 * width, 30), net.weight(30)))


def conv_tas_net(samples: int) -> onnx.ModelProto:
    """Conv-TasNet (Luo and Mesgarani 2019): dilated depthwise 1-D Convs, norms of all, masks."""
    net = Net((1, 1, samples))
    width, inner, steps = 48, 96, samples // 8

    def norm(x: str, channels: int) -> str:
        flat = net.add("ReduceMean", x, axes=[1, 2], keepdims=1)
        centred = net.add("Sub", x, flat)
        variance = net.add("ReduceMean", net.add("Mul", centred, centred), axes=[1, 2], keepdims=1)
        root = net.add("Sqrt", net.add("Add", variance, scalar(net, 1e-8)))
        y = net.add("Div", net.add("Mul", net.weight(1, channels, 1), centred), root)
        return net.add("Add", y, net.weight(1, channels, 1))

    coded = net.relu(net.add("Conv", net.input, net.weight(64, 1, 16), strides=[8], pads=[4, 4]))
    x, total = conv1d(net, norm(coded, 64), (64, width, 1)), ""
    for dilation in (1, 2, 4):
        y = net.add("PRelu", conv1d(net, x, (width, inner, 1)), net.weight(1, 1))
        y = conv1d(net, norm(y, inner), (inner, inner, 3), dilation=dilation, group=inner)
        y = norm(net.add("PRelu", y, net.weight(1, 1)), inner)
        skip = conv1d(net, y, (inner, width, 1))
        total = net.add("Add", total, skip) if total else skip
        x = net.add("Add", x, conv1d(net, y, (inner, width, 1)))
    masks = conv1d(net, net.add("PRelu", total, net.weight(1, 1)), (width, 128, 1))
    masks = net.add("Sigmoid", reshape(net, masks, 1, 2, 64, steps))
    y = net.add("Mul", masks, net.add("Unsqueeze", coded, ints(net, 1)))
    y = reshape(net, y, 2, 64, steps)
    return net.model(net.add("ConvTranspose", y, net.weight(64, 1, 16), strides=[8], pads=[4, 4]))


def point_net(points: int) -> onnx.ModelProto:
    """PointNet (Qi et al. 2017): points turned by a learned matrix, a maximum told to each one."""
    net = Net((1, 3, points))

    def mlp(x: str, *widths: int) -> str:
        for inputs, outputs in pairwise(widths):
            x = net.relu(conv1d(net, x, (inputs, outputs, 1)))
        return x

    def turned(x: str, channels: int) -> str:
        y = net.add("ReduceMax", mlp(x, channels, 32, 128), axes=[2], keepdims=0)
        y = net.relu(net.add("Gemm", y, net.weight(64, 128), net.weight(64), transB=1))
        y = net.add("Gemm", y, net.weight(channels**2, 64), net.weight(channels**2), transB=1)
        matrix = reshape(net, net.add("Add", y, net.weight(1, channels**2)), 1, channels, channels)
        return turn(net, net.add("MatMul", turn(net, x, 0, 2, 1), matrix), 0, 2, 1)

    near = turned(mlp(turned(net.input, 3), 3, 32), 32)
    wide = conv1d(net, mlp(near, 32, 64), (64, 256, 1))
    whole = net.add("ReduceMax", wide, axes=[2], keepdims=1)
    whole = net.add("Expand", whole, ints(net, 1, 256, points))
    x = conv1d(net, mlp(net.add("Concat", whole, near, axis=1), 288, 128, 64), (64, 10, 1))
    return net.model(net.add("LogSoftmax", turn(net, x, 0, 2, 1), axis=-1))


def yolo_v10(size: int, classes: int = 12) -> onnx.ModelProto:
    """YOLOv10 (Wang et al. 2024): partial attention, heads of one box each, the best kept."""
    net = Net((1, 3, size, size))

    def unit(
        x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, group: int = 1
    ) -> str:
        return net.silu(net.conv(x, inputs, outputs, kernel, stride, group))

    def c2f(x: str, channels: int) -> str:
        first, last = net.split(unit(x, channels, channels, 1), channels // 2, channels // 2)
        y = unit(unit(last, channels // 2, channels // 2, 3), channels // 2, channels // 2, 3)
        y = net.add("Concat", first, last, net.add("Add", last, y), axis=1)
        return unit(y, 3 * channels // 2, channels, 1)

    def attended(x: str, channels: int, side: int) -> str:
        half, tokens, heads = channels // 2, side * side, 2
        deep = half // heads
        first, last = net.split(unit(x, channels, channels, 1), half, half)
        y = reshape(net, net.conv(last, half, 2 * half, 1), 1, heads, 2 * deep, tokens)
        sizes = (deep // 2, deep // 2, deep)
        q, k, v = net.add_many("Split", (y, ints(net, *sizes)), 3, axis=2)
        scores = net.add("MatMul", turn(net, q, 0, 1, 3, 2), k)
        scores = net.add("Mul", scores, scalar(net, (deep // 2) ** -0.5))
        weights = turn(net, net.add("Softmax", scores, axis=-1), 0, 1, 3, 2)
        y = reshape(net, net.add("MatMul", v, weights), 1, half, side, side)
        places = net.conv(reshape(net, v, 1, half, side, side), half, half, 3, 1, half)
        last = net.add("Add", last, net.conv(net.add("Add", y, places), half, half, 1))
        y = net.conv(unit(last, half, channels, 1), channels, half, 1)
        last = net.add("Add", last, y)
        return unit(net.add("Concat", first, last, axis=1), channels, channels, 1)

    x = c2f(unit(unit(net.input, 3, 16, 3, 2), 16, 32, 3, 2), 32)
    middle = c2f(unit(x, 32, 64, 3, 2), 64)
    y = net.conv(unit(middle, 64, 128, 1), 128, 128, 3, 2, 128)
    low = attended(c2f(y, 128), 128, size // 16)
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", low, "", factors, mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    near = c2f(unit(net.add("Concat", up, middle, axis=1), 192, 64, 1), 64)
    found = []
    for level, channels, side in ((near, 64, size // 8), (low, 128, size // 16)):
        boxes = net.conv(unit(level, channels, 32, 3), 32, 32, 1)
        y = unit(unit(level, channels, channels, 3, 1, channels), channels, 32, 1)
        y = net.conv(unit(unit(y, 32, 32, 3, 1, 32), 32, 32, 1), 32, classes, 1)
        joined = net.add("Concat", boxes, y, axis=1)
        found.append(reshape(net, joined, 1, 32 + classes, side * side))
    cells = (size // 8) ** 2 + (size // 16) ** 2
    boxes, scores = net.split(net.add("Concat", *found, axis=2), 32, classes)
    spread = turn(net, reshape(net, boxes, 1, 4, 8, cells), 0, 2, 1, 3)
    spread = net.add("Softmax", spread, axis=1)
    ends = reshape(net, net.add("Conv", spread, net.weight(1, 8, 1, 1)), 1, 4, cells)
    start, end = (cut(net, ends, i, i + 2, 1) for i in (0, 2))
    start = net.add("Sub", net.weight(1, 2, cells), start)
    end = net.add("Add", net.weight(1, 2, cells), end)
    boxes = net.add("Mul", net.add("Concat", start, end, axis=1), net.weight(1, cells))
    y = net.add("Concat", boxes, net.add("Sigmoid", scores), axis=1)
    boxes, scores = net.add_many("Split", (turn(net, y, 0, 2, 1), ints(net, 4, classes)), 2, axis=2)
    best = net.add("ReduceMax", scores, axes=[2], keepdims=0)
    _, places = net.add_many("TopK", (best, ints(net, 20)), 2, axis=1)
    places = net.add("Expand", net.add("Unsqueeze", places, ints(net, 2)), ints(net, 1, 20, 4))
    return net.model(net.add("GatherElements", boxes, places, axis=1))


def xception(size: int) -> onnx.ModelProto:
    """Xception (Chollet 2016) from Keras: channels last at both ends, Relu before each Conv."""
    net = Net((1, size, size, 3))
    x = turn(net, net.input, 0, 3, 1, 2)
    x = net.relu(net.add("Conv", x, net.weight(16, 3, 3, 3), net.weight(16), strides=[2, 2]))
    x = net.relu(net.add("Conv", x, net.weight(32, 16, 3, 3), net.weight(32)))

    def separable(x: str, inputs: int, outputs: int) -> str:
        y = net.add("Conv", x, net.weight(inputs, 1, 3, 3), pads=[1] * 4, group=inputs)
        return net.add("Conv", y, net.weight(outputs, inputs, 1, 1), net.weight(outputs))

    channels = 32
    for number, width in enumerate((48, 80)):
        y = separable(net.relu(x) if number else x, channels, width)
        y = separable(net.relu(y), width, width)
        y = net.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
        x = net.add("Add", y, keras_conv(net, x, channels, width, 1, 2))
        channels = width
    y = x
    for _ in range(3):
        y = separable(net.relu(y), channels, channels)
    x = net.add("Add", y, x)
    x = net.relu(separable(net.relu(separable(x, channels, 96)), 96, 128))
    mean = net.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    y = net.add("MatMul", mean, net.weight(128, 25))
    return net.model(net.add("Softmax", net.add("Add", y, net.weight(25)), axis=-1))


def naf_net(size: int) -> onnx.ModelProto:
    """NAFNet (Chen et al. 2022): norms over channels in parts, gates of halves, pixel shuffles."""
    net = Net((1, 3, size, size))

    def gate(x: str, half: int) -> str:
        return net.add("Mul", *net.split(x, half, half))

    def block(x: str, c: int) -> str:
        y = net.conv(norm_in_parts(net, x, (1, c, 1, 1), axis=1), c, 2 * c, 1)
        y = gate(net.conv(y, 2 * c, 2 * c, 3, 1, 2 * c), c)
        y = net.add("Mul", y, net.conv(net.add("GlobalAveragePool", y), c, c, 1))
        y = net.conv(y, c, c, 1)
        x = net.add("Add", x, net.add("Mul", y, net.weight(1, c, 1, 1)))
        y = gate(net.conv(norm_in_parts(net, x, (1, c, 1, 1), axis=1), c, 2 * c, 1), c)
        return net.add("Add", x, net.add("Mul", net.conv(y, c, c, 1), net.weight(1, c, 1, 1)))

    first = block(net.conv(net.input, 3, 24, 3), 24)
    down = net.add("Conv", first, net.weight(48, 24, 2, 2), net.weight(48), strides=[2, 2])
    x = block(block(down, 48), 48)
    x = net.add("Conv", x, net.weight(96, 48, 1, 1))
    x = reshape(net, x, 1, 24, 2, 2, size // 2, size // 2)
    x = reshape(net, turn(net, x, 0, 1, 4, 2, 5, 3), 1, 24, size, size)
    x = block(net.add("Add", x, first), 24)
    return net.model(net.add("Add", net.conv(x, 24, 3, 3), net.input))


def cbam(size: int) -> onnx.ModelProto:
    """A ResNet with CBAM (Woo et al. 2018): gates of means and maxima, by channel and by place."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 32, 5, 2)), 32
    for width, stride in ((32, 1), (64, 2), (64, 1)):
        y = net.relu(net.conv(x, channels, width, 3, stride))
        y = net.conv(y, width, width, 3)
        weights = [net.weight(width // 8, width, 1, 1), net.weight(width, width // 8, 1, 1)]
        sums = []
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            z = net.relu(net.add("Conv", net.add(op, y), weights[0]))
            sums.append(net.add("Conv", z, weights[1]))
        y = net.add("Mul", y, net.add("Sigmoid", net.add("Add", *sums)))
        seen = [net.add(op, y, axes=[1], keepdims=1) for op in ("ReduceMean", "ReduceMax")]
        z = net.conv(net.add("Concat", *seen, axis=1), 2, 1, 7)
        y = net.add("Mul", y, net.add("Sigmoid", z))
        same = stride == 1 and channels == width
        x = net.relu(net.add("Add", y, x if same else net.conv(x, channels, width, 1, stride)))
        channels = width
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", x, net.weight(20, 64), net.weight(20), transB=1))


def dlrm(batch: int) -> onnx.ModelProto:
    """DLRM (Naumov et al. 2019) behind its tables: products of all features with each other."""
    net = Net((batch, 13 + 6 * 16))
    dense, sparse = net.split(net.input, 13, 96)

    def layers(x: str, *widths: int) -> str:
        for inputs, outputs in pairwise(widths):
            weight, bias = net.weight(outputs, inputs), net.weight(outputs)
            x = net.relu(net.add("Gemm", x, weight, bias, transB=1))
        return x

    x = layers(dense, 13, 64, 32, 16)
    both = net.add("Concat", reshape(net, x, batch, 1, 16), reshape(net, sparse, batch, 6, 16),
                   axis=1)  # fmt: skip
    products = net.add("MatMul", both, turn(net, both, 0, 2, 1))
    flat = reshape(net, products, batch, 49)
    below = ints(net, *(7 * i + j for i in range(7) for j in range(i)))
    y = net.add("Concat", x, net.add("Gather", flat, below, axis=1), axis=1)
    y = layers(y, 37, 128, 64)
    y = net.add("Gemm", y, net.weight(1, 64), net.weight(1), transB=1)
    return net.model(net.add("Sigmoid", y))


EXPORTED: Mapping[str, Build] = {
    "DINO": lambda: dino(70, 96, 3),
    "Conv-TasNet": lambda: conv_tas_net(800),
    "PointNet": lambda: point_net(200),
    "YOLOv10": lambda: yolo_v10(96),
    "Xception": lambda: xception(71),
    "NAFNet": lambda: naf_net(32),
    "CBAM": lambda: cbam(64),
    "DLRM": lambda: dlrm(32),
}
