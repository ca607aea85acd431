"""The opsets that placer works on, and models raised or lowered to them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.shape_inference
import onnx.version_converter
from onnx import ModelProto, TensorProto, helper

from placer.common.ort_session import one_line
from placer.errors import InputError
from placer.graph.edit import (
    adopt,
    all_tensors,
    every_node,
    standard_opset,
    without_initializers,
    without_large_tensors,
)
from placer.graph.node_names import node_title
from placer.model.passes.changed_operators import (
    CHANGES,
    check_lengths,
    check_masks,
    name_bilinear,
)

MIN_OPSET = 17
HALF_OPSET = 19  # From here on QuantizeLinear takes float16 and bfloat16.
MAX_OPSET = 27  # ONNX Runtime 1.32 runs floats of opset 28, but has no QuantizeLinear of it.
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_CONVERTER_ERRORS = (
    RuntimeError,
    onnx.version_converter.ConvertError,
    onnx.shape_inference.InferenceError,
)


def lacks_half(proto: ModelProto) -> bool:
    """Whether the opset has no pairs for the half-precision constants of the model."""
    return standard_opset(proto) < HALF_OPSET and any(
        tensor.data_type in _HALF for tensor in all_tensors(proto.graph)
    )


def raise_for_half(proto: ModelProto, path: Path) -> bool:
    """Raise the opset of a model with half-precision constants in place; whether that was done.

    QuantizeLinear takes no half precision before ``HALF_OPSET``. A model that ONNX's converter
    cannot raise computes what it did. Raises InputError for what no later opset computes.
    """
    if not lacks_half(proto):
        return False
    try:
        _raise(proto, HALF_OPSET, path)
    except _CONVERTER_ERRORS:
        return False
    proto.ir_version = max(proto.ir_version, helper.OP_SET_ID_VERSION_MAP["ai.onnx", HALF_OPSET])
    return True


def raise_opset(proto: ModelProto, path: Path) -> None:
    """Raise the opset to ``MIN_OPSET`` in place; InputError, with the node, if that cannot be.

    What later opsets compute differently is rewritten (``placer.model.passes.changed_operators``).
    """
    opset = standard_opset(proto)
    if opset == 0:  # Operators of other domains alone: there is nothing to raise.
        proto.opset_import.append(helper.make_opsetid("", MIN_OPSET))
        return
    try:
        _raise(proto, MIN_OPSET, path)
    except _CONVERTER_ERRORS as error:
        raise InputError(
            f"{path}: opset {opset} cannot be raised to {MIN_OPSET}"
            f"{_culprit(without_large_tensors(proto))}: {one_line(error)}; "
            f"export the model with opset {MIN_OPSET} or later"
        ) from error


def _raise(proto: ModelProto, target: int, path: Path) -> None:
    check_masks(proto, path)
    check_lengths(proto, path)
    name_bilinear(proto)
    opset = standard_opset(proto)
    for change in CHANGES:
        if change.concerns(every_node(proto.graph.node), opset, target):
            _convert(proto, change.at)
            change.rewrite(proto, path)
    _convert(proto, target)


def _convert(proto: ModelProto, opset: int) -> None:
    if standard_opset(proto) < opset:
        stub = without_large_tensors(proto)
        adopt(proto, onnx.version_converter.convert_version(stub, opset))


def lower_opset(proto: ModelProto) -> bool:
    """Lower the opset to ``MAX_OPSET`` in place; whether that was done.

    A model that has operators or types of later opsets stays as it is.
    """
    if standard_opset(proto) <= MAX_OPSET:
        return False
    try:
        lowered = onnx.version_converter.convert_version(without_large_tensors(proto), MAX_OPSET)
        onnx.shape_inference.infer_shapes(lowered, check_type=True)
    except _CONVERTER_ERRORS:
        return False
    adopt(proto, lowered)
    return True


def _culprit(stub: ModelProto) -> str:
    """Name the first node whose operator alone makes the converter fail."""
    for node in stub.graph.node:
        alone = without_initializers(stub, ())
        del alone.graph.node[:]
        alone.graph.node.append(node)
        bound = {v.name for v in alone.graph.input} | {t.name for t in alone.graph.initializer}
        for tensor in node.input:
            if tensor and tensor not in bound:
                alone.graph.input.append(
                    helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
                )
        del alone.graph.output[:]
        for tensor in node.output:
            alone.graph.output.append(
                helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
            )
        try:
            onnx.version_converter.convert_version(alone, MIN_OPSET)
        except _CONVERTER_ERRORS:
            return f" at {node_title(node)}"
    return ""
