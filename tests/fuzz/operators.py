"""Operators that random models are made of: each appends some nodes that fit, if any does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

FUNCTION_DOMAIN = "local"
FUNCTIONS = {
    "Swish": "(p) => (r) { q = Sigmoid(p) r = Mul(p, q) }",
    "Twice": "(p) => (r) { q = Relu(p) r = Add(q, q) }",
}
_ODD_NAMES = ("", "/a/b", "1", "ß字", "a b", "Conv_0", "{x}")


@dataclass
class Builder:
    """A graph that grows by operators whose shapes ONNX infers.

    ``shapes``: of the float tensors that may be read on.
    """

    random: Random
    opset: int
    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        """A tensor name that is new."""
        self.count += 1
        return f"{stem}{self.count}"

    def const(self, values: Any, dtype: str = "int64") -> str:
        """A constant."""
        name = self.name("k")
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """A random float weight, at times one that is there already."""
        same = [t.name for t in self.weights if tuple(t.dims) == shape and t.data_type == 1]
        if same and around == 0 and self.random.random() < 0.4:
            return self.random.choice(same)
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        values = around + scale * self.rng.standard_normal(shape)
        return self.const(values, "float32")

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Append a node; its first output, the others are called by ``-1``, ``-2`` behind it."""
        name = self.name("t")
        made = [name, *(f"{name}-{i}" for i in range(1, outputs))]
        called = f"n{self.count}"
        if self.random.random() < 0.1:
            stem = self.random.choice(_ODD_NAMES)
            called = stem if self.random.random() < 0.2 else f"{stem}{called}"
        node = helper.make_node(op, list(inputs), made, called, **attributes)
        if op in FUNCTIONS:
            node.domain = FUNCTION_DOMAIN
        self.nodes.append(node)
        return name

    def pick(self, rank: int | None = None) -> str:
        """A float tensor, the latest ones the likeliest. Raises IndexError without any."""
        known = [t for t, s in self.shapes.items() if rank in (None, len(s))]
        return self.random.choice(known[-3:] if self.random.random() < 0.7 else known)


Operator = Callable[[Builder, Random], None]


def _convolution(b: Builder, random: Random) -> None:
    x = b.pick(4)
    channels = b.shapes[x][1]
    group = random.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    filters = group * random.choice((1, 2, 4)) if group > 1 else random.choice((4, 6, 8))
    size = random.choice((1, 1, 2, 3, 3))
    attributes: dict[str, Any] = {"group": group} if group > 1 or random.random() < 0.2 else {}
    if random.random() < 0.3:
        attributes["auto_pad"] = random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif random.random() < 0.7:
        pads = [size // 2] * 4 if random.random() < 0.8 else [0, 1, 1, 0]
        attributes["pads"] = pads
    if random.random() < 0.3:
        attributes["strides"] = random.choice(([2, 2], [1, 2]))
    elif random.random() < 0.2 and "auto_pad" not in attributes:  # ONNX Runtime takes one of both.
        attributes["dilations"] = [2, 1]
    if random.random() < 0.3:
        attributes["kernel_shape"] = [size, size]
    given = [x, b.weight(filters, channels // group, size, size)]
    if random.random() < 0.6:
        given.append(b.weight(filters))
    y = b.node("Conv", given, **attributes)
    if random.random() < 0.3:
        stats = [b.weight(filters, around=1) for _ in range(3)]
        variance = b.const(0.5 + b.rng.random(filters), "float32")
        y = b.node("BatchNormalization", [y, *stats, variance])
    if random.random() < 0.6:
        b.node("Relu", [y])


def _transposed_convolution(b: Builder, random: Random) -> None:
    x = b.pick(4)
    size = random.choice((2, 3))
    w = b.weight(b.shapes[x][1], random.choice((2, 4)), size, size)
    b.node("ConvTranspose", [x, w], strides=random.choice(([1, 1], [2, 2])))


def _convolution_1d(b: Builder, random: Random) -> None:
    x = b.pick(3)
    w = b.weight(random.choice((4, 8)), b.shapes[x][1], random.choice((1, 3)))
    b.node("Conv", [x, w], auto_pad="SAME_UPPER")


def _gemm(b: Builder, random: Random) -> None:
    x = b.pick(2)
    k, n = b.shapes[x][1], random.choice((3, 8, 16))
    turned = random.random() < 0.5
    given = [x, b.weight(n, k) if turned else b.weight(k, n)]
    if random.random() < 0.7:
        given.append(b.weight(*random.choice(((n,), (1, n)))))
    scales = {"alpha": 0.5, "beta": 2.0} if random.random() < 0.2 else {}
    b.node("Gemm", given, transB=int(turned), **scales)


def _matmul(b: Builder, random: Random) -> None:
    x = b.pick()
    k, n = b.shapes[x][-1], random.choice((4, 8))
    w = b.weight(k, n)
    if random.random() < 0.15:
        w = b.node("Transpose", [b.weight(n, k)], perm=[1, 0])
    y = b.node("MatMul", [x, w])
    if random.random() < 0.5:
        b.node("Add", [y, b.weight(n)] if random.random() < 0.5 else [b.weight(n), y])


def _attention(b: Builder, random: Random) -> None:
    x = b.pick(3)
    c = b.shapes[x][2]
    q, k, v = (b.node("MatMul", [x, b.weight(c, c)]) for _ in range(3))
    k = b.node("Transpose", [k], perm=[0, 2, 1])
    s = b.node("MatMul", [q, k])
    s = b.node("Mul", [s, b.const(1 / math.sqrt(c), "float32")])
    p = b.node("Softmax", [s], axis=random.choice((-1, 2)))
    o = b.node("MatMul", [p, v])
    b.node("Add", [o, x])


def _normalization(b: Builder, random: Random) -> None:
    x = b.pick(3 if random.random() < 0.5 else 4)
    c = b.shapes[x][-1]
    if len(b.shapes[x]) == 3 and b.opset >= 17:
        given = [x, b.weight(c, around=1)] + ([b.weight(c)] if random.random() < 0.7 else [])
        b.node("LayerNormalization", given, axis=-1)
    else:
        c = b.shapes[x][1]
        b.node("InstanceNormalization", [x, b.weight(c, around=1), b.weight(c)])


def _element_wise(b: Builder, random: Random) -> None:
    ops = "Relu Sigmoid Tanh LeakyRelu Elu HardSigmoid HardSwish Softplus Abs Neg Erf".split()
    ops += ["Identity", "Dropout", "Floor", "Sin"] + (["Gelu", "Mish"] if b.opset >= 20 else [])
    op = random.choice(ops)
    attributes = {"alpha": 0.3} if op in ("LeakyRelu", "Elu", "HardSigmoid") else {}
    b.node(op, [b.pick()], **attributes)


def _clip(b: Builder, random: Random) -> None:
    low = b.const(0.0, "float32") if random.random() < 0.7 else ""
    b.node("Clip", [b.pick(), low, b.const(6.0, "float32")])


def _silu(b: Builder, random: Random) -> None:
    x = b.pick()
    y = b.node("Sigmoid", [x])
    b.node("Mul", [x, y] if random.random() < 0.5 else [y, x])


def _arithmetic(b: Builder, random: Random) -> None:
    x = b.pick()
    same = [t for t, s in b.shapes.items() if s == b.shapes[x]]
    other = random.choice(same)
    if random.random() < 0.4:
        shape = random.choice(((), (1,), b.shapes[x], b.shapes[x][-1:]))
        other = b.weight(*shape, around=1.5)
    op = random.choice(("Add", "Add", "Add", "Mul", "Sub", "Max", "Min", "Sum"))
    b.node(op, [x, other] if random.random() < 0.8 else [other, x])


def _constant_arithmetic(b: Builder, random: Random) -> None:
    op, number = random.choice((("Pow", 2.0), ("Div", 3.0), ("Mul", 0.5), ("PRelu", 0.2)))
    b.node(op, [b.pick(), b.const(number, "float32")])


def _pool(b: Builder, random: Random) -> None:
    op = random.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN"))
    attributes: dict[str, Any] = {}
    if op in ("MaxPool", "AveragePool"):
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        if random.random() < 0.4:
            attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        if random.random() < 0.2:
            attributes["ceil_mode"] = 1
        if op == "AveragePool" and random.random() < 0.3:
            attributes["count_include_pad"] = 1
    elif op == "LRN":
        attributes = {"size": 3}
    b.node(op, [b.pick(4)], **attributes)


def _resize(b: Builder, random: Random) -> None:
    scales = b.const([1, 1, 2, 2], "float32")
    mode = random.choice(("nearest", "nearest", "linear"))
    b.node("Resize", [b.pick(4), "", scales], mode=mode)


def _depth_space(b: Builder, random: Random) -> None:
    x = b.pick(4)
    _, channels, height, width = b.shapes[x]
    fits = {"DepthToSpace": channels % 4 == 0, "SpaceToDepth": not (height % 2 or width % 2)}
    b.node(random.choice([op for op, does in fits.items() if does]), [x], blocksize=2)


def _move(b: Builder, random: Random) -> None:
    x = b.pick()
    shape = b.shapes[x]
    match random.randrange(9):
        case 0:
            b.node("Transpose", [x], perm=[0, *random.sample(range(1, len(shape)), len(shape) - 1)])
        case 1:
            b.node("Reshape", [x, b.const([0, -1])])
        case 2:
            b.node("Flatten", [x], axis=random.choice((1, -1)))
        case 3:
            axis = random.randrange(-len(shape), len(shape))
            y = b.node("Unsqueeze", [x, b.const([1])])
            b.node("Squeeze", [y, b.const([1])])
            del axis
        case 4:
            axis = random.randrange(1, len(shape))
            size = shape[axis]
            b.node("Slice", [x, b.const([0]), b.const([max(1, size // 2)]), b.const([axis])])
        case 5:
            axis = random.randrange(1, len(shape))
            b.node("Gather", [x, b.const([0, shape[axis] - 1])], axis=axis)
        case 6:
            b.node("Pad", [x, b.const([0] * (2 * len(shape) - 1) + [1])])
        case 7:
            b.node("Expand", [x, b.const(list(shape))])
        case _:
            b.node("Tile", [x, b.const([1] * (len(shape) - 1) + [2])])


def _reshape_by_shape(b: Builder, random: Random) -> None:
    x = b.pick()
    shape = b.node("Shape", [x])
    first = b.node("Gather", [shape, b.const(0)], axis=0)
    first = b.node("Unsqueeze", [first, b.const([0])])
    y = b.node("Concat", [first, b.const([-1])], axis=0)
    b.node("Reshape", [x, y])
    del random


def _concat(b: Builder, random: Random) -> None:
    x = b.pick()
    shape = b.shapes[x]
    axis = 1 if random.random() < 0.8 else len(shape) - 1
    fitting = [
        t
        for t, s in b.shapes.items()
        if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    ]
    parts = [x, *(random.choice(fitting) for _ in range(random.choice((1, 1, 2))))]
    b.node("Concat", parts, axis=axis - len(shape) if random.random() < 0.3 else axis)


def _split(b: Builder, random: Random) -> None:
    x = b.pick()
    size = b.shapes[x][1]
    first = random.randrange(1, size)
    name = b.node("Split", [x, b.const([first, size - first])], 2, axis=1)
    if random.random() < 0.5:
        b.node("Relu", [f"{name}-1"])


def _reduce(b: Builder, random: Random) -> None:
    x = b.pick()
    keep = int(random.random() < 0.7)
    op = random.choice(("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"))
    if op == "ReduceSum" or b.opset >= 18:
        b.node(op, [x, b.const([-1])], keepdims=keep)
    else:
        b.node(op, [x], axes=[-1], keepdims=keep)


def _softmax(b: Builder, random: Random) -> None:
    b.node(random.choice(("Softmax", "LogSoftmax")), [b.pick()], axis=random.choice((-1, 1)))


def _recurrent(b: Builder, random: Random) -> None:
    x = b.pick(3)
    size, hidden = b.shapes[x][2], 4
    op, gates = random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    given = [x, b.weight(1, gates * hidden, size), b.weight(1, gates * hidden, hidden)]
    y = b.node(op, given, hidden_size=hidden)
    b.node("Squeeze", [y, b.const([1])])


def _selection(b: Builder, random: Random) -> None:
    x = b.pick()
    match random.randrange(4):
        case 0:
            mask = b.node("Greater", [x, b.const(0.1, "float32")])
            b.node("Where", [mask, x, b.const(-0.5, "float32")])
        case 1:
            b.node("TopK", [x, b.const([1])], 2, axis=-1)
        case 2:
            b.node("CumSum", [x, b.const(1)])
        case _:
            wide = b.node("Cast", [x], to=random.choice((TensorProto.DOUBLE, TensorProto.FLOAT16)))
            b.node("Cast", [wide], to=TensorProto.FLOAT)


def _einsum(b: Builder, random: Random) -> None:
    x = b.pick(3)
    b.node("Einsum", [x, b.weight(b.shapes[x][2], 4)], equation="btc,cd->btd")
    del random


def _function(b: Builder, random: Random) -> None:
    b.node(random.choice(sorted(FUNCTIONS)), [b.pick()])


def _condition(b: Builder, random: Random) -> None:
    x = b.pick()
    shape = b.shapes[x]
    made = b.name("s")
    inner = helper.make_node("MatMul", [x, b.weight(shape[-1], shape[-1])], [f"{made}-p"], "inner")
    yes = _subgraph([inner], [], [f"{made}-p"])
    no = _subgraph([helper.make_node("Neg", [x], [f"{made}-q"])], [], [f"{made}-q"])
    if random.random() < 0.5:
        condition = b.const(random.random() < 0.5, "bool")
    else:
        total = b.node("ReduceSum", [x], keepdims=0)
        condition = b.node("Greater", [total, b.const(0.0, "float32")])
    b.node("If", [condition], then_branch=yes, else_branch=no)


def _loop(b: Builder, random: Random) -> None:
    x = b.pick()
    made, shape = b.name("l"), b.shapes[x]
    nodes = [
        helper.make_node("Identity", [f"{made}-go"], [f"{made}-on"]),
        helper.make_node("MatMul", [f"{made}-k", b.weight(shape[-1], shape[-1])], [f"{made}-m"]),
        helper.make_node("Tanh", [f"{made}-m"], [f"{made}-r"]),
    ]
    values = [
        helper.make_tensor_value_info(f"{made}-i", TensorProto.INT64, []),
        helper.make_tensor_value_info(f"{made}-go", TensorProto.BOOL, []),
        helper.make_tensor_value_info(f"{made}-k", TensorProto.FLOAT, shape),
    ]
    body = _subgraph(nodes, values, [f"{made}-on", f"{made}-r"])
    body.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    trips = b.const(random.choice((1, 2, 3)))
    b.node("Loop", [trips, b.const(True, "bool"), x], body=body)


def _scan(b: Builder, random: Random) -> None:
    x = b.pick(3)
    made, row = b.name("c"), b.shapes[x][1:]
    nodes = [
        helper.make_node("Add", [f"{made}-s", f"{made}-x"], [f"{made}-n"]),
        helper.make_node("Relu", [f"{made}-n"], [f"{made}-o"]),
    ]
    values = [
        helper.make_tensor_value_info(f"{made}-{name}", TensorProto.FLOAT, row) for name in "sx"
    ]
    body = _subgraph(nodes, values, [f"{made}-n", f"{made}-o"])
    b.node("Scan", [b.weight(*row), x], 2, body=body, num_scan_inputs=1)
    del random


def _subgraph(nodes: list[NodeProto], inputs: list[Any], outputs: list[str]) -> GraphProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "body", inputs, values)


FOR_RANK: dict[int, tuple[Operator, ...]] = {
    4: (
        _convolution,
        _convolution,
        _convolution,
        _transposed_convolution,
        _pool,
        _resize,
        _depth_space,
        _normalization,
    ),
    3: (_attention, _normalization, _convolution_1d, _recurrent, _einsum, _matmul, _matmul, _scan),
    2: (_gemm, _gemm, _matmul),
}
WEIGHTED: dict[int, tuple[Operator, ...]] = {
    4: (_convolution,),
    3: (_matmul, _attention, _convolution_1d),
    2: (_gemm, _matmul),
}
FOR_ALL: tuple[Operator, ...] = (
    _element_wise,
    _element_wise,
    _clip,
    _silu,
    _arithmetic,
    _arithmetic,
    _constant_arithmetic,
    _move,
    _move,
    _reshape_by_shape,
    _concat,
    _concat,
    _split,
    _reduce,
    _softmax,
    _selection,
    _function,
    _condition,
    _loop,
)
