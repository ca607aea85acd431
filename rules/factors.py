"""Constant factors that OpenVINO takes for scales in a model with pairs, and moves."""

from __future__ import annotations

from placer.graph import Graph, Node
from placer.graph.neutral import is_single

_PARTS = frozenset({"Slice", "Split"})
_VIEWS = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def is_moved_factor(tensor: str, graph: Graph) -> bool:
    """Whether a constant factor writes ``tensor`` that moves past what takes parts of that.

    Neg is the factor -1. A single number moves past views, too (low precision transformations of
    StridedSlice, Split, Transpose and Reshape; plans of OpenVINO 2026.4.1 of small graphs).
    """
    if not any(e.node and graph.by_name[e.node].op in _PARTS for e in graph.edges_of(tensor)):
        return False
    node, moves_single = graph.producer.get(tensor), False
    while node is not None and (node.op in _PARTS or _is_view(node, graph)):
        moves_single |= node.op in _VIEWS
        node = graph.producer.get(node.inputs[0])
    if node is not None and node.op == "Neg":
        return True
    factor = None if node is None else _factor(node, graph)
    return factor is not None and (not moves_single or is_single(graph.initializers[factor]))


def _is_view(node: Node, graph: Graph) -> bool:
    return node.op in _VIEWS and len(graph.edges_of(node.inputs[0])) == 1


def _factor(node: Node, graph: Graph) -> str | None:
    """The constant that ``node`` multiplies an activation by, or divides it by."""
    constants = [tensor for tensor in node.inputs if tensor in graph.initializers]
    scales = node.op == "Mul" or (node.op == "Div" and node.inputs[1] in constants)
    return constants[0] if scales and len(constants) == 1 else None
