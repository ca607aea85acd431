"""Quantized constants that other nodes than DequantizeLinear read, as weights that are moved."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto, TensorProto

from placer.model.check_operators import is_plugin
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.operators import (
    holds_weights,
    is_of_onnxruntime,
    is_quantized_operator,
)
from placer.model.tensorrt_pairs.pair_graph import MOVES, PairGraph

# Quantized constants, which the builder takes before DQ and plugins alone (TensorRT-Edge-LLM 217).
_STORED = frozenset(
    {TensorProto.INT8, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.FLOAT4E2M1}
)
# Where a DQ reads what the node writes, uint8 is quantized, too.
_BEFORE_DQ = _STORED | {TensorProto.UINT8}


def readers_of_constants(graph: PairGraph) -> Iterator[Finding]:
    """Nodes other than DQ that read a quantized constant, or one of uint8 before a DQ.

    The builder takes such constants before DQ and plugins alone, whatever the node computes.
    """
    for node in graph.nodes:
        if _may_read(node):
            continue
        is_dequantized = not graph.dequantized.isdisjoint(node.output)
        refused = _BEFORE_DQ if is_dequantized else _STORED
        first = node.op_type in ("Clip", "CastLike")  # Not their bounds, not what has the type.
        for tensor in node.input[:1] if first else node.input:
            constant = graph.constants.get(tensor)
            if constant is not None and constant.data_type in refused:
                reason = f"it reads the quantized constant '{tensor}', which only a DQ may"
                yield finding(node, "refused", reason, _fix(graph, node, constant, is_dequantized))


def _may_read(node: NodeProto) -> bool:
    """Whether ``node`` may read quantized constants, or is refused for what it is."""
    is_pair = node.op_type in QUANTIZE | DEQUANTIZE
    # Plugins may read them (before 10.1 those of version 3 may not: TensorRT issue 3919).
    is_unknown = is_quantized_operator(node) or is_of_onnxruntime(node) or holds_weights(node)
    return is_pair or is_plugin(node) or is_unknown


def _fix(graph: PairGraph, node: NodeProto, constant: TensorProto, is_dequantized: bool) -> str:
    # It would be no DQ of uint8 either, and bounds of a Clip are integers.
    is_uint8 = constant.data_type == TensorProto.UINT8
    if is_dequantized and node.op_type in MOVES - {"Clip"} and not is_uint8:
        return "put the DequantizeLinear before this node"
    if _is_scaled(graph, node):
        return "put a DequantizeLinear in the place of this node and of the Mul"
    return "do this to the float constant"


def _is_scaled(graph: PairGraph, node: NodeProto) -> bool:
    """Whether ``node`` makes floats, and a Mul alone reads them, as torchao exports weights."""
    readers = [reader.op_type for reader in graph.readers(node.output[0])]
    return node.op_type == "Cast" and readers == ["Mul"]
