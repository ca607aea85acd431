"""Numerics of taking a quantized model apart, and quantization written as float operators.

Everywhere x' = (q - zero_point) * scale, as ONNX defines DequantizeLinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.model.quantized.names import Names

_MOST_CUT_OFF = 0.1  # Of a constant's energy: quantizers that choose a range keep far more.

Part = tuple[list[NodeProto], list[TensorProto]]


def along(values: np.ndarray, target: np.ndarray, axis: int, block: int = 0) -> np.ndarray:
    """``values`` of shape (), (1,) or (channels,) shaped to broadcast to ``target`` along ``axis``.

    ``block``: how many values of ``target`` along ``axis`` share one of ``values``, which then has
    the rank of ``target``. Raises ValueError, which says what the pair has, where they do not fit.
    """
    if values.size == 1:
        return values.reshape(())
    if values.shape == target.shape and target.ndim == 1:
        return values  # Intel's Neural Compressor gives a bias the axis of the weight.
    if not -target.ndim <= axis < target.ndim:
        raise ValueError(f"has axis {axis} on a tensor of rank {target.ndim}")
    shape = [1] * target.ndim
    shape[axis] = target.shape[axis]
    if block:
        shape = [*target.shape]
        shape[axis] = -(-target.shape[axis] // block)
    if values.shape != tuple(shape) and (block or values.size != target.shape[axis]):
        raise ValueError(
            f"has scales or zero points of shape {values.shape} along axis {axis} of a tensor of "
            f"shape {target.shape}"
        )
    if block:
        repeated: np.ndarray = np.repeat(values, block, axis=axis)
        return repeated.take(range(target.shape[axis]), axis=axis)
    return values.reshape(shape)


def dequantize(
    integers: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int, block: int = 0
) -> np.ndarray:
    """Float values, of the type of ``scale``, that ``integers`` stand for.

    What the scale's rounding takes beyond the largest number, as in masks, is that number.
    Raises ValueError as ``along`` does.
    """
    wide = integers.astype(np.float64)
    steps = wide - along(zero_point.astype(np.float64), wide, axis, block)
    with np.errstate(invalid="ignore"):  # Of an infinite scale; readers refuse what it gives.
        floats: np.ndarray = steps * along(scale.astype(np.float64), wide, axis, block)
    if scale.dtype.kind == "f":
        limits = np.finfo(scale.dtype)
        floats = floats.clip(limits.min, limits.max)
    return floats.astype(scale.dtype)


def step_growth(floats: np.ndarray, scale: np.ndarray, axis: int) -> float:
    """Largest ratio over channels of the symmetric int8 step, amax / 127, to ``scale``."""
    magnitude = np.abs(floats.astype(np.float64))
    others = None
    if scale.size > 1:
        others = tuple(i for i in range(floats.ndim) if i != axis % floats.ndim)
    steps = np.ravel(magnitude.max(axis=others, initial=0.0)) / 127
    return float(np.max(steps / scale.astype(np.float64).ravel(), initial=0.0))


def cut_off(
    values: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray,
    limits: tuple[float, float],
    axis: int,
) -> np.ndarray | None:
    """``values``, a float constant, as far as its pair represents them, without the rounding.

    None where it represents nearly all: what it cuts off is below a tenth of their energy. So it is
    where ``scale`` is none that the range follows from, or does not fit ``values``.
    """
    if values.dtype.kind != "f" or not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    wide = values.astype(np.float64)
    try:
        step, zero = (along(a.astype(np.float64), wide, axis) for a in (scale, zero_point))
    except ValueError:
        return None
    left = wide.clip(*((limit - zero) * step for limit in limits))
    is_cut = np.square(wide - left).sum() > _MOST_CUT_OFF * np.square(wide).sum()
    return left.astype(values.dtype) if is_cut else None


def quantize_nodes(
    source: str,
    integers: str,
    scale: np.ndarray,
    zero_point: np.ndarray,
    limits: tuple[float, float],
    dtype: int,
    names: Names,
) -> Part:
    """saturate(round(x / scale) + zero_point) of one scale, from ``source`` to ``integers``."""
    kind = scale.dtype
    chain = _Chain(integers, kind, names)
    chain.add("Div", scale)
    chain.add("Round")
    chain.add("Add", zero_point)
    chain.add("Clip", *(np.array(limit) for limit in limits))
    return chain.add("Cast", to=dtype).between(source, integers)


def dequantize_nodes(
    source: str, target: str, scale: np.ndarray, zero_point: np.ndarray, names: Names
) -> Part:
    """(q - zero_point) * scale of one scale, from integers ``source`` to ``target``."""
    chain = _Chain(target, scale.dtype, names)
    chain.add("Cast", to=helper.np_dtype_to_tensor_dtype(scale.dtype))
    if zero_point.any():
        chain.add("Sub", zero_point)
    if scale.size > 1 or scale != 1:
        chain.add("Mul", scale)
    return chain.between(source, target)


class _Chain:
    """Nodes one behind the other, each with scalar constants besides its input."""

    def __init__(self, base: str, dtype: np.dtype[Any], names: Names) -> None:
        self._base = base
        self._dtype = dtype
        self._names = names
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def add(self, op: str, *operands: np.ndarray, **attributes: int) -> _Chain:
        """Append a node; returns this chain."""
        inputs = [""]
        for operand in operands:
            name = self._names.unused(f"{self._base}/{op}_constant")
            if operand.size != 1:
                raise InputError(
                    f"'{self._base}' needs one scale and one zero point, not {operand.size}; "
                    "leave that tensor float"
                )
            value = operand.astype(self._dtype).reshape(())
            self._constants.append(numpy_helper.from_array(value, name))
            inputs.append(name)
        name = self._names.unused(f"{self._base}/{op}")
        node = helper.make_node(op, inputs, [""], name)
        node.attribute.extend(helper.make_attribute(key, to) for key, to in attributes.items())
        self._nodes.append(node)
        return self

    def between(self, source: str, target: str) -> Part:
        """The nodes, the first reading ``source`` and the last writing ``target``."""
        tensor = source
        for node in self._nodes:
            node.input[0] = tensor
            tensor = self._names.unused(f"{node.name}_output")
            node.output[0] = tensor
        self._nodes[-1].output[0] = target
        return self._nodes, self._constants
