"""Weights of a quantized file that take more of int8 than pairs of products hold in 16 bits."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.external_data import is_external
from placer.qdq.extract import ExtractedModel
from placer.quantization.neighbours import LARGEST_SUM, added_in_pairs, weight_magnitudes


def wide_weights(model: ExtractedModel, graph: Graph) -> tuple[str, ...]:
    """Nodes of ``graph``, the float graph of ``model``, with such weights and quantized data.

    Their sums of products saturate on processors that add in pairs, if what they read is large
    enough: see ``placer.quantization.neighbours``. Weights in external data are left out.
    """
    return tuple(node.name for node in graph.nodes if _is_wide(model, graph, node))


def _is_wide(model: ExtractedModel, graph: Graph, node: Node) -> bool:
    weight = added_in_pairs(graph, node)
    if weight is None:
        return False
    edges = graph.edges_into(node)
    if not {edges[0], edges[weight.index]} <= model.placement.edges:
        return False
    integers = _integers(model, graph, edges[weight.index])
    if integers is None:
        return False
    return bool(weight_magnitudes(integers, node, weight).max(initial=0) > LARGEST_SUM)


def _integers(model: ExtractedModel, graph: Graph, edge: Edge) -> np.ndarray | None:
    """The int8 values of a weight, stored or computed by its pair; None for other types."""
    stored, scale = graph.initializers[edge.tensor], model.constants.get(model.pairs[edge].input[1])
    if model.dtypes.get(edge) != "int8" or scale is None or is_external(stored):
        return None
    values = numpy_helper.to_array(stored)
    if stored.data_type == TensorProto.INT8:
        return values
    steps = numpy_helper.to_array(scale)
    if steps.ndim == 1 and edge in model.axes:
        shape = [1] * values.ndim
        shape[model.axes[edge]] = -1
        steps = steps.reshape(shape)
    elif steps.size != 1:  # Blocks.
        return None
    rounded: np.ndarray = np.clip(np.rint(values / steps), -128, 127)
    return rounded
