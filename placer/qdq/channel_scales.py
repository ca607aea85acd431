"""Activations whose pairs have a scale for each channel, which a product sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.external_data import is_external
from placer.graph.weights import BIAS_INDEX, CONV_OPS, WEIGHTED_OPS, is_depthwise
from placer.qdq.extract import ExtractedModel


def summed_channels(model: ExtractedModel, graph: Graph) -> Iterator[Edge]:
    """Edges by which products read activations whose scales differ along what they sum.

    OpenVINO 2026.4.1 computes Convs, ConvTransposes and MatMuls behind such pairs in float, and
    depthwise Convs and MatMuls with a scale for each row in INT8 (small graphs put to it).
    """
    for edge, axis in model.axes.items():
        node = graph.by_name.get(edge.node)
        if node is None or node.op not in WEIGHTED_OPS or edge.tensor in model.constants:
            continue
        if _sums(node, edge, axis, graph) and _differ(model, model.pairs[edge].input[1]):
            yield edge


def _sums(node: Node, edge: Edge, axis: int, graph: Graph) -> bool:
    rank = len(graph.type_of(edge.tensor).shape or ())
    if edge.input_index >= BIAS_INDEX:
        return False
    if node.op in CONV_OPS:
        weight = graph.type_of(node.inputs[1]).shape or ()
        dims = [int(size or 0) for size in weight]
        return not is_depthwise(dims, int(node.attributes.get("group", 1)))
    return rank > 0 and axis % rank == _summed_axis(node, edge.input_index, rank)


def _summed_axis(node: Node, index: int, rank: int) -> int:
    """Of operand ``index`` of a MatMul or Gemm."""
    is_turned = bool(node.attributes.get(("transA", "transB")[index], 0))
    return rank - 1 if is_turned == bool(index) else max(rank - 2, 0)


def _differ(model: ExtractedModel, scales: str) -> bool:
    tensor = model.constants.get(scales)
    return tensor is None or is_external(tensor) or bool(np.ptp(numpy_helper.to_array(tensor)))
