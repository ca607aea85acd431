"""Pairs on one side of a number that multiplies a tensor, or divides it.

The builder multiplies the scale of the pair by it: DQ moves behind the number, for whatever reads
what it makes, and Q before it. No kernel has the factor's name then. So exporters scale queries and
keys before they are multiplied, and GELUs are exported in parts, and half of the operators have
pairs.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of a denoiser whose queries
and keys are both scaled, and of some 100 small graphs of products, Convs, sums and GELUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.gelus import whole_gelus
from placer.prediction.kernels.parts import CONVS, multiplies_weight
from placer.prediction.kernels.reductions import product_shape
from placer.prediction.layers.motion import Passage, Scale


def scaled_pairs(graph: Graph, scales: Mapping[Edge, Scale]) -> dict[Edge, Scale]:
    """``scales``, where two pairs around a number have the first one's."""
    found = dict(scales)
    for node in _factors(graph, scales):
        scale = found.get(_given(graph, node))
        if scale is not None and _is_own(graph, node, found):
            found.update(dict.fromkeys(graph.edges_of(node.outputs[0]), scale))
    return found


def number_passages(graph: Graph, scales: Mapping[Edge, Scale]) -> list[Passage]:
    """The numbers past which pairs of given ``scales`` move."""
    return [
        Passage(
            (_given(graph, node),),
            tuple(graph.edges_of(node.outputs[0])),
            backward=not (_is_of_conv(graph, node) or _is_of_row(graph, node, scales)),
        )
        for node in _factors(graph, scales)
    ]


def is_absorbed(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether the scale of a pair takes in what ``factor`` multiplies by."""
    if not _multiplies(graph, factor):
        return False
    scale = scales.get(_given(graph, factor))
    return scale is not None and _common(graph, factor, scales) == scale


def _factors(graph: Graph, scales: Mapping[Edge, Scale]) -> list[Node]:
    """What multiplies by a number; GELUs are known as such where no pair is inside."""
    whole = {node.name for gelu in whole_gelus(graph, scales) for node in gelu.nodes}
    return [n for n in graph.nodes if n.name not in whole and _multiplies(graph, n)]


@kept
def _multiplies(graph: Graph, node: Node) -> bool:
    """Whether it multiplies what another node reads by a number."""
    if number(graph, node) is None or node.outputs[0] in graph.outputs:
        return False
    return bool(graph.edges_into(node)) and bool(graph.edges_of(node.outputs[0]))


def _given(graph: Graph, factor: Node) -> Edge:
    """What is multiplied by a number."""
    return next(e for e in graph.edges_into(factor) if e.tensor not in graph.initializers)


def _is_own(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether what ``factor`` makes has one pair, of a range that it shares with nothing.

    Calibrated by whatever method, it is the range of what is multiplied, times the number: what is
    rounded there is not rounded again (twelve small graphs).
    """
    scale = _common(graph, factor, scales)
    return scale is not None and scale.tensors == {factor.outputs[0]}


def _is_of_conv(graph: Graph, factor: Node) -> bool:
    """Whether a Conv writes what is multiplied: what adds its bias does that, too (six graphs)."""
    return any(t in graph.producer and graph.producer[t].op in CONVS for t in factor.inputs)


def _is_of_row(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether the kernel of a product of one row computes ``factor``, too, and what reads it.

    It does where that is one node, and what it writes has a pair, too (eight small graphs). The row
    is of floats.
    """
    row = graph.producer.get(_given(graph, factor).tensor)
    reader = graph.sole_reader(factor.outputs[0])
    if row is None or reader is None or not multiplies_weight(graph, row):
        return False
    if math.prod(product_shape(graph, row)[:-1]) != 1:
        return False
    if any(edge in scales for edge in graph.edges_into(row) if edge.tensor == row.inputs[0]):
        return False
    behind = graph.edges_of(reader.outputs[0])
    return bool(behind) and all(edge in scales for edge in behind)


def _common(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> Scale | None:
    """The scale that all have that read what ``factor`` makes."""
    found = {scales.get(edge) for edge in graph.edges_of(factor.outputs[0])}
    return found.pop() if len(found) == 1 else None
