"""QuantizeLinear and DequantizeLinear, and fake quantization, which is both in one node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto

from placer.model.quantized import arithmetic
from placer.model.quantized.clamping import clamp, stands_for_relu
from placer.model.quantized.constants import constant_operand, zero_point_and_type
from placer.model.quantized.expansion import expand_dequantize
from placer.model.quantized.float_casts import cast_by_dequantizing
from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.qoperator import Operand
from placer.model.quantized.quantized_tensors import INTEGERS, Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState
from placer.model.quantized.tables import rows_of_table, table_behind

_FEWER_STEPS = 127  # Those of 7 bits, which leave room for sums in 16 bits.


def visit_quantize_linear(state: ImportState, node: NodeProto) -> None:
    """Remember the float tensor and the scale behind what a QuantizeLinear writes."""
    state.records.seen["QDQ"] += 1
    source, scale_name = node.input[0], node.input[1]
    scale = None
    if scale_name in state.draft.constants:
        scale = state.draft.array(scale_name)
    else:
        state.records.notes.append(
            f"scale of '{source}' dropped: node '{node.name}' gets it at run time"
        )
    if source in state.quantized:
        raise state.refuse(node, f"reads '{source}', which is quantized already")
    zero_point, dtype = zero_point_and_type(state, node)
    axis, limits = integer(node, "axis", 1), limits_of(dtype)
    tensor = state.read(source, "", 0)
    if scale is not None and not np.isfinite(scale.astype(np.float32)).all():
        shown = float(scale.ravel()[~np.isfinite(scale.astype(np.float32).ravel())][0])
        raise state.refuse(
            node, f"has the scale {shown:g}, so '{source}' has to be calibrated again"
        )
    kind = state.types.get(source, 0)
    info = Quantized(
        tensor, scale, zero_point, axis, *limits, dtype, symbol=scale_name, float_type=kind
    )
    if node.output[0] in state.kept:
        info = _rounded(state, node, info)
    _quantize(state, node.output[0], source, info)


def _rounded(state: ImportState, node: NodeProto, info: Quantized) -> Quantized:
    """Round and saturate a float tensor as the pair does, by float operators."""
    scale, names = info.scale, state.draft.names
    if scale is None or scale.size != 1 or info.dtype not in INTEGERS or state.draft.opset < 11:
        raise state.refuse(node, "is part of the function and cannot be written as arithmetic")
    if not scale.all():  # It makes all values 0, but for NaN of these.
        raise state.refuse(node, f"has the scale 0, so '{info.tensor}' has to be calibrated again")
    target = names.unused(f"{info.tensor}/rounded")
    integers = names.unused(f"{target}/integers")
    limits, point = (info.lowest, info.highest), info.zero_point
    state.draft.extend(
        arithmetic.quantize_nodes(info.tensor, integers, scale, point, limits, info.dtype, names)
    )
    state.draft.extend(arithmetic.dequantize_nodes(integers, target, scale, point, names))
    state.records.notes.append(
        f"the pair of '{info.tensor}' is part of the function: its rounding stays, as arithmetic"
    )
    return replace(info, tensor=target)


def _quantize(state: ImportState, integers: str, source: str, info: Quantized) -> None:
    """Remember that ``integers`` stands for the float tensor of ``info``."""
    if info.tensor in state.draft.constants:
        info = replace(info, tensor=_cut_off(state, info), is_constant=True)
        if info.scale is not None:
            values, tensor = state.draft.array(info.tensor), state.draft.constants[info.tensor]
            state.records.add_weight(
                tensor, values, info.scale, info.zero_point, info.axis, info.dtype
            )
    else:
        if stands_for_relu(state, info):
            info = replace(info, tensor=clamp(state, source, info))
        state.records.add_activation(info)
    state.quantized[integers] = info


def _cut_off(state: ImportState, info: Quantized) -> str:
    """The constant that ``info`` quantizes, or one of what its pair leaves of it.

    Where a pair cuts off so much that the file computes with other weights, these are the model's.
    """
    if info.scale is None:
        return info.tensor
    values, limits = state.draft.array(info.tensor), (info.lowest, info.highest)
    left = arithmetic.cut_off(values, info.scale, info.zero_point, limits, info.axis)
    if left is None:
        return info.tensor
    shown = np.abs(values.astype(np.float64)).max(), np.abs(left.astype(np.float64)).max()
    state.records.notes.append(
        f"constant '{info.tensor}' reaches {shown[0]:.3g}, and its pair cuts it off at "
        f"{shown[1]:.3g}: the float model has what is left, as the file computes with that; "
        "calibrate it again"
    )
    name = state.draft.names.unused(f"{info.tensor}/cut_off")
    return state.draft.set_constant(name, left)


def visit_dequantize_linear(state: ImportState, node: NodeProto) -> None:
    """Let a DequantizeLinear stand for the float tensor that its input stands for."""
    state.records.seen["QDQ"] += 1
    source, target = node.input[0], node.output[0]
    info = state.quantized.get(source)
    if info is not None and _is_undone_by(state, info, node):
        state.stand_for(target, cast_by_dequantizing(state, node, info))
    elif source in state.draft.constants:
        axis, block = integer(node, "axis", 1), integer(node, "block_size", 0)
        operand = Operand(source, node.input[1], input_at(node, 2), axis)
        state.stand_for(target, constant_operand(state, node, operand, target, block))
    elif (rows := _rows(state, node)) is not None:
        state.stand_for(target, rows)
    else:
        expand_dequantize(state, node)


def _rows(state: ImportState, node: NodeProto) -> Quantized | None:
    """Rows of a quantized table that ``node`` dequantizes, all by one scale."""
    if node.input[1] not in state.draft.constants or table_behind(state, node.input[0]) is None:
        return None
    scale = state.draft.array(node.input[1])
    return rows_of_table(state, node, node.input[0], scale, input_at(node, 2))


def _is_undone_by(state: ImportState, info: Quantized, node: NodeProto) -> bool:
    if info.scale is None:
        return bool(node.input[1] == info.symbol)
    if node.input[1] not in state.draft.constants:
        return False
    zero_point = state.draft.array_or_zero(input_at(node, 2))
    return info.is_undone_by(state.draft.array(node.input[1]), zero_point)


def visit_fake_quantize(state: ImportState, node: NodeProto) -> None:
    """Remember what a node stands for that quantizes and dequantizes."""
    state.records.seen["fake quantization"] += 1
    names = [t for t in node.input[1:] if t]
    if any(name not in state.draft.constants for name in names):
        raise state.refuse(node, "computes its scale")
    arrays = [state.draft.array(name) for name in names]
    if node.op_type == "FakeQuantize":
        scale, zero_point, lowest, highest = _of_bounds(state, node, arrays)
    else:
        scale, zero_point, *rest = arrays
    if node.op_type == "FakeQuantize":
        axis = _first_long(scale)
    elif node.op_type == "Quant":
        lowest, highest = _quant_limits(node, int(rest[0].item()))
        axis = _first_long(scale)
    else:
        *axes, low, high = (int(value.item()) for value in rest)
        lowest, highest, axis = float(low), float(high), axes[0] if axes else 1
    source, point = state.read(node.input[0], "", 0), zero_point.astype(np.int64)
    dtype = _least_type(lowest, highest)
    if dtype is None:  # As Brevitas has biases of 32 bits, which lose next to nothing.
        state.records.seen["tensors of more than 16 bits"] += 1
        state.alias[node.output[0]] = source
        return
    if highest - lowest < _FEWER_STEPS:
        state.records.narrow.append(str(node.name))
    info = Quantized(source, scale, point, axis, lowest, highest, dtype)
    integers = state.draft.names.unused(f"{node.output[0]}/quantized")
    _quantize(state, integers, node.input[0], info)
    state.stand_for(node.output[0], state.quantized[integers])


def _least_type(lowest: float, highest: float) -> int | None:
    """The type of integers of 8 or 16 bits that has these; None if both lack some."""
    for dtype in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16):
        least, most = limits_of(dtype)
        if least <= lowest and highest <= most and (lowest < 0) == (least < 0):
            return int(dtype)
    return None


def _first_long(scale: np.ndarray) -> int:
    return next((axis for axis, size in enumerate(scale.shape) if size > 1), 0)


def _of_bounds(
    state: ImportState, node: NodeProto, bounds: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Scale, zero point, lowest and highest integer of OpenVINO's FakeQuantize.

    Of signed integers where zero lies in the middle, else of unsigned ones. Zero points are
    rounded, as OpenVINO does. See FakeQuantize-1 in OpenVINO's operation specifications.
    """
    try:  # One range may be given in several shapes, as [] and [1].
        low, high, out_low, out_high = np.broadcast_arrays(*(b.astype(np.float64) for b in bounds))
    except ValueError:
        raise state.refuse(node, "has bounds whose shapes do not fit each other") from None
    steps = integer(node, "levels", 256) - 1
    if not (np.array_equal(low, out_low) and np.array_equal(high, out_high)):
        raise state.refuse(node, "writes another range than it reads")
    if steps < 1 or not (np.isfinite(high - low).all() and (high > low).all()):
        raise state.refuse(node, "has a range that is not positive; calibrate again")
    scale = (high - low) / steps
    point = np.rint(-low / scale)
    if (point < 0).any() or (point > steps).any():
        raise state.refuse(node, "has a range without zero")
    middle = (steps + 1) // 2
    lowest = -middle if (point == middle).all() else 0
    return scale.astype(np.float32), point + lowest, float(lowest), float(steps + lowest)


def _quant_limits(node: NodeProto, bits: int) -> tuple[float, float]:
    """Limits of QONNX's operator Quant, as its definition says."""
    narrow = integer(node, "narrow", 0)
    if integer(node, "signed", 1):
        return -(2.0 ** (bits - 1)) + narrow, 2.0 ** (bits - 1) - 1
    return 0.0, 2.0**bits - 1 - narrow
