"""Nodes held against the schemas of their operators: inputs, outputs, attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import onnx
import onnx.checker
import onnx.defs
from onnx import GraphProto, ModelProto, NodeProto

from placer.common.ort_session import one_line
from placer.graph.edit import every_node, subgraphs
from placer.model.inlined_nodes import operator_of

# Of ONNX Runtime's operators, whose schemas ONNX lacks, those that are taken apart:
# https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
# The first six are ONNX's, which other domains have under the same names.
_LEAST_INPUTS: Mapping[str, int] = {
    "Conv": 1,
    "ConvTranspose": 1,
    "MatMul": 1,
    "ConvInteger": 1,
    "MatMulInteger": 1,
    "DynamicQuantizeLinear": 1,
    "QLinearWhere": 9,
    "QLinearConv": 8,
    "QLinearMatMul": 8,
    "QLinearAdd": 7,
    "QLinearMul": 7,
    "QLinearConcat": 5,
    "QLinearSigmoid": 4,
    "QLinearLeakyRelu": 4,
    "QLinearAveragePool": 4,
    "QLinearGlobalAveragePool": 5,
    "QLinearReduceMean": 4,
    "QLinearSoftmax": 4,
    "QGemm": 6,
    "MatMulIntegerToFloat": 4,
    "DynamicQuantizeMatMul": 2,
}
# Operators that quantize, in any domain, and how many of their first inputs may not be empty.
_GIVEN_INPUTS: Mapping[str, int] = {
    "QuantizeLinear": 2,
    "DequantizeLinear": 2,
    "TRT_INT8QuantizeLinear": 2,
    "TRT_INT8DequantizeLinear": 2,
    "TRT_FP8QuantizeLinear": 2,
    "TRT_FP8DequantizeLinear": 2,
    **{
        f"{tool}{half}Linear": 2
        for tool in ("Vitis", "Extended")
        for half in ("Quantize", "Dequantize")
    },
    "Quant": 4,
    "FakeQuantize": 5,
    "fake_quantize_per_tensor_affine": 5,
    "fake_quantize_per_channel_affine": 6,
}
# Operators that slide a window. Attributes that are 1 or more, with values for each axis of it.
_WINDOWS = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv MaxPool AveragePool LpPool".split()
)
_PER_AXIS: Mapping[str, int] = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2}


def schema_problems(proto: ModelProto) -> Iterator[tuple[NodeProto, str]]:
    """Nodes of ``proto`` that are not what their operator's schema says, each with what is wrong.

    Nodes of other domains, of unknown operators and of operator sets newer than the library pass:
    there is nothing to hold them against.
    """
    functions = {(function.domain, function.name) for function in proto.functions}
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    for nodes, imports in (
        (proto.graph.node, proto.opset_import),
        *((f.node, f.opset_import) for f in proto.functions),
    ):
        opsets = {entry.domain: entry.version for entry in imports}
        context.opset_imports = opsets
        for node in every_node(nodes):
            if operator_of(node) in functions:
                continue
            problem = _problem(node, opsets.get(node.domain, 0), context)
            if problem is not None:
                yield node, problem


def _problem(node: NodeProto, opset: int, context: Any) -> str | None:
    first = _GIVEN_INPUTS.get(node.op_type, 0)
    if len(node.input) < max(first, _LEAST_INPUTS.get(node.op_type, 0)):
        return f" has {len(node.input)} inputs, which are too few"
    if sum(map(bool, node.input[:first])) < first:
        return f" lacks one of its first {first} inputs"
    if node.op_type == "Constant" and not node.domain and len(node.attribute) != 1:
        return f" has {len(node.attribute)} values"
    if node.domain or not 0 < opset <= onnx.defs.onnx_opset_version():
        return None  # Other domains have no schemas here, nor has what is newer than the library.
    if not all(isinstance(n, str) for n in (node.op_type, *node.input, *node.output)):
        return None  # Told where names are checked.
    if any(True for _ in subgraphs(node)):  # The checker would look for outer tensors in vain.
        node = _without_subgraphs(node)
    elif not _is_defined(node.op_type, opset):
        return None  # Where that matters, a message says what to do.
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        # ONNX Runtime's quantizer writes `axis` at opsets that have none; engines pass over it.
        if "Unrecognized attribute" not in str(error):
            return f": {one_line(error)}"
    return _window_problem(node) if node.op_type in _WINDOWS else None


def _window_problem(node: NodeProto) -> str | None:
    """What no window can be: steps or groups of 0, or attributes for different numbers of axes."""
    given = {attribute.name: attribute for attribute in node.attribute}
    if "group" in given and given["group"].i < 1:
        return f" has {given['group'].i} groups"
    axes = {}
    for name, each in _PER_AXIS.items():
        values = list(given[name].ints) if name in given else []
        if each == 1 and min(values, default=1) < 1:
            return f" has {name} {values}, which are to be positive"
        if values:
            axes[name] = len(values) / each  # Half an axis is none, either.
    if len(set(axes.values())) > 1 or any(count % 1 for count in axes.values()):
        counts = ", ".join(f"{len(given[name].ints)} {name}" for name in axes)
        return f" has {counts}, which are not of one window"
    return None


@lru_cache(maxsize=1024)
def _is_defined(op: str, opset: int) -> bool:
    return bool(onnx.defs.has(op, max_inclusive_version=opset))


def _without_subgraphs(node: NodeProto) -> NodeProto:
    """A copy whose subgraphs hold nothing but a name."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            attribute.g.CopyFrom(GraphProto(name="body"))
    return copy
