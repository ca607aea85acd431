"""Networks that tell how well OpenVINO's layers are predicted where nobody looked at differences.

As in ``topologies``: random weights, the structure of the papers, fewer blocks. Only the figures of
these networks are read; what is mended is found on others, or the figures say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.networks.exporter_styles import cut, gelu_in_parts, norm, reshape, scalar
from benchmarks.networks.topologies import Net, classifier


def vgg(size: int) -> onnx.ModelProto:
    """VGG (Simonyan and Zisserman 2014): plain convolutions, three fully connected layers."""
    net = Net((1, 3, size, size))
    x, channels = net.input, 3
    for width, count in ((16, 1), (32, 2), (64, 2)):
        for _ in range(count):
            x, channels = net.relu(net.conv(x, channels, width, 3)), width
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, inputs = net.add("Flatten", x), channels * (size // 8) ** 2
    for outputs in (128, 128):
        x = net.relu(_gemm(net, x, inputs, outputs))
        inputs = outputs
    return net.model(net.add("Softmax", _gemm(net, x, inputs, 10), axis=1))


def reg_net(size: int) -> onnx.ModelProto:
    """RegNetY (Radosavovic et al. 2020): grouped convolutions, squeeze and excitation."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 32, 3, 2)), 32
    for width, count in ((48, 1), (96, 2), (192, 2)):
        for block in range(count):
            stride = 1 if block else 2
            y = net.relu(net.conv(x, channels, width, 1))
            y = net.relu(net.conv(y, width, width, 3, stride, group=width // 24))
            y = _gated(net, y, width, channels // 4)
            y = net.conv(y, width, width, 1)
            shortcut = x if block else net.conv(x, channels, width, 1, stride)
            x, channels = net.relu(net.add("Add", y, shortcut)), width
    return classifier(net, x, channels)


def _gated(net: Net, x: str, width: int, inner: int) -> str:
    """Squeeze and excitation, the mean as ReduceMean."""
    mean = net.add("ReduceMean", x, axes=[2, 3], keepdims=1)
    inner = max(inner, 8)
    gate = net.conv(net.relu(net.conv(mean, width, inner, 1)), inner, width, 1)
    return net.add("Mul", x, net.add("Sigmoid", gate))


def csp_detector(size: int) -> onnx.ModelProto:
    """A YOLOv5-like detector (Ultralytics 2020): Focus by slices, C3 blocks, decoded boxes."""
    net = Net((1, 3, size, size))
    x = net.silu(net.conv(_focus(net, net.input), 12, 16, 3))
    features, channels = [], 16
    for repeats in (1, 2):
        x = net.silu(net.conv(x, channels, 2 * channels, 3, 2))
        channels *= 2
        x = _c3(net, x, channels, channels, repeats)
        features.append((x, channels))
    (early, few), (late, many) = features
    top = net.silu(net.conv(late, many, few, 1))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", top, "", scales, mode="nearest")
    near = _c3(net, net.add("Concat", up, early, axis=1), 2 * few, few, 1)
    down = net.silu(net.conv(near, few, few, 3, 2))
    far = _c3(net, net.add("Concat", down, top, axis=1), 2 * few, many, 1)
    heads = [
        _decoded(net, near, few, size // 4, 8, 10),
        _decoded(net, far, many, size // 8, 16, 10),
    ]
    return net.model(net.add("Concat", *heads, axis=1))


def _focus(net: Net, x: str) -> str:
    """The four phases of the image's pixels side by side."""
    last = 2**31 - 1
    parts = []
    for column in (0, 1):
        for row in (0, 1):
            y = cut(net, x, row, last, 2, 2)
            parts.append(cut(net, y, column, last, 3, 2))
    return net.add("Concat", *parts, axis=1)


def _c3(net: Net, x: str, inputs: int, outputs: int, repeats: int) -> str:
    half = outputs // 2
    main, side = (net.silu(net.conv(x, inputs, half, 1)) for _ in range(2))
    for _ in range(repeats):
        inner = net.silu(net.conv(net.silu(net.conv(main, half, half, 1)), half, half, 3))
        main = net.add("Add", main, inner)
    return net.silu(net.conv(net.add("Concat", main, side, axis=1), outputs, outputs, 1))


def _decoded(net: Net, x: str, channels: int, side: int, stride: int, classes: int) -> str:
    """Boxes in pixels: offsets and squared sizes of three anchors in each cell."""
    count = 5 + classes
    y = reshape(net, net.conv(x, channels, 3 * count, 1), 1, 3, count, side, side)
    y = net.add("Sigmoid", net.add("Transpose", y, perm=[0, 1, 3, 4, 2]))
    sizes = net.constant(np.array([2, 2, 1 + classes], np.int64))
    centre, extent, scores = net.add_many("Split", (y, sizes), 3, axis=4)
    grid = net.constant(net.rng.random((1, 3, side, side, 2)).astype(np.float32))
    centre = net.add("Add", net.add("Mul", centre, scalar(net, 2 * stride)), grid)
    extent = net.add("Pow", net.add("Mul", extent, scalar(net, 2)), scalar(net, 2))
    extent = net.add("Mul", extent, net.constant(net.rng.random((1, 3, 1, 1, 2)).astype("f")))
    joined = net.add("Concat", centre, extent, scores, axis=4)
    return reshape(net, joined, 1, 3 * side * side, count)


def bi_fpn(size: int) -> onnx.ModelProto:
    """A layer of EfficientDet's BiFPN (Tan et al. 2020): weighted sums, separable convolutions."""
    net = Net((1, 3, size, size))
    x, channels, levels = net.silu(net.conv(net.input, 3, 16, 3, 2)), 16, []
    for width in (24, 40, 80):
        x, channels = net.silu(net.conv(x, channels, width, 3, 2)), width
        levels.append(net.conv(x, width, 48, 1))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))

    def merged(*maps: str) -> str:
        parts = [net.add("Mul", m, scalar(net, 1 / len(maps))) for m in maps]
        total = parts[0]
        for part in parts[1:]:
            total = net.add("Add", total, part)
        return net.conv(net.conv(net.silu(total), 48, 48, 3, 1, 48), 48, 48, 1)

    p3, p4, p5 = levels
    down = merged(p4, net.add("Resize", p5, "", scales, mode="nearest"))
    out3 = merged(p3, net.add("Resize", down, "", scales, mode="nearest"))

    def pooled(m: str) -> str:
        return net.add("MaxPool", m, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    out4 = merged(p4, down, pooled(out3))
    out5 = merged(p5, pooled(out4))
    heads = [net.add("Sigmoid", net.conv(m, 48, 18, 3)) for m in (out3, out4, out5)]
    return net.model(*heads)


def attention_unet(size: int) -> onnx.ModelProto:
    """Attention U-Net (Oktay et al. 2018): skips gated by what comes from below."""
    net = Net((1, 1, size, size))
    x, channels, skips = net.input, 1, []
    for width in (16, 32):
        x = net.relu(net.conv(net.relu(net.conv(x, channels, width, 3)), width, width, 3))
        skips.append((x, width))
        x, channels = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), width
    x, channels = net.relu(net.conv(x, 32, 64, 3)), 64
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    for skip, width in reversed(skips):
        up = net.add("Resize", x, "", scales, mode="linear")
        up = net.relu(net.conv(up, channels, width, 3))
        both = net.add(
            "Add", net.conv(up, width, width // 2, 1), net.conv(skip, width, width // 2, 1)
        )
        gate = net.add("Sigmoid", net.conv(net.relu(both), width // 2, 1, 1))
        joined = net.add("Concat", net.add("Mul", skip, gate), up, axis=1)
        x, channels = net.relu(net.conv(joined, 2 * width, width, 3)), width
    return net.model(net.conv(x, channels, 2, 1))


def rcan(size: int) -> onnx.ModelProto:
    """RCAN (Zhang et al. 2018): residual groups with channel attention, pixels from channels."""
    net = Net((1, 3, size, size))
    x = head = net.conv(net.input, 3, 32, 3)
    for _ in range(3):
        y = net.conv(net.relu(net.conv(x, 32, 32, 3)), 32, 32, 3)
        gate = net.relu(net.conv(net.add("GlobalAveragePool", y), 32, 8, 1))
        y = net.add("Mul", y, net.add("Sigmoid", net.conv(gate, 8, 32, 1)))
        x = net.add("Add", net.add("Mul", y, scalar(net, 0.1)), x)
    x = net.add("Add", net.conv(x, 32, 32, 3), head)
    x = net.add("DepthToSpace", net.conv(x, 32, 128, 3), blocksize=2, mode="CRD")
    return net.model(net.conv(x, 32, 3, 3))


def psp_net(size: int) -> onnx.ModelProto:
    """PSPNet's head (Zhao et al. 2017): means of four sizes, resized and joined."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.relu(net.conv(net.input, 3, 32, 3, 2)), 32, 64, 3, 2))
    side, parts = size // 4, [x]
    for bins in (1, 2, 4):
        kernel = side // bins
        y = net.add("AveragePool", x, kernel_shape=[kernel] * 2, strides=[kernel] * 2)
        y = net.relu(net.conv(y, 64, 16, 1))
        sizes = net.constant(np.array([1, 16, side, side], np.int64))
        parts.append(net.add("Resize", y, "", "", sizes, mode="linear"))
    y = net.relu(net.conv(net.add("Concat", *parts, axis=1), 112, 64, 3))
    sizes = net.constant(np.array([1, 21, size, size], np.int64))
    return net.model(net.add("Resize", net.conv(y, 64, 21, 1), "", "", sizes, mode="linear"))


def wave_net(steps: int) -> onnx.ModelProto:
    """WaveNet (van den Oord et al. 2016): gated dilated 1-D convolutions, summed skips."""
    net = Net((1, 8, steps))
    x, skips = _conv1d(net, net.input, 8, 32, 1), []
    for rate in (1, 2, 4):
        gates = [_conv1d(net, x, 32, 32, 3, rate) for _ in range(2)]
        y = net.add("Mul", net.add("Tanh", gates[0]), net.add("Sigmoid", gates[1]))
        skips.append(_conv1d(net, y, 32, 48, 1))
        x = net.add("Add", _conv1d(net, y, 32, 32, 1), x)
    total = net.add("Add", net.add("Add", skips[0], skips[1]), skips[2])
    y = net.relu(_conv1d(net, net.relu(total), 48, 48, 1))
    return net.model(_conv1d(net, y, 48, 16, 1))


def _conv1d(
    net: Net, x: str, inputs: int, outputs: int, kernel: int, rate: int = 1, group: int = 1
) -> str:
    weight, bias = net.weight(outputs, inputs // group, kernel), net.weight(outputs)
    pads = [kernel // 2 * rate] * 2
    return net.add("Conv", x, weight, bias, pads=pads, dilations=[rate], group=group)


# --- networks of tokens ---------------------------------------------------------------------


def _gemm(net: Net, x: str, inputs: int, outputs: int) -> str:
    return net.add("Gemm", x, net.weight(outputs, inputs), net.weight(outputs), transB=1)


def _linear(net: Net, x: str, inputs: int, outputs: int) -> str:
    return net.add("Add", net.weight(outputs), net.add("MatMul", x, net.weight(inputs, outputs)))


def _norm_in_parts(net: Net, x: str, width: int) -> str:
    """As exporters of opset 16 and before write it."""
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    variance = net.add("ReduceMean", net.add("Pow", centred, scalar(net, 2)), axes=[-1])
    root = net.add("Sqrt", net.add("Add", variance, scalar(net, 1e-5)))
    y = net.add("Mul", net.add("Div", centred, root), net.weight(width))
    return net.add("Add", y, net.weight(width))


def _root_mean_square(net: Net, x: str, width: int) -> str:
    mean = net.add("ReduceMean", net.add("Pow", x, scalar(net, 2)), axes=[-1])
    root = net.add("Sqrt", net.add("Add", mean, scalar(net, 1e-6)))
    return net.add("Mul", net.weight(width), net.add("Mul", x, net.add("Reciprocal", root)))


def _attention(
    net: Net, x: str, tokens: int, width: int, heads: int, bias: np.ndarray | None, scaled: bool
) -> str:
    """Scores are divided by the root of the width, as BERT does it, or not at all (T5)."""
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = reshape(net, _linear(net, x, width, width), 1, tokens, heads, width // heads)
        parts.append(net.add("Transpose", y, perm=perm))
    scores = net.add("MatMul", parts[0], parts[1])
    if scaled:
        scores = net.add("Div", scores, scalar(net, (width // heads) ** 0.5))
    if bias is not None:
        scores = net.add("Add", scores, net.constant(bias.astype(np.float32)))
    y = net.add("MatMul", net.add("Softmax", scores, axis=-1), parts[2])
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, tokens, width)
    return _linear(net, y, width, width)


def bert(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """Two layers of BERT (Devlin et al. 2018): norms in parts behind each sum, a pooler."""
    net = Net((1, tokens, width))
    x = _norm_in_parts(net, net.input, width)
    mask = np.zeros((1, 1, 1, tokens))
    for _ in range(2):
        y = _attention(net, x, tokens, width, heads, mask, scaled=True)
        x = _norm_in_parts(net, net.add("Add", y, x), width)
        y = _linear(net, gelu_in_parts(net, _linear(net, x, width, 4 * width)), 4 * width, width)
        x = _norm_in_parts(net, net.add("Add", y, x), width)
    first = net.add("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    pooled = net.add("Tanh", _gemm(net, first, width, width))
    return net.model(_gemm(net, pooled, width, 3))


def t5(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """A layer of T5's encoder (Raffel et al. 2020): root mean squares, positions, gated GELU."""
    net = Net((1, tokens, width))
    x = net.input
    bias = net.rng.standard_normal((1, heads, tokens, tokens))
    normed = _root_mean_square(net, x, width)
    x = net.add("Add", x, _attention(net, normed, tokens, width, heads, bias, scaled=False))
    normed = _root_mean_square(net, x, width)
    gate = gelu_in_parts(net, net.add("MatMul", normed, net.weight(width, 2 * width)))
    y = net.add("Mul", gate, net.add("MatMul", normed, net.weight(width, 2 * width)))
    x = net.add("Add", x, net.add("MatMul", y, net.weight(2 * width, width)))
    return net.model(_root_mean_square(net, x, width))


def mixer(side: int, width: int) -> onnx.ModelProto:
    """MLP-Mixer (Tolstikhin et al. 2021): products over tokens and over channels in turn."""
    net, tokens = Net((1, 3, 4 * side, 4 * side)), side * side
    x = net.add("Conv", net.input, net.weight(width, 3, 4, 4), net.weight(width), strides=[4, 4])
    x = net.add("Transpose", reshape(net, x, 1, width, tokens), perm=[0, 2, 1])
    for _ in range(2):
        y = net.add("Transpose", norm(net, x, width), perm=[0, 2, 1])
        y = _linear(
            net, gelu_in_parts(net, _linear(net, y, tokens, 2 * tokens)), 2 * tokens, tokens
        )
        x = net.add("Add", x, net.add("Transpose", y, perm=[0, 2, 1]))
        y = gelu_in_parts(net, _linear(net, norm(net, x, width), width, 2 * width))
        x = net.add("Add", x, _linear(net, y, 2 * width, width))
    mean = net.add("ReduceMean", norm(net, x, width), axes=[1], keepdims=0)
    return net.model(_gemm(net, mean, width, 10))


def mobile_vit(side: int, width: int) -> onnx.ModelProto:
    """A block of MobileViT (Mehta and Rastegari 2021): patches unfolded, attended, folded back."""
    net = Net((1, 3, 2 * side, 2 * side))
    x = net.silu(net.conv(net.input, 3, width, 3, 2))
    y = net.conv(net.silu(net.conv(x, width, width, 3)), width, 2 * width, 1)
    half, deep = side // 2, 2 * width
    y = reshape(net, y, deep * half, 2, half, 2)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, deep, half * half, 4)
    y = reshape(net, net.add("Transpose", y, perm=[0, 3, 2, 1]), 1, side * side, deep)
    z = _attention(net, norm(net, y, deep), side * side, deep, 4, None, scaled=True)
    y = net.add("Add", y, z)
    z = net.silu(_linear(net, norm(net, y, deep), deep, 2 * deep))
    y = norm(net, net.add("Add", y, _linear(net, z, 2 * deep, deep)), deep)
    y = net.add("Transpose", reshape(net, y, 1, 4, half * half, deep), perm=[0, 3, 2, 1])
    y = reshape(net, y, deep * half, half, 2, 2)
    y = reshape(net, net.add("Transpose", y, perm=[0, 2, 1, 3]), 1, deep, side, side)
    y = net.silu(net.conv(y, deep, width, 1))
    y = net.silu(net.conv(net.add("Concat", x, y, axis=1), deep, width, 3))
    return classifier(net, y, width, 10)


def conformer(steps: int, width: int, heads: int) -> onnx.ModelProto:
    """A block of Conformer (Gulati et al. 2020): half steps, attention, a gated convolution."""
    net = Net((1, steps, width))
    x = net.input
    for part in ("half", "attention", "convolution", "half"):
        normed = norm(net, x, width)
        if part == "half":
            y = net.silu(_linear(net, normed, width, 4 * width))
            y = net.add("Mul", _linear(net, y, 4 * width, width), scalar(net, 0.5))
        elif part == "attention":
            y = _attention(net, normed, steps, width, heads, None, scaled=True)
        else:
            y = net.add("Transpose", normed, perm=[0, 2, 1])
            first, gate = net.split(_conv1d(net, y, width, 2 * width, 1), width, width)
            y = net.add("Mul", first, net.add("Sigmoid", gate))
            y = net.silu(_conv1d(net, y, width, width, 7, group=width))
            y = net.add("Transpose", _conv1d(net, y, width, width, 1), perm=[0, 2, 1])
        x = net.add("Add", y, x)
    return net.model(norm(net, x, width))


def recurrent(steps: int, op: str) -> onnx.ModelProto:
    """Convolutions, two recurrent layers of both directions, and a product for each step (CRNN)."""
    net, gates, hidden = Net((1, 1, 16, steps)), {"LSTM": 4, "GRU": 3}[op], 32
    x = net.relu(net.conv(net.input, 1, 16, 3))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.relu(net.conv(x, 16, 32, 3))
    x = net.add("MaxPool", x, kernel_shape=[8, 1], strides=[8, 1])
    x = net.add("Squeeze", x, net.constant(np.array([2], np.int64)))
    x, inputs = net.add("Transpose", x, perm=[2, 0, 1]), 32
    for _ in range(2):
        weights = (
            net.weight(2, gates * hidden, inputs),
            net.weight(2, gates * hidden, hidden),
            net.weight(2, 2 * gates * hidden),
        )
        y = net.add(op, x, *weights, hidden_size=hidden, direction="bidirectional")
        y = net.add("Transpose", y, perm=[0, 2, 1, 3])
        x, inputs = reshape(net, y, 0, 0, -1), 2 * hidden
    return net.model(net.add("Softmax", _linear(net, x, inputs, 20), axis=2))


FRESH: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "VGG": lambda: vgg(32),
    "RegNetY": lambda: reg_net(64),
    "YOLOv5-like": lambda: csp_detector(64),
    "BiFPN": lambda: bi_fpn(64),
    "Attention U-Net": lambda: attention_unet(32),
    "RCAN": lambda: rcan(24),
    "PSPNet": lambda: psp_net(64),
    "WaveNet": lambda: wave_net(128),
    "BERT": lambda: bert(32, 64, 4),
    "T5": lambda: t5(32, 64, 4),
    "MLP-Mixer": lambda: mixer(8, 64),
    "MobileViT": lambda: mobile_vit(16, 32),
    "Conformer": lambda: conformer(32, 64, 4),
    "CRNN (LSTM)": lambda: recurrent(64, "LSTM"),
    "CRNN (GRU)": lambda: recurrent(64, "GRU"),
}
