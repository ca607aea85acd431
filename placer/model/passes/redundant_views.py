"""Turn views that lead back to the shape before them into Identity nodes."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto, helper

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def may_have_redundant_views(graph: GraphProto) -> bool:
    """Whether ``bypass_redundant_views`` may find anything, told without inferred types."""
    return any(not node.domain and node.op_type in _VIEWS for node in graph.node)


def bypass_redundant_views(graph: GraphProto, values: Mapping[str, ValueInfoProto]) -> int:
    """Make Identity nodes of those that write what a tensor before them holds; return how many.

    A view (Reshape, Flatten, Squeeze, Unsqueeze) does so if it has the shape of what the views
    before it began with, as Squeeze and Reshape behind a pooling in TensorFlow's exports.
    ``values``: inferred types; a dimension that they do not fix may be one at most, since views
    keep the number of elements. Casts stay: in FP16 one to FP32 says where FP32 is computed in.
    """
    writers = {tensor: node for node in graph.node for tensor in node.output}
    count = 0
    for node in graph.node:
        source = _copied(node, writers, values)
        if source is not None:
            identity = helper.make_node("Identity", [source], [node.output[0]], name=node.name)
            node.CopyFrom(identity)
            count += 1
    return count


def _copied(
    node: NodeProto, writers: Mapping[str, NodeProto], values: Mapping[str, ValueInfoProto]
) -> str | None:
    if node.domain or not node.input or node.input[0] not in values:
        return None
    if node.op_type not in _VIEWS or node.output[0] not in values:
        return None
    written, source = values[node.output[0]].type, node.input[0]
    while source in values:
        if _same_shape(values[source].type, written):
            return source
        before = writers.get(source)
        if before is None or before.domain or before.op_type not in _VIEWS:
            return None
        source = before.input[0]
    return None


def _same_shape(one: TypeProto, other: TypeProto) -> bool:
    first, second = one.tensor_type, other.tensor_type
    if not first.HasField("shape") or not second.HasField("shape"):
        return False
    pairs = list(zip(first.shape.dim, second.shape.dim, strict=False))
    if len(first.shape.dim) != len(second.shape.dim):
        return False
    # Some exporters write unknown dimensions as 0 or -1; of an empty tensor nothing is known.
    known = [(a.dim_value, b.dim_value) for a, b in pairs if a.dim_value > 0 and b.dim_value > 0]
    return len(known) >= len(pairs) - 1 and all(a == b for a, b in known)
