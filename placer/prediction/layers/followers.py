"""Epilogues of layers: activations, scales and shifts that follow and become part of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.graph.operators import STANDARD_DOMAINS
from placer.prediction.layers.composites import find_composite
from placer.prediction.layers.kept_axes import reduced_axes
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.rules.fusion_schema import Followers

_EITHER_SIDE = frozenset({"Add", "Mul", "Sub"})  # c - x is x times -1, plus c.
_ARITHMETIC = _EITHER_SIDE | {"Div"}
# A scale and a shift of each channel, which axis 1 holds.
_NORM = "BatchNormalization"
AFFINE = _ARITHMETIC | {_NORM}  # Scales and shifts.
_CHANNELS = 1  # Their axis in maps.
# What DQ moves past.
_SCALED = frozenset({"Relu", "Clip"})
# Of what follows, what OpenVINO's MoveEltwiseUpThroughDataMov does not take for element-wise.
_STAYS = frozenset({"LeakyRelu", "PRelu", "HardSigmoid", "Swish"})


@dataclass(frozen=True)
class Follower:
    """An operator behind a layer that may become part of it.

    ``nodes``: one, or those that are an activation together. ``kind``: the operator. ``bare``: the
    edges from the layer to it and inside, on which no pair may be. ``movers``: the nodes before it
    that only move elements, and run after it.
    """

    nodes: tuple[Node, ...]
    kind: str
    bare: tuple[Edge, ...]
    movers: tuple[Node, ...] = ()

    @property
    def with_movers(self) -> tuple[Node, ...]:
        """Its nodes and those before them that run after it."""
        return (*self.movers, *self.nodes)

    @property
    def is_affine(self) -> bool:
        """Whether it is a scale or a shift."""
        return self.kind in AFFINE


def followers(candidate: LayerCandidate) -> Iterator[Follower]:
    """What the layer may take along, in order, as far as the graph alone decides."""
    fusion = None if candidate.claim is None else candidate.claim.fusion
    if fusion is None or fusion.takes is None:
        return
    graph, readers = candidate.graph, candidate.readers
    if fusion.merges and candidate.nodes[-1].op in fusion.past:
        return  # It moves elements itself.
    past = [*fusion.past, *(fusion.past_biased if _is_biased(candidate) else ())]
    has_moved = last_mover(candidate) is not None
    while True:
        path, movers = _movers(graph, readers, past)
        has_moved = has_moved or bool(movers)
        if movers:
            readers = graph.edges_of(movers[-1].outputs[0])
        if fusion.merges and not has_moved:
            return  # What reads it as it is merges with it.
        follower = _next(graph, readers, fusion.takes, has_moved)
        if follower is None or (has_moved and not _may_move(graph, follower)):
            return
        if follower.is_affine and _reduces_channels(candidate) and not _is_single(graph, follower):
            return
        yield Follower(follower.nodes, follower.kind, (*path, *follower.bare), tuple(movers))
        readers = graph.edges_of(follower.nodes[-1].outputs[0])


def _reduces_channels(candidate: LayerCandidate) -> bool:
    """Whether the layer is a Reduce over the axis of channels, so that none has values for each."""
    node, graph = candidate.nodes[0], candidate.graph
    axes = reduced_axes(node, graph) if node.op.startswith("Reduce") else None
    shape = graph.type_of(node.inputs[0]).shape
    if axes is None or not shape:
        return False
    return not axes or _CHANNELS in {axis % len(shape) for axis in axes}


def _is_single(graph: Graph, follower: Follower) -> bool:
    """Whether all constants of a scale or shift are single numbers."""
    constants = [t for node in follower.nodes for t in node.inputs if t in graph.initializers]
    return all(_count(graph, tensor) == 1 for tensor in constants)


def last_mover(candidate: LayerCandidate) -> Node | None:
    """The node that only moves elements and ends the layer, unless something follows it there."""
    fusion = None if candidate.claim is None else candidate.claim.fusion
    if fusion is None or len(candidate.nodes) == 1 or candidate.nodes[-1].op not in fusion.past:
        return None
    return candidate.nodes[-1]


def _is_biased(candidate: LayerCandidate) -> bool:
    """Whether what a product's DQ would scale has more done to it than that."""
    first, *rest = candidate.nodes
    return any(first.inputs[2:3]) or any(node.op not in _SCALED for node in rest)


def _movers(
    graph: Graph, readers: Sequence[Edge], past: Container[str]
) -> tuple[list[Edge], list[Node]]:
    """Nodes that only move elements, each read once, and the edges that lead to them."""
    edges, movers = list[Edge](), list[Node]()
    while len(readers) == 1 and not readers[0].is_graph_output and not readers[0].input_index:
        node = graph.by_name[readers[0].node]
        if node.op not in past or node.domain not in STANDARD_DOMAINS:
            break
        edges.append(readers[0])
        movers.append(node)
        readers = graph.edges_of(node.outputs[0])
    return edges, movers


def _next(graph: Graph, readers: Sequence[Edge], takes: Followers, shares: bool) -> Follower | None:
    """What ``readers`` of a tensor begin; ``shares``: its constants may be read elsewhere too."""
    if len(readers) == 1 and not readers[0].is_graph_output:
        node = graph.by_name[readers[0].node]
        if len(node.outputs) != 1 or not _may_follow(graph, node, takes, shares):
            return None
        if readers[0].input_index and node.op not in _EITHER_SIDE:
            return None
        return Follower((node,), node.op, (readers[0],))
    composite = find_composite(graph, readers)
    if composite is None or composite.kind not in takes.op:
        return None
    return Follower(composite.nodes, composite.kind, composite.edges)


def _may_move(graph: Graph, follower: Follower) -> bool:
    """Whether the engine computes an operator before what moves elements in front of it."""
    readers = graph.edges_of(follower.nodes[-1].outputs[0])
    if len(readers) != 1 or follower.kind in _STAYS:
        return False
    if follower.kind == "Reciprocal" and _is_product(readers[0], graph):
        return False  # A quotient (OpenVINO's DivideFusion).
    if len(follower.nodes) > 1:
        return True
    (node,) = follower.nodes
    constants = [t for t in node.inputs[1:] if t]
    scalar = all(t in graph.initializers and _count(graph, t) == 1 for t in constants)
    return scalar and follower.bare[0].input_index == 0


def _is_product(edge: Edge, graph: Graph) -> bool:
    return not edge.is_graph_output and graph.by_name[edge.node].op == "Mul"


def _count(graph: Graph, tensor: str) -> int:
    count = 1
    for size in graph.initializers[tensor].dims:
        count *= size
    return count


def _may_follow(graph: Graph, node: Node, takes: Followers, shares: bool) -> bool:
    if node.domain not in STANDARD_DOMAINS or node.op not in takes.op:
        return False
    constants = [t for t in node.inputs if t in graph.initializers]
    if len(constants) < sum(1 for t in node.inputs if t) - 1:
        return False
    shape = graph.type_of(node.outputs[0]).shape
    if node.op == _NORM:
        return shape is not None and takes.axis % max(1, len(shape)) == 1
    if node.op not in _ARITHMETIC:
        return True
    return shape is not None and all(
        (shares or _is_own(graph, node, t, len(shape)))
        and _is_per_channel(graph, t, shape, takes.axis)
        for t in constants
    )


def _is_own(graph: Graph, node: Node, constant: str, rank: int) -> bool:
    """Whether no other node reads the constant that OpenVINO gives the node, of ``rank`` axes.

    Snippets take a node whose constant others read (SnippetsMarkSkipped). One of fewer axes is
    reshaped for each reader; a subtrahend and a divisor become a summand and a factor.
    """
    alone = len(graph.edges_of(constant)) == 1
    turned = node.op in ("Sub", "Div") and node.inputs[1] == constant
    return alone or turned or len(graph.initializers[constant].dims) < rank


def _is_per_channel(graph: Graph, tensor: str, shape: Sequence[int], axis: int) -> bool:
    """Whether a constant has one value, or one for each channel, of a tensor of ``shape``."""
    constant_shape = tuple(graph.initializers[tensor].dims)
    padded = (1,) * (len(shape) - len(constant_shape)) + constant_shape
    channels = axis % len(shape) if shape else 0
    return len(constant_shape) <= len(shape) and all(
        size == 1 or (place == channels and size == shape[place])
        for place, size in enumerate(padded)
    )
