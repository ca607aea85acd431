"""What placer knows of operators with weights: where the weight and the bias are, which axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placer.graph.index import Edge, Graph, Node
from placer.graph.operators import STANDARD_DOMAINS

CONV_OPS = frozenset({"Conv", "ConvTranspose"})
WEIGHTED_OPS = CONV_OPS | {"Gemm", "MatMul"}
BIAS_INDEX = 2  # Of the input of a Conv, ConvTranspose or Gemm.
_MATRIX = 2  # Dimensions.


@dataclass(frozen=True)
class WeightInput:
    """A constant weight of a node: ``tensor`` at input ``index``; channels lie along ``axis``.

    ``axis`` is None where channels cannot carry scales of their own, so one scale per tensor.
    """

    tensor: str
    index: int
    axis: int | None


def weight_input(graph: Graph, node: Node) -> WeightInput | None:
    """Return the constant weight of ``node``, or None if it has none.

    Axes follow the ONNX operator definitions: Conv weights are (M, C/group, k...), so 0;
    ConvTranspose (C, M/group, k...), so 1, the output channel within the group; Gemm 0 with
    transB, else 1; MatMul the last axis of a constant right operand, and none for a constant
    left operand, whose rows are not output channels of a weight.
    """
    if node.op not in WEIGHTED_OPS or node.domain not in STANDARD_DOMAINS:
        return None
    if len(node.inputs) > 1 and node.inputs[1] in graph.initializers:
        rank = len(graph.initializers[node.inputs[1]].dims)
        transposed = bool(node.attributes.get("transB", 0))
        return WeightInput(node.inputs[1], 1, channel_axis(node.op, rank, transposed=transposed))
    if node.op in ("MatMul", "Gemm") and node.inputs[0] in graph.initializers:
        return WeightInput(node.inputs[0], 0, None)
    return None


def has_weights(graph: Graph, node: Node) -> bool:
    """Whether ``node`` sums products with a constant weight; not so an outer product, as RoPE's."""
    weight = weight_input(graph, node)
    if weight is None or weight.axis is None:
        return False
    dims = graph.initializers[weight.tensor].dims
    return len(dims) > weight.axis and math.prod(dims) > dims[weight.axis]


def channel_axis(op: str, rank: int, *, transposed: bool = False) -> int | None:
    """Axis of the output channels in a weight of ``rank`` that ``op`` reads as second operand.

    ``transposed``: a Gemm's transB. See ``weight_input``.
    """
    if op == "Conv":
        return 0
    if op == "ConvTranspose":
        return 1
    if op == "Gemm":
        return 0 if transposed else 1
    return rank - 1 if rank >= 2 else None


def is_depthwise(dims: Sequence[int], group: int) -> bool:
    """Whether a weight of ``dims`` has one filter for each channel, Conv's and ConvTranspose's.

    Output channels then lie along axis 0 in both, as each is made of the input channel there.
    """
    return len(dims) > 1 and dims[1] == 1 and dims[0] == group > 1


def bias_input(node: Node) -> int | None:
    """Input index of the bias of a Conv, ConvTranspose or Gemm, None where the node has none."""
    if node.op not in ("Conv", "ConvTranspose", "Gemm") or len(node.inputs) <= BIAS_INDEX:
        return None
    return BIAS_INDEX if node.inputs[BIAS_INDEX] else None


def is_row(graph: Graph, tensor: str) -> bool:
    """Whether ``tensor`` is a matrix of a single row."""
    shape = graph.type_of(tensor).shape or ()
    return len(shape) == _MATRIX and shape[0] == 1


def added_bias(graph: Graph, node: Node) -> Edge | None:
    """Where a constant bias is read that an Add adds to what the MatMul ``node`` writes.

    None unless the Add alone reads it, the right operand is a constant matrix and the bias has a
    value for each of its columns: in one dimension, or in one row where the left is a matrix, too.
    """
    weight = weight_input(graph, node)
    if node.op != "MatMul" or weight is None or weight.index != 1 or weight.axis != 1:
        return None
    edge = graph.sole_consumer(node.outputs[0])
    if edge is None:
        return None
    add, index = graph.by_name[edge.node], 1 - edge.input_index
    if add.op != "Add" or add.domain not in STANDARD_DOMAINS:
        return None
    bias = graph.initializers.get(add.inputs[index])
    columns = graph.initializers[weight.tensor].dims[1]
    is_matrix = len(graph.type_of(node.inputs[0]).shape or ()) == _MATRIX
    shapes = [[columns], [1, columns]] if is_matrix else [[columns]]
    is_bias = bias is not None and list(bias.dims) in shapes
    return Edge(add.inputs[index], add.name, index) if is_bias else None
