"""Over what a node sums, which decides what is generated in one kernel with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import numpy_helper

from placer.graph import Graph, Node

_LONG = 512


@dataclass(frozen=True)
class Reduction:
    """``rows`` sums over ``length`` elements each; ``innermost``: these follow each other.

    Sums that are as many and as long are one kernel.
    """

    rows: int
    length: int
    innermost: bool

    @property
    def ends_kernel(self) -> bool:
        """Whether what reads the results is in another kernel; seen for 384 and not for 512."""
        return not self.innermost and self.length < _LONG


def reduction(graph: Graph, node: Node) -> Reduction:
    """Over what ``node`` sums; a matrix product of one row sums columns of its weight."""
    shape = graph.type_of(node.inputs[0]).shape or ()
    if node.op in ("Gemm", "MatMul"):
        columns = (graph.type_of(node.outputs[0]).shape or (1,))[-1]
        return Reduction(columns, shape[-1] if shape else 1, innermost=False)
    axes = {axis % len(shape) for axis in _axes(graph, node, len(shape))} if shape else set[int]()
    summed = [size for axis, size in enumerate(shape) if axis in axes]
    kept = [size for axis, size in enumerate(shape) if axis not in axes]
    order = [axis in axes for axis, size in enumerate(shape) if size > 1]
    return Reduction(math.prod(kept), math.prod(summed), order == sorted(order))


def reduction_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """The dimensions that ``node`` sums over, counted from 0."""
    rank = len(graph.type_of(node.inputs[0]).shape or ())
    return tuple(sorted(axis % rank for axis in _axes(graph, node, rank))) if rank else ()


def _axes(graph: Graph, node: Node, rank: int) -> tuple[int, ...]:
    if node.op in ("GlobalAveragePool", "InstanceNormalization"):
        return tuple(range(2, rank))
    if node.op in ("Softmax", "LogSoftmax", "ArgMax"):
        return (int(node.attributes.get("axis", 0 if node.op == "ArgMax" else -1)),)
    if node.op == "LayerNormalization":
        return tuple(range(int(node.attributes.get("axis", -1)) % rank, rank))
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    if given in graph.initializers:
        return tuple(map(int, numpy_helper.to_array(graph.initializers[given]).ravel()))
    return tuple(node.attributes.get("axes", range(rank)))
