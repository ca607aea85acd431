"""In which order a Transpose writes axes."""

from __future__ import annotations

from placer.graph.index import Graph, Node


def order_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """The axes of what the Transpose ``node`` reads, in the order of those that it writes.

    Reversed by default (ONNX, Transpose). Empty for other nodes, and where the rank is not known.
    """
    if node.op != "Transpose":
        return ()
    given: list[int] = node.attributes.get("perm", [])
    rank = len(graph.type_of(node.inputs[0]).shape or ())
    return tuple(given or reversed(range(rank)))
