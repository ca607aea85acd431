"""Tensors whose dimensions lie in another order than they are told in, and Reshapes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.graph import Graph, Node


def channels_last(rank: int) -> tuple[int, ...]:
    """The order in which the dimensions of a map lie whose channels are last."""
    return (0, *range(2, rank), 1) if rank > 1 else tuple(range(rank))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order in which what a Transpose by ``order`` writes lies if nothing is moved."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def split_order(node: Node, order: Sequence[int], graph: Graph) -> tuple[int, ...] | None:
    """The order in which what ``node`` writes lies if it reads what lies in ``order``.

    None unless it is a Reshape that only splits dimensions, which is then the same Reshape of the
    dimensions as they lie. ONNX Runtime pushes a Transpose behind such ones from 1.29 on, and
    behind none that joins dimensions (optimized graphs of 1.23 to 1.32).
    """
    if node.op != "Reshape":
        return None
    before, after = (graph.type_of(tensor).shape for tensor in (node.inputs[0], node.outputs[0]))
    parts = None if before is None or after is None else _parts(before, after)
    if parts is None or len(parts) != len(order):
        return None
    return tuple(axis for dimension in order for axis in parts[dimension])


def _parts(before: Sequence[int], after: Sequence[int]) -> list[range] | None:
    """The dimensions of ``after`` that each of ``before`` becomes; None if any are joined."""
    parts, axis = list[range](), 0
    if len(after) <= len(before):
        return None
    for size in before:
        first, axis = axis, axis + 1
        while axis < len(after) and math.prod(after[first:axis]) != size:
            axis += 1
        if axis > len(after) or math.prod(after[first:axis]) != size:
            return None
        parts.append(range(first, axis))
    return parts if axis == len(after) else None
