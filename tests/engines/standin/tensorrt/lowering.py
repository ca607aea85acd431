"""From an ONNX node and the shapes of its inputs to a kernel's parameters and output shape."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from .plugins import registry

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A kernel with its integer and float parameters, which inputs it reads, and what it makes."""

    kernel: str
    shape: Shape
    numbers: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    reads: int = 1


def lower(node: NodeProto, shapes: list[Shape], values: list[np.ndarray | None]) -> Call:
    """``values``: of inputs that are constant or in host memory. KeyError for unknown operators."""
    if node.op_type in registry.operators:
        return Call("copy", shapes[0])
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return _LOWERINGS[node.op_type](shapes, values, attributes)


Lowering = Callable[[list[Shape], list[np.ndarray | None], Mapping[str, object]], Call]


def _same(kernel: str) -> Lowering:
    return lambda shapes, *_: Call(kernel, shapes[0])


def _strides(shape: Shape) -> list[int]:
    """Of four dimensions, 0 where the size is 1."""
    padded = (1,) * (4 - len(shape)) + shape
    steps = [int(np.prod(padded[d + 1 :])) for d in range(4)]
    return [0 if size == 1 else step for size, step in zip(padded, steps, strict=True)]


def _add(shapes, values, attributes) -> Call:  # noqa: ARG001
    shape = np.broadcast_shapes(*shapes)
    padded = (1,) * (4 - len(shape)) + shape
    return Call("add", shape, (*padded, *_strides(shapes[0]), *_strides(shapes[1])), reads=2)


def _transpose(shapes, values, attributes) -> Call:  # noqa: ARG001
    rank = len(shapes[0])
    order = attributes.get("perm", tuple(reversed(range(rank))))
    shape = tuple(shapes[0][d] for d in order)
    steps = [int(np.prod(shapes[0][d + 1 :])) for d in order]
    pad = 4 - rank
    return Call("transpose", shape, (*(1,) * pad, *shape, *(0,) * pad, *steps))


def _window(shapes, attributes, kernel: Shape) -> tuple[int, int, Shape]:
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    steps = attributes.get("strides", (1, 1))
    high = (shapes[0][2] + top + bottom - kernel[0]) // steps[0] + 1
    wide = (shapes[0][3] + left + right - kernel[1]) // steps[1] + 1
    return high, wide, (*kernel, *steps, top, left)


def _conv(shapes, values, attributes) -> Call:  # noqa: ARG001
    if attributes.get("group", 1) != 1 or set(attributes.get("dilations", (1, 1))) != {1}:
        raise KeyError("Conv with groups or dilations")
    high, wide, rest = _window(shapes, attributes, shapes[1][2:])
    maps = shapes[1][0]
    numbers = (*shapes[0][1:], maps, high, wide, *rest, int(len(shapes) > 2))
    return Call("conv", (shapes[0][0], maps, high, wide), numbers, reads=3)


def _maxpool(shapes, values, attributes) -> Call:  # noqa: ARG001
    high, wide, rest = _window(shapes, attributes, tuple(attributes["kernel_shape"]))
    numbers = (*shapes[0][1:], 0, high, wide, *rest)
    return Call("maxpool", (*shapes[0][:2], high, wide), numbers)


def _average(shapes, values, attributes) -> Call:  # noqa: ARG001
    return Call("average", (*shapes[0][:2], 1, 1), (shapes[0][2] * shapes[0][3],))


def _flatten(shapes, values, attributes) -> Call:  # noqa: ARG001
    axis = attributes.get("axis", 1)
    return Call("copy", (int(np.prod(shapes[0][:axis])), int(np.prod(shapes[0][axis:]))))


def _reshape(shapes, values, attributes) -> Call:  # noqa: ARG001
    wanted = [shapes[0][d] if w == 0 else int(w) for d, w in enumerate(values[1])]
    if -1 in wanted:
        wanted[wanted.index(-1)] = int(np.prod(shapes[0])) // -int(np.prod(wanted))
    return Call("copy", tuple(wanted))


def _shape(shapes, values, attributes) -> Call:  # noqa: ARG001
    return Call("", (len(shapes[0]),), tuple(shapes[0]))


def _nonzero(shapes, values, attributes) -> Call:  # noqa: ARG001
    return Call("", (len(shapes[0]), -1), tuple(shapes[0]))


def _gemm(shapes, values, attributes) -> Call:  # noqa: ARG001
    if attributes.get("transA", 0):
        raise KeyError("Gemm with transA")
    turned = attributes.get("transB", 0)
    rows, depth = shapes[0]
    columns = shapes[1][0 if turned else 1]
    steps = (1, depth) if turned else (columns, 1)
    numbers = (rows, columns, depth, *steps, 0, 0, int(len(shapes) > 2))
    return Call("matmul", (rows, columns), numbers, reads=3)


def _matmul(shapes, values, attributes) -> Call:  # noqa: ARG001
    left, right = shapes
    rows, depth, columns = left[-2], left[-1], right[-1]
    batches = rows * depth, depth * columns if len(right) > 2 else 0
    return Call("matmul", (*left[:-1], columns), (rows, columns, depth, columns, 1, *batches, 0),
                reads=2)  # fmt: skip


def _rows(kernel: str, reads: int) -> Lowering:
    def lowering(shapes, values, attributes) -> Call:  # noqa: ARG001
        if attributes.get("axis", -1) not in (-1, len(shapes[0]) - 1):
            raise KeyError(f"{kernel} along another axis than the last")
        epsilon = attributes.get("epsilon", 1e-5)
        return Call(kernel, shapes[0], (shapes[0][-1],), (epsilon,), reads)

    return lowering


def _scaled(kernel: str) -> Lowering:
    def lowering(shapes, values, attributes) -> Call:
        count, axis = max(1, int(np.prod(shapes[1]))), attributes.get("axis", 1)
        inner = int(np.prod(shapes[0][axis + 1 :])) if count > 1 else 1
        zero = values[2] if len(values) > 2 else None
        is_float8 = zero is not None and zero.dtype.name.startswith("float8")
        return Call(kernel, shapes[0], (inner, count, int(is_float8)), reads=2)

    return lowering


_LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("Identity", "Cast"), _same("copy")),
    "Relu": _same("relu"),
    "Add": _add,
    "Transpose": _transpose,
    "Conv": _conv,
    "MaxPool": _maxpool,
    "GlobalAveragePool": _average,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "NonZero": _nonzero,
    "Shape": _shape,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Softmax": _rows("softmax", 1),
    "LayerNormalization": _rows("layernorm", 2),
    "QuantizeLinear": _scaled("quantize"),
    "DequantizeLinear": _scaled("dequantize"),
}
KNOWN = frozenset(_LOWERINGS)
