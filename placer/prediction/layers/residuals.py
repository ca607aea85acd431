"""Layers whose scale an engine moves past a sum: every other one of those that add to one tensor.

OpenVINO takes a scale behind an integer product for a dequantization and moves it past a sum,
unless the other operand has one, too, as the result of such a sum does, or is a product that
comes first (LPT's AddTransformation; plans of OpenVINO 2026.4.1 of vision transformers with layer
scales, of conformers and of 96 small graphs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm

_PRODUCTS = frozenset({"MatMul", "Gemm"})


def in_a_row(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[int, int]]:
    """The positions of layers one of which adds to what the other has added to."""
    positions = {sum_: c.position for c in claimed for sum_, _ in _sums(c)}
    for candidate in claimed:
        for _, before in _sums(candidate):
            if before in positions:
                yield positions[before], candidate.position


def behind_sums(candidates: Mapping[int, LayerCandidate], form: NormalForm) -> set[LayerCandidate]:
    """The layers of ``candidates``, by position, whose scale does not pass the sum behind it."""
    passed, left = set[str](), set[LayerCandidate]()
    for position in sorted(candidates):
        candidate = candidates[position]
        sums = list(_sums(candidate, form))
        others = () if candidate.claim is None else candidate.claim.sums
        stays = any(_holds_back(candidate.graph, other) for _, other in others)
        if stays or any(before in passed for _, before in sums):
            left.add(candidate)
        else:
            passed.update(sum_ for sum_, _ in sums)
    return left


def _sums(
    candidate: LayerCandidate, form: NormalForm | None = None
) -> Iterator[tuple[str, str | None]]:
    """By name the sums that the scale behind a layer may pass, and what writes the other operand.

    None: a graph input, or what a pair stands on.
    """
    graph = candidate.graph
    for edge, other in () if candidate.claim is None else candidate.claim.sums:
        writer = graph.producer.get(other.tensor)
        is_paired = form is not None and other in form.scales
        yield edge.node, None if writer is None or is_paired else writer.name


def _holds_back(graph: Graph, other: Edge) -> bool:
    """Whether the scale does not pass the sum that reads ``other`` besides.

    ``other`` has a constant scale of its own, or it is a product and the first operand.
    """
    writer = graph.producer.get(other.tensor)
    is_scaled = writer is not None and writer.op in ("Mul", "Div") and bool(_data(writer, graph))
    while writer is not None and writer.op in ("Mul", "Div", "Add") and _data(writer, graph):
        writer = graph.producer.get(_data(writer, graph))
    if writer is not None and writer.op in _PRODUCTS:
        return other.input_index == 0
    return is_scaled


def _data(node: Node, graph: Graph) -> str:
    """What ``node`` combines with a constant; empty where both operands are computed."""
    computed = [tensor for tensor in node.inputs if tensor not in graph.initializers]
    return computed[0] if len(computed) == 1 else ""
