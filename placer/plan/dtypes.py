"""Names of number formats, whatever engines call them."""

from __future__ import annotations

from dataclasses import replace

from placer.plan.plan import Layer, Port


def dtype_name(word: str) -> str:
    """ONNX name of an element type as TensorRT writes it, e.g. ``FP16`` or ``Half``.

    Empty if it is not known.
    """
    return _DTYPES.get(word.casefold(), "")


_DTYPES = {
    "float": "float",
    "fp32": "float",
    "float32": "float",
    "tf32": "float",
    "half": "float16",
    "fp16": "float16",
    "float16": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8": "float8e4m3fn",
    "float8": "float8e4m3fn",
    "float8e4m3fn": "float8e4m3fn",
    "fp4": "float4e2m1",
    "float4": "float4e2m1",
    "float4e2m1": "float4e2m1",
    "e8m0": "float8e8m0",
    "int4": "int4",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}


def is_quantized(dtype: str) -> bool:
    """Whether an ONNX type name is one that QuantizeLinear writes."""
    return dtype in ("int8", "uint8", "int4", "uint4", "int16", "uint16") or dtype.startswith(
        ("float8", "float4")
    )


def is_float(dtype: str) -> bool:
    """Whether an ONNX type name is one that tensors have that nothing quantized."""
    return dtype in _FLOATS


def reads_quantized(layer: Layer) -> bool:
    """Whether a layer reads a tensor of a type that QuantizeLinear writes."""
    return any(map(is_quantized, layer.input_types))


_FLOATS = ("float", "float16", "bfloat16", "double")


def port_of_onnx_type(port: Port) -> Port:
    """``port`` with ONNX's name of its type, where that is known."""
    return replace(port, dtype=dtype_name(port.dtype) or port.dtype)
