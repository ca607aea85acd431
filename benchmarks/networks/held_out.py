"""Networks of families that no prediction was written with, for an honest figure.

As in ``topologies``: random weights, the structure of the papers, fewer blocks and small inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.networks.exporter_styles import gelu_in_parts, norm, reshape, scalar
from benchmarks.networks.topologies import Net, classifier


def rep_vgg(size: int) -> onnx.ModelProto:
    """RepVGG as it is trained (Ding et al. 2021): 3x3, 1x1 and identity, summed, then Relu."""
    net = Net((1, 3, size, size))
    x, channels = net.input, 3
    for width, stride in ((32, 2), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1)):
        y = net.add(
            "Add",
            net.conv(x, channels, width, 3, stride),
            net.conv(x, channels, width, 1, stride),
        )
        same = stride == 1 and channels == width
        x, channels = net.relu(net.add("Add", y, x) if same else y), width
    return classifier(net, x, channels)


def ghost_net(size: int) -> onnx.ModelProto:
    """GhostNet (Han et al. 2020): half of the channels by cheap depthwise convolutions."""
    net = Net((1, 3, size, size))

    def ghost(x: str, inputs: int, outputs: int, relu: bool) -> str:
        half = outputs // 2
        main = net.conv(x, inputs, half, 1)
        main = net.relu(main) if relu else main
        cheap = net.conv(main, half, half, 3, 1, half)
        return net.add("Concat", main, net.relu(cheap) if relu else cheap, axis=1)

    x, channels = net.relu(net.conv(net.input, 3, 16, 3, 2)), 16
    for inner, outputs, stride in ((48, 24, 2), (72, 24, 1), (120, 40, 2), (120, 40, 1)):
        y = ghost(x, channels, inner, relu=True)
        y = net.conv(y, inner, inner, 3, stride, inner) if stride > 1 else y
        y = ghost(y, inner, outputs, relu=False)
        if stride > 1 or channels != outputs:
            x = net.conv(x, channels, channels, 3, stride, channels)
            x = net.conv(x, channels, outputs, 1)
        x, channels = net.add("Add", y, x), outputs
    return classifier(net, net.relu(net.conv(x, channels, 160, 1)), 160)


def shuffle_net(size: int) -> onnx.ModelProto:
    """ShuffleNetV2 (Ma et al. 2018): a split, one half through, channels shuffled."""
    net = Net((1, 3, size, size))

    def branch(x: str, inputs: int, outputs: int, stride: int) -> str:
        y = net.relu(net.conv(x, inputs, outputs, 1))
        return net.relu(net.conv(net.conv(y, outputs, outputs, 3, stride, outputs), outputs,
                                 outputs, 1))  # fmt: skip

    def shuffled(left: str, right: str, half: int, size: int) -> str:
        shapes = ([1, 2, half, size, size], [1, 2 * half, size, size])
        first, last = (net.constant(np.array(s, np.int64)) for s in shapes)
        y = net.add("Reshape", net.add("Concat", left, right, axis=1), first)
        return net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3, 4]), last)

    x, channels, side = net.relu(net.conv(net.input, 3, 24, 3, 2)), 24, size // 2
    for half in (48, 96):
        side //= 2
        left = net.conv(x, channels, channels, 3, 2, channels)
        left = net.relu(net.conv(left, channels, half, 1))
        x = shuffled(left, branch(x, channels, half, 2), half, side)
        for _ in range(2):
            keep, work = net.split(x, half, half)
            x = shuffled(keep, branch(work, half, half, 1), half, side)
        channels = 2 * half
    return classifier(net, x, channels)


def inception(size: int) -> onnx.ModelProto:
    """Inception modules (Szegedy et al. 2015): four branches of other kernels, joined."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 64, 3, 2)), 64
    for width in (32, 48, 64):
        one = net.relu(net.conv(x, channels, width, 1))
        three = net.relu(net.conv(net.relu(net.conv(x, channels, width, 1)), width, width, 3))
        five = net.relu(net.conv(net.relu(net.conv(x, channels, 16, 1)), 16, 32, 5))
        pool = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        pool = net.relu(net.conv(pool, channels, 32, 1))
        x, channels = net.add("Concat", one, three, five, pool, axis=1), 2 * width + 64
        if width < 64:
            x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return classifier(net, x, channels)


def hr_net(size: int) -> onnx.ModelProto:
    """A fragment of HRNet (Wang et al. 2020): two resolutions that exchange their maps twice."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.relu(net.conv(net.input, 3, 32, 3, 2)), 32, 32, 3, 2))
    high = net.relu(net.conv(x, 32, 18, 3))
    low = net.relu(net.conv(x, 32, 36, 3, 2))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))

    def block(x: str, width: int) -> str:
        y = net.conv(net.relu(net.conv(x, width, width, 3)), width, width, 3)
        return net.relu(net.add("Add", y, x))

    for _ in range(2):
        high, low = block(high, 18), block(low, 36)
        up = net.add("Resize", net.conv(low, 36, 18, 1), "", scales, mode="nearest")
        down = net.conv(high, 18, 36, 3, 2)
        high, low = net.relu(net.add("Add", high, up)), net.relu(net.add("Add", down, low))
    up = net.add("Resize", low, "", scales, mode="linear")
    joined = net.relu(net.conv(net.add("Concat", high, up, axis=1), 54, 54, 1))
    return net.model(net.conv(joined, 54, 17, 1))


def aspp(size: int) -> onnx.ModelProto:
    """The head of DeepLabv3 (Chen et al. 2017): dilated convolutions beside a global mean."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.relu(net.conv(net.input, 3, 32, 3, 2)), 32, 64, 3, 2))
    side = size // 4
    parts = [net.relu(net.conv(x, 64, 32, 1))]
    for rate in (2, 4, 6):
        weight, bias = net.weight(32, 64, 3, 3), net.weight(32)
        y = net.add(
            "Conv", x, weight, bias, kernel_shape=[3, 3], pads=[rate] * 4, dilations=[rate] * 2
        )
        parts.append(net.relu(y))
    mean = net.relu(net.conv(net.add("GlobalAveragePool", x), 64, 32, 1))
    sizes = net.constant(np.array([1, 32, side, side], np.int64))
    parts.append(net.add("Resize", mean, "", "", sizes, mode="linear"))
    y = net.relu(net.conv(net.add("Concat", *parts, axis=1), 160, 64, 1))
    y = net.conv(net.relu(net.conv(y, 64, 64, 3)), 64, 21, 1)
    scales = net.constant(np.array([1, 1, 4, 4], np.float32))
    return net.model(net.add("Resize", y, "", scales, mode="linear"))


def espcn(size: int) -> onnx.ModelProto:
    """ESPCN (Shi et al. 2016): Tanh, and pixels from channels at the end."""
    net = Net((1, 3, size, size))
    x = net.add("Tanh", net.conv(net.input, 3, 64, 5))
    x = net.add("Tanh", net.conv(x, 64, 32, 3))
    return net.model(net.add("DepthToSpace", net.conv(x, 32, 12, 3), blocksize=2, mode="CRD"))


def tcn(steps: int) -> onnx.ModelProto:
    """A temporal convolutional network (Bai et al. 2018): causal, dilated, one dimension."""
    net = Net((1, 16, steps))
    x, channels = net.input, 16
    for width, rate in ((32, 1), (32, 2), (64, 4), (64, 8)):
        y, inputs = x, channels
        for _ in range(2):
            pads = net.constant(np.array([0, 0, 2 * rate, 0, 0, 0], np.int64))
            weight, bias = net.weight(width, inputs, 3), net.weight(width)
            y = net.add("Pad", y, pads)
            y = net.relu(net.add("Conv", y, weight, bias, kernel_shape=[3], dilations=[rate]))
            inputs = width
        if channels != width:
            x = net.add("Conv", x, net.weight(width, channels, 1), net.weight(width))
        x, channels = net.relu(net.add("Add", y, x)), width
    return net.model(net.add("Conv", x, net.weight(10, channels, 1), net.weight(10)))


# --- networks of tokens ---------------------------------------------------------------------


def _linear(net: Net, x: str, inputs: int, outputs: int) -> str:
    """As PyTorch exports it: the bias comes first."""
    y = net.add("MatMul", x, net.weight(inputs, outputs))
    return net.add("Add", net.weight(outputs), y)


def _tanh_gelu(net: Net, x: str) -> str:
    cube = net.add("Mul", net.add("Pow", x, scalar(net, 3)), scalar(net, 0.044715))
    inner = net.add("Mul", net.add("Add", x, cube), scalar(net, (2 / np.pi) ** 0.5))
    gate = net.add("Add", net.add("Tanh", inner), scalar(net, 1))
    return net.add("Mul", net.add("Mul", x, scalar(net, 0.5)), gate)


def _heads(net: Net, x: str, tokens: int, heads: int, width: int, perm: list[int]) -> str:
    split = reshape(net, x, 1, tokens, heads, width // heads)
    return net.add("Transpose", split, perm=perm)


def _attended(net: Net, q: str, k: str, v: str, scale: float, mask: np.ndarray | None) -> str:
    scores = net.add("Mul", net.add("MatMul", q, k), scalar(net, scale))
    if mask is not None:
        scores = net.add("Add", scores, net.constant(mask.astype(np.float32)))
    return net.add("MatMul", net.add("Softmax", scores, axis=-1), v)


def gpt(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """Two blocks of GPT-2 (Radford et al. 2019): one product for all three, a causal mask."""
    net = Net((1, tokens, width))
    x = net.input
    mask = np.triu(np.full((1, 1, tokens, tokens), -1e4), 1)
    for _ in range(2):
        weight, bias = net.weight(width, 3 * width), net.weight(3 * width)
        joined = net.add("Add", net.add("MatMul", norm(net, x, width), weight), bias)
        sizes = net.constant(np.array([width] * 3, np.int64))
        q, k, v = (
            _heads(net, part, tokens, heads, width, perm)
            for part, perm in zip(
                net.add_many("Split", (joined, sizes), 3, axis=2),
                ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]),
                strict=True,
            )
        )
        y = _attended(net, q, k, v, (width // heads) ** -0.5, mask)
        y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, tokens, width)
        x = net.add("Add", _linear(net, y, width, width), x)
        y = _tanh_gelu(net, _linear(net, norm(net, x, width), width, 4 * width))
        x = net.add("Add", x, _linear(net, y, 4 * width, width))
    return net.model(net.add("MatMul", norm(net, x, width), net.weight(width, 256)))


def _self_attention(net: Net, x: str, tokens: int, heads: int, width: int) -> str:
    q, k, v = (_linear(net, x, width, width) for _ in range(3))
    q = _heads(net, q, tokens, heads, width, [0, 2, 1, 3])
    k = _heads(net, k, tokens, heads, width, [0, 2, 3, 1])
    v = _heads(net, v, tokens, heads, width, [0, 2, 1, 3])
    y = _attended(net, q, k, v, (width // heads) ** -0.5, None)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, tokens, width)
    return _linear(net, y, width, width)


def whisper(frames: int, width: int, heads: int) -> onnx.ModelProto:
    """The encoder of Whisper (Radford et al. 2022): 1-D convolutions, positions, attention."""
    net = Net((1, 80, frames))
    x = net.add("Conv", net.input, net.weight(width, 80, 3), net.weight(width), pads=[1, 1])
    x = net.add("Conv", gelu_in_parts(net, x), net.weight(width, width, 3), net.weight(width),
                pads=[1, 1], strides=[2])  # fmt: skip
    tokens = frames // 2
    x = net.add("Transpose", gelu_in_parts(net, x), perm=[0, 2, 1])
    x = net.add("Add", x, net.weight(tokens, width))
    y = _self_attention(net, norm(net, x, width), tokens, heads, width)
    x = net.add("Add", x, y)
    y = gelu_in_parts(net, _linear(net, norm(net, x, width), width, 4 * width))
    x = net.add("Add", x, _linear(net, y, 4 * width, width))
    return net.model(norm(net, x, width))


def swin(side: int, width: int, heads: int, window: int = 4) -> onnx.ModelProto:
    """Two blocks of Swin (Liu et al. 2021): windows, then shifted ones, positions as a bias."""
    net = Net((1, 3, 4 * side, 4 * side))
    x = net.add("Conv", net.input, net.weight(width, 3, 4, 4), net.weight(width), strides=[4, 4])
    x = net.add("Transpose", reshape(net, x, 1, width, side * side), perm=[0, 2, 1])
    for shift in (0, window // 2):
        y = reshape(net, norm(net, x, width), 1, side, side, width)
        y = _windows_attended(net, _rolled(net, y, shift, side), side, width, heads, window)
        y = _rolled(net, y, -shift, side)
        x = net.add("Add", x, reshape(net, y, 1, side * side, width))
        y = gelu_in_parts(net, _linear(net, norm(net, x, width), width, 4 * width))
        x = net.add("Add", x, _linear(net, y, 4 * width, width))
    mean = net.add("ReduceMean", norm(net, x, width), axes=[1], keepdims=0)
    return net.model(net.add("Gemm", mean, net.weight(width, 100), net.weight(100)))


def _rolled(net: Net, x: str, shift: int, side: int) -> str:
    """Shifted by ``shift`` along both sides, as torch.roll is exported."""
    for axis in (1, 2) if shift else ():
        cut = shift % side
        first, last = (
            net.add("Slice", x, *(net.constant(np.array([v], np.int64)) for v in (*ends, axis)))
            for ends in ((cut, side), (0, cut))
        )
        x = net.add("Concat", first, last, axis=axis)
    return x


def _windows_attended(net: Net, x: str, side: int, width: int, heads: int, window: int) -> str:
    count, tokens, deep = side // window, window * window, width // heads
    x = reshape(net, x, 1, count, window, count, window, width)
    x = reshape(net, net.add("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), count**2, tokens, width)
    joined = _linear(net, x, width, 3 * width)
    joined = reshape(net, joined, count**2, tokens, 3, heads, deep)
    joined = net.add("Transpose", joined, perm=[2, 0, 3, 1, 4])
    q, k, v = (
        net.add("Gather", joined, net.constant(np.array(i, np.int64)), axis=0) for i in range(3)
    )
    scores = net.add("MatMul", net.add("Mul", q, scalar(net, deep**-0.5)),
                     net.add("Transpose", k, perm=[0, 1, 3, 2]))  # fmt: skip
    scores = net.add("Add", scores, net.weight(1, heads, tokens, tokens))
    y = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), count**2, tokens, width)
    y = reshape(net, _linear(net, y, width, width), 1, count, count, window, window, width)
    return reshape(net, net.add("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), 1, side, side, width)


def segformer(side: int, width: int, heads: int) -> onnx.ModelProto:
    """A stage of SegFormer (Xie et al. 2021): few keys by a strided Conv, a Conv in the MLP."""
    net = Net((1, 3, 4 * side, 4 * side))
    tokens, few = side * side, (side // 2) ** 2
    x = net.add("Conv", net.input, net.weight(width, 3, 7, 7), net.weight(width),
                strides=[4, 4], pads=[3] * 4)  # fmt: skip
    x = net.add("Transpose", reshape(net, x, 1, width, tokens), perm=[0, 2, 1])
    normed = norm(net, x, width)
    image = reshape(net, net.add("Transpose", normed, perm=[0, 2, 1]), 1, width, side, side)
    less = net.add("Conv", image, net.weight(width, width, 2, 2), net.weight(width), strides=[2, 2])
    less = net.add("Transpose", reshape(net, less, 1, width, few), perm=[0, 2, 1])
    less = norm(net, less, width)
    q = _heads(net, _linear(net, normed, width, width), tokens, heads, width, [0, 2, 1, 3])
    k = _heads(net, _linear(net, less, width, width), few, heads, width, [0, 2, 3, 1])
    v = _heads(net, _linear(net, less, width, width), few, heads, width, [0, 2, 1, 3])
    y = _attended(net, q, k, v, (width // heads) ** -0.5, None)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, tokens, width)
    x = net.add("Add", x, _linear(net, y, width, width))
    y = _linear(net, norm(net, x, width), width, 4 * width)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1]), 1, 4 * width, side, side)
    y = net.conv(y, 4 * width, 4 * width, 3, 1, 4 * width)
    y = net.add("Transpose", reshape(net, y, 1, 4 * width, tokens), perm=[0, 2, 1])
    x = net.add("Add", x, _linear(net, gelu_in_parts(net, y), 4 * width, width))
    y = net.add("Transpose", norm(net, x, width), perm=[0, 2, 1])
    return net.model(net.conv(reshape(net, y, 1, width, side, side), width, 19, 1))


def detr(side: int, width: int, heads: int, queries: int = 20) -> onnx.ModelProto:
    """A decoder layer of DETR (Carion et al. 2020): queries look at the map, boxes and classes."""
    net = Net((1, 64, side, side))
    tokens = side * side
    memory = reshape(net, net.conv(net.input, 64, width, 1), 1, width, tokens)
    memory = net.add("Transpose", memory, perm=[0, 2, 1])
    keys = net.add("Add", memory, net.weight(tokens, width))
    asked = net.weight(1, queries, width)
    q = _heads(net, _linear(net, asked, width, width), queries, heads, width, [0, 2, 1, 3])
    k = _heads(net, _linear(net, keys, width, width), tokens, heads, width, [0, 2, 3, 1])
    v = _heads(net, _linear(net, memory, width, width), tokens, heads, width, [0, 2, 1, 3])
    y = _attended(net, q, k, v, (width // heads) ** -0.5, None)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, queries, width)
    x = norm(net, net.add("Add", _linear(net, y, width, width), asked), width)
    y = _linear(net, net.relu(_linear(net, x, width, 4 * width)), 4 * width, width)
    x = norm(net, net.add("Add", x, y), width)
    boxes = x
    for outputs in (width, width, 4):
        boxes = _linear(net, boxes, width, outputs)
        boxes = net.relu(boxes) if outputs == width else net.add("Sigmoid", boxes)
    return net.model(_linear(net, x, width, 92), boxes)


HELD_OUT: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "RepVGG": lambda: rep_vgg(64),
    "GhostNet": lambda: ghost_net(64),
    "ShuffleNetV2": lambda: shuffle_net(64),
    "Inception": lambda: inception(64),
    "HRNet": lambda: hr_net(64),
    "DeepLab ASPP": lambda: aspp(64),
    "ESPCN": lambda: espcn(48),
    "TCN": lambda: tcn(128),
    "GPT-2": lambda: gpt(64, 128, 4),
    "Whisper": lambda: whisper(128, 128, 4),
    "Swin": lambda: swin(16, 96, 3),
    "SegFormer": lambda: segformer(16, 64, 2),
    "DETR": lambda: detr(8, 128, 4),
}
