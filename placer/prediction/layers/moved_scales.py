"""Scales behind an activation of an integer Conv, which an engine moves past pools and the like.

OpenVINO takes them, with shifts behind them, for a dequantization, as it does the scale of the
integers where only Relus stand between, and moves them behind what pools, averages or resizes in
float (LPT's AvgPool, MaxPool, Reduce and Interpolate transformations; plans of OpenVINO 2026.4.1 of
168 small graphs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx.numpy_helper import to_array

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.followers import AFFINE, Follower, followers
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm

_SCALES = frozenset({"Mul", "Div", "BatchNormalization"})
_TRANSPARENT = frozenset({"Relu"})  # The scale of the integers moves past it.
_POOLS = frozenset({"AveragePool", "MaxPool"})
_TAKES_SCALES = frozenset({"GlobalAveragePool", "ReduceMean", "Resize"})
_PASSED = _POOLS | _TAKES_SCALES


def passed(
    candidate: LayerCandidate, taken: Sequence[Follower], form: NormalForm
) -> tuple[Node, ...]:
    """What reads the layer in float and the scales at its end move past; sums last.

    ``taken``: what the layer takes along; none of it where no scale moves. A sum is passed where it
    is not the only reader.
    """
    affine = affine_end(taken)
    if affine == len(taken) or not _is_scaled(candidate, taken, affine):
        return ()
    graph = candidate.graph
    readers = graph.edges_of(taken[-1].nodes[-1].outputs[0])
    floats = [e for e in readers if e not in form.scales and not e.is_graph_output]
    pools = [graph.by_name[edge.node] for edge in floats if _is_passed(edge, graph)]
    sums = [graph.by_name[edge.node] for edge in floats if is_sum(edge, graph)]
    return (*pools, *(sums if len(readers) > 1 else ()))


def is_sum(edge: Edge, graph: Graph) -> bool:
    """Whether ``edge`` leads to a sum of two activations."""
    node = graph.by_name.get(edge.node or "")
    return (
        node is not None and node.op == "Add" and graph.initializers.keys().isdisjoint(node.inputs)
    )


def are_positive(nodes: Sequence[Node], graph: Graph) -> bool:
    """Whether all factors of scales and shifts are above zero, so that Q takes them along."""
    for node in nodes:
        if node.op == "Sub" and node.inputs[0] in graph.initializers:
            return False
        factors = node.inputs[1:2] if node.op == "BatchNormalization" else node.inputs[:2]
        if node.op in _SCALES:
            for tensor in set(factors).intersection(graph.initializers):
                if not (to_array(graph.initializers[tensor]) > 0).all():
                    return False
    return True


def takes_scales(candidate: LayerCandidate | None, form: NormalForm) -> bool:
    """Whether a layer computes scales that moved behind it: pools only with the Q that follows."""
    if candidate is None:
        return False
    if any(node.op in _TAKES_SCALES for node in candidate.nodes):
        return True
    scales = {form.scales.get(edge) for edge in candidate.readers}
    return len(scales) == 1 and None not in scales


def beside(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[int, int]]:
    """The positions of layers with scales at their end and of what these may move past."""
    for candidate, last in _with_scales(claimed):
        for edge in candidate.graph.edges_of(last.outputs[0]):
            if _is_passed(edge, candidate.graph):
                yield candidate.position, candidate.graph.by_name[edge.node].index


def ends_of_scales(claimed: Sequence[LayerCandidate]) -> frozenset[int]:
    """The positions of scales and shifts that end layers of Convs, and may be left by these."""
    return frozenset(last.index for _, last in _with_scales(claimed))


def _with_scales(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[LayerCandidate, Node]]:
    """Layers of Convs that scales or shifts end, and the last of these."""
    for candidate in claimed:
        if any(node.op == "Conv" for node in candidate.nodes):
            taken = list(followers(candidate))
            if taken and taken[-1].is_affine:
                yield candidate, taken[-1].nodes[-1]


def affine_end(taken: Sequence[Follower]) -> int:
    """Where the scales and shifts begin that ``taken`` ends with."""
    first = len(taken)
    while first and taken[first - 1].is_affine:
        first -= 1
    return first


def _is_scaled(candidate: LayerCandidate, taken: Sequence[Follower], affine: int) -> bool:
    """Whether an activation stands before the scales and shifts of an integer Conv's layer."""
    if candidate.claim is None or not candidate.claim.demanded:
        return False
    before = [*candidate.nodes, *(node for one in taken[:affine] for node in one.nodes)]
    if not any(node.op == "Conv" for node in before) or before[-1].op in {"Conv", *AFFINE}:
        return False
    kinds = {one.kind for one in taken[affine:]}
    return bool(kinds & _SCALES) or before[-1].op in _TRANSPARENT


def _is_passed(edge: Edge, graph: Graph) -> bool:
    return not edge.is_graph_output and graph.by_name[edge.node].op in _PASSED
