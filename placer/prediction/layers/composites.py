"""Activations that a graph spells out in several nodes, as exporters write them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.single_numbers import is_near, only_number
from placer.prediction.layers.tanh_gelu import tanh_gelu


@dataclass(frozen=True)
class Composite:
    """Nodes that are one activation, named as ONNX's operator, and the edges into and inside."""

    kind: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def find_composite(graph: Graph, readers: Sequence[Edge]) -> Composite | None:
    """The activation that the ``readers`` of a tensor begin, if they do."""
    if any(edge.is_graph_output for edge in readers):
        return None
    if len(readers) > 2:
        nodes = tanh_gelu(graph, readers)
        inside = tuple(_edges_between(graph, nodes))
        return Composite("Gelu", nodes, (*readers, *inside)) if nodes else None
    if len(readers) != 2:
        return None
    for first, second in (readers, readers[::-1]):
        composite = _from(graph, graph.by_name[first.node], graph.by_name[second.node])
        if composite is not None:
            kind, nodes = composite
            inside = tuple(_edges_between(graph, nodes))
            return Composite(kind, nodes, (first, second, *inside))
    return None


def _from(graph: Graph, node: Node, other: Node) -> tuple[str, tuple[Node, ...]] | None:
    """The activation whose row of nodes begins with ``node``, and its nodes in order.

    ``other`` reads the same tensor: the product with it, or half of it, which the product reads.
    """
    half = other if _is_half(graph, other) else None
    product = other if half is None else graph.sole_reader(half.outputs[0])
    if product is None or product.op != "Mul":
        return None
    row = _row(graph, node, product)
    if row is None:
        return None
    last = graph.sole_reader(product.outputs[0]) if half is None else None
    kind, scale = _kind(graph, row, half), None
    if kind is None and last is not None:
        kind, scale = _kind(graph, row, last), last
    if kind is None or (half is not None and kind != "Gelu"):
        return None
    behind = [scale] if scale is not None else []
    before = [half] if half is not None else []
    return kind, (*sorted([*before, *row], key=lambda member: member.index), product, *behind)


def _row(graph: Graph, node: Node, product: Node) -> list[Node] | None:
    """The nodes from one that reads the tensor up to its product with it; at most four."""
    row = [node]
    while len(row) <= 4:
        reader = graph.sole_reader(row[-1].outputs[0])
        if reader is None:
            return None
        if reader is product:
            return row
        row.append(reader)
    return None


def _kind(graph: Graph, row: Sequence[Node], scale: Node | None) -> str | None:
    """What a row of nodes times what it reads is; ``scale``: a product with a number around it."""
    ops = [node.op for node in row]
    if ops == ["Sigmoid"] and scale is None:
        return "Swish"
    if ops == ["Softplus", "Tanh"] and scale is None:
        return "Mish"
    if _is_hard_swish(graph, row, scale):
        return "HardSwish"
    if scale is not None and not _is_half(graph, scale):
        return None
    halves = [node for node in row if _is_half(graph, node)]
    if len(ops) - len(halves) == 3 and len(halves) + (scale is not None) == 1:
        return "Gelu" if _is_error_sum(graph, [n for n in row if n not in halves]) else None
    return None


def _is_error_sum(graph: Graph, row: Sequence[Node]) -> bool:
    """Whether three nodes compute 1 + erf(x / sqrt(2))."""
    divide, erf, add = row
    expected = math.sqrt(2) if divide.op == "Div" else 1 / math.sqrt(2)
    is_scaled = divide.op in ("Div", "Mul") and is_near(_constant(graph, divide), expected)
    return is_scaled and erf.op == "Erf" and add.op == "Add" and is_near(_constant(graph, add), 1)


def _is_hard_swish(graph: Graph, row: Sequence[Node], scale: Node | None) -> bool:
    """Whether a sum with 3 that is cut at 0 and 6 and a sixth, last or ``scale``, are there.

    OpenVINO's HSwishFusion.
    """
    sixth = row[-1] if scale is None else scale
    cut = row[:-1] if scale is None else row
    if [node.op for node in cut] != ["Add", "Clip"] or not _is_part(graph, sixth, 6):
        return False
    bounds = [only_number(graph, tensor) for tensor in cut[1].inputs[1:3]]
    is_cut = len(bounds) == 2 and is_near(bounds[0], 0) and is_near(bounds[1], 6)
    return is_cut and is_near(_constant(graph, cut[0]), 3)


def _is_half(graph: Graph, node: Node) -> bool:
    return _is_part(graph, node, 2)


def _is_part(graph: Graph, node: Node, of: float) -> bool:
    """Whether it divides by a number, or multiplies by one over it."""
    value = _constant(graph, node)
    return (node.op == "Mul" and is_near(value, 1 / of)) or (
        node.op == "Div" and is_near(value, of)
    )


def _constant(graph: Graph, node: Node) -> float | None:
    """The only element of the constant operand of a node; None without such an operand."""
    return next((v for t in node.inputs if (v := only_number(graph, t)) is not None), None)


def _edges_between(graph: Graph, nodes: Sequence[Node]) -> Iterator[Edge]:
    names = {node.name for node in nodes}
    for node in nodes:
        yield from (edge for edge in graph.edges_of(node.outputs[0]) if edge.node in names)
