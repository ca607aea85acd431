"""Carry placements and ranges of a float model over to the model converted from it."""

from __future__ import annotations

from placer.errors import InputError
from placer.graph import Edge, Graph, Node
from placer.qdq.precision import CAST_SUFFIXES
from placer.quantization import Placement, Range, Ranges
from placer.quantization.placement import ScaleGroup


def translate(placement: Placement, graph: Graph) -> Placement:
    """Carry ``placement``, made on the float model, over to the converted model's ``graph``.

    An edge is its node and index: the tensor becomes the one that the node reads now, a Cast for
    example. A graph output made by a Cast is quantized before the Cast. Groups of tensors that now
    differ in type are split, since a scale has the type of its tensor. Raises InputError for an
    edge of a node that ``graph`` does not have.
    """
    groups: set[ScaleGroup] = set()
    for group in placement.groups:
        by_type: dict[int | None, set[Edge]] = {}
        for edge in group.edges:
            moved = _translate_edge(edge, graph)
            by_type.setdefault(graph.type_of(moved.tensor).dtype, set()).add(moved)
        groups.update(ScaleGroup(frozenset(edges), group.format) for edges in by_type.values())
    per_tensor = frozenset(_translate_edge(edge, graph) for edge in placement.per_tensor)
    return Placement(frozenset(groups), per_tensor)


def translate_ranges(ranges: Ranges, graph: Graph) -> Ranges:
    """Carry ``ranges`` of the float model over: a Cast's input and output have the same range."""
    known: dict[str, Range] = dict(ranges)
    for node in graph.nodes:
        if node.op != "Cast":
            continue
        source, target = node.inputs[0], node.outputs[0]
        if not (graph.type_of(source).is_float and graph.type_of(target).is_float):
            continue
        if source in known:
            known.setdefault(target, known[source])
        elif target in known:
            known[source] = known[target]
    return known


def _translate_edge(edge: Edge, graph: Graph) -> Edge:
    if edge.is_graph_output:
        producer = graph.producer.get(edge.tensor)
        if producer is not None and _is_border_cast(producer):
            return Edge(producer.inputs[0], producer.name, 0)
        return edge
    node = graph.by_name.get(edge.node)
    if node is None:
        raise InputError(f"the placement quantizes {edge}, which the model does not have")
    if edge.input_index >= len(node.inputs):  # A subgraph reads it; the Inserter refuses that.
        return edge
    return Edge(node.inputs[edge.input_index], edge.node, edge.input_index)


def _is_border_cast(node: Node) -> bool:
    output = node.outputs[0]
    return (
        node.op == "Cast"
        and node.name.startswith(f"{output}/Cast")
        and any(
            node.inputs[0].startswith(f"{output}/{suffix}") for suffix in CAST_SUFFIXES.values()
        )
    )
