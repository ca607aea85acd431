"""The operators that quantize and dequantize, and the fields of a node."""

from __future__ import annotations

from onnx import NodeProto

# ONNX's halves of a pair, as which other tools' have the same inputs: NVIDIA's, and AMD's Vitis AI
# and Quark.
_FIRST_PARTS = ("", "TRT_INT8", "TRT_FP8", "Vitis", "Extended")
QUANTIZE = frozenset(f"{first}QuantizeLinear" for first in _FIRST_PARTS)
DEQUANTIZE = frozenset(f"{first}DequantizeLinear" for first in _FIRST_PARTS)
# Both halves of a pair in one node of another domain: QONNX and Brevitas, PyTorch's fall-through,
# and OpenVINO's operator, which NNCF's older exports have in any domain.
FAKE_QUANTIZE = frozenset(
    {
        "Quant",
        "fake_quantize_per_tensor_affine",
        "fake_quantize_per_channel_affine",
        "FakeQuantize",
    }
)


def is_fake_quantize(node: NodeProto) -> bool:
    """Whether ``node`` quantizes and dequantizes at once.

    PyTorch's ``ONNX_ATEN_FALLBACK`` writes such an operator as ATen, with its name as attribute
    (PyTorch issue 77455).
    """
    if node.op_type == "ATen":
        names = (attribute.s for attribute in node.attribute if attribute.name == "operator")
        return next(names, b"").decode(errors="replace") in FAKE_QUANTIZE
    of_another_domain = node.domain != "" or node.op_type == "FakeQuantize"
    return node.op_type in FAKE_QUANTIZE and of_another_domain


def is_of_amd(node: NodeProto) -> bool:
    """Whether ``node`` is a half of a pair in a domain of AMD's tools."""
    return node.op_type in QUANTIZE | DEQUANTIZE and node.op_type.startswith(("Vitis", "Extended"))


def input_at(node: NodeProto, index: int) -> str:
    """Name of an input, empty where there is none."""
    return str(node.input[index]) if index < len(node.input) else ""


def integer(node: NodeProto, name: str, default: int = 0) -> int:
    """Value of an integer attribute."""
    return next((int(a.i) for a in node.attribute if a.name == name), default)
