"""Quantized constants as float ones, with the record of their scales."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto, helper

from placer.model.quantized import arithmetic
from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.qoperator import Operand
from placer.model.quantized.quantized_tensors import FLOATS, Quantized
from placer.model.quantized.scales import WeightScale, limits_of
from placer.model.quantized.state import ImportState


def zero_point_and_type(state: ImportState, node: NodeProto) -> tuple[np.ndarray, int]:
    """Zero point and type of a QuantizeLinear's output."""
    name = input_at(node, 2)
    if name in state.draft.constants:
        return state.draft.array(name), state.draft.constants[name].data_type
    default = TensorProto.INT8 if node.domain == "trt" else TensorProto.UINT8
    if "FP8" in node.op_type:
        default = TensorProto.FLOAT8E4M3FN
    return np.zeros((), np.int64), integer(node, "output_dtype", 0) or default


def constant_operand(
    state: ImportState, node: NodeProto, operand: Operand, target: str = "", block: int = 0
) -> Quantized:
    """The float constant that ``operand``, a quantized one, stands for."""
    if operand.scale not in state.draft.constants:
        raise state.refuse(node, f"computes the scale of constant '{operand.data}'")
    key = (operand.data, operand.scale, operand.zero_point, str(operand.axis))
    scale = state.draft.array(operand.scale)
    if key not in state.dequantized:
        name = dequantize_constant(state, node, operand, scale, target, block)
        state.dequantized[key] = name
    return constant_info(state, state.dequantized[key], operand)


def constant_info(state: ImportState, name: str, operand: Operand) -> Quantized:
    """What ``operand`` stands for: the float constant ``name``."""
    dtype = state.draft.constants[operand.data].data_type
    zero_point = np.zeros((), np.int64)
    return Quantized(name, None, zero_point, operand.axis, *limits_of(dtype), dtype, True)


def dequantize_constant(
    state: ImportState,
    node: NodeProto,
    operand: Operand,
    scale: np.ndarray,
    target: str = "",
    block: int = 0,
) -> str:
    """Write the float values of ``operand``, record their scale; returns the new constant's name.

    ``block``: how many values along the operand's axis share a scale, 0 if all do. ``node``, which
    dequantizes them, is refused with InputError where its scales do not fit.
    """
    draft, axis = state.draft, operand.axis
    zero_point = draft.array_or_zero(operand.zero_point)
    integers = draft.array(operand.data)
    try:
        floats = arithmetic.dequantize(integers, scale, zero_point, axis, block)
    except ValueError as error:
        raise state.refuse(node, f"{error}, which no engine computes; export it again") from error
    given = state.types.get(target, 0)
    if given in FLOATS:
        floats = floats.astype(helper.tensor_dtype_to_np_dtype(given))
    name = draft.set_constant(draft.names.of_float(operand.data, target), floats)
    dtype = draft.constants[operand.data].data_type
    tensor = draft.constants[name]
    state.records.add_weight(tensor, floats, scale, zero_point, axis, dtype, block)
    if dtype == TensorProto.INT32:
        state.records.check_bias(name, integers)
    return name


def move_weight(state: ImportState, node: NodeProto) -> bool:
    """Transpose, reshape or cast a dequantized constant here, so that its scale moves along.

    False, and nothing done, where ``node`` reads no constant of known scale, writes an output of
    the graph, or leaves the channels of the scale on no axis.
    """
    info = state.pairs[node.input[0]]
    scale = state.records.weights.get(info.tensor) if info.is_constant else None
    if scale is None or node.output[0] in state.draft.outputs:
        return False
    values = state.draft.array(info.tensor)
    if node.op_type == "Transpose":
        order = _order(node, values.ndim)
        moved, axis = np.transpose(values, order), order.index(scale.axis) if values.ndim else 0
    elif node.op_type == "Reshape":
        reshaped = _reshaped(state, node, values)
        place = None if reshaped is None else _same_channels(values, reshaped, scale)
        if reshaped is None or place is None:
            return False
        moved, axis = reshaped, place
    else:
        moved = values.astype(helper.tensor_dtype_to_np_dtype(integer(node, "to", 0)))
        axis = scale.axis
    target = node.output[0]
    name = state.draft.set_constant(state.draft.names.of_float(target, target), moved)
    kept = state.draft.constants[name]
    state.records.keep_weight(kept, scale.scale, axis, is_float8=scale.is_float8)
    if len(state.readers[node.input[0]]) == 1:
        del state.records.weights[info.tensor]
    state.stand_for(target, replace(info, tensor=name))
    return True


def _reshaped(state: ImportState, node: NodeProto, values: np.ndarray) -> np.ndarray | None:
    """``values`` in the shape that a Reshape gives them; None where it is computed or wrong."""
    if input_at(node, 1) not in state.draft.constants or integer(node, "allowzero"):
        return None
    given = state.draft.array(node.input[1]).ravel().tolist()
    try:
        return values.reshape([size or values.shape[i] for i, size in enumerate(given)])
    except (ValueError, IndexError):
        return None


def _same_channels(before: np.ndarray, after: np.ndarray, scale: WeightScale) -> int | None:
    """The axis of ``after`` whose entries are the channels of ``scale``; None if there is none."""
    if scale.scale.size == 1:
        return 0
    behind = math.prod(before.shape[scale.axis + 1 :])
    for axis, size in enumerate(after.shape):
        if size == scale.scale.size and math.prod(after.shape[axis + 1 :]) == behind:
            return axis
    return None


def _order(node: NodeProto, rank: int) -> list[int]:
    """The permutation of a Transpose."""
    given = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
    return given or list(range(rank))[::-1]
