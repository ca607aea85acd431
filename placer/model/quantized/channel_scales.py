"""Scales behind a product of integers, brought to the product's channels.

MatMul has its channels on the last axis, Conv on axis 1. A Mul broadcasts scales from the last axis
on, a DequantizeLinear puts them along its ``axis`` (ONNX operator reference), which counts from
the first unless it is negative.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from placer.model.quantized.dynamic import Factor
from placer.model.quantized.operators import DEQUANTIZE, integer
from placer.model.quantized.quantized_tensors import Quantized
from placer.model.quantized.state import ImportState


def along_channels(
    state: ImportState, node: NodeProto, product: NodeProto, scale: Factor
) -> Factor:
    """``scale``, by which ``node`` multiplies ``product``, with values of shape () or (channels,).

    Raises InputError where its values are along another axis than the channels.
    """
    value = scale.value
    if value.size == 1:
        return Factor(scale.symbols, value.reshape(()))
    behind = _axes_behind_channels(state, product)
    if node.op_type in DEQUANTIZE:
        is_along = value.ndim == 1 and _axes_behind_scales(state, node, product) == behind
    else:
        is_along = [i for i in range(value.ndim) if value.shape[-1 - i] != 1] == [behind]
    if not is_along:
        raise state.refuse(node, "has scales along another axis than the product's channels")
    return Factor(scale.symbols, value.ravel())


def broadcasting(state: ImportState, product: NodeProto, scale: Factor) -> Factor:
    """``scale``, of ``along_channels``, in the shape that broadcasts to what ``product`` writes."""
    if scale.value.size == 1:
        return scale
    behind = _axes_behind_channels(state, product) or 0
    return Factor(scale.symbols, scale.value.reshape(-1, *[1] * behind))


def scale_of(state: ImportState, product: NodeProto, position: int, info: Quantized) -> Factor:
    """Scale of ``info``, the operand of ``product`` at ``position``, as ``along_channels`` has it.

    Raises InputError where it has several values that are not along the product's channels.
    """
    if info.scale is None:
        return Factor((info.symbol,), np.ones(()))
    value = info.scale.astype(np.float64)
    if value.size == 1:
        return Factor((), value.reshape(()))
    rank = _rank(state, product.input[position])
    channels = 0 if product.op_type == "ConvInteger" else (rank or 0) - 1
    if position == 0 or value.ndim != 1 or rank is None or info.axis % rank != channels:
        raise state.refuse(product, f"has scales of '{info.tensor}' that are not its channels'")
    return Factor((), value)


def reshaped(state: ImportState, node: NodeProto, scale: Factor) -> Factor:
    """``scale``, or what is divided by it, in the shape that ``node`` gives it."""
    if scale.value.size == 1:
        return scale
    before, after = state.shapes.get(node.input[0]), state.shapes.get(node.output[0])
    if before is None or after is None or None in (*before, *after):
        raise state.refuse(node, "gives scales a shape that is computed")
    spread = np.broadcast_to(scale.value, [size or 0 for size in before])
    return Factor(scale.symbols, spread.reshape([size or 0 for size in after]))


def shape_of(state: ImportState, tensor: str) -> tuple[int | None, ...] | None:
    """Sizes of ``tensor``, None where they are not known."""
    if tensor in state.draft.constants:
        return tuple(state.draft.constants[tensor].dims)
    return state.shapes.get(tensor)


def _rank(state: ImportState, tensor: str) -> int | None:
    shape = shape_of(state, tensor)
    return None if shape is None else len(shape)


def _axes_behind_channels(state: ImportState, product: NodeProto) -> int | None:
    """How many axes follow the channels in what ``product`` writes; None if it has none."""
    weight = _rank(state, product.input[1])
    if product.op_type == "MatMulInteger":
        return None if weight == 1 else 0
    rank = weight or _rank(state, product.output[0])
    return None if rank is None else rank - 2


def _axes_behind_scales(state: ImportState, node: NodeProto, product: NodeProto) -> int:
    """How many axes follow that of the scales of ``node``, a DequantizeLinear."""
    axis = integer(node, "axis", 1)
    if axis < 0:
        return -1 - axis
    rank = _rank(state, node.input[0])
    if rank is None and product.op_type == "ConvInteger":
        rank = _rank(state, product.input[1])
    if rank is None:
        why = f"has axis {axis} on a tensor of unknown rank: count it from the last, as -1"
        raise state.refuse(node, why)
    return rank - 1 - axis
