"""Tensors that hold the same values: calibrated alike, they have equal scales.

A pair before a node that only rearranges values, and one behind it, make the same integers, which
the builder computes once. Nearest upsampling by whole factors repeats each value as often as any
other, so no method of calibration tells the two apart.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of nine small graphs of norms
that products and Convs of maps read, as in SegFormers.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.graph import Graph, Node
from placer.prediction.kernels.parts import VIEWS

_REARRANGE = VIEWS | {"Transpose", "DepthToSpace", "SpaceToDepth"}


def sources(graph: Graph) -> Mapping[str, str]:
    """The tensor whose values one holds in another shape, order or number, where it is another."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in _REARRANGE or _repeats(graph, node):
            found[node.outputs[0]] = found.get(node.inputs[0], node.inputs[0])
    return found


def _repeats(graph: Graph, node: Node) -> bool:
    if node.op != "Resize" or node.attributes.get("mode", "nearest") != "nearest":
        return False
    small = graph.type_of(node.inputs[0]).shape or ()
    large = graph.type_of(node.outputs[0]).shape or ()
    return len(small) == len(large) and all(
        a and b and b % a == 0 for a, b in zip(small, large, strict=True)
    )
