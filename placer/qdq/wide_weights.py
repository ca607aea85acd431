"""Weights of a quantized file that take more of int8 than pairs of products hold in 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from placer.errors import InputError
from placer.graph import Edge, Graph, Node
from placer.graph.external_data import read_tensor
from placer.graph.weights import is_depthwise
from placer.model.quantized.operators import integer
from placer.qdq.extract import ExtractedModel
from placer.quantization.neighbours import (
    LARGEST_SUM,
    added_in_pairs,
    magnitudes,
    weight_magnitudes,
)

# Operators whose second input is the weight. Not ConvInteger, for which ONNX Runtime 1.32 adds in
# 32 bits: its weight is the left operand, and the right one of uint8.
_AT_RUN_TIME = frozenset({"MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"})
# Operators that store integers and quantize what they write, by the index of the weight.
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, **dict.fromkeys(_AT_RUN_TIME, 1)}
_MATRIX = 2  # Dimensions.


def wide_weights(model: ExtractedModel, graph: Graph, base_dir: Path) -> tuple[str, ...]:
    """Nodes of ``graph``, the float graph of ``model``, with such weights and quantized data.

    Their sums of products saturate on processors that add in pairs, if what they read is large
    enough: see ``placer.quantization.neighbours``. ``base_dir`` is where external data lies;
    weights of which it is missing are left out.
    """
    return tuple(node.name for node in graph.nodes if _is_wide(model, graph, node, base_dir))


def wide_in_operators(proto: ModelProto, base_dir: Path) -> tuple[str, ...]:
    """Nodes of ``proto`` that multiply by such weights of int8 without a pair of their own.

    So do operators that read integers (QLinearConv) and those that quantize what they read
    (DynamicQuantizeMatMul). What is stored as int8 ONNX Runtime 1.32 multiplies by int8 exactly;
    only pairs of int8 it converts to uint8.
    """
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    found = []
    for node in proto.graph.node:
        index = _WEIGHTS.get(node.op_type, len(node.input))
        weight = constants.get(node.input[index]) if index < len(node.input) else None
        if weight is None or _type_of_data(node, constants) == TensorProto.INT8:
            continue
        if _takes_much(node, weight, base_dir):
            found.append(str(node.name))
    return tuple(found)


def _type_of_data(node: NodeProto, constants: Mapping[str, TensorProto]) -> int:
    """The type of what ``node`` multiplies, by its zero point; uint8 if quantized at run time."""
    zero_point = constants.get(node.input[2]) if node.op_type not in _AT_RUN_TIME else None
    return int(TensorProto.UINT8 if zero_point is None else zero_point.data_type)


def _takes_much(node: NodeProto, weight: TensorProto, base_dir: Path) -> bool:
    if weight.data_type != TensorProto.INT8 or len(weight.dims) < _MATRIX or 0 in weight.dims:
        return False
    is_conv = node.op_type == "QLinearConv"
    if is_conv and is_depthwise(weight.dims, integer(node, "group", 1)):
        return False  # See ``added_in_pairs``.
    try:
        values = read_tensor(weight, base_dir).astype(np.float32)
    except InputError:
        return False
    if is_conv:
        rows, kernel = values.reshape(len(values), -1), values.shape[1:]
    else:
        is_turned = bool(integer(node, "transB", 0))
        rows = values if is_turned else np.moveaxis(values, -2, -1)
        kernel = rows.shape[-1:]
    return bool(magnitudes(rows, kernel).max() > LARGEST_SUM)


def _is_wide(model: ExtractedModel, graph: Graph, node: Node, base_dir: Path) -> bool:
    weight = added_in_pairs(graph, node)
    if weight is None:
        return False
    edges = graph.edges_into(node)
    if not {edges[0], edges[weight.index]} <= model.placement.edges:
        return False
    integers = _integers(model, graph, edges[weight.index], base_dir)
    if integers is None:
        return False
    return bool(weight_magnitudes(integers, node, weight).max(initial=0) > LARGEST_SUM)


def _integers(model: ExtractedModel, graph: Graph, edge: Edge, base_dir: Path) -> np.ndarray | None:
    """The int8 values of a weight, stored or computed by its pair; None for other types."""
    stored, scale = graph.initializers[edge.tensor], model.constants.get(model.pairs[edge].input[1])
    if model.dtypes.get(edge) != "int8" or scale is None:
        return None
    try:
        values, steps = read_tensor(stored, base_dir), read_tensor(scale, base_dir)
    except InputError:
        return None
    if stored.data_type == TensorProto.INT8:
        return values
    return _rounded(values.astype(np.float32), steps.astype(np.float32), model.axes.get(edge))


def _rounded(values: np.ndarray, steps: np.ndarray, axis: int | None) -> np.ndarray | None:
    """``values`` in ``steps``, one or as many as ``axis`` is long; None of blocks and misfits."""
    if steps.size != 1:
        if axis is None or not -values.ndim <= axis < values.ndim:
            return None
        if steps.shape != (values.shape[axis],):
            return None
        shape = [1] * values.ndim
        shape[axis] = -1
        steps = steps.reshape(shape)
    is_positive = steps > 0  # A channel of zeros may have the scale 0.
    quotients = np.where(is_positive, values / np.where(is_positive, steps, 1), 0)
    rounded: np.ndarray = np.clip(np.rint(quotients), -128, 127)
    return rounded
