"""Views that give one operand of an element-wise node a leading axis of 1, and take it away again.

Windows of one image with a mask (Swin) have them. OpenVINO moves the first behind the node, where
both undo each other (PrepareShapeOpsForEliminationAroundBE; plans of OpenVINO 2026.4.1 of 13 small
graphs).
"""

from __future__ import annotations

from placer.graph import Graph, Node

_VIEWS = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Flatten"})
_BINARY = ("Add", "Sub", "Mul", "Div")


def undone_leading_axes(graph: Graph) -> frozenset[str]:
    """The names of such views, two around each node with a constant that has them."""
    return frozenset(
        view.name
        for op in _BINARY
        for node in graph.by_op.get(op, ())
        for view in _views_around(node, graph)
    )


def _views_around(node: Node, graph: Graph) -> tuple[Node, ...]:
    before = graph.producer.get(node.inputs[0])
    behind = _only_reader(node.outputs[0], graph)
    if before is None or behind is None or node.inputs[1] not in graph.initializers:
        return ()
    if before.op not in _VIEWS or behind.op not in _VIEWS:
        return ()
    given, inside, left = (
        graph.type_of(t).shape for t in (before.inputs[0], node.outputs[0], behind.outputs[0])
    )
    is_alone = _only_reader(before.outputs[0], graph) is node
    if not is_alone or given is None or given != left or inside != (1, *given):
        return ()
    return before, behind


def _only_reader(tensor: str, graph: Graph) -> Node | None:
    """The node that alone reads ``tensor``, as its first input."""
    edge = graph.sole_consumer(tensor)
    return None if edge is None or edge.input_index else graph.by_name[edge.node]
