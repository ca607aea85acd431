"""The operators of a model held against ONNX, and its structure by ONNX's own checker."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx.checker
import onnx.defs
from onnx import ModelProto, NodeProto, TensorProto

from placer.common.custom_ops import custom_op_libraries
from placer.errors import InputError
from placer.graph.edit import all_tensors, every_node, standard_opset, without_large_tensors
from placer.graph.external_data import is_external
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.qoperator import is_qoperator
from placer.model.normalize import inline_functions
from placer.model.other_opsets import of_other_opset, opsets_with

_KNOWN_DOMAINS = ("ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_PLUGINS = "TRT"  # As TensorRT's exporters call the domain of its plugins.
# AIMET's QcQuantizeOp, MCT's ActivationPOTQuantizer, MQBench's FixedPerTensorAffine, NNCF's
# FakeQuantize, Quark's BFPQuantizeDequantize and MXFixNeuron (RyzenAI-SW issue 339), QONNX's
# BipolarQuant, FINN's MultiThreshold and the like.
# Vector quantizers choose codes, as networks for sound do.
_SIMULATED = re.compile(
    r"QuantizeOp$|(?<!Vector)Quantizer$|FakeQuant|Per(Tensor|Channel)Affine$|"
    r"QuantizeDequantize$|FixNeuron$|BipolarQuant$|MultiThreshold$"
)
_QUANTIZED = re.compile(r"(Quantize|Dequantize|DynamicQuantize)Linear|\w+Integer")


def name_plugins(proto: ModelProto) -> None:
    """Move operators that ONNX does not have to a domain of their own, as the checker demands."""
    nodes = [n for n in every_node(proto.graph.node) if n.domain in STANDARD_DOMAINS]
    nodes = [node for node in nodes if not onnx.defs.has(node.op_type)]
    for node in nodes:
        node.domain = _PLUGINS
    if nodes and all(entry.domain != _PLUGINS for entry in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(_PLUGINS, 1))


def is_plugin(node: NodeProto) -> bool:
    """Whether neither ONNX nor ONNX Runtime has the operator of ``node``: only a plugin may."""
    if node.domain in STANDARD_DOMAINS:
        return not onnx.defs.has(node.op_type)
    return node.domain not in _KNOWN_DOMAINS


def is_foreign_quantizer(node: NodeProto) -> bool:
    """Whether ``node`` simulates quantization by an operator of a training tool's own domain."""
    known = (*STANDARD_DOMAINS, *_KNOWN_DOMAINS, _PLUGINS, _PLUGINS.lower())
    return node.domain not in known and _SIMULATED.search(str(node.op_type)) is not None


def check_float_model(proto: ModelProto, path: Path, plugins: bool) -> None:
    """Raise InputError unless ``proto``, read from ``path``, is a valid float model.

    ``plugins``: whether operators of domains that nobody knows pass.
    """
    _check_nodes(proto, path, plugins)
    stub = without_large_tensors(proto)
    inline_functions(stub, path)  # The checker takes no function of another opset.
    for tensor in all_tensors(stub.graph):
        if is_external(tensor):  # In a subgraph; the checker looks for it in the current folder.
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    # The checker demands a rank of each, which exporters do not know behind a Reshape to a shape
    # that is an input; the data and ONNX Runtime tell it.
    for value in (*stub.graph.input, *stub.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(stub)
    except onnx.checker.ValidationError as error:
        what = of_other_opset(stub) or _first_line(error)
        raise InputError(f"{path} is not a valid ONNX model: {what}") from error


def _check_nodes(proto: ModelProto, path: Path, plugins: bool) -> None:
    functions = {(function.domain, function.name) for function in proto.functions}
    opset = standard_opset(proto)
    bodies = [(proto.graph.node, opset)]
    bodies += [(one.node, standard_opset(one) or opset) for one in proto.functions]
    for nodes, version in bodies:
        known = set(functions)
        for node in every_node(nodes):
            if (node.domain, node.op_type) not in known:
                _check_node(node, version, path, plugins)
                known.add((node.domain, node.op_type))


def _check_node(node: NodeProto, opset: int, path: Path, plugins: bool) -> None:
    name = node.name or f"(unnamed, output '{next(iter(node.output), '')}')"
    op = str(node.op_type)  # Damaged files have bytes here.
    if _QUANTIZED.fullmatch(op) or is_qoperator(op):
        raise InputError(
            f"{path}: node '{name}' ({op}) is quantized in a way that placer cannot take apart; "
            "give the float model"
        )
    if node.domain in STANDARD_DOMAINS:
        if not onnx.defs.has(op):
            raise InputError(
                f"{path}: node '{name}' uses operator {op}, which ONNX does not have; if the "
                "exporter could not convert it, write that layer otherwise; if it is an engine's "
                "plugin, take the part before it (placer extract), and put the placement "
                "on this file by placer apply without `data`"
            )
        if not onnx.defs.has(op, max_inclusive_version=opset):
            raise InputError(
                f"{path}: node '{name}' uses operator {op}, which opset {opset} does "
                f"not define; export it with opset {opsets_with(op)}"
            )
    elif node.domain not in _KNOWN_DOMAINS and not (plugins or custom_op_libraries()):
        if is_foreign_quantizer(node):
            raise InputError(
                f"{path}: node '{name}' ({op} of domain '{node.domain}') quantizes by an operator "
                "of a training tool; have the tool export Q/DQ pairs, or give the float model"
            )
        raise InputError(
            f"{path}: node '{name}' uses operator {op} of the unknown domain '{node.domain}'; "
            "give the library that has it to `custom_ops`, take the part before it (placer "
            "extract), or export it with standard operators"
        )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
