"""Sixteen more networks of families that no prediction was written with.

As in ``held_out``: random weights, the structure of the papers, fewer blocks and small
inputs, whose sizes and channels are others than there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.networks.exporter_styles import ints, reshape, scalar, turn
from benchmarks.networks.topologies import Net, classifier, linear

Build = Callable[[], onnx.ModelProto]


def _leaky(net: Net, x: str) -> str:
    return net.add("LeakyRelu", x, alpha=0.1)


def _norm(net: Net, x: str, width: int) -> str:
    return net.add("LayerNormalization", x, net.weight(width), net.weight(width), axis=-1)


def _gelu(net: Net, x: str) -> str:
    error = net.add("Erf", net.add("Mul", x, scalar(net, 0.5**0.5)))
    half = net.add("Mul", x, scalar(net, 0.5))
    return net.add("Mul", half, net.add("Add", error, scalar(net, 1)))


def _group_norm(net: Net, x: str, shape: tuple[int, ...], groups: int) -> str:
    """GroupNorm of a tensor of ``shape`` as PyTorch exports it."""
    y = reshape(net, x, shape[0], groups, -1)
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    y = net.add("InstanceNormalization", y, net.constant(ones), net.constant(zeros))
    channels = (shape[1], *[1] * (len(shape) - 2))
    y = net.add("Mul", reshape(net, y, *shape), net.weight(*channels))
    return net.add("Add", y, net.weight(*channels))


def _attention(net: Net, x: str, tokens: int, width: int, heads: int, by: str = "Mul") -> str:
    deep = width // heads

    def split(perm: list[int]) -> str:
        y = reshape(net, linear(net, x, width, width), -1, tokens, heads, deep)
        return net.add("Transpose", y, perm=perm)

    q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    scale = deep**-0.5 if by == "Mul" else deep**0.5
    scores = net.add(by, net.add("MatMul", q, k), scalar(net, scale))
    y = turn(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    return linear(net, reshape(net, y, -1, tokens, width), width, width)


def mobile_vit(size: int) -> onnx.ModelProto:
    """MobileViT (Mehta and Rastegari 2021): inverted bottlenecks, then attention over patches."""
    net = Net((1, 3, size, size))
    x, channels, side, width = net.silu(net.conv(net.input, 3, 16, 3, 2)), 16, size // 2, 48
    for outputs, stride in ((24, 2), (24, 1), (40, 2)):
        y = net.silu(net.conv(x, channels, 4 * channels, 1))
        y = net.silu(net.conv(y, 4 * channels, 4 * channels, 3, stride, 4 * channels))
        y = net.conv(y, 4 * channels, outputs, 1)
        x = net.add("Add", x, y) if stride == 1 and channels == outputs else y
        channels, side = outputs, side // stride
    y = net.add("Conv", net.silu(net.conv(x, channels, channels, 3)), net.weight(width, 40, 1, 1))
    cells = side // 2
    y = turn(net, reshape(net, y, width * cells, 2, cells, 2), 0, 2, 1, 3)
    y = turn(net, reshape(net, y, 1, width, cells**2, 4), 0, 3, 2, 1)
    y = reshape(net, y, 4, cells**2, width)
    for _ in range(2):
        y = net.add("Add", y, _attention(net, _norm(net, y, width), cells**2, width, 4))
        inner = net.silu(linear(net, _norm(net, y, width), width, 2 * width))
        y = net.add("Add", y, linear(net, inner, 2 * width, width))
    y = reshape(net, _norm(net, y, width), 1, 4, cells**2, width)
    y = reshape(net, turn(net, y, 0, 3, 2, 1), width * cells, cells, 2, 2)
    y = reshape(net, turn(net, y, 0, 2, 1, 3), 1, width, side, side)
    y = net.add("Concat", x, net.silu(net.conv(y, width, channels, 1)), axis=1)
    x = net.silu(net.conv(y, 2 * channels, channels, 3))
    return classifier(net, net.silu(net.conv(x, channels, 160, 1)), 160)


def psp_net(size: int) -> onnx.ModelProto:
    """PSPNet (Zhao et al. 2017): averages over 1, 4, 9 and 36 regions, resized and joined."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.relu(net.conv(net.input, 3, 32, 3, 2)), 32, 32, 3))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    side, channels = size // 4, 32
    for width in (48, 64):
        y = net.conv(net.relu(net.conv(x, channels, width, 3)), width, width, 3)
        x, channels = net.relu(net.add("Add", y, net.conv(x, channels, width, 1))), width
    parts = [x]
    for regions in (1, 2, 3, 6):
        cell = side // regions
        y = net.add("AveragePool", x, kernel_shape=[cell] * 2, strides=[cell] * 2)
        y = net.relu(net.conv(y, channels, 16, 1))
        sizes = ints(net, 1, 16, side, side)
        parts.append(net.add("Resize", y, "", "", sizes, mode="linear"))
    x = net.relu(net.conv(net.add("Concat", *parts, axis=1), channels + 64, 64, 3))
    sizes = ints(net, 1, 21, size, size)
    y = net.add("Resize", net.conv(x, 64, 21, 1), "", "", sizes, mode="linear",
                coordinate_transformation_mode="align_corners")  # fmt: skip
    return net.model(y)


def reg_net(size: int) -> onnx.ModelProto:
    """RegNetY (Radosavovic et al. 2020): grouped convolutions, squeeze and excitation."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 32, 3, 2)), 32
    for width, stride in ((48, 2), (48, 1), (96, 2), (96, 1), (96, 1)):
        y = net.relu(net.conv(x, channels, width, 1))
        y = net.relu(net.conv(y, width, width, 3, stride, width // 16))
        squeezed = net.add("ReduceMean", y, axes=[2, 3], keepdims=1)
        squeezed = net.relu(net.conv(squeezed, width, channels // 4, 1))
        gate = net.add("Sigmoid", net.conv(squeezed, channels // 4, width, 1))
        y = net.conv(net.add("Mul", y, gate), width, width, 1)
        same = stride == 1 and channels == width
        x = net.relu(net.add("Add", x if same else net.conv(x, channels, width, 1, stride), y))
        channels = width
    return classifier(net, x, channels)


def bert(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """Two layers of BERT (Devlin et al. 2018): norms behind the sums, a pooler of one token."""
    net = Net((1, tokens, width))
    x = _norm(net, net.add("Add", net.input, net.weight(1, tokens, width)), width)
    for _ in range(2):
        x = _norm(net, net.add("Add", _attention(net, x, tokens, width, heads, "Div"), x), width)
        y = linear(net, _gelu(net, linear(net, x, width, 4 * width)), 4 * width, width)
        x = _norm(net, net.add("Add", y, x), width)
    first = net.add("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    pooled = net.add("Tanh", net.add("Gemm", first, net.weight(width, width), net.weight(width)))
    return net.model(x, net.add("Gemm", pooled, net.weight(width, 3), net.weight(3)))


def llama(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    """A block of Llama (Touvron et al. 2023): RMSNorm, rotary positions, SwiGLU."""
    net = Net((1, tokens, width))
    x, deep, hidden = net.input, width // heads, 5 * width // 2
    angles = np.random.default_rng(0).random((1, 1, tokens, deep)).astype(np.float32)
    cosine, sine = net.constant(np.cos(angles)), net.constant(np.sin(angles))

    def rms(x: str) -> str:
        mean = net.add("ReduceMean", net.add("Pow", x, scalar(net, 2)), axes=[-1], keepdims=1)
        root = net.add("Sqrt", net.add("Add", mean, scalar(net, 1e-5)))
        factor = net.add("Div", scalar(net, 1), root)
        return net.add("Mul", net.weight(width), net.add("Mul", x, factor))

    def split(x: str) -> str:
        y = net.add("MatMul", x, net.weight(width, width))
        return turn(net, reshape(net, y, 1, tokens, heads, deep), 0, 2, 1, 3)

    def rotated(x: str) -> str:
        half, axis = deep // 2, ints(net, 3)
        first = net.add("Slice", x, ints(net, 0), ints(net, half), axis)
        last = net.add("Slice", x, ints(net, half), ints(net, deep), axis)
        turned = net.add("Concat", net.add("Neg", last), first, axis=-1)
        return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", turned, sine))

    mask = net.constant(np.triu(np.full((1, 1, tokens, tokens), -1e4, np.float32), 1))
    for _ in range(2):
        normed = rms(x)
        q, k, v = rotated(split(normed)), rotated(split(normed)), split(normed)
        scores = net.add("MatMul", q, turn(net, k, 0, 1, 3, 2))
        scores = net.add("Add", net.add("Div", scores, scalar(net, deep**0.5)), mask)
        y = turn(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        y = net.add("MatMul", reshape(net, y, 1, tokens, width), net.weight(width, width))
        x = net.add("Add", x, y)
        normed = rms(x)
        gate = net.silu(net.add("MatMul", normed, net.weight(width, hidden)))
        y = net.add("Mul", gate, net.add("MatMul", normed, net.weight(width, hidden)))
        x = net.add("Add", x, net.add("MatMul", y, net.weight(hidden, width)))
    return net.model(net.add("MatMul", rms(x), net.weight(width, 320)))


def mlp_mixer(size: int, width: int) -> onnx.ModelProto:
    """MLP-Mixer (Tolstikhin et al. 2021): products over tokens, then over channels."""
    net = Net((1, 3, size, size))
    tokens = (size // 8) ** 2
    x = net.add("Conv", net.input, net.weight(width, 3, 8, 8), net.weight(width), strides=[8, 8])
    x = turn(net, reshape(net, x, 1, width, tokens), 0, 2, 1)
    for _ in range(2):
        y = turn(net, _norm(net, x, width), 0, 2, 1)
        y = linear(net, _gelu(net, linear(net, y, tokens, 64)), 64, tokens)
        x = net.add("Add", x, turn(net, y, 0, 2, 1))
        y = _gelu(net, linear(net, _norm(net, x, width), width, 2 * width))
        x = net.add("Add", x, linear(net, y, 2 * width, width))
    mean = net.add("ReduceMean", _norm(net, x, width), axes=[1], keepdims=0)
    return net.model(net.add("Gemm", mean, net.weight(width, 50), net.weight(50)))


def pool_former(size: int) -> onnx.ModelProto:
    """PoolFormer (Yu et al. 2021): an average less the map itself, GroupNorm, layer scales."""
    net = Net((1, 3, size, size))
    x = net.add("Conv", net.input, net.weight(32, 3, 7, 7), net.weight(32), strides=[4, 4],
                pads=[2] * 4)  # fmt: skip
    side, channels = (size - 3) // 4 + 1, 32
    for width in (32, 64):
        if width != channels:
            x, side = net.conv(x, channels, width, 3, 2), (side + 1) // 2
        channels, shape = width, (1, width, side, side)
        for _ in range(2):
            y = _group_norm(net, x, shape, 1)
            mean = net.add("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4)
            y = net.add("Mul", net.weight(width, 1, 1), net.add("Sub", mean, y))
            x = net.add("Add", x, y)
            y = _gelu(net, net.conv(_group_norm(net, x, shape, 1), width, 4 * width, 1))
            y = net.conv(y, 4 * width, width, 1)
            x = net.add("Add", x, net.add("Mul", net.weight(width, 1, 1), y))
    return classifier(net, _group_norm(net, x, shape, 1), channels)


def fcos(size: int) -> onnx.ModelProto:
    """FCOS (Tian et al. 2019): a pyramid, heads of shared weights with GroupNorm, exp(boxes)."""
    net = Net((1, 3, size, size))
    x = net.relu(net.conv(net.relu(net.conv(net.input, 3, 24, 3, 2)), 24, 32, 3, 2))
    levels, channels = [], 32
    for width in (48, 80):
        x = net.relu(net.conv(net.relu(net.conv(x, channels, width, 3, 2)), width, width, 3))
        levels.append(net.conv(x, width, 32, 1))
        channels = width
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", levels[1], "", factors, mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    levels[0] = net.add("Add", levels[0], up)
    towers = [(net.weight(32, 32, 3, 3), net.weight(32)) for _ in range(2)]
    ends = [(net.weight(n, 32, 3, 3), net.weight(n)) for n in (20, 4)]
    made: tuple[list[str], list[str]] = ([], [])
    for number, level in enumerate(levels):
        side = size // (8 << number)
        y = net.add("Conv", level, net.weight(32, 32, 3, 3), net.weight(32), pads=[1] * 4)
        for tower, end, found, outputs in zip(towers, ends, made, (20, 4), strict=True):
            z = net.relu(_group_norm(net, net.add("Conv", y, *tower, pads=[1] * 4),
                                     (1, 32, side, side), 8))  # fmt: skip
            z = net.add("Conv", z, *end, pads=[1] * 4)
            if outputs == 4:
                z = net.add("Exp", net.add("Mul", z, scalar(net, 1.1)))
            found.append(turn(net, reshape(net, z, 1, outputs, side * side), 0, 2, 1))
    scores, boxes = (net.add("Concat", *found, axis=1) for found in made)
    return net.model(net.add("Sigmoid", scores), boxes)


def yolo_v3_tiny(size: int) -> onnx.ModelProto:
    """YOLOv3-tiny (Redmon and Farhadi 2018): LeakyRelu, pools, two heads of three anchors."""
    net = Net((1, 3, size, size))
    x, channels, middle = net.input, 3, ""
    for width in (16, 32, 64, 128):
        x = _leaky(net, net.conv(x, channels, width, 3))
        channels, middle = width, x
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = _leaky(net, net.conv(_leaky(net, net.conv(x, 128, 256, 3)), 256, 64, 1))
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", _leaky(net, net.conv(x, 64, 32, 1)), "", factors, mode="nearest")
    near = net.add("Concat", up, middle, axis=1)
    heads = ((x, 64, size // 16), (near, 160, size // 8))
    found = []
    for given, inputs, side in heads:
        y = net.conv(_leaky(net, net.conv(given, inputs, 128, 3)), 128, 45, 1)
        y = turn(net, reshape(net, y, 1, 3, 15, side, side), 0, 1, 3, 4, 2)
        y = net.add("Sigmoid", y)
        centre, extent, scores = net.add_many("Split", (y, ints(net, 2, 2, 11)), 3, axis=4)
        centre = net.add("Mul", net.add("Add", centre, net.weight(1, 1, side, side, 2)),
                         scalar(net, 16.0))  # fmt: skip
        extent = net.add("Mul", net.add("Exp", extent), net.weight(1, 3, 1, 1, 2))
        joined = net.add("Concat", centre, extent, scores, axis=4)
        found.append(reshape(net, joined, 1, 3 * side * side, 15))
    return net.model(net.add("Concat", *found, axis=1))


def edsr(size: int) -> onnx.ModelProto:
    """EDSR (Lim et al. 2017) with PRelu as in SRResNet: scaled residuals, two pixel shuffles."""
    net = Net((1, 3, size, size))
    first = x = net.conv(net.input, 3, 32, 3)
    for _ in range(3):
        y = net.add("PRelu", net.conv(x, 32, 32, 3), net.weight(32, 1, 1))
        y = net.add("Mul", net.conv(y, 32, 32, 3), scalar(net, 0.1))
        x = net.add("Add", y, x)
    x = net.add("Add", net.conv(x, 32, 32, 3), first)
    for _ in range(2):
        x = net.add("DepthToSpace", net.conv(x, 32, 128, 3), blocksize=2, mode="CRD")
    return net.model(net.conv(x, 32, 3, 3))


def nn_unet(size: int) -> onnx.ModelProto:
    """nnU-Net (Isensee et al. 2018): strided, InstanceNorm, LeakyRelu, two scales of output."""
    net = Net((1, 1, size, size))

    def block(x: str, inputs: int, outputs: int, stride: int = 1) -> str:
        y = net.conv(x, inputs, outputs, 3, stride)
        y = net.add("InstanceNormalization", y, net.weight(outputs), net.weight(outputs))
        return _leaky(net, y)

    skips, x, channels = [], net.input, 1
    for number, width in enumerate((24, 48, 96, 160)):
        x = block(x, channels, width, 2 if number else 1)
        x, channels = block(x, width, width), width
        skips.append((x, width))
    outputs = []
    for skip, width in reversed(skips[:-1]):
        up = net.add("ConvTranspose", x, net.weight(channels, width, 2, 2), strides=[2, 2])
        x = block(net.add("Concat", up, skip, axis=1), 2 * width, width)
        channels = width
        if width < 96:
            outputs.append(net.conv(x, width, 4, 1))
    return net.model(*outputs)


def squeeze_net(size: int) -> onnx.ModelProto:
    """SqueezeNet (Iandola et al. 2016): fire modules, a Conv as the classifier."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, 64, 3, 2)), 64
    for number, width in enumerate((16, 16, 32, 32, 48)):
        if number % 2 == 0:
            x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        y = net.relu(net.conv(x, channels, width, 1))
        parts = [net.relu(net.conv(y, width, 4 * width, kernel)) for kernel in (1, 3)]
        x, channels = net.add("Concat", *parts, axis=1), 8 * width
    x = net.add("GlobalAveragePool", net.relu(net.conv(x, channels, 100, 1)))
    return net.model(net.add("Softmax", net.add("Flatten", x), axis=1))


def le_vit(side: int, width: int, heads: int) -> onnx.ModelProto:
    """LeViT (Graham et al. 2021): narrow keys, a bias by position, HardSwish, then shrinking."""
    net = Net((1, 3, 8 * side, 8 * side))
    x = net.input
    for inputs, outputs in ((3, 24), (24, 48), (48, width)):
        x = net.conv(x, inputs, outputs, 3, 2)
        x = net.add("HardSwish", x) if outputs != width else x
    tokens, deep = side * side, 16
    x = turn(net, reshape(net, x, 1, width, tokens), 0, 2, 1)
    for _ in range(2):
        y = linear(net, x, width, heads * 4 * deep)
        y = reshape(net, y, 1, tokens, heads, 4 * deep)
        q, k, v = net.add_many("Split", (y, ints(net, deep, deep, 2 * deep)), 3, axis=3)
        q, k, v = turn(net, q, 0, 2, 1, 3), turn(net, k, 0, 2, 3, 1), turn(net, v, 0, 2, 1, 3)
        scores = net.add("Mul", net.add("MatMul", q, k), scalar(net, deep**-0.5))
        scores = net.add("Add", scores, net.weight(heads, tokens, tokens))
        y = turn(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        y = net.add("HardSwish", reshape(net, y, 1, tokens, heads * 2 * deep))
        x = net.add("Add", x, linear(net, y, heads * 2 * deep, width))
        y = net.add("HardSwish", linear(net, x, width, 2 * width))
        x = net.add("Add", x, linear(net, y, 2 * width, width))
    mean = net.add("ReduceMean", x, axes=[1], keepdims=0)
    return net.model(net.add("Gemm", mean, net.weight(width, 40), net.weight(40)))


def convnext_v2(size: int) -> onnx.ModelProto:
    """ConvNeXt V2 (Woo et al. 2023): depthwise 7x7, channels last, global response norm."""
    net = Net((1, 3, size, size))
    x = net.add("Conv", net.input, net.weight(40, 3, 4, 4), net.weight(40), strides=[4, 4])
    channels = 40
    for width in (40, 80):
        if width != channels:
            x = net.add("Conv", x, net.weight(width, channels, 2, 2), net.weight(width),
                        strides=[2, 2])  # fmt: skip
            channels = width
        for _ in range(2):
            y = turn(net, net.conv(x, width, width, 7, 1, width), 0, 2, 3, 1)
            y = _gelu(net, linear(net, _norm(net, y, width), width, 4 * width))
            norm = net.add("ReduceL2", y, axes=[1, 2], keepdims=1)
            mean = net.add("ReduceMean", norm, axes=[-1], keepdims=1)
            ratio = net.add("Div", norm, net.add("Add", mean, scalar(net, 1e-6)))
            scaled = net.add("Mul", net.add("Mul", y, ratio), net.weight(1, 1, 1, 4 * width))
            y = net.add("Add", net.add("Add", scaled, net.weight(1, 1, 1, 4 * width)), y)
            y = turn(net, linear(net, y, 4 * width, width), 0, 3, 1, 2)
            x = net.add("Add", x, y)
    mean = net.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    return net.model(net.add("Gemm", _norm(net, mean, 80), net.weight(80, 60), net.weight(60)))


def wav2vec(samples: int, width: int, heads: int) -> onnx.ModelProto:
    """wav2vec 2.0 (Baevski et al. 2020): raw audio, grouped positions, one layer, logits."""
    net = Net((1, 1, samples))
    x, channels, steps = net.input, 1, samples
    for number, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (2, 2))):
        x = net.add("Conv", x, net.weight(48, channels, kernel), strides=[stride])
        channels, steps = 48, (steps - kernel) // stride + 1
        if not number:
            x = net.add("InstanceNormalization", x, net.weight(48), net.weight(48))
        x = _gelu(net, x)
    x = linear(net, _norm(net, turn(net, x, 0, 2, 1), 48), 48, width)
    y = net.add("Conv", turn(net, x, 0, 2, 1), net.weight(width, width // 8, 15),
                net.weight(width), group=8, pads=[7, 7])  # fmt: skip
    x = _norm(net, net.add("Add", x, turn(net, _gelu(net, y), 0, 2, 1)), width)
    x = _norm(net, net.add("Add", x, _attention(net, x, steps, width, heads)), width)
    y = linear(net, _gelu(net, linear(net, x, width, 4 * width)), 4 * width, width)
    x = _norm(net, net.add("Add", x, y), width)
    return net.model(linear(net, x, width, 32))


def diffusion(side: int) -> onnx.ModelProto:
    """A U-Net of diffusion models (Ho et al. 2020): GroupNorm, SiLU, attention at the bottom."""
    net = Net((1, 4, side, side))

    def block(x: str, inputs: int, outputs: int, size: int) -> str:
        y = net.silu(_group_norm(net, x, (1, inputs, size, size), 8))
        y = net.add("Add", net.conv(y, inputs, outputs, 3), net.weight(1, outputs, 1, 1))
        y = net.silu(_group_norm(net, y, (1, outputs, size, size), 8))
        y = net.conv(y, outputs, outputs, 3)
        same = inputs == outputs
        return net.add("Add", x if same else net.conv(x, inputs, outputs, 1), y)

    first = block(net.conv(net.input, 4, 32, 3), 32, 32, side)
    low, few = side // 2, (side // 2) ** 2
    x = block(net.conv(first, 32, 32, 3, 2), 32, 64, low)
    y = _group_norm(net, x, (1, 64, low, low), 8)
    y = turn(net, reshape(net, y, 1, 64, few), 0, 2, 1)
    y = turn(net, _attention(net, y, few, 64, 4), 0, 2, 1)
    x = block(net.add("Add", reshape(net, y, 1, 64, low, low), x), 64, 64, low)
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    x = net.conv(net.add("Resize", x, "", factors, mode="nearest"), 64, 32, 3)
    x = block(net.add("Concat", x, first, axis=1), 64, 32, side)
    x = net.silu(_group_norm(net, x, (1, 32, side, side), 8))
    return net.model(net.conv(x, 32, 4, 3))


FURTHER: Mapping[str, Build] = {
    "MobileViT": lambda: mobile_vit(96),
    "PSPNet": lambda: psp_net(72),
    "RegNetY": lambda: reg_net(80),
    "BERT": lambda: bert(48, 192, 6),
    "Llama": lambda: llama(40, 128, 4),
    "MLP-Mixer": lambda: mlp_mixer(56, 80),
    "PoolFormer": lambda: pool_former(79),
    "FCOS": lambda: fcos(96),
    "YOLOv3-tiny": lambda: yolo_v3_tiny(96),
    "EDSR": lambda: edsr(40),
    "nnU-Net": lambda: nn_unet(64),
    "SqueezeNet": lambda: squeeze_net(95),
    "LeViT": lambda: le_vit(7, 96, 4),
    "ConvNeXt V2": lambda: convnext_v2(64),
    "wav2vec 2.0": lambda: wav2vec(1600, 96, 4),
    "diffusion U-Net": lambda: diffusion(24),
}
