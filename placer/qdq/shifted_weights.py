"""Weights whose pairs are of uint8 or have other zero points than 0."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto, numpy_helper

from placer.graph import Edge, Graph
from placer.graph.external_data import is_external
from placer.graph.weights import WEIGHTED_OPS
from placer.qdq.extract import ExtractedModel

_LAST_FACTOR = 1  # Index among the inputs of products; a bias follows.


def shifted_weights(model: ExtractedModel, graph: Graph) -> Iterator[Edge]:
    """Edges by which products read constants of uint8, or with a zero point that is not 0.

    OpenVINO 2026.4.1 computes Convs, depthwise ones too, and MatMuls that read such weights in
    float, whether they are stored as integers or behind a Q, with one zero point or one for each
    channel, and on either side of a MatMul (small graphs put to it). It refuses Convs of uint8 with
    zero point 0.
    """
    for edge, pair in model.pairs.items():
        node = graph.by_name.get(edge.node)
        if node is None or node.op not in WEIGHTED_OPS or edge.input_index > _LAST_FACTOR:
            continue
        is_unsigned = model.dtypes[edge] == "uint8"
        if edge.tensor in model.constants and (is_unsigned or _is_shifted(model, pair)):
            yield edge


def _is_shifted(model: ExtractedModel, pair: NodeProto) -> bool:
    zero_point = next((model.constants.get(name) for name in pair.input[2:]), None)
    if zero_point is None or is_external(zero_point):
        return False
    return bool(numpy_helper.to_array(zero_point).astype(float).any())
