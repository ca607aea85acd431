"""What a predicted layer does, in parts that each have a cost of their own.

A layer's time is the sum over its parts of ``fixed + per operation + per byte read + per byte
written``: one part for its main node or conversion, and one for each node fused into it. So a
convolution with a Sigmoid behind it needs no class of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from placer.graph import Graph, Node
from placer.graph.operators import RECURRENT
from placer.graph.transposes import order_of
from placer.plan import Layer
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.layouts import FEW_CHANNELS
from placer.prediction.times.layer_rows import row_count
from placer.prediction.times.work import (
    EXPONENTIAL,
    POOLING,
    WEIGHTED,
    Work,
    elements_of,
    layer_work,
    port_bytes,
    type_bytes,
)

# Operators that move or rename data without work for each element when they are fused.
_FREE = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# Nodes that more is done for than for each element: of a layer without weights the main one.
_NOT_ELEMENTWISE = frozenset(
    "Concat GroupNormalization InstanceNormalization LayerNormalization Resize RMSNormalization "
    "Slice Softmax Split Transpose".split()
)
# Elements that an interpolating Resize reads along each axis that changes.
_INTERPOLATED = {"linear": 2, "cubic": 4}
# Activations that are no comparison and no product.
_SMOOTH = EXPONENTIAL | {"HardSwish"}
_MILLION = 1e6
# Channels that a convolution computes at once, and of how many an integer one sums products at
# once: 32-bit sums in a vector of AVX-512, and bytes in each of them (VNNI).
_AT_ONCE, _SUMMED_AT_ONCE = 16, 4
_ROWS = "rows"  # How kinds of parts begin that count rows.
_POINT = " 1x1"  # How kinds of convolutions end whose window is one pixel.
_OF_ACTIVATIONS = " of activations"  # How products end of two tensors that are computed.
_OF_A_PRODUCT = " of a product"  # How conversions end of what a float product wrote.
_RESIZE = "Resize"  # Each mode is a kind of its own: some copy, some interpolate.
# How kinds begin whose kernel differs where channels are not last, or are in blocks.
ROW_MAJOR_KIND, BLOCKED_KIND = "row-major ", "blocked "


class CostKey(NamedTuple):
    """A kind of part: ``name`` is a class of layer or an operator, ``dtype`` what it reads."""

    name: str
    dtype: str


EVERY_KIND = CostKey("", "")  # Stands for all kinds together.
# What a layer reads of its constants: no time of its own, since where they are few they stay in a
# core's cache from one inference to the next; ``MANY_WEIGHTS`` is what many of them take.
WEIGHTS = CostKey("weights", "")
# How kinds are called of what a layer takes besides in a network with many weights. They are like
# no other kind, and ``EVERY_KIND`` does not stand for them.
MANY_WEIGHTS = "many weights"


class Part(NamedTuple):
    """How much of a kind: how often, million operations or elements, megabytes read, written."""

    key: CostKey
    times: float
    mops: float
    read_mb: float
    written_mb: float


def layer_parts(
    predicted: PredictedLayer, graph: Graph, last: bool | None = None
) -> tuple[Part, ...]:
    """The parts of a layer, the main one first; none for a no-op.

    ``last``: whether its tensors have their channels last; None: if they are integers.
    """
    layer = predicted.layer
    if layer.kind == "no-op":
        return ()
    if layer.op == "Concat" and layer.outputs:
        # Whether an engine copies at all is for the fit to find.
        read = sum(port_bytes(port, graph) for port in layer.inputs)
        written = sum(port_bytes(port, graph) for port in layer.outputs)
        elements = elements_of(layer.outputs[0].tensor, graph)
        work = Work("memory", layer.output_types[0], elements, read + written, written)
        whole = _part("Concat", work, elements)
        return (whole, *_rows(predicted.nodes[0], layer, whole.key, 1, graph, last))
    whole_work = layer_work(predicted, graph)
    if whole_work is None:
        return ()
    if not predicted.nodes:
        few = "few-channel " if whole_work.name.startswith("few-channel") else ""
        return (_part(f"{few}{layer.kind}", whole_work, whole_work.ops),)
    main = _main(predicted.nodes)
    ops = _operations(main, whole_work, graph, predicted.copies)
    fused = (node for node in predicted.nodes if node is not main and node.op not in _FREE)
    whole = _part(_name(main, whole_work, graph), whole_work, ops)
    writes = layer.output_types[0] if layer.outputs else ""
    parts = (whole, *(_fused(node, whole.key, writes, graph) for node in fused))
    return (
        *parts,
        *_gathered(main, whole.key, predicted.copies, graph),
        *_rows(main, layer, whole.key, predicted.copies, graph, last),
        *_given_out(layer, whole.key, graph),
        *_weights(whole_work),
    )


def is_float_product(key: CostKey) -> bool:
    """Whether ``key`` is that of matrix products by weights, in float."""
    is_product = key.name.startswith("matmul") and not key.name.endswith(_OF_ACTIVATIONS)
    return is_product and not is_quantized(key.dtype)


def quantized_product(part: Part) -> Part:
    """``part``, the main one of a quantize, as that of what a float product by weights wrote."""
    return part._replace(key=CostKey(f"{part.key.name}{_OF_A_PRODUCT}", part.key.dtype))


def _main(nodes: Sequence[Node]) -> Node:
    """The node that a layer is named after: the others are what is done to what it reads or writes.

    One with weights, else one that reduces or moves what it reads, as the norm behind a sum.
    """
    weighted = (node for node in nodes if node.op in WEIGHTED)
    heavy = (node for node in nodes if node.op in _NOT_ELEMENTWISE or node.op in POOLING)
    return next(weighted, None) or next(heavy, nodes[0])


@lru_cache(maxsize=4096)
def ancestors(key: CostKey) -> tuple[CostKey, ...]:
    """Kinds that stand for ``key`` where it was not measured, the most similar first.

    Behind them all but those of ``MANY_WEIGHTS`` is ``EVERY_KIND``.
    """
    if key.name == MANY_WEIGHTS:
        return (CostKey(MANY_WEIGHTS, ""),) if key.dtype else ()
    if key.name.startswith(_ROWS):
        both = (CostKey(_ROWS, key.dtype), CostKey(_ROWS, ""))
        return tuple(other for other in both if other != key)
    operator = key.name.removeprefix(BLOCKED_KIND)
    family = _family(operator)
    if operator != key.name:
        keys: tuple[CostKey, ...] = (CostKey(operator, ""), CostKey(family, ""))
    elif family in ("conv", "matmul", "conversion"):
        ends = {"conv": _POINT, "conversion": _OF_A_PRODUCT}
        wider = (CostKey(operator.removesuffix(ends[family]), key.dtype),) if family in ends else ()
        keys = (*wider, CostKey(family, key.dtype), CostKey(family, ""))
    elif operator.startswith("Transpose"):
        keys = (CostKey(key.name, ""), CostKey("Transpose", key.dtype), CostKey(family, ""))
    elif operator.endswith(_RESIZE):
        keys = (CostKey(key.name, ""), CostKey(_RESIZE, ""), CostKey(family, ""))
    else:
        keys = (CostKey(key.name, ""), CostKey(family, ""))
    return tuple(other for other in keys if other != key)


def _family(name: str) -> str:
    if name.startswith("fused"):
        return "fused"
    last = name.removeprefix("few-channel ").removesuffix(_OF_A_PRODUCT)
    if last in ("quantize", "dequantize", "requantize", "reformat", "conversion"):
        return "conversion"
    if "conv" in name:
        return "conv"
    if name.startswith("matmul") or name in RECURRENT:
        return "matmul"
    return "pooling" if name in POOLING or name == "pooling" else "memory"


def _name(main: Node, work: Work, graph: Graph) -> str:
    """The class of a layer with weights, else its operator, a Resize with its mode."""
    if main.op == _RESIZE:
        return f"{main.attributes.get('mode', 'nearest')} {_RESIZE}"
    if main.op == "Transpose" and _to_channels_first(main, graph):
        return "Transpose to channels first"
    if main.op not in WEIGHTED:
        return main.op
    if main.op in ("Gemm", "MatMul"):
        constant = any(tensor in graph.initializers for tensor in main.inputs[1:2])
        return work.name if constant else f"{work.name}{_OF_ACTIVATIONS}"
    shape = graph.type_of(main.inputs[1]).shape or ()
    point = len(shape) > 2 and math.prod(shape[2:]) == 1
    name = "transposed conv" if main.op == "ConvTranspose" else work.name
    if name == "depthwise conv" and shape[:1] != (main.attributes.get("group"),):
        # Kernels for depthwise ones compute one output from each channel, not several.
        name = "conv"
    if name.startswith("conv") and main.attributes.get("group", 1) != 1:
        name = f"grouped {name}"
    return f"{name}{_POINT}" if point else name


def _to_channels_first(node: Node, graph: Graph) -> bool:
    """Whether a Transpose moves the last axis before all others but the first.

    That leads back to convolutions. For an engine that keeps their channels last it changes how a
    tensor is called and moves nothing: most took no time on OpenVINO, others 1 to 3 ns an element.
    """
    order = order_of(graph, node)
    return len(order) > 2 and order == (0, len(order) - 1, *range(1, len(order) - 1))


def _fused(node: Node, main: CostKey, writes: str, graph: Graph) -> Part:
    """A node that is part of the layer ``main``: its operator for each element that it writes.

    A smooth activation between integers is a kind of its own for each class of layer, and costs
    something once for each layer: OpenVINO's kernels of a Conv with SiLU that write uint8 took up
    to 2.5 times as long as those that write float, 3x3 ones on small maps most, 1x1 ones hardly.
    """
    mops = elements_of(node.outputs[0], graph) / _MILLION
    if not is_quantized(main.dtype):
        return Part(CostKey(f"fused {node.op}", "float"), 0.0, mops, 0.0, 0.0)
    if node.op in _SMOOTH and is_quantized(writes):
        key = CostKey(f"fused {node.op} in {main.name}", "integer to integer")
        return Part(key, 1.0, mops, 0.0, 0.0)
    return Part(CostKey(f"fused {node.op}", "integer"), 0.0, mops, 0.0, 0.0)


def _part(name: str, work: Work, ops: float) -> Part:
    """What a layer does, without its weights, which are a part of their own."""
    read = max(work.bytes - work.written - work.constants, 0.0) / _MILLION
    return Part(CostKey(name, work.dtype), 1.0, ops / _MILLION, read, work.written / _MILLION)


def _weights(work: Work) -> Iterator[Part]:
    if work.constants:
        yield Part(WEIGHTS, 1.0, 0.0, work.constants / _MILLION, 0.0)


def _gathered(main: Node, kind: CostKey, copies: int, graph: Graph) -> Iterator[Part]:
    """What an integer convolution collects before its matrix product: a window for each pixel.

    Operations are the window's pixels, each some consecutive channels of each group (ONNX
    Runtime's im2col).
    """
    shapes = _conv_shapes(main, graph)
    if shapes is None or not is_quantized(kind.dtype) or kind.name.startswith("depthwise"):
        return
    groups = main.attributes.get("group", 1)
    (_, channels, *window), (batch, _, *image) = shapes
    strides = main.attributes.get("strides")
    if math.prod(window) == 1 and (not isinstance(strides, list | tuple) or max(strides) == 1):
        return  # The tensor is the matrix.
    pixels = groups * batch * math.prod(image) * math.prod(window) / copies / _MILLION
    read_mb = pixels * channels * type_bytes(kind.dtype)
    name = "gathered" if groups == 1 else "gathered in groups"
    yield Part(CostKey(name, kind.dtype), 0.0, pixels, read_mb, 0.0)


def _rows(
    main: Node, layer: Layer, kind: CostKey, copies: int, graph: Graph, last: bool | None
) -> Iterator[Part]:
    """What a kernel takes for each row that it goes through (``layer_rows``)."""
    last = is_quantized(kind.dtype) if last is None else last
    rows = row_count(main, layer, graph, last) / copies / _MILLION
    family = _family(kind.name)
    dense = family in ("conv", "matmul") and not kind.name.startswith(("depthwise", "grouped"))
    if rows:
        name = f"{_ROWS} of {family if dense else kind.name}"
        yield Part(CostKey(name, kind.dtype), 0.0, rows, 0.0, 0.0)


def _given_out(layer: Layer, kind: CostKey, graph: Graph) -> Iterator[Part]:
    """What a layer that computes maps of the model's outputs takes besides.

    Outputs have channels first, which suits few kernels: OpenVINO's linear Resize of a map of 21
    classes took 2.8 times as long as one inside a network, and a 1x1 Conv twice as long.
    """
    family = _family(kind.name)
    for port in layer.outputs if family != "matmul" else ():
        shape = graph.type_of(port.tensor).shape or ()
        if port.tensor in graph.outputs and math.prod(shape[2:]) > 1 and len(shape) > 3:
            key = CostKey(f"{family} to an output", port.dtype)
            written_mb = port_bytes(port, graph) / _MILLION
            yield Part(key, 1.0, math.prod(shape) / _MILLION, 0.0, written_mb)


def _conv_shapes(node: Node, graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of a Conv's weights and output; None of any other node."""
    if node.op != "Conv":
        return None
    weights, written = (graph.type_of(t).shape for t in (node.inputs[1], node.outputs[0]))
    if weights is None or written is None or len(weights) < 3:
        return None
    return tuple(weights), tuple(written)


def _operations(main: Node, work: Work, graph: Graph, copies: int) -> float:
    """What one of ``copies`` of a layer computes.

    A convolution computes some channels at once, needed or not, in each group as in a dense one;
    not one of an image or a depthwise one, whose kernels go through other axes.
    """
    shapes = _conv_shapes(main, graph)
    groups = main.attributes.get("group", 1)
    if shapes is None or (groups == 1 and shapes[0][1] <= FEW_CHANNELS) or groups == shapes[0][0]:
        return work.ops or _steps(main, graph) / copies
    (outputs, channels, *window), (batch, _, *image) = shapes
    if is_quantized(work.dtype):
        channels = _up(channels, _SUMMED_AT_ONCE)
    pixels: float = groups * batch * math.prod(image) / copies
    return 2.0 * pixels * math.prod(window) * channels * _up(outputs // groups, _AT_ONCE)


def _up(value: int, multiple: int) -> int:
    return math.ceil(value / multiple) * multiple


def _steps(node: Node, graph: Graph) -> float:
    """What a node without a class of weights computes: a step for each element that it combines.

    A pool combines those of its window, an interpolating Resize its neighbours, and a recurrent
    layer multiplies its matrices at each step (2 operations a product, as in ``Work``).
    """
    written = elements_of(node.outputs[0], graph)
    if node.op in RECURRENT:
        products = sum(elements_of(weight, graph) for weight in node.inputs[1:3])
        steps = math.prod((graph.type_of(node.inputs[0]).shape or (1,))[:2])
        return 2.0 * steps * products
    if node.op in ("AveragePool", "MaxPool"):
        window = node.attributes.get("kernel_shape")
        return written * math.prod(window) if isinstance(window, list | tuple) else written
    if node.op in POOLING:
        return max(written, elements_of(node.inputs[0], graph))
    if node.op == "Resize":
        before, after = (graph.type_of(t).shape or () for t in (node.inputs[0], node.outputs[0]))
        axes = sum(one != other for one, other in zip(before, after, strict=False))
        return float(written * _INTERPOLATED.get(str(node.attributes.get("mode")), 1) ** axes)
    return written
