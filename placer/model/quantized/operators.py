"""The operators that quantize and dequantize, and the fields of a node."""

from __future__ import annotations

from onnx import NodeProto

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear", "TRT_FP8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear", "TRT_FP8DequantizeLinear"})
# Both halves of a pair in one node of another domain: QONNX and Brevitas, PyTorch's fall-through.
FAKE_QUANTIZE = frozenset(
    {"Quant", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"}
)


def input_at(node: NodeProto, index: int) -> str:
    """Name of an input, empty where there is none."""
    return str(node.input[index]) if index < len(node.input) else ""


def integer(node: NodeProto, name: str, default: int = 0) -> int:
    """Value of an integer attribute."""
    return next((int(a.i) for a in node.attribute if a.name == name), default)
