"""Read the model that ONNX Runtime writes after its optimizations."""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx
import onnx.shape_inference
from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, TensorProto, helper

from placer.graph.edit import without_large_tensors
from placer.graph.operators import MICROSOFT
from placer.plan.plan import Kind, Layer, Plan, Port

# Where an operator of ONNX Runtime takes the zero point of its output, if not the last input:
# https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
_ZERO_POINT = {"QLinearConv": 7, "QLinearConcat": 1, "QGemm": 8, "QuantizeLinear": 2}
_FLOAT_OUTPUT = frozenset({"MatMulIntegerToFloat", "QAttention"})


def onnx_plan(data: bytes) -> Plan | None:
    """The plan of a serialized ONNX model, None if ``data`` is none."""
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError:
        return None
    if not proto.graph.node or not proto.opset_import:
        return None
    types = tensor_types(proto)
    constants = {tensor.name for tensor in proto.graph.initializer}
    layers = tuple(_onnx_layer(n, i, types, constants) for i, n in enumerate(proto.graph.node))
    of_ort = any(opset.domain == MICROSOFT for opset in proto.opset_import)
    return Plan(layers, "ONNX Runtime's optimized graph" if of_ort else "ONNX graph")


def _onnx_layer(
    node: NodeProto, index: int, types: Mapping[str, str], constants: set[str]
) -> Layer:
    activation = next(
        (a.s.decode("utf-8", "replace") for a in node.attribute if a.name == "activation"), ""
    )
    kind = _onnx_kind(node)
    named = bool(node.name) and kind == "compute"
    return Layer(
        name=node.name or f"{node.op_type}_{index}",
        op=node.op_type,
        nodes=(original_name(node.name),) if named else (),
        inputs=tuple(Port(types.get(t, ""), "", t) for t in node.input if t and t not in constants),
        outputs=tuple(Port(types.get(t, ""), "", t) for t in node.output if t),
        kind=kind,
        activation=activation,
    )


def _onnx_kind(node: NodeProto) -> Kind:
    if node.op_type == "QuantizeLinear":
        return "quantize"
    if node.op_type == "DequantizeLinear":
        return "dequantize"
    if node.domain == "com.microsoft.nchwc" and node.op_type.startswith("Reorder"):
        return "reformat"
    return "compute"


def original_name(name: str) -> str:
    """A node's name without what ONNX Runtime's optimizers put around it.

    Blocked convolutions are called after their output tensor, which exporters in turn call after
    its node.
    """
    name = re.sub(r"^fused |_token_\d+$|_new_reshape$|/duplicated$|/\w+Fusion/?$", "", name)
    return re.sub(r"(_output_\d+)?_nchwc$", "", name)


def tensor_types(proto: ModelProto) -> dict[str, str]:
    """Types of tensors; ONNX's inference knows no operator of ONNX Runtime, so give it theirs."""
    stub = without_large_tensors(proto)
    graph = stub.graph
    types = _inferred(stub)
    given = {value.name for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        dtype = _output_type(node, types)
        for tensor in filter(None, node.output):
            dtype = types.get(tensor, dtype)
            types.setdefault(tensor, dtype)
            if node.domain.startswith(MICROSOFT) and dtype and tensor not in given:
                graph.value_info.append(helper.make_tensor_value_info(tensor, dtype, None))
    types |= _inferred(stub)
    return {name: TensorProto.DataType.Name(t).lower() for name, t in types.items() if t}


def _inferred(stub: ModelProto) -> dict[str, int]:
    try:
        graph = onnx.shape_inference.infer_shapes(stub).graph
    except onnx.shape_inference.InferenceError:  # Types are a help here, not a condition.
        graph = stub.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    return types


def _output_type(node: NodeProto, types: Mapping[str, int]) -> int:
    """Type of the first output by the operator's definition, else that of the first input."""
    if node.op_type in _FLOAT_OUTPUT:
        return TensorProto.FLOAT
    inputs = [types.get(t, 0) for t in node.input]
    if node.op_type == "DequantizeLinear" and len(inputs) > 1:
        return inputs[1]
    if node.op_type == "QGemm" and len(inputs) < 9:
        return TensorProto.FLOAT
    if node.op_type.startswith("QLinear") or node.op_type in _ZERO_POINT:
        index = _ZERO_POINT.get(node.op_type, len(inputs) - 1)
        return inputs[index] if index < len(inputs) else TensorProto.UINT8
    return inputs[0] if inputs else 0
