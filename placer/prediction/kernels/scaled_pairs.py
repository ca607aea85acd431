"""Pairs on one side of a number that multiplies a tensor, or divides it.

The builder multiplies the scale of the pair by it: DQ moves behind the number, for whatever reads
what it makes, and Q before it. No kernel has the factor's name then. So exporters scale queries and
keys before they are multiplied, and GELUs are exported in parts, and half of the operators have
pairs.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of a denoiser whose queries
and keys are both scaled, and of some 100 small graphs of products, Convs, sums and GELUs.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.graph import Edge, Graph, Node
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.gelus import whole_gelus
from placer.prediction.kernels.parts import CONVS
from placer.prediction.layers.motion import Scale


def scaled_pairs(graph: Graph, scales: Mapping[Edge, Scale]) -> dict[Edge, Scale]:
    """``scales``, and those that pairs have on the other side of a number."""
    found = dict(scales)
    kept = {node.name for gelu in whole_gelus(graph, scales) for node in gelu.nodes}
    nodes = [node for node in graph.nodes if node.name not in kept]
    for node in nodes:
        given = _given(graph, node)
        if given is None:
            continue
        made = graph.edges_of(node.outputs[0])
        free = not any(edge in found for edge in made) or _is_own(graph, node, found)
        if (scale := found.get(given)) is not None and free:
            found.update(dict.fromkeys(made, scale))
    for node in reversed(nodes):
        given = _given(graph, node)
        if given is None or given in found or _is_of_conv(graph, node):
            continue
        scale = _common(graph, node, found)
        if scale is not None:
            found[given] = scale
    return found


def is_absorbed(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether the scale of a pair takes in what ``factor`` multiplies by."""
    given = _given(graph, factor)
    scale = scales.get(given) if given is not None else None
    return scale is not None and _common(graph, factor, scales) == scale


def _given(graph: Graph, factor: Node) -> Edge | None:
    """What is multiplied by a number; None if ``factor`` does no such thing, or for an output."""
    if number(graph, factor) is None or factor.outputs[0] in graph.outputs:
        return None
    edges = (Edge(tensor, factor.name, index) for index, tensor in enumerate(factor.inputs))
    return next((edge for edge in edges if edge.tensor not in graph.initializers), None)


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


def _common(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> Scale | None:
    """The scale that all have that read what ``factor`` makes."""
    found = {scales.get(edge) for edge in graph.edges_of(factor.outputs[0])}
    return found.pop() if len(found) == 1 else None
