"""What follows a layer and becomes part of it: operators of one operand, scales and shifts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.graph import Graph, Node
from placer.prediction.claims import LayerCandidate
from placer.rules.schema import Followers

_EITHER_SIDE = frozenset({"Add", "Mul", "Sub"})  # c - x is x times -1, plus c.
_ARITHMETIC = _EITHER_SIDE | {"Div"}


def followers(candidate: LayerCandidate) -> Iterator[Node]:
    """The nodes that the layer may take along, in order, as far as the graph alone decides."""
    takes = None if candidate.claim is None else candidate.claim.fusion.takes
    if takes is None:
        return
    readers = candidate.readers
    while len(readers) == 1 and not readers[0].is_graph_output:
        node = candidate.graph.by_name[readers[0].node]
        if len(node.outputs) != 1 or not _may_follow(candidate.graph, node, takes):
            return
        data = candidate.graph.edge_at(node, readers[0].input_index)
        if data.input_index and node.op not in _EITHER_SIDE:
            return
        yield node
        readers = candidate.graph.edges_of(node.outputs[0])


def is_affine(node: Node) -> bool:
    """Whether a follower is a scale or a shift."""
    return node.op in _ARITHMETIC


def _may_follow(graph: Graph, node: Node, takes: Followers) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op not in takes.op:
        return False
    constants = [t for t in node.inputs if t in graph.initializers]
    if len(constants) < sum(1 for t in node.inputs if t) - 1:
        return False
    if node.op not in _ARITHMETIC:
        return True
    shape = graph.type_of(node.outputs[0]).shape
    return shape is not None and all(
        len(graph.edges_of(t)) == 1 and _is_per_channel(graph, t, shape, takes.axis)
        for t in constants
    )


def _is_per_channel(graph: Graph, tensor: str, shape: Sequence[int], axis: int) -> bool:
    """Whether a constant has one value, or one for each channel, of a tensor of ``shape``."""
    own = tuple(graph.initializers[tensor].dims)
    padded = (1,) * (len(shape) - len(own)) + own
    channels = axis % len(shape) if shape else 0
    return len(own) <= len(shape) and all(
        size == 1 or (place == channels and size == shape[place])
        for place, size in enumerate(padded)
    )
