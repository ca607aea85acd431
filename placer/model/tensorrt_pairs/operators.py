"""Operators that TensorRT's parser does not have."""

from __future__ import annotations

import re

import onnx.defs
from onnx import NodeProto

from placer.graph.operators import MICROSOFT
from placer.model.check_operators import is_foreign_quantizer
from placer.model.passes.fused_operators import is_fused
from placer.model.quantized.operators import is_fake_quantize, is_of_amd
from placer.model.tensorrt_pairs.finding import Finding, finding

_AT_RUN_TIME = re.compile(
    r"DynamicQuantize(Linear|MatMul|LSTM)|(MatMul|Conv)Integer|MatMulIntegerToFloat"
)
_QUANTIZED_OPERATORS = re.compile(rf"QLinear\w+|QGemm|{_AT_RUN_TIME.pattern}")
# ONNX Runtime's operators that hold weights of few bits themselves.
_PACKED_WEIGHTS = re.compile(r"MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized")
# Of ONNX Runtime's optimizer at its highest level.
_OF_ONE_PROCESSOR = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})


def unknown_operator(node: NodeProto) -> Finding | None:
    """Why TensorRT does not know the operator of ``node``; None if this says nothing of it."""
    reason, imported = "TensorRT has no such operator", True
    if is_of_amd(node):
        reason, fix = f"TensorRT has no operator of domain '{node.domain}'", "export Q/DQ pairs"
    elif _QUANTIZED_OPERATORS.fullmatch(node.op_type):
        fix = "quantize statically, with Q/DQ pairs"
        if _AT_RUN_TIME.fullmatch(node.op_type) is None:
            fix = "quantize in the Q/DQ format (QuantFormat.QDQ), symmetrically"
    elif holds_weights(node):
        reason += ", which is ONNX Runtime's"
        fix = "store the weight as int4 before a DequantizeLinear with block_size (opset 21)"
    elif node.domain in _OF_ONE_PROCESSOR:
        reason += ", which is ONNX Runtime's for one processor"
        fix = "give the model that was not optimized"
    elif is_of_onnxruntime(node):
        reason += ", which is ONNX Runtime's"
        fix, imported = "export the model without ONNX Runtime's fusions", is_fused(node)
    elif is_fake_quantize(node) or is_foreign_quantizer(node):
        of = f"operator of domain '{node.domain}'" if node.domain else "such operator"
        reason, fix = f"TensorRT has no {of}", "export Q/DQ pairs"
    else:
        return None
    return finding(node, "refused", reason, fix, imported)


def is_of_onnxruntime(node: NodeProto) -> bool:
    """Whether ``node`` is an operator that ONNX Runtime alone has."""
    return node.domain == MICROSOFT and not onnx.defs.has(node.op_type)


def holds_weights(node: NodeProto) -> bool:
    """Whether ``node`` is an operator of ONNX Runtime with weights of few bits."""
    return bool(node.domain) and _PACKED_WEIGHTS.fullmatch(node.op_type) is not None


def is_quantized_operator(node: NodeProto) -> bool:
    """Whether ``node`` computes with integers, without Q/DQ pairs."""
    return _QUANTIZED_OPERATORS.fullmatch(node.op_type) is not None
