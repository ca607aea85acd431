"""Eight networks of which only figures are read; ``exporters`` has those looked at.

Nothing is mended for them, so their figures say what to expect of a network of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from benchmarks.networks.topologies import Net, classifier, linear


def roberta(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """Two layers of RoBERTa (Liu et al. 2019) from dynamo: three projections, a mask by Where."""
    net, deep = Net((1, tokens, width)), width // heads
    keep = net.constant(np.tri(tokens, dtype=bool).reshape(1, 1, tokens, tokens))
    mask = net.add("Where", keep, scalar(net, 0), scalar(net, -1e4))
    x = norm_in_parts(net, net.add("Add", net.input, net.weight(1, tokens, width)), (width,))
    for _ in range(2):
        parts = [reshape(net, linear(net, x, width, width), 1, tokens, heads, deep)
                 for _ in range(3)]  # fmt: skip
        q, k, v = (turn(net, part, 0, 2, 1, 3) for part in parts)
        y = turn(net, scaled_attention(net, (q, k, v), deep, mask), 0, 2, 1, 3)
        y = linear(net, reshape(net, y, 1, tokens, width), width, width)
        x = norm_in_parts(net, net.add("Add", y, x), (width,))
        y = linear(net, gelu_in_parts(net, linear(net, x, width, 3 * width)), 3 * width, width)
        x = norm_in_parts(net, net.add("Add", y, x), (width,))
    return net.model(linear(net, gelu_in_parts(net, linear(net, x, width, width)), width, 64))


def quartz_net(frames: int) -> onnx.ModelProto:
    """QuartzNet (Kriman et al. 2019): separable 1-D Convs, residuals, scores for each frame."""
    net = Net((1, 40, frames))
    x = net.relu(conv1d(net, conv1d(net, net.input, (40, 40, 11), 2, group=40), (40, 64, 1)))
    channels = 64
    for width, kernel in ((64, 13), (96, 15)):
        y, inputs = x, channels
        for last in (False, False, True):
            y = conv1d(net, y, (inputs, inputs, kernel), group=inputs)
            y, inputs = conv1d(net, y, (inputs, width, 1)), width
            y = y if last else net.relu(y)
        x, channels = net.relu(net.add("Add", y, conv1d(net, x, (channels, width, 1)))), width
    x = net.relu(conv1d(net, conv1d(net, x, (96, 96, 19), dilation=2, group=96), (96, 128, 1)))
    x = turn(net, conv1d(net, x, (128, 29, 1)), 0, 2, 1)
    return net.model(net.add("LogSoftmax", x, axis=-1))


def hifi_gan(frames: int) -> onnx.ModelProto:
    """HiFi-GAN (Kong et al. 2020): transposed 1-D Convs, sums of dilated residual blocks."""
    net = Net((1, 24, frames))

    def leaky(x: str) -> str:
        return net.add("LeakyRelu", x, alpha=0.1)

    x, channels = conv1d(net, net.input, (24, 64, 7)), 64
    for width in (32, 16):
        weight, bias = net.weight(channels, width, 8), net.weight(width)
        x = net.add("ConvTranspose", leaky(x), weight, bias, strides=[4], pads=[2, 2])
        channels, total = width, ""
        for kernel in (3, 5):
            y = x
            for dilation in (1, 3):
                z = conv1d(net, leaky(y), (width, width, kernel), dilation=dilation)
                y = net.add("Add", conv1d(net, leaky(z), (width, width, kernel)), y)
            total = net.add("Add", total, y) if total else y
        x = net.add("Div", total, scalar(net, 2))
    return net.model(net.add("Tanh", conv1d(net, leaky(x), (16, 1, 7))))


def ssd_mobile_net(size: int, classes: int = 7) -> onnx.ModelProto:
    """SSD on MobileNet (Liu et al. 2016) from TensorFlow: heads turned and joined, decoding."""
    net = Net((1, size, size, 3))
    x = turn(net, net.add("Sub", net.add("Div", net.input, scalar(net, 127.5)), scalar(net, 1)),
             0, 3, 1, 2)  # fmt: skip
    x, channels, side = net.relu6(keras_conv(net, x, 3, 16, 3, 2)), 16, size // 2
    levels = []
    for width, stride in ((32, 2), (48, 2), (48, 1), (96, 2)):
        x = net.relu6(keras_conv(net, x, channels, channels, 3, stride, channels))
        x = net.relu6(keras_conv(net, x, channels, width, 1))
        channels, side = width, side // stride
        if (width, stride) in ((48, 1), (96, 2)):
            levels.append((x, width, side))
    found: tuple[list[str], list[str]] = ([], [])
    for level, inputs, cells in levels:
        for made, values in zip(found, (4, classes), strict=True):
            y = turn(net, keras_conv(net, level, inputs, 3 * values, 1), 0, 2, 3, 1)
            made.append(reshape(net, y, 1, 3 * cells * cells, values))
    boxes, scores = (net.add("Concat", *made, axis=1) for made in found)
    total = sum(3 * cells * cells for _, _, cells in levels)
    y, x, height, width_ = net.add_many("Split", (boxes, ints(net, 1, 1, 1, 1)), 4, axis=2)
    half = scalar(net, 0.5)
    ends = []
    for centre, extent in ((y, height), (x, width_)):
        anchors = [net.weight(1, total, 1) for _ in range(2)]
        middle = net.add("Mul", net.add("Div", centre, scalar(net, 10)), anchors[0])
        middle = net.add("Add", middle, anchors[1])
        size_ = net.add("Exp", net.add("Div", extent, scalar(net, 5)))
        reach = net.add("Mul", net.add("Mul", size_, anchors[0]), half)
        ends += [net.add("Sub", middle, reach), net.add("Add", middle, reach)]
    joined = net.add("Concat", ends[0], ends[2], ends[1], ends[3], axis=2)
    return net.model(joined, net.add("Sigmoid", scores))


def fast_scnn(size: int) -> onnx.ModelProto:
    """Fast-SCNN (Poudel et al. 2019) from TensorFlow: a Resize turned, pools of a pyramid."""
    net = Net((1, size, size, 3))
    x = net.relu(keras_conv(net, turn(net, net.input, 0, 3, 1, 2), 3, 24, 3, 2))
    for inputs, outputs in ((24, 32), (32, 48)):
        x = net.relu(keras_conv(net, x, inputs, inputs, 3, 2, inputs))
        x = net.relu(keras_conv(net, x, inputs, outputs, 1))
    near, side, channels = x, size // 8, 48

    def resized(y: str, to: int, channels: int) -> str:
        y = turn(net, y, 0, 2, 3, 1)
        y = net.add("Resize", y, "", "", ints(net, 1, to, to, channels), mode="linear",
                    coordinate_transformation_mode="half_pixel")  # fmt: skip
        return turn(net, y, 0, 3, 1, 2)

    for width, stride in ((48, 2), (64, 1), (64, 1)):
        y = net.relu(keras_conv(net, x, channels, 4 * channels, 1))
        y = net.relu(keras_conv(net, y, 4 * channels, 4 * channels, 3, stride, 4 * channels))
        y = keras_conv(net, y, 4 * channels, width, 1)
        x, channels = net.add("Add", x, y) if stride == 1 and channels == width else y, width
    parts = [x]
    for regions in (1, 2):
        cell = side // 2 // regions
        y = net.add("AveragePool", x, kernel_shape=[cell] * 2, strides=[cell] * 2)
        parts.append(resized(net.relu(keras_conv(net, y, 64, 16, 1)), side // 2, 16))
    low = net.relu(keras_conv(net, net.add("Concat", *parts, axis=1), 96, 64, 1))
    low = keras_conv(net, resized(low, side, 64), 64, 64, 3, 1, 64)
    x = net.add("Add", keras_conv(net, net.relu(low), 64, 48, 1), keras_conv(net, near, 48, 48, 1))
    x = keras_conv(net, net.relu(x), 48, 5, 1)
    x = net.add("Resize", turn(net, x, 0, 2, 3, 1), "", "", ints(net, 1, size, size, 5),
                mode="linear", coordinate_transformation_mode="half_pixel")  # fmt: skip
    return net.model(net.add("Softmax", x, axis=-1))


def swin_ir(side: int, width: int, heads: int, window: int = 8) -> onnx.ModelProto:
    """SwinIR (Liang et al. 2021): attention in rolled windows, norms in parts, pixels shuffled."""
    net = Net((1, 3, side, side))
    first = net.conv(net.input, 3, width, 3)
    x = turn(net, reshape(net, first, 1, width, side * side), 0, 2, 1)
    blocks, tokens, deep = side // window, window**2, width // heads

    def rolled(y: str, shift: int) -> str:
        for axis in (1, 2):
            rest = cut(net, y, 0, shift % side, axis)
            y = net.add("Concat", cut(net, y, shift % side, side, axis), rest, axis=axis)
        return y

    for shift in (0, window // 2):
        y = reshape(net, norm_in_parts(net, x, (width,)), 1, side, side, width)
        y = rolled(y, shift) if shift else y
        y = turn(net, reshape(net, y, 1, blocks, window, blocks, window, width), 0, 1, 3, 2, 4, 5)
        y = linear(net, reshape(net, y, blocks**2, tokens, width), width, 3 * width)
        y = turn(net, reshape(net, y, blocks**2, tokens, 3, heads, deep), 2, 0, 3, 1, 4)
        q, k, v = (net.add("Gather", y, net.constant(np.array(i, np.int64)), axis=0)
                   for i in range(3))  # fmt: skip
        q = net.add("Mul", q, scalar(net, deep**-0.5))
        scores = net.add("MatMul", q, turn(net, k, 0, 1, 3, 2))
        scores = net.add("Add", scores, net.weight(1, heads, tokens, tokens))
        if shift:
            scores = reshape(net, scores, 1, blocks**2, heads, tokens, tokens)
            scores = net.add("Add", scores, net.weight(1, blocks**2, 1, tokens, tokens))
            scores = reshape(net, scores, blocks**2, heads, tokens, tokens)
        y = turn(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        y = linear(net, reshape(net, y, blocks**2, tokens, width), width, width)
        y = reshape(net, y, 1, blocks, blocks, window, window, width)
        y = reshape(net, turn(net, y, 0, 1, 3, 2, 4, 5), 1, side, side, width)
        y = rolled(y, -shift) if shift else y
        x = net.add("Add", x, reshape(net, y, 1, side * side, width))
        y = linear(net, norm_in_parts(net, x, (width,)), width, 2 * width)
        x = net.add("Add", x, linear(net, gelu_in_parts(net, y), 2 * width, width))
    x = reshape(net, turn(net, x, 0, 2, 1), 1, width, side, side)
    x = net.add("Add", net.conv(x, width, width, 3), first)
    x = reshape(net, net.conv(x, width, 12, 3), 1, 3, 2, 2, side, side)
    return net.model(reshape(net, turn(net, x, 0, 1, 4, 2, 5, 3), 1, 3, 2 * side, 2 * side))


def res2_net(size: int) -> onnx.ModelProto:
    """Res2Net (Gao et al. 2019): a quarter after the other through Convs, each with the last."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.input, 3, 32, 7, 2))
    x, channels = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 32
    for width, outputs, stride in ((16, 96, 1), (16, 96, 1), (32, 128, 2)):
        parts = net.split(net.relu(net.conv(x, channels, 4 * width, 1)), *[width] * 4)
        made: list[str] = []
        for part in parts[:3]:
            y = net.add("Add", made[-1], part) if made and stride == 1 else part
            made.append(net.relu(net.conv(y, width, width, 3, stride)))
        last = parts[3]
        if stride > 1:
            last = net.add("AveragePool", last, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        y = net.conv(net.add("Concat", *made, last, axis=1), 4 * width, outputs, 1)
        same = stride == 1 and channels == outputs
        x = net.relu(net.add("Add", y, x if same else net.conv(x, channels, outputs, 1, stride)))
        channels = outputs
    return classifier(net, x, channels, 40)


def ada_in(size: int) -> onnx.ModelProto:
    """Style transfer (Johnson et al. 2016): reflected edges, InstanceNorm, nearest, Tanh."""
    net = Net((1, 3, size, size))

    def unit(x: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        edge = kernel // 2
        x = net.add("Pad", x, ints(net, 0, 0, edge, edge, 0, 0, edge, edge), mode="reflect")
        weight, bias = net.weight(outputs, inputs, kernel, kernel), net.weight(outputs)
        return net.add("Conv", x, weight, bias, strides=[stride] * 2)

    def normed(x: str, channels: int) -> str:
        return net.add("InstanceNormalization", x, net.weight(channels), net.weight(channels))

    x = net.relu(normed(unit(net.input, 3, 16, 9), 16))
    x = net.relu(normed(unit(x, 16, 32, 3, 2), 32))
    x = net.relu(normed(unit(x, 32, 64, 3, 2), 64))
    for _ in range(2):
        y = net.relu(normed(unit(x, 64, 64, 3), 64))
        x = net.add("Add", normed(unit(y, 64, 64, 3), 64), x)
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    for inputs, outputs in ((64, 32), (32, 16)):
        x = net.add("Resize", x, "", factors, mode="nearest")
        x = net.relu(normed(unit(x, inputs, outputs, 3), outputs))
    return net.model(net.add("Tanh", unit(x, 16, 3, 9)))


ASIDE: Mapping[str, Build] = {
    "RoBERTa": lambda: roberta(36, 96, 4),
    "QuartzNet": lambda: quartz_net(120),
    "HiFi-GAN": lambda: hifi_gan(24),
    "SSD MobileNet": lambda: ssd_mobile_net(96),
    "Fast-SCNN": lambda: fast_scnn(96),
    "SwinIR": lambda: swin_ir(16, 60, 6),
    "Res2Net": lambda: res2_net(72),
    "style transfer": lambda: ada_in(48),
}
