"""Turn Casts to the type that they read into Identity nodes."""

from __future__ import annotations

from collections import defaultdict
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
    behind = _behind_convs_and_casts(graph)
    constants = {tensor.name for tensor in graph.initializer}
    return any(
        node.op_type in ("Sub", "Mul", "Add")
        and not constants.isdisjoint(node.input)
        and node.input[0] in behind
        for node in graph.node
    )


def _behind_convs_and_casts(graph: GraphProto) -> set[str]:
    """What Casts and Transposes make of what a Conv writes, with one Cast at least."""
    movers = defaultdict[str, list[NodeProto]](list)
    for node in graph.node:
        if node.op_type in ("Cast", "Transpose") and node.input:
            movers[node.input[0]].append(node)
    open_ones = [(n.output[0], False) for n in graph.node if n.op_type == "Conv"]
    found = set[str]()
    while open_ones:
        tensor, has_cast = open_ones.pop()
        if has_cast:
            found.add(tensor)
        open_ones += [(n.output[0], has_cast or _is_cast(n)) for n in movers.pop(tensor, ())]
    return found


def _is_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and not node.domain


def _target(node: NodeProto) -> int | None:
    return next((a.i for a in node.attribute if a.name == "to"), None)


def _type_of(tensor: str, values: Mapping[str, ValueInfoProto]) -> int | None:
    value = values.get(tensor)
    return (value.type.tensor_type.elem_type or None) if value is not None else None
