"""Tensors behind which OpenVINO finds a dequantization: DQ, or the scale of an integer product.

The scale moves past constant factors and past sums of which one operand alone has one, unless the
other is a float product: then only a pair's does, and that of a product that comes first (LPT's
AddTransformation; plans of OpenVINO 2026.4.1 of 46 small graphs of norms).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.motion import Scale

_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv"})


def is_dequantized(edge: Edge, scales: Mapping[Edge, Scale], graph: Graph) -> bool:
    """Whether what is read at ``edge`` has a dequantization; ``scales``: of all pairs."""
    known = dict[Edge, bool]()
    # From the back, so that what a sum adds is known before it.
    for one in reversed(_from_front(edge, graph)):
        known[one] = one in scales or _is_passed_on(one, scales, known, graph)
    return known[edge]


def edges_behind(edge: Edge, graph: Graph) -> Iterator[Edge]:
    """The edges on which ``is_dequantized`` depends."""
    for one in _from_front(edge, graph):
        yield one
        node = graph.producer.get(one.tensor)
        if node is not None and _is_product(node):
            yield from graph.edges_into(node)


def _is_passed_on(
    edge: Edge, scales: Mapping[Edge, Scale], known: Mapping[Edge, bool], graph: Graph
) -> bool:
    node = graph.producer.get(edge.tensor)
    if node is None:
        return False
    if _is_product(node):
        return all(read in scales for read in graph.edges_into(node))
    read = _passed(node, graph)
    found = [known[one] for one in read]
    if len(read) < 2 or found.count(True) != 1:
        return len(read) < 2 and any(found)
    at = found.index(True)
    moved, other = (graph.producer.get(read[i].tensor) for i in (at, 1 - at))
    if read[at] in scales or other is None or not _is_product(other):
        return True
    return at == 0 and moved is not None and _is_product(moved)


def _from_front(edge: Edge, graph: Graph) -> list[Edge]:
    """``edge`` and the edges behind factors and sums there, each before what is behind it."""
    order, waiting, seen = list[Edge](), [(edge, False)], set[Edge]()
    while waiting:
        one, is_done = waiting.pop()
        if is_done:
            order.append(one)
        elif one not in seen:
            seen.add(one)
            node = graph.producer.get(one.tensor)
            behind = [] if node is None else _passed(node, graph)
            waiting += [(one, True), *((read, False) for read in behind)]
    return order[::-1]


def _passed(node: Node, graph: Graph) -> list[Edge]:
    """What ``node`` reads, if it is a factor or a sum that a dequantization may move past."""
    edges = graph.edges_into(node)
    computed = [edge for edge in edges if edge.tensor not in graph.initializers]
    is_factor = node.op in ("Mul", "Div") and len(edges) == 2 and len(computed) == 1
    is_sum = node.op == "Add" and len(computed) == 2
    return computed if is_sum or (is_factor and node.inputs[0] == computed[0].tensor) else []


def _is_product(node: Node) -> bool:
    return node.op in _PRODUCTS and len(node.inputs) == 2
