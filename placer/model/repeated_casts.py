"""Turn Casts to the type that they read into Identity nodes."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, ValueInfoProto, helper


def may_have_repeated_casts(graph: GraphProto) -> bool:
    """Whether ``bypass_repeated_casts`` may find anything, told without inferred types."""
    return any(_is_cast(node) for node in graph.node)


def bypass_repeated_casts(graph: GraphProto, values: Mapping[str, ValueInfoProto]) -> int:
    """Make Identity nodes of Casts to the type that they read; return how many.

    Keras 3 writes two around each layer with its backend of PyTorch, which keep a Conv from the
    norm behind it. ``values``: inferred types.
    """
    count = 0
    for node in graph.node:
        if _is_cast(node) and _type_of(node.input[0], values) == _target(node):
            identity = helper.make_node("Identity", node.input, node.output, name=node.name)
            node.CopyFrom(identity)
            count += 1
    return count


def _is_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and not node.domain


def _target(node: NodeProto) -> int | None:
    return next((a.i for a in node.attribute if a.name == "to"), None)


def _type_of(tensor: str, values: Mapping[str, ValueInfoProto]) -> int | None:
    value = values.get(tensor)
    return (value.type.tensor_type.elem_type or None) if value is not None else None
