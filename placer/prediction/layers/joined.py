"""Concats that only another Concat reads, which some engines merge with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Graph, Node
from placer.graph.index import with_nodes
from placer.prediction.layers.no_ops import WithoutNoOps

_Place = tuple[Edge, tuple[Edge, ...]]  # Of an input: its edge, and those of the Concats behind it.


def with_joined_concats(left: WithoutNoOps) -> WithoutNoOps:
    """``left`` with each Concat taken into the one along the same axis that alone reads it.

    A pair between both is one on each input of the first, as Q moves there.
    """
    graph = left.graph
    inner = {node.name for node in graph.by_op.get("Concat", ()) if _is_inner(node, graph)}
    if not inner:
        return left
    moved, twins = dict[Edge, tuple[Edge, ...]](), dict(left.twins)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in inner:
            continue
        inputs = node.inputs
        if node.op == "Concat":
            places = list(_places(node, graph, inner))
            inputs = tuple(edge.tensor for edge, _ in places)
            moved.update(_moves(node, places))
            if names := _taken(node, places, left):
                twins[node.name] = (*twins.get(node.name, ()), *names)
        nodes.append(replace(node, inputs=inputs))
    rest = with_nodes(graph, nodes)
    earlier = {
        edge: tuple(end for e in ends for end in moved.get(e, (e,)))
        for edge, ends in left.moved.items()
    }
    return WithoutNoOps(rest, {**moved, **earlier}, twins)


def _taken(node: Node, places: Sequence[_Place], left: WithoutNoOps) -> list[str]:
    """The Concats that ``node`` takes in, with their twins, by name."""
    ends = {edge.node for first, behind in places for edge in (first, *behind)} - {node.name}
    return sorted(name for n in ends for name in (n, *left.twins.get(n, ())))


def _is_inner(node: Node, graph: Graph) -> bool:
    edge = graph.sole_consumer(node.outputs[0])
    if edge is None or node.outputs[0] in graph.open_tensors:
        return False
    reader = graph.by_name[edge.node]
    # OpenVINO's ConcatFusion takes -3 and 1 for two axes, whatever the rank.
    return reader.op == "Concat" and reader.attributes.get("axis") == node.attributes.get("axis")


def _places(node: Node, graph: Graph, inner: set[str]) -> Iterator[_Place]:
    """What a Concat reads once those before it are taken in."""
    for index, tensor in enumerate(node.inputs):
        edge, writer = Edge(tensor, node.name, index), graph.producer.get(tensor)
        if writer is None or writer.name not in inner:
            yield edge, ()
            continue
        for first, behind in _places(writer, graph, inner):
            yield first, (*behind, edge)


def _moves(node: Node, places: Sequence[_Place]) -> Mapping[Edge, tuple[Edge, ...]]:
    """By edge into the Concats that are one the edges into that one, where these are others."""
    ends_of: dict[Edge, tuple[Edge, ...]] = {}
    for index, (first, behind) in enumerate(places):
        for edge in (first, *behind):
            ends_of[edge] = (*ends_of.get(edge, ()), Edge(first.tensor, node.name, index))
    return {edge: ends for edge, ends in ends_of.items() if ends != (edge,)}
