"""Integers that enter and leave a graph, dequantized and quantized by float operators.

That is what an imported model has where its file has half a pair (``placer.model.quantized``):
(q - zero_point) * scale behind a graph input, saturate(round(x / scale) + zero_point) before a
graph output, as ONNX defines DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from placer.graph.external_data import is_external
from placer.graph.index import Graph, Node

_INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8})


@dataclass(frozen=True, eq=False)
class IntegerPort:
    """A graph input or output ``integers`` and ``floats``, the numbers that it stands for.

    ``nodes``: the operators between the two, in their order. ``scale``: of the type of ``floats``.
    """

    integers: str
    floats: str
    scale: np.ndarray
    zero_point: int
    nodes: tuple[Node, ...]
    is_input: bool
    dtype: int

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """The numbers, float32, that ``values`` of the port stand for."""
        steps = values.astype(np.float64) - self.zero_point
        floats: np.ndarray = (steps * float(self.scale)).astype(np.float32)
        return floats


def integer_ports(graph: Graph) -> tuple[IntegerPort, ...]:
    """Those of ``graph``; an input has one for each chain of operators that dequantizes it."""
    return (*_inputs(graph), *_outputs(graph))


def numeric_outputs(graph: Graph) -> frozenset[str]:
    """The graph outputs that are floats or stand for floats."""
    ports = {port.integers for port in integer_ports(graph) if not port.is_input}
    return frozenset(o for o in graph.outputs if graph.type_of(o).is_float or o in ports)


def as_numbers(
    outputs: Mapping[str, np.ndarray], ports: Mapping[str, IntegerPort]
) -> Mapping[str, np.ndarray]:
    """``outputs`` with what those of ``ports`` stand for."""
    if not ports:
        return outputs
    return {k: ports[k].numbers(v) if k in ports else v for k, v in outputs.items()}


def _inputs(graph: Graph) -> Iterator[IntegerPort]:
    for tensor in graph.inputs:
        dtype = graph.type_of(tensor).dtype
        if dtype is None or dtype not in _INTEGERS:
            continue
        for edge in graph.edges_of(tensor):
            cast = graph.by_name.get(edge.node)
            if cast is not None and cast.op == "Cast" and cast.name not in graph.scopes:
                yield from _dequantized(graph, tensor, cast, dtype)


def _dequantized(graph: Graph, tensor: str, cast: Node, dtype: int) -> Iterator[IntegerPort]:
    """The port of what ``cast`` makes of an input, if it is freed of a zero point and scaled."""
    half = _next(graph, cast, "Cast")  # In a base precision.
    subtract = _next(graph, half or cast, "Sub")
    multiply = _next(graph, subtract or half or cast, "Mul")
    scale = _constant(graph, multiply)
    zero_point = np.array(0) if subtract is None else _constant(graph, subtract)
    if multiply is None or scale is None or zero_point is None:
        return
    nodes = tuple(node for node in (cast, half, subtract, multiply) if node is not None)
    yield from _port(tensor, multiply.outputs[0], scale, zero_point, nodes, True, dtype)


def _outputs(graph: Graph) -> Iterator[IntegerPort]:
    for tensor in graph.outputs:
        dtype, cast = graph.type_of(tensor).dtype, graph.producer.get(tensor)
        if dtype is None or dtype not in _INTEGERS or cast is None or cast.op != "Cast":
            continue
        if cast.name not in graph.scopes:
            yield from _quantized(graph, tensor, cast, dtype)


def _quantized(graph: Graph, tensor: str, cast: Node, dtype: int) -> Iterator[IntegerPort]:
    """The port of an output that ``cast`` writes, if it is divided, rounded and clipped before."""
    clip = _before(graph, cast, "Clip")
    add = _before(graph, clip, "Add")
    rounded = _before(graph, add or clip, "Round")
    divide = _before(graph, rounded, "Div")
    scale = _constant(graph, divide)
    zero_point = np.array(0) if add is None else _constant(graph, add)
    if clip is None or divide is None or scale is None or zero_point is None:
        return
    if _limits(graph, clip) == _whole(dtype):
        nodes = tuple(n for n in (divide, rounded, add, clip, cast) if n is not None)
        yield from _port(tensor, divide.inputs[0], scale, zero_point, nodes, False, dtype)


def _port(
    integers: str,
    floats: str,
    scale: np.ndarray,
    zero_point: np.ndarray,
    nodes: tuple[Node, ...],
    is_input: bool,
    dtype: int,
) -> Iterator[IntegerPort]:
    zero = float(zero_point)
    low, high = _whole(dtype)
    if float(scale) > 0 and zero == int(zero) and low <= zero <= high:
        yield IntegerPort(integers, floats, scale, int(zero), nodes, is_input, dtype)


def _whole(dtype: int) -> tuple[float, float]:
    info = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return float(info.min), float(info.max)


def _limits(graph: Graph, clip: Node) -> tuple[float, float] | None:
    limits = [_value(graph, tensor) for tensor in clip.inputs[1:3]]
    if len(limits) < 2 or limits[0] is None or limits[1] is None:
        return None
    return float(limits[0]), float(limits[1])


def _next(graph: Graph, node: Node, op: str) -> Node | None:
    """The node of ``op`` that alone reads what ``node`` writes, as its first input."""
    edge = graph.sole_consumer(node.outputs[0])
    reader = None if edge is None or edge.input_index else graph.by_name[edge.node]
    return reader if reader is not None and reader.op == op else None


def _before(graph: Graph, node: Node | None, op: str) -> Node | None:
    """The node of ``op`` that writes what ``node`` alone reads first."""
    if node is None or not node.inputs:
        return None
    writer = graph.producer.get(node.inputs[0])
    alone = len(graph.edges_of(node.inputs[0])) == 1
    return writer if writer and writer.op == op and alone else None


def _constant(graph: Graph, node: Node | None) -> np.ndarray | None:
    """The single number that ``node`` has besides its first input."""
    return None if node is None or len(node.inputs) != 2 else _value(graph, node.inputs[1])


def _value(graph: Graph, tensor: str) -> np.ndarray | None:
    initializer = graph.initializers.get(tensor)
    if initializer is None or is_external(initializer):
        return None
    values: np.ndarray = numpy_helper.to_array(initializer)
    return values.reshape(()) if values.size == 1 else None
