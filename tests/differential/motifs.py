"""What networks are made of: each motif appends some nodes that fit, or raises Misfit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

from tests.differential.net import Misfit, Net

Motif = Callable[[Net, Random], object]


def activation(net: Net, random: Random, x: str) -> str:
    """One of the activations that networks have, as exporters write them; at times none."""
    kind = random.choice("relu relu relu silu silu clip sigmoid leaky hard_swish gelu tanh".split())
    match kind if random.random() < 0.8 else "none":
        case "none":
            return x
        case "relu":
            return net.add("Relu", x)
        case "clip":
            return net.add("Clip", x, net.const(0.0), net.const(6.0))
        case "leaky":
            return net.add("LeakyRelu", x, alpha=0.1)
        case "hard_swish" if random.random() < 0.5:
            return net.add("HardSwish", x)
        case "hard_swish":
            return net.add("Mul", x, net.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        case "gelu":
            return _gelu(net, x)
        case "silu":
            return net.add("Mul", *_either(random, x, net.add("Sigmoid", x)))
        case single:
            return net.add(single.capitalize(), x)


def _gelu(net: Net, x: str) -> str:
    e = net.add("Erf", net.add("Div", x, net.const(math.sqrt(2))))
    return net.add("Mul", net.add("Mul", x, net.add("Add", e, net.const(1.0))), net.const(0.5))


def _either(random: Random, a: str, b: str) -> tuple[str, str]:
    return (a, b) if random.random() < 0.5 else (b, a)


def conv(
    net: Net,
    random: Random,
    x: str,
    filters: int | None = None,
    stride: int | None = None,
    size: int | None = None,
    depthwise: bool = False,
) -> str:
    """A convolution of the same padding, at times with a batch normalisation."""
    channels = net.shapes[x][1]
    filters = channels if depthwise else filters or random.choice((8, 16, 16, 32, 64))
    size = size or random.choice((1, 3, 3, 5))
    stride = stride or random.choice((1, 1, 1, 2))
    given = [x, net.weight(filters, 1 if depthwise else channels, size, size)]
    if random.random() < 0.8:
        given.append(net.weight(filters))
    pads, group = [size // 2] * 4, channels if depthwise else 1
    return net.add("Conv", *given, strides=[stride] * 2, pads=pads, group=group)


def _conv(net: Net, random: Random) -> None:
    activation(net, random, conv(net, random, net.pick(4)))


def _depthwise(net: Net, random: Random) -> None:
    y = activation(net, random, conv(net, random, net.pick(4), depthwise=True))
    if random.random() < 0.5:
        conv(net, random, y, size=1, stride=1)


def _transposed(net: Net, random: Random) -> None:
    x, size = net.pick(4), random.choice((2, 2, 4))
    given = [x, net.weight(net.shapes[x][1], random.choice((8, 16)), size, size)]
    if random.random() < 0.7:
        given.append(net.weight(net.graph.initializer[-1].dims[1]))
    activation(net, random, net.add("ConvTranspose", *given, strides=[2, 2]))


def _residual(net: Net, random: Random) -> None:
    x = net.pick(4)
    y = x
    for _ in range(random.choice((1, 2, 2))):
        y = conv(net, random, activation(net, random, y), net.shapes[x][1], 1)
    if random.random() < 0.3:
        x = conv(net, random, x, net.shapes[x][1], 1)
    s = net.add("Add", *_either(random, x, y))
    if random.random() < 0.6:
        activation(net, random, s)


def _branches(net: Net, random: Random) -> None:
    """Some branches from one tensor, joined."""
    x = net.pick(4)
    parts = []
    for _ in range(random.choice((2, 2, 3, 4))):
        kind = random.random()
        if kind < 0.6:
            parts.append(activation(net, random, conv(net, random, x, stride=1)))
        elif kind < 0.8:
            parts.append(net.add("MaxPool", x, kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
        else:
            parts.append(x)
    y = net.add("Concat", *parts, axis=1)
    if random.random() < 0.7:
        activation(net, random, conv(net, random, y, size=1, stride=1))


def _skip_connection(net: Net, random: Random) -> None:
    x = net.pick(4)
    shape = net.shapes[x]
    fitting = [t for t, s in net.shapes.items() if len(s) == 4 and s[2:] == shape[2:] and t != x]
    if not fitting:
        raise Misfit("nothing to join")
    net.add("Concat", *_either(random, x, random.choice(fitting)), axis=1)


def _split_half(net: Net, random: Random) -> None:
    """C2f of YOLOv8: half of the channels go through blocks, all parts are joined."""
    x = net.pick(4)
    half = net.shapes[x][1] // 2
    if half < 2 or net.shapes[x][1] % 2:
        raise Misfit("channels")
    first = net.add("Split", x, net.const([half, half], "int64"), outputs=2, axis=1)
    second = f"{first}_1"
    y = activation(net, random, conv(net, random, second, half, 1))
    y = net.add("Add", second, y) if random.random() < 0.5 else y
    net.add("Concat", first, second, y, axis=1)


def _squeeze_excite(net: Net, random: Random) -> None:
    x = net.pick(4)
    channels = net.shapes[x][1]
    op = random.choice(("GlobalAveragePool", "GlobalAveragePool", "ReduceMean"))
    axes = {"axes": [2, 3], "keepdims": 1} if op == "ReduceMean" else {}
    y = net.add(op, x, **axes)
    y = conv(net, random, y, max(4, channels // 4), 1, 1)
    y = conv(net, random, activation(net, random, y), channels, 1, 1)
    gate = random.choice(("Sigmoid", "Sigmoid", "HardSigmoid"))
    net.add("Mul", *_either(random, x, net.add(gate, y)))


def _pool(net: Net, random: Random) -> None:
    op = random.choice(("MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool"))
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if random.random() < 0.4:
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    net.add(op, net.pick(4), **({} if op.startswith("Global") else attributes))


def _resize(net: Net, random: Random) -> None:
    scales, mode = net.const([1, 1, 2, 2]), random.choice(("nearest", "nearest", "linear"))
    x = net.pick(4)
    if random.random() < 0.5:
        net.add("Resize", x, "", scales, mode=mode)
        return
    turn = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.add("Resize", x, "", scales, mode=mode, **turn)


def _classifier(net: Net, random: Random) -> None:
    x = net.pick(4)
    y = net.add("Flatten", net.add("GlobalAveragePool", x))
    k, n = net.shapes[y][1], random.choice((10, 32, 100))
    y = net.add("Gemm", y, net.weight(n, k), net.weight(n), transB=1)
    if random.random() < 0.4:
        net.add("Softmax", y, axis=-1)


def _detection_head(net: Net, random: Random) -> None:
    x = net.pick(4)
    y = conv(net, random, x, random.choice((16, 24)), 1, 1)
    b, c, h, w = net.shapes[y]
    y = net.add("Reshape", y, net.const([b, c, h * w], "int64"))
    if random.random() < 0.5:
        y = net.add("Transpose", y, perm=[0, 2, 1])
    if random.random() < 0.5:
        net.add("Sigmoid", y)


def _batch_norm(net: Net, random: Random) -> None:
    x = net.pick(4)
    c = net.shapes[x][1]
    y = net.add(
        "BatchNormalization", x, net.weight(c, around=1), net.weight(c), net.weight(c),
        net.const([1.0] * c),
    )  # fmt: skip
    activation(net, random, y)


def _to_tokens(net: Net, random: Random) -> None:
    x = net.pick(4)
    b, c, h, w = net.shapes[x]
    y = net.add("Reshape", x, net.const([b, c, h * w], "int64"))
    y = net.add("Transpose", y, perm=[0, 2, 1])
    if random.random() < 0.4:
        net.add("Add", y, net.weight(1, h * w, c))


def _to_image(net: Net, random: Random) -> None:
    x = net.pick(3)
    b, n, c = net.shapes[x]
    side = math.isqrt(n)
    if side * side != n or side < 2:
        raise Misfit("tokens")
    y = net.add("Transpose", x, perm=[0, 2, 1])
    net.add("Reshape", y, net.const([b, c, side, side], "int64"))
    del random


def linear(net: Net, random: Random, x: str, n: int | None = None) -> str:
    """A matrix product with a bias, as PyTorch exports it."""
    k, n = net.shapes[x][-1], n or random.choice((16, 32, 64))
    y = net.add("MatMul", x, net.weight(k, n))
    return net.add("Add", *_either(random, y, net.weight(n))) if random.random() < 0.8 else y


def norm(net: Net, random: Random, x: str) -> str:
    """LayerNorm as an operator or as single nodes, or RMSNorm."""
    c, kind = net.shapes[x][-1], random.random()
    gain = net.weight(c, around=1)
    if kind < 0.5:
        return net.add("LayerNormalization", x, gain, net.weight(c), axis=-1)
    mean = {"axes": [-1], "keepdims": 1}
    centred = x if kind > 0.8 else net.add("Sub", x, net.add("ReduceMean", x, **mean))
    square = net.add("Pow", centred, net.const(2.0))
    variance = net.add("Add", net.add("ReduceMean", square, **mean), net.const(1e-5))
    y = net.add("Mul", net.add("Div", centred, net.add("Sqrt", variance)), gain)
    return y if kind > 0.8 else net.add("Add", y, net.weight(c))


def _linear(net: Net, random: Random) -> None:
    activation(net, random, linear(net, random, net.pick(3)))


def _norm(net: Net, random: Random) -> None:
    norm(net, random, net.pick(3))


def _mlp(net: Net, random: Random) -> None:
    x = net.pick(3)
    y = norm(net, random, x) if random.random() < 0.7 else x
    c = net.shapes[x][-1]
    y = linear(net, random, activation(net, random, linear(net, random, y, 2 * c)), c)
    if random.random() < 0.8:
        net.add("Add", *_either(random, x, y))


def _attention(net: Net, random: Random) -> None:
    x = net.pick(3)
    b, n, c = net.shapes[x]
    heads = random.choice((2, 4))
    if c % (8 * heads):
        raise Misfit("width")
    y = norm(net, random, x) if random.random() < 0.5 else x

    def split(made: str, perm: list[int]) -> str:
        shape = net.const([b, n, heads, c // heads], "int64")
        return net.add("Transpose", net.add("Reshape", made, shape), perm=perm)

    q, k, v = (linear(net, random, y, c) for _ in range(3))
    s = net.add("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    s = net.add(random.choice(("Mul", "Div")), s, net.const(math.sqrt(c / heads)))
    o = net.add("MatMul", net.add("Softmax", s, axis=-1), split(v, [0, 2, 1, 3]))
    o = net.add("Transpose", o, perm=[0, 2, 1, 3])
    o = linear(net, random, net.add("Reshape", o, net.const([b, n, c], "int64")), c)
    if random.random() < 0.8:
        net.add("Add", *_either(random, x, o))


def _gemm(net: Net, random: Random) -> None:
    x = net.pick(2)
    k, n = net.shapes[x][1], random.choice((16, 32))
    activation(net, random, net.add("Gemm", x, net.weight(k, n), net.weight(n)))


def _mean_of_tokens(net: Net, random: Random) -> None:
    net.add("ReduceMean", net.pick(3), axes=[1], keepdims=int(random.random() < 0.3))


def _pointwise(net: Net, random: Random) -> None:
    """A chain of pointwise nodes."""
    x = net.pick()
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.random()
        if kind < 0.4:
            x = activation(net, random, x)
        elif kind < 0.7:
            shape = random.choice(((), (net.shapes[x][-1],), net.shapes[x]))
            op = random.choice(("Add", "Mul", "Sub", "Div", "Mul"))
            x = net.add(op, x, net.weight(*shape, around=1.5))
        else:
            op = random.choice(("Add", "Add", "Mul", "Max", "Sub"))
            x = net.add(op, *_either(random, x, net.alike(x)))


def _move(net: Net, random: Random) -> None:
    x = net.pick()
    shape = net.shapes[x]
    kind = random.choice("transpose reshape slice pad softmax unsqueeze gather".split())
    if kind == "transpose" and len(shape) > 2:
        order = random.sample(range(1, len(shape)), len(shape) - 1)
        net.add("Transpose", x, perm=[0, *order])
    elif kind == "reshape":
        net.add("Reshape", x, net.const([shape[0], -1, shape[-1]], "int64"))
    elif kind == "slice":
        axis = random.randrange(1, len(shape))
        bounds = [0, max(1, shape[axis] // 2), axis]
        net.add("Slice", x, *(net.const([value], "int64") for value in bounds))
    elif kind == "pad" and len(shape) == 4:
        net.add("Pad", x, net.const([0, 0, 1, 1, 0, 0, 1, 1], "int64"))
    elif kind == "softmax":
        net.add("Softmax", x, axis=-1)
    elif kind == "unsqueeze":
        y = net.add("Unsqueeze", x, net.const([1], "int64"))
        net.add("Squeeze", y, net.const([1], "int64"))
    elif kind == "gather" and len(shape) > 2:
        net.add("Gather", x, net.const(0, "int64"), axis=1)
    else:
        raise Misfit(kind)


def _extra_reader(net: Net, random: Random) -> None:
    """A second reader of any tensor."""
    x = random.choice(list(net.shapes))
    if len(net.shapes[x]) == 4 and random.random() < 0.6:
        conv(net, random, x)
    else:
        activation(net, random, x)


# How often each is drawn, by the rank of what the graph starts from.
IMAGE: Mapping[Motif, int] = {
    _conv: 12, _depthwise: 4, _transposed: 2, _residual: 7, _branches: 5, _skip_connection: 3,
    _split_half: 3, _squeeze_excite: 3, _pool: 4, _resize: 3, _classifier: 2, _detection_head: 2,
    _batch_norm: 1, _to_tokens: 2, _pointwise: 4, _move: 2, _extra_reader: 3,
}  # fmt: skip
TOKENS: Mapping[Motif, int] = {
    _linear: 6, _norm: 4, _mlp: 5, _attention: 4, _mean_of_tokens: 2, _gemm: 3, _pointwise: 5,
    _move: 4, _extra_reader: 3, _to_image: 1,
}  # fmt: skip
