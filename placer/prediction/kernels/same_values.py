"""Tensors that hold the same values: calibrated alike, they have equal scales.

A file with pairs of its own may have others, as of trained scales, which their ranges tell.

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
from placer.quantization import Range

_REARRANGE = VIEWS | {"Transpose", "DepthToSpace", "SpaceToDepth"}


def sources(graph: Graph, ranges: Mapping[str, Range]) -> Mapping[str, str]:
    """The tensor whose values one holds in another shape, order or number, where it is another.

    Those with other ``ranges`` than it, as far as they are known, are of the first with theirs.
    """
    roots: dict[str, str] = {}
    first: dict[tuple[str, Range | None], str] = {}
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op not in _REARRANGE and not _repeats(graph, node):
            continue
        given, made = node.inputs[0], node.outputs[0]
        root = roots[made] = roots.get(given, given)
        first.setdefault((root, ranges.get(root)), root)
        kept = first.setdefault((root, ranges.get(made, ranges.get(root))), made)
        if kept != made:
            found[made] = kept
    return found


def _repeats(graph: Graph, node: Node) -> bool:
    if node.op != "Resize" or node.attributes.get("mode", "nearest") != "nearest":
        return False
    small = graph.type_of(node.inputs[0]).shape or ()
    large = graph.type_of(node.outputs[0]).shape or ()
    return len(small) == len(large) and all(
        a and b and b % a == 0 for a, b in zip(small, large, strict=True)
    )
