"""What placer knows of operators with weights: where the weight and the bias are, which axis."""

from __future__ import annotations

from dataclasses import dataclass

from placer.graph.index import Graph, Node

WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


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
    if node.op not in WEIGHTED_OPS or node.domain not in ("", "ai.onnx"):
        return None
    if len(node.inputs) > 1 and node.inputs[1] in graph.initializers:
        rank = len(graph.initializers[node.inputs[1]].dims)
        return WeightInput(node.inputs[1], 1, _channel_axis(node, rank))
    if node.op in ("MatMul", "Gemm") and node.inputs[0] in graph.initializers:
        return WeightInput(node.inputs[0], 0, None)
    return None


def _channel_axis(node: Node, rank: int) -> int | None:
    if node.op == "Conv":
        return 0
    if node.op == "ConvTranspose":
        return 1
    if node.op == "Gemm":
        return 0 if node.attributes.get("transB", 0) else 1
    return rank - 1 if rank >= 2 else None


def bias_input(node: Node) -> int | None:
    """Input index of the bias of a Conv, ConvTranspose or Gemm, None where the node has none."""
    if node.op in ("Conv", "ConvTranspose", "Gemm") and len(node.inputs) > 2 and node.inputs[2]:
        return 2
    return None
