"""BatchNormalization of a file with pairs, which TensorRT folds although weights are quantized."""

from __future__ import annotations

from dataclasses import replace

from placer.graph import Edge, Graph, Node
from placer.graph.index import with_nodes
from placer.quantization import Placement

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm"})


def without_norms(graph: Graph, placement: Placement) -> Graph:
    """``graph`` without each BatchNormalization that is part of the weighted node before it.

    It is part of it where nothing else reads what that node writes, no pair of ``placement`` is
    between the two, and its parameters are constant; what such nodes write is ``normalized``. The
    engine's layers do not name them (TensorRT 8.5.2, a YOLOv3 trained with quantization, published
    with trt-engine-explorer). Nodes are numbered anew; the names of others and of tensors stay.
    """
    written: dict[str, str] = {}  # By name of a weighted node, what its last norm writes.
    gone: set[str] = set()
    for norm in graph.by_op.get("BatchNormalization", ()):
        before = graph.producer.get(norm.inputs[0])
        if before is not None and _is_part(norm, before, graph, placement):
            written[before.name] = norm.outputs[0]
            gone.add(norm.name)
    if not gone:
        return graph
    kept = [node for node in graph.nodes if node.name not in gone]
    nodes = [
        replace(node, outputs=(written[node.name],)) if node.name in written else node
        for node in kept
    ]
    left = with_nodes(graph, nodes)
    return replace(left, normalized=graph.normalized.union(written.values()))


def _is_part(norm: Node, before: Node, graph: Graph, placement: Placement) -> bool:
    tensor = norm.inputs[0]
    return (
        before.op in _WEIGHTED
        and not before.domain
        and graph.edges_of(tensor) == (Edge(tensor, norm.name, 0),)
        and Edge(tensor, norm.name, 0) not in placement.edges
        and len([t for t in norm.outputs if t]) == 1
        and all(t in graph.initializers for t in norm.inputs[1:5])
        and before.inputs[1] in graph.initializers
    )
