"""The graph that an engine makes layers of: what it takes out, joins and puts in order first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placer.graph import Graph
from placer.graph.depth_first import depth_first_from_outputs
from placer.prediction.layers.half_casts import with_casts_of_half
from placer.prediction.layers.joined import with_joined_concats
from placer.prediction.layers.kept_axes import with_kept_axes
from placer.prediction.layers.leading_axes import undone_leading_axes
from placer.prediction.layers.no_ops import (
    TakesOut,
    WithoutNoOps,
    eliminated_by_onnxruntime,
    undone_transposes,
    without_no_ops,
)
from placer.prediction.layers.shape_constants import with_shapes_folded
from placer.rules.behaviour import Behaviour

_TAKES_OUT: Mapping[str, TakesOut] = {  # By ``Behaviour.no_ops``.
    "casts": lambda _graph, node, _data: node.op == "Cast",
    "partly": eliminated_by_onnxruntime,
    "removed": lambda *_: True,
}


def built_graph(
    graph: Graph, behaviour: Behaviour, base: str, equal: Mapping[str, str] | None
) -> WithoutNoOps:
    """What ``behaviour`` leaves of ``graph``.

    ``base``: ONNX name of the type of float tensors inside the engine. ``equal``: by node one that
    computes the same, of which one is run; only where not all no-ops are kept.
    """
    graph = with_shapes_folded(graph, behaviour.shapes == "fixed")
    left = WithoutNoOps(graph, {})
    if behaviour.no_ops != "kept":
        left = without_no_ops(
            graph,
            _TAKES_OUT[behaviour.no_ops],
            equal,
            folded=undone_leading_axes(graph) if behaviour.no_ops == "removed" else (),
            undone=undone_transposes(graph) if behaviour.no_ops == "casts" else None,
            base=base if behaviour.no_ops == "casts" else None,
        )
    if behaviour.concats == "joined":
        left = with_joined_concats(left)
    if behaviour.reductions == "joined":
        left = with_kept_axes(left)
    if behaviour.half_kernels:
        left = with_casts_of_half(left, frozenset(behaviour.half_kernels))
    if behaviour.order == "depth-first":
        left = replace(left, graph=depth_first_from_outputs(left.graph))
    return left
