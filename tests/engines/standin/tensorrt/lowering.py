"""From an ONNX node and the shapes of its inputs to a kernel's parameters and output shape."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from .plugins import registry

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A kernel, what it makes, its integer and float parameters, and which inputs it reads.

    ``output``: which one it writes. ``count``: elements that it computes, all of ``shape`` if None.
    """

    kernel: str
    shape: Shape
    numbers: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    inputs: tuple[int, ...] = (0,)
    output: int = 0
    count: int | None = None


Values = list[np.ndarray | None]
Attributes = Mapping[str, Any]
Lowering = Callable[[list[Shape], Values, Attributes], Call | list[Call]]


def lower(node: NodeProto, shapes: list[Shape], values: Values) -> list[Call]:
    """``values``: of inputs that are constant or in host memory. KeyError for unknown operators."""
    if node.op_type in registry.operators:
        return [Call("copy", shapes[0])]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes["outputs"] = len(node.output)
    found = _LOWERINGS[node.op_type](shapes, values, attributes)
    return found if isinstance(found, list) else [found]


def _same(kernel: str, **attributes: float) -> Lowering:
    """``attributes``: what the kernel reads, with their defaults."""

    def lowering(shapes: list[Shape], values: Values, given: Attributes) -> Call:
        del values
        return Call(kernel, shapes[0], (), tuple(given.get(n, v) for n, v in attributes.items()))

    return lowering


def _size(shape: Shape) -> int:
    return int(np.prod(shape))


def _padded(shape: Shape, by: int = 1) -> Shape:
    return (by,) * (6 - len(shape)) + tuple(shape)


def _steps(shape: Shape) -> list[int]:
    return [_size(shape[d + 1 :]) for d in range(len(shape))]


def _both(kernel: str) -> Lowering:
    """Of two inputs that are broadcast."""

    def strides(shape: Shape) -> list[int]:
        both = zip(_padded(shape), _steps(_padded(shape)), strict=True)
        return [0 if size == 1 else step for size, step in both]

    def lowering(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
        del values, attributes
        if len(shapes) != 2:
            raise KeyError("an element-wise operator of more or less than two inputs")
        shape = np.broadcast_shapes(*shapes)
        numbers = (*_padded(shape), *strides(shapes[0]), *strides(shapes[1]))
        return Call(kernel, shape, numbers, inputs=(0, 1))

    return lowering


def _move(shape: Shape, steps: Sequence[int], first: int = 0, output: int = 0) -> Call:
    """``steps``: in the input, of each dimension of the output."""
    return Call("move", shape, (*_padded(shape), *_padded(tuple(steps), 0), first), output=output)


def _transpose(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    order = attributes.get("perm", tuple(reversed(range(len(shapes[0])))))
    steps = _steps(shapes[0])
    return _move(tuple(shapes[0][d] for d in order), [steps[d] for d in order])


def _slice(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del attributes
    _, starts, ends, axes, by = [*values, None, None][:5]
    shape, steps, first = list(shapes[0]), _steps(shapes[0]), 0
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = k if axes is None else int(axes[k])
        kept = range(shapes[0][axis])[int(start) : int(end) : 1 if by is None else int(by[k])]
        first += kept.start * steps[axis]
        shape[axis], steps[axis] = len(kept), steps[axis] * kept.step
    return _move(tuple(shape), steps, first)


def _split(shapes: list[Shape], values: Values, attributes: Attributes) -> list[Call]:
    axis, count = attributes.get("axis", 0), attributes["outputs"]
    shape, steps = shapes[0], _steps(shapes[0])
    sizes = values[1].tolist() if len(values) > 1 else [shape[axis] // count] * count
    starts = np.cumsum([0, *sizes[:-1]])
    parts = [(*shape[:axis], size, *shape[axis:][1:]) for size in sizes]
    return [
        _move(part, steps, int(start) * steps[axis], output)
        for output, (part, start) in enumerate(zip(parts, starts, strict=True))
    ]


def _gather(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    if values[1] is None or values[1].ndim:
        raise KeyError("Gather of others than one constant index")
    axis, steps = attributes.get("axis", 0), _steps(shapes[0])
    first = int(values[1]) % shapes[0][axis] * steps.pop(axis)
    return _move((*shapes[0][:axis], *shapes[0][axis:][1:]), steps, first)


def _depth_to_space(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    batch, channels, high, wide = shapes[0]
    size = attributes["blocksize"]
    kept = channels // size**2
    pixels = high * wide
    own, down, right = (
        (size**2, size, 1) if attributes.get("mode") == b"CRD" else (1, size * kept, kept)
    )
    if kept == 0 or batch != 1:
        raise KeyError("DepthToSpace of several images")
    parts = (kept, high, size, wide, size)
    steps = (own * pixels, wide, down * pixels, 1, right * pixels)
    return replace(_move(parts, steps), shape=(batch, kept, high * size, wide * size))


def _concat(shapes: list[Shape], values: Values, attributes: Attributes) -> list[Call]:
    del values
    axis = attributes["axis"] % len(shapes[0])
    shape = (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])
    blocks = [_size(s[axis:]) for s in shapes]
    starts = np.cumsum([0, *blocks])
    return [
        Call("concat", shape, (block, starts[-1], start), inputs=(k,), count=_size(shapes[k]))
        for k, (block, start) in enumerate(zip(blocks, starts, strict=False))
    ]


def _pad(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    mode, rank = attributes.get("mode", b"constant"), len(shapes[0])
    if mode not in (b"constant", b"reflect") or len(shapes) > 3:
        raise KeyError(f"Pad with mode {mode} or along some axes")
    before, after = values[1][:rank].tolist(), values[1][rank:].tolist()
    shape = tuple(map(sum, zip(shapes[0], before, after, strict=True)))
    numbers = (*_padded(shape), *_padded(shapes[0]), *_padded(before, 0), int(mode == b"reflect"))
    return Call("pad", shape, numbers, (float(values[2]) if len(values) > 2 else 0.0,))


def _window(shape: Shape, attributes: Attributes, kernel: Shape) -> tuple[Shape, Shape]:
    """The output's height and width, and window, strides, padding and dilations.

    Sequences are images that are one pixel high.
    """
    rank = len(kernel)
    if rank > 2:
        raise KeyError("windows of three dimensions")
    pads = attributes.get("pads", (0,) * 2 * rank)
    strides, dilations = (attributes.get(n, (1,) * rank) for n in ("strides", "dilations"))
    if attributes.get("ceil_mode", 0) or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise KeyError("rounded up or padded by itself")
    sizes = tuple(
        (size + pads[d] + pads[rank + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
        for d, size in enumerate(shape[2:])
    )
    flat = rank == 1
    each = zip((kernel, strides, pads[:rank], dilations), (1, 1, 0, 1), strict=True)
    both = [(*(fill,) * flat, *values) for values, fill in each]
    return sizes, (*both[0], *both[1], *both[2], *both[3])


def _conv(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    (batch, channels, *image), (maps, _, *kernel) = shapes[:2]
    sizes, window = _window(shapes[0], attributes, tuple(kernel))
    flat = (1,) * (len(kernel) == 1)
    numbers = (channels, *flat, *image, maps, *flat, *sizes, *window)
    rest = (attributes.get("group", 1), int(len(shapes) > 2))
    return Call("conv", (batch, maps, *sizes), (*numbers, *rest), inputs=(0, 1, 2))


def _deconv(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    if "output_shape" in attributes:
        raise KeyError("ConvTranspose with a shape")
    groups, more = attributes.get("group", 1), attributes.get("output_padding", (0, 0))
    (batch, channels, *image), (_, own, *kernel) = shapes[:2]
    maps = own * groups
    _, window = _window(shapes[0], attributes, tuple(kernel))
    if window[6:] != (1, 1):
        raise KeyError("ConvTranspose with dilations")
    pads = attributes.get("pads", (0, 0, 0, 0))
    sizes = [
        (image[d] - 1) * window[2 + d] + kernel[d] - pads[d] - pads[2 + d] + more[d]
        for d in range(2)
    ]
    numbers = (channels, *image, maps, *sizes, *window, groups, int(len(shapes) > 2))
    return Call("deconv", (batch, maps, *sizes), numbers, inputs=(0, 1, 2))


def _pool(mean: bool) -> Lowering:
    def lowering(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
        del values
        kernel = tuple(attributes["kernel_shape"])
        if set(attributes.get("dilations", kernel[:0])) - {1}:
            raise KeyError("a pool with dilations")
        sizes, window = _window(shapes[0], attributes, kernel)
        flat = (1,) * (len(kernel) == 1)
        (batch, channels, *image) = shapes[0]
        numbers = (channels, *flat, *image, channels, *flat, *sizes, *window)
        rest = (int(mean), attributes.get("count_include_pad", 0))
        return Call("pool", (batch, channels, *sizes), (*numbers, *rest))

    return lowering


_MEAN, _L2, _SUM = range(3)  # How the kernel ``reduce`` reduces.


def _reduced(how: int) -> Lowering:
    def lowering(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
        given = values[1].tolist() if len(values) > 1 else attributes["axes"]
        axes = sorted(axis % len(shapes[0]) for axis in given)
        if axes != list(range(axes[0], axes[-1] + 1)):
            raise KeyError("a reduction of axes that are apart")
        kept = (1,) * (len(axes) if attributes.get("keepdims", 1) else 0)
        shape = (*shapes[0][: axes[0]], *kept, *shapes[0][axes[-1] + 1 :])
        inner = _size(shapes[0][axes[-1] + 1 :])
        return Call("reduce", shape, (_size(shapes[0][axes[0] : axes[-1] + 1]), inner, how))

    return lowering


def _average(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values, attributes
    kept = (*shapes[0][:2], *(1,) * len(shapes[0][2:]))
    return Call("reduce", kept, (_size(shapes[0][2:]), 1, _MEAN))


def _flatten(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    axis = attributes.get("axis", 1)
    return Call("copy", (_size(shapes[0][:axis]), _size(shapes[0][axis:])))


def _reshape(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del attributes
    wanted = [shapes[0][d] if w == 0 else int(w) for d, w in enumerate(values[1])]
    if -1 in wanted:
        wanted[wanted.index(-1)] = _size(shapes[0]) // -_size(tuple(wanted))
    return Call("copy", tuple(wanted))


def _squeeze(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del attributes
    axes = {int(axis) % len(shapes[0]) for axis in values[1]}
    return Call("copy", tuple(size for d, size in enumerate(shapes[0]) if d not in axes))


def _shape(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values, attributes
    return Call("", (len(shapes[0]),), tuple(shapes[0]))


def _nonzero(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values, attributes
    return Call("", (len(shapes[0]), -1), tuple(shapes[0]))


def _gemm(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    if attributes.get("transA", 0) or {attributes.get(n, 1.0) for n in ("alpha", "beta")} != {1.0}:
        raise KeyError("Gemm with transA, alpha or beta")
    turned = attributes.get("transB", 0)
    rows, depth = shapes[0]
    columns = shapes[1][0 if turned else 1]
    steps = (1, depth) if turned else (columns, 1)
    numbers = (rows, columns, depth, *steps, 0, 0, int(len(shapes) > 2))
    return Call("matmul", (rows, columns), numbers, inputs=(0, 1, 2))


def _matmul(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values, attributes
    left, right = shapes
    if len(right) > 2 and right[:-2] != left[:-2]:
        raise KeyError("MatMul that repeats matrices")
    rows, depth, columns = left[-2], left[-1], right[-1]
    batches = rows * depth, depth * columns if len(right) > 2 else 0
    numbers = (rows, columns, depth, columns, 1, *batches, 0)
    return Call("matmul", (*left[:-1], columns), numbers, inputs=(0, 1))


def _softmax(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    axis = attributes.get("axis", -1) % len(shapes[0])
    return Call("softmax", shapes[0], (shapes[0][axis], _size(shapes[0][axis + 1 :])))


def _layer_norm(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    if attributes.get("axis", -1) not in (-1, len(shapes[0]) - 1):
        raise KeyError("LayerNormalization of more than the last axis")
    numbers = (shapes[0][-1], 1, shapes[0][-1], int(len(shapes) > 2))
    epsilon = attributes.get("epsilon", 1e-5)
    return Call("norm", shapes[0], numbers, (epsilon,), inputs=(0, 1, 2))


def _instance_norm(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    pixels = _size(shapes[0][2:])
    epsilon = attributes.get("epsilon", 1e-5)
    return Call("norm", shapes[0], (pixels, pixels, shapes[0][1], 1), (epsilon,), inputs=(0, 1, 2))


def _batch_norm(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del values
    if attributes.get("training_mode", 0):
        raise KeyError("BatchNormalization while training")
    numbers = (_size(shapes[0][2:]), shapes[0][1])
    epsilon = attributes.get("epsilon", 1e-5)
    return Call("batchnorm", shapes[0], numbers, (epsilon,), inputs=(0, 1, 2, 3, 4))


def _resize(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    mode, rounded = (attributes.get(n) for n in ("mode", "nearest_mode"))
    how = {b"half_pixel": 0, b"asymmetric": 1, b"align_corners": 2}
    way = how[attributes.get("coordinate_transformation_mode", b"half_pixel")]
    modes = {b"nearest": 0, b"linear": 1, b"cubic": 2}
    if mode not in modes or rounded not in (None, b"floor") or "antialias" in attributes:
        raise KeyError(f"Resize {mode} {rounded}")
    wanted, before = values[-1], shapes[0]
    is_size = np.issubdtype(wanted.dtype, np.integer)
    shape = tuple(int(w) if is_size else int(b * w) for w, b in zip(wanted, before, strict=True))
    scales = tuple((np.array(shape) / before if is_size else wanted)[2:].tolist())
    numbers = (*before[2:], *shape[2:], modes[mode], way, int(rounded == b"floor"))
    coefficient = attributes.get("cubic_coeff_a", -0.75)
    return Call("resize", shape, numbers, (*scales, coefficient))


def _recurrent(is_lstm: bool) -> Lowering:
    def lowering(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
        del values
        (steps, samples, inputs), (directions, _, _) = shapes[:2]
        units = attributes["hidden_size"]
        unusual = {"activations", "clip", "layout", "input_forget", "linear_before_reset"}
        if attributes.get("direction") == b"reverse" or units > 1024 or len(shapes) > 4:
            raise KeyError("a recurrent layer that is reversed, large or begins with a state")
        if unusual & attributes.keys():
            raise KeyError("a recurrent layer of another kind")
        numbers = (steps, directions, samples, inputs, units, int(len(shapes) > 3), int(is_lstm))
        shape = (steps, directions, samples, units)
        # One block of threads for each direction and sample.
        count = 128 * directions * samples
        return Call("recurrent", shape, numbers, inputs=(0, 1, 2, 3), count=count)

    return lowering


def _clip(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
    del attributes
    low, high = (float(v) for v in values[1:])
    return Call("clip", shapes[0], (), (low, high))


def _scaled(kernel: str) -> Lowering:
    def lowering(shapes: list[Shape], values: Values, attributes: Attributes) -> Call:
        count, axis = max(1, _size(shapes[1])), attributes.get("axis", 1)
        inner = _size(shapes[0][axis:][1:]) if count > 1 else 1
        zero = values[2] if len(values) > 2 else None
        is_float8 = zero is not None and zero.dtype.name.startswith("float8")
        return Call(kernel, shapes[0], (inner, count, int(is_float8)), inputs=(0, 1))

    return lowering


_LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("Identity", "Cast"), _same("copy")),
    **{name: _same(name.lower()) for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt")},
    **{name: _same(name.lower()) for name in ("Neg", "Reciprocal", "HardSwish")},
    "LeakyRelu": _same("leakyrelu", alpha=0.01),
    "HardSigmoid": _same("hardsigmoid", alpha=0.2, beta=0.5),
    "Clip": _clip,
    **{name: _both(name.lower()) for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "PRelu")},
    "Transpose": _transpose,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "DepthToSpace": _depth_to_space,
    "Concat": _concat,
    "Pad": _pad,
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "MaxPool": _pool(mean=False),
    "AveragePool": _pool(mean=True),
    "GlobalAveragePool": _average,
    "ReduceMean": _reduced(_MEAN),
    "ReduceL2": _reduced(_L2),
    "ReduceSum": _reduced(_SUM),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "NonZero": _nonzero,
    "Shape": _shape,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "BatchNormalization": _batch_norm,
    "Resize": _resize,
    "GRU": _recurrent(is_lstm=False),
    "LSTM": _recurrent(is_lstm=True),
    "QuantizeLinear": _scaled("quantize"),
    "DequantizeLinear": _scaled("dequantize"),
}
KNOWN = frozenset(_LOWERINGS)
