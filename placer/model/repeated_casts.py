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
    norm behind it. Only graphs with such a norm are changed: elsewhere a Cast to FP32 says what
    stays FP32 in FP16. ``values``: inferred types.
    """
    if not _has_norm_behind_cast(graph):
        return 0
    count = 0
    for node in graph.node:
        if _is_cast(node) and _type_of(node.input[0], values) == _target(node):
            identity = helper.make_node("Identity", node.input, node.output, name=node.name)
            node.CopyFrom(identity)
            count += 1
    return count


def _has_norm_behind_cast(graph: GraphProto) -> bool:
    """Whether arithmetic with a constant reads what a Conv writes, through Casts and Transposes."""
    writers = {tensor: node for node in graph.node for tensor in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in ("Sub", "Mul", "Add") or constants.isdisjoint(node.input):
            continue
        before, has_cast = writers.get(node.input[0]), False
        while before is not None and before.op_type in ("Cast", "Transpose"):
            has_cast = has_cast or _is_cast(before)
            before = writers.get(before.input[0])
        if has_cast and before is not None and before.op_type == "Conv":
            return True
    return False


def _is_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and not node.domain


def _target(node: NodeProto) -> int | None:
    return next((a.i for a in node.attribute if a.name == "to"), None)


def _type_of(tensor: str, values: Mapping[str, ValueInfoProto]) -> int | None:
    value = values.get(tensor)
    return (value.type.tensor_type.elem_type or None) if value is not None else None
