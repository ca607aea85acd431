"""What a layer has to do: its class, operations, and bytes that it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from placer.graph import Graph, Node
from placer.graph.weights import weight_input
from placer.plan import Layer, Port
from placer.prediction.layers.conversions import UNKNOWN, PredictedLayer
from placer.prediction.layers.layouts import FEW_CHANNELS, channels

_QUANTIZED = ("int8", "uint8", "float8e4m3fn")
_BYTES = {
    "float": 4,
    "int32": 4,
    "double": 8,
    "int64": 8,
    "bool": 1,
    **dict.fromkeys(_QUANTIZED, 1),
}
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLING = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean")
# Activations that take exponentials, which no comparison or product does.
EXPONENTIAL = frozenset("Celu Elu Erf Exp Gelu Mish Selu Sigmoid Softplus Swish Tanh".split())
TILE: Literal[64] = 64  # Channels that a thread block of large kernels computes at least.
SMALL_TILE: Literal[32] = 32  # The same of small kernels, which up to two of the large tiles take.


@dataclass(frozen=True)
class Work:
    """What a layer has to do: its class, the type it computes in, operations and bytes moved.

    ``written``: those of ``bytes`` that are written. ``depth``: how many products each element of
    the output sums. ``tiled_ops``: operations where channels come in multiples of ``TILE``,
    ``small_tiled_ops``: up to two of them of ``SMALL_TILE``. ``constants``: those of ``bytes`` that
    are weights. ``exponentials``: elements that a kernel which sums integers takes exponentials of.
    ``softmax_rows``: what a layer of a Softmax alone divides by one sum each.
    """

    name: str
    dtype: str
    ops: float
    bytes: float
    written: float = 0
    depth: float = 0
    tiled_ops: float = 0
    small_tiled_ops: float = 0
    constants: float = 0
    exponentials: float = 0
    softmax_rows: float = 0


def layer_work(predicted: PredictedLayer, graph: Graph) -> Work | None:
    """What a layer has to do; None if it is no work at all."""
    layer, nodes = predicted.layer, predicted.nodes
    if layer.kind == "no-op":
        return None
    if not nodes:
        return _conversion_work(layer, graph)
    if layer.op == "Concat":
        return _concat_work(predicted, graph)
    dtype = _computing_type(layer.inputs)
    moved = sum(port_bytes(port, graph) for port in _distinct((*layer.inputs, *layer.outputs)))
    main = next((node for node in nodes if node.op in WEIGHTED), nodes[0])
    constants = _weight_bytes(nodes, graph, type_bytes(dtype))
    moved += constants
    share = 1 / predicted.copies
    return Work(
        _class_name(predicted, main, dtype, graph),
        dtype,
        share * sum(_ops(node, _multiple(dtype), graph) for node in nodes),
        share * moved,
        written=share * sum(port_bytes(port, graph) for port in layer.outputs),
        depth=_depth(main, graph),
        tiled_ops=share * sum(_ops(node, TILE, graph) for node in nodes),
        small_tiled_ops=share * sum(_ops(node, TILE, graph, SMALL_TILE) for node in nodes),
        constants=share * constants,
        exponentials=share * _exponentials(nodes, graph) if dtype in _QUANTIZED else 0,
        softmax_rows=_softmax_rows(main, graph),
    )


def _conversion_work(layer: Layer, graph: Graph) -> Work:
    moved = sum(port_bytes(port, graph) for port in (*layer.inputs, *layer.outputs))
    given = (layer.inputs or layer.outputs)[0]  # What clears memory reads nothing.
    few = channels(graph, given.tensor) <= FEW_CHANNELS
    name = "few-channel conversion" if few else "conversion"
    elements = max(elements_of(port.tensor, graph) for port in layer.outputs)
    written = sum(port_bytes(port, graph) for port in layer.outputs)
    return Work(name, given.dtype, elements, moved, written)


def _exponentials(nodes: Sequence[Node], graph: Graph) -> int:
    """Elements that a product's kernel takes exponentials of; 0 if none of ``nodes`` is one."""
    if not any(node.op in WEIGHTED for node in nodes):
        return 0
    return sum(elements_of(node.outputs[0], graph) for node in nodes if node.op in EXPONENTIAL)


def _softmax_rows(main: Node, graph: Graph) -> float:
    """Rows that a Softmax works on one by one; 0 if the layer's main node is none."""
    shape = graph.type_of(main.inputs[0]).shape if main.op == "Softmax" else None
    if not shape:
        return 0
    axis = main.attributes.get("axis", -1)
    length = shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else 1
    return math.prod(shape) / max(length, 1)


def _class_name(predicted: PredictedLayer, main: Node, dtype: str, graph: Graph) -> str:
    if predicted.layer.op == "ConvActPool":
        return "conv-act-pool"
    if main.op in ("Conv", "ConvTranspose"):
        read = channels(graph, main.inputs[0])
        if read <= FEW_CHANNELS:
            return "few-channel conv"
        if main.op == "Conv" and _is_depthwise(main, graph):
            return "depthwise conv"
        return "conv" + (_float_output(predicted.layer) if dtype in _QUANTIZED else "")
    if main.op in ("Gemm", "MatMul"):
        return "matmul"
    return "pooling" if main.op in POOLING else "memory"


def _float_output(layer: Layer) -> str:
    """How the class of a layer that reads integers says that it writes float."""
    if "float" in layer.output_types:
        return " to float"
    return " to half" if {"float16", "bfloat16"} & set(layer.output_types) else ""


def _concat_work(predicted: PredictedLayer, graph: Graph) -> Work | None:
    """Copies of the inputs that their producers cannot write into the joined tensor themselves.

    A producer, or the conversion behind it, writes into it if nothing else reads its output
    (TensorRT eliminates copies input by input: hehern bevfusion, yolo_deepstream).
    """
    layer = predicted.layer
    if not layer.outputs:
        return None
    dtype = layer.output_types[0]
    copied = [
        edge.tensor
        for edge, port in zip(predicted.edges, layer.inputs, strict=True)
        if edge.tensor not in graph.producer
        or len(graph.edges_of(edge.tensor)) > 1
        or port.dtype != dtype
    ]
    if not copied:
        return None
    moved = 2 * sum(elements_of(tensor, graph) for tensor in copied) * type_bytes(dtype)
    return Work("memory", dtype, 0, moved)


def _computing_type(ports: Sequence[Port]) -> str:
    """INT8 if any input is, else the type of the first float input, else of the first known."""
    types = [port.dtype for port in ports if port.dtype != UNKNOWN]
    quantized = next((dtype for dtype in types if dtype in _QUANTIZED), None)
    if quantized is not None:
        return quantized
    return next((t for t in types if "float" in t), types[0] if types else "float")


def _multiple(dtype: str) -> int:
    """Channels that tensor cores take at once (NVIDIA, Deep Learning Performance guide)."""
    return 16 if dtype in _QUANTIZED else {"float16": 8, "bfloat16": 8}.get(dtype, 4)


def _depth(node: Node, graph: Graph) -> int:
    """Products that each element of a weighted node's output sums; 0 if the shape is not known."""
    if node.op in ("Gemm", "MatMul"):
        return _matrix_depth(node, graph, unknown=0)
    weight = weight_input(graph, node) if node.op in WEIGHTED else None
    if weight is None:
        return 0
    dims = graph.initializers[weight.tensor].dims
    if len(dims) < 2:  # No weights of a convolution; no engine takes them.
        return 0
    if node.op == "Conv":
        return math.prod(dims[1:])
    # Each element of a ConvTranspose's output sums over the part of the kernel that strides leave.
    strides = node.attributes.get("strides")
    steps = math.prod(strides) if isinstance(strides, list | tuple) else 1
    return math.ceil(dims[0] * math.prod(dims[2:]) / steps)


def _matrix_depth(node: Node, graph: Graph, unknown: int) -> int:
    """The length that a matrix product sums over; ``unknown`` if no such axis is known."""
    axis = -2 if node.attributes.get("transA", 0) else -1
    shape = graph.type_of(node.inputs[0]).shape or ()
    return shape[axis] if len(shape) >= -axis else unknown


def _ops(node: Node, multiple: int, graph: Graph, small: int = 0) -> float:
    """Operations, 2 per multiply-add.

    Channels count in multiples of ``multiple``, up to two of these in multiples of ``small``.
    """
    if node.op not in WEIGHTED:
        return 0.0
    if node.op in ("Gemm", "MatMul"):
        depth = _matrix_depth(node, graph, unknown=1)
        return 2.0 * elements_of(node.outputs[0], graph) * _up(depth, multiple, small)
    weight = weight_input(graph, node)
    if weight is None:
        return 0.0
    shape = graph.initializers[weight.tensor].dims
    if len(shape) < 2:  # No weight of a convolution; the engine will say so.
        return 0.0
    grouped = node.attributes.get("group", 1) > 1
    first, second = (shape[0], shape[1]) if grouped else (_up(shape[0], multiple, small), shape[1])
    if not grouped and second > FEW_CHANNELS:
        second = _up(second, multiple, small)
    kernel = math.prod(shape[2:])
    if node.op == "ConvTranspose":
        return 2.0 * elements_of(node.inputs[0], graph) / shape[0] * first * second * kernel
    return 2.0 * elements_of(node.outputs[0], graph) / shape[0] * first * second * kernel


def _up(value: int, multiple: int, small: int) -> int:
    size = small if small and value <= 2 * multiple else multiple
    return math.ceil(value / size) * size


def matrix_share(graph: Graph) -> float:
    """The share of all operations that products of matrices, not convolutions, do."""
    ops = [(node.op in ("Gemm", "MatMul"), _ops(node, 1, graph)) for node in graph.nodes]
    return sum(count for matrix, count in ops if matrix) / max(sum(c for _, c in ops), 1.0)


def depthwise_share(graph: Graph) -> float:
    """The share of the elements that Convs read and write which depthwise ones do."""
    moved = [
        (_is_depthwise(node, graph), sum(elements_of(t, graph) for t in _maps(node)))
        for node in graph.nodes
        if node.op == "Conv"
    ]
    return sum(count for apart, count in moved if apart) / max(sum(c for _, c in moved), 1)


def _maps(conv: Node) -> tuple[str, str]:
    return conv.inputs[0], conv.outputs[0]


def _is_depthwise(conv: Node, graph: Graph) -> bool:
    """Whether a Conv sums each channel of several apart."""
    group = conv.attributes.get("group", 1)
    return bool(group != 1 and group == channels(graph, conv.inputs[0]))


def float_weight_bytes(graph: Graph) -> float:
    """Bytes of all constants that nodes of ``graph`` read, in FP32."""
    return _weight_bytes(graph.nodes, graph, type_bytes("float"))


def _weight_bytes(nodes: Sequence[Node], graph: Graph, size: float) -> float:
    # A Gather reads no more of its table than it writes.
    readers = (node for node in nodes if not node.op.startswith("Gather"))
    tensors = {t for node in readers for t in node.inputs if t in graph.initializers}
    return sum(math.prod(graph.initializers[t].dims) for t in tensors) * size


def _distinct(ports: Sequence[Port]) -> Iterator[Port]:
    """Ports without repeats: a tensor that a layer reads twice is loaded once."""
    return iter(dict.fromkeys(ports))


def port_bytes(port: Port, graph: Graph) -> float:
    """Bytes of the tensor that a layer reads or writes there."""
    return elements_of(port.tensor, graph) * type_bytes(port.dtype)


def type_bytes(dtype: str) -> int:
    """Bytes of an element of ONNX type ``dtype``; 4 for types that are not known."""
    if dtype in _QUANTIZED:
        return 1
    return 2 if dtype in ("float16", "bfloat16") else _BYTES.get(dtype, 4)


def elements_of(tensor: str, graph: Graph) -> int:
    """How many elements it has; one where its shape is not known."""
    return math.prod(graph.type_of(tensor).shape or (1,))
