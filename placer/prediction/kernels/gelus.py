"""GELUs that are exported in parts: the compiler knows them as one function of one tensor.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 40 small graphs with GELUs
by erf and tanh, halved first or last, behind Convs of one and two dimensions and between products.
A tanh form with a Pow is none, since that is computed in FP32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.views import only_reader, readers_of
from placer.prediction.layers.motion import Scale

_TOLERANCE = 2**-11  # Of FP16, in which a file may have its constants.


@dataclass(frozen=True)
class Gelu:
    """``given``: the tensor that it is of; ``nodes``: its parts, the one that ends it last."""

    given: str
    nodes: tuple[Node, ...]


@kept
def gelus(graph: Graph) -> tuple[Gelu, ...]:
    """The GELUs of ``graph`` whose parts nothing else reads."""
    functions = []
    for node in graph.nodes:
        inner = _inner(graph, node)
        outer = _outer(graph, node, inner[0]) if inner is not None else ()
        if inner is None or not outer:
            continue
        nodes = (*inner[1], node, *outer)
        names = {part.name for part in nodes}
        inside = [part.outputs[0] for part in nodes[:-1]]
        if not set(inside) & set(graph.outputs) and all(
            reader.name in names for tensor in inside for reader in readers_of(graph, tensor)
        ):
            functions.append(Gelu(inner[0], nodes))
    return tuple(functions)


def whole_gelus(graph: Graph, scales: Mapping[Edge, Scale]) -> list[Gelu]:
    """The GELUs without a pair inside, which would make it none (15 small graphs)."""
    return [gelu for gelu in gelus(graph) if _is_whole(gelu, scales)]


def _is_whole(gelu: Gelu, scales: Mapping[Edge, Scale]) -> bool:
    edges = [
        Edge(tensor, node.name, index)
        for node in gelu.nodes
        for index, tensor in enumerate(node.inputs)
    ]
    given = {scales.get(edge) for edge in edges if edge.tensor == gelu.given}
    return len(given) == 1 and not any(e in scales for e in edges if e.tensor != gelu.given)


def constant(graph: Graph, node: Node) -> float | None:
    """The single number that is an operand of ``node``."""
    for tensor in node.inputs:
        if tensor in graph.initializers and math.prod(graph.initializers[tensor].dims) == 1:
            return float(numpy_helper.to_array(graph.initializers[tensor]).ravel()[0])
    return None


def _inner(graph: Graph, node: Node) -> tuple[str, tuple[Node, ...]] | None:
    """What an Erf or Tanh is computed of, and the nodes before it."""
    scaled = graph.producer.get(node.inputs[0]) if node.op in ("Erf", "Tanh") else None
    if scaled is None:
        return None
    if node.op == "Erf":
        factor = math.sqrt(2) if scaled.op == "Div" else math.sqrt(0.5)
        known = scaled.op in ("Div", "Mul") and _is_near(constant(graph, scaled), factor)
        return (_operand(graph, scaled), (scaled,)) if known else None
    summed = graph.producer.get(_operand(graph, scaled))
    if scaled.op != "Mul" or not _is_near(constant(graph, scaled), math.sqrt(2 / math.pi)):
        return None
    if summed is None or summed.op != "Add":
        return None
    for given, other in (summed.inputs, reversed(summed.inputs)):
        cube = _cube(graph, other, given)
        if cube:
            return given, (*cube, summed, scaled)
    return None


def _cube(graph: Graph, tensor: str, given: str) -> tuple[Node, ...]:
    """The nodes that make ``tensor``, 0.044715 times ``given`` to the power of three."""
    weighted = graph.producer.get(tensor)
    if (
        weighted is None
        or weighted.op != "Mul"
        or not _is_near(constant(graph, weighted), 0.044715)
    ):
        return ()
    cubed = graph.producer.get(_operand(graph, weighted))
    if cubed is None or cubed.op != "Mul" or given not in cubed.inputs:
        return ()
    square = next((graph.producer.get(t) for t in cubed.inputs if t != given), None)
    if square is None or square.op != "Mul" or set(square.inputs) != {given}:
        return ()
    return square, cubed, weighted


def _outer(graph: Graph, node: Node, given: str) -> Sequence[Node]:
    """The nodes behind an Erf or Tanh that add 1, multiply by ``given`` and halve."""
    added = only_reader(graph, node)
    if added is None or added.op != "Add" or not _is_near(constant(graph, added), 1.0):
        return ()
    first = only_reader(graph, added)
    if first is None or first.op != "Mul":
        return ()
    other = next((t for t in first.inputs if t not in added.outputs), "")
    half = graph.producer.get(other)
    if half is not None and _halves(graph, half) and given in half.inputs:
        return added, half, first
    last = only_reader(graph, first)
    if last is None or last.op != "Mul":
        return ()
    if other == given and _halves(graph, last):
        return added, first, last
    return (added, first, last) if _halves(graph, first) and given in last.inputs else ()


def _halves(graph: Graph, node: Node) -> bool:
    return node.op == "Mul" and _is_near(constant(graph, node), 0.5)


def _operand(graph: Graph, node: Node) -> str:
    """What a node reads besides a constant."""
    return next((tensor for tensor in node.inputs if tensor not in graph.initializers), "")


def _is_near(value: float | None, expected: float) -> bool:
    return value is not None and math.isclose(value, expected, rel_tol=_TOLERANCE)
