"""Numerics of quantization: scales, zero points and quantized values.

Formulas follow the ONNX operators QuantizeLinear and DequantizeLinear:
q = saturate(round(x / scale) + zero_point), x' = (q - zero_point) * scale, rounding half to even.
FP8 (float8e4m3fn) has zero point 0 and rounds to its nearest value, half to even, up to 448.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from placer.quantization.ranges import Range
from placer.quantization.scheme import FLOAT8, Scheme

# Half of the int32 range leaves room for the sums that a bias is added to.
_BIAS_LIMIT = float(2**30)
_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_FLOAT8: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)
_SMALLEST, _SMALLEST_FLOAT16 = 2.0**-116, 2.0**-14
_LARGEST = {"int8": 127, "uint8": 127, FLOAT8: 448}  # Quantized amax of a symmetric scheme.


class ScaleError(ValueError):
    """A scale that its type cannot hold; the message is half a sentence."""


class Quantization(NamedTuple):
    """Scale and zero point of a tensor with one scale."""

    scale: float
    zero_point: int


def quantized_dtype(name: str) -> np.dtype[Any]:
    """NumPy type of the values of a scheme's ``activation`` or ``weight`` type."""
    return _FLOAT8 if name == FLOAT8 else np.dtype(name)


def symmetric_limit(scheme: Scheme) -> int:
    """The largest quantized magnitude of activations of a symmetric ``scheme``."""
    return _LARGEST[scheme.integer]


def activation_quantization(
    value_range: Range, scheme: Scheme, dtype: np.dtype[Any] = _FLOAT32
) -> Quantization:
    """Scale, exact in ``dtype``, and zero point for ``value_range`` widened to hold zero.

    Symmetric: scale = amax / 127, zero point 0 (int8) or 128 (uint8), or, of FP8,
    amax / 448 and 0. Otherwise
    scale = (high - low) / 255 and the zero point is where zero falls, rounded.
    Raises ScaleError if ``dtype`` cannot hold the scale.
    """
    low, high = min(value_range.low, 0.0), max(value_range.high, 0.0)
    scheme = scheme.of(low)
    lowest = 0 if scheme.activation == "uint8" else -128
    if scheme.symmetric:
        largest = _LARGEST[scheme.activation]
        return Quantization(_positive(max(-low, high) / largest, dtype), lowest + 128)
    scale = _positive((high - low) / 255, dtype)
    zero_point = lowest + round(-low / scale)
    return Quantization(scale, min(max(zero_point, lowest), lowest + 255))


def _positive(scale: float, dtype: np.dtype[Any]) -> float:
    """A tensor that is always zero may have any scale; engines want a normal positive one."""
    return float(in_type(np.array(scale), dtype)) if scale > 0 else 1.0


def in_type(scale: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """``scale``, positive, in ``dtype``; raises ScaleError where that cannot hold it.

    FP16 has few digits below 2^-14, its smallest normal number, and no number above 65504. Of
    float32 and BF16, scales below 2^-116, of values that no sum notices, are raised to that: the
    products of smaller ones are denormal.
    """
    if dtype == np.float16:
        limits = np.finfo(np.float16)
        # What is rounded counts: the largest scale below a limit may become the limit.
        with np.errstate(over="ignore"):
            rounded = np.where(scale < _SMALLEST_FLOAT16, 0, scale).astype(np.float16)
        wrong = (rounded < limits.tiny) | ~np.isfinite(rounded)
        if wrong.any():
            worst = float(np.asarray(scale)[wrong].flat[0])
            raise ScaleError(
                f"a scale of {worst:.3g} is outside {limits.tiny:.3g} to {limits.max:.5g}, the "
                "normal numbers of float16"
            )
        return np.asarray(rounded)
    result: np.ndarray = np.maximum(scale, _SMALLEST).astype(dtype)
    return result


def of_channels(scale: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """``scale`` of a weight's channels in ``dtype``, as ``in_type``.

    Those below the smallest normal number of FP16 are raised to that where the largest is not: one
    scale for all channels would be coarser still. Folded BatchNormalization leaves such channels.
    """
    if dtype == np.float16 and scale.size and scale.max() >= _SMALLEST_FLOAT16:
        scale = np.maximum(scale, _SMALLEST_FLOAT16)
    return in_type(scale, dtype)


def quantize_activation(values: np.ndarray, to: Quantization, scheme: Scheme) -> np.ndarray:
    """Values of a constant in the activation type of ``scheme``, which is the group's own."""
    if scheme.is_float8:
        return _to_float8(values.astype(np.float32) / np.float32(to.scale))
    limits = np.iinfo(scheme.activation)
    scaled = np.rint(values.astype(np.float64) / to.scale) + to.zero_point
    integers: np.ndarray = np.clip(scaled, limits.min, limits.max).astype(scheme.activation)
    return integers


def _to_float8(scaled: np.ndarray) -> np.ndarray:
    """What QuantizeLinear with saturate = 1 does: the bare cast would make NaN of large values."""
    values: np.ndarray = np.clip(scaled, -_LARGEST[FLOAT8], _LARGEST[FLOAT8]).astype(_FLOAT8)
    return values


def weight_scale(
    values: np.ndarray,
    axis: int | None,
    weight: str = "int8",
    dtype: np.dtype[Any] | None = None,
) -> np.ndarray:
    """amax / 127 (FP8: 448) in ``dtype``: shape () or, per channel, (channels,).

    ``weight``: the scheme's type of weights. ``dtype``: by default that of ``values``.
    A channel of zeros takes the tensor's scale, so that its bias keeps a usable resolution. Raises
    ScaleError if ``dtype`` cannot hold a scale.
    """
    dtype = values.dtype if dtype is None else dtype
    magnitude = np.abs(values.astype(np.float32))
    largest = _LARGEST[weight]
    whole = _positive(float(magnitude.max(initial=0.0)) / largest, dtype)
    if axis is None:
        return np.array(whole, dtype)
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    scale = magnitude.max(axis=others, initial=0.0).astype(np.float64) / largest
    return of_channels(np.where(scale > 0, scale, whole), dtype)


def quantize_weight(
    values: np.ndarray,
    scale: np.ndarray,
    axis: int | None,
    weight: str,
    lowest: int,
) -> np.ndarray:
    """int8 values in [``lowest``, 127], or FP8 values in [-448, 448], with zero point 0."""
    if axis is not None:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale = scale.reshape(shape)
    scaled = values.astype(np.float32) / scale.astype(np.float32)
    if weight == FLOAT8:
        return _to_float8(scaled)
    integers: np.ndarray = np.clip(np.rint(scaled), lowest, 127).astype(np.int8)
    return integers


def weight_scale_for_bias(scale: np.ndarray, bias: np.ndarray, input_scale: float) -> np.ndarray:
    """``scale`` of a weight, raised where ``bias`` (outputs,) would leave no room in int32.

    ``scale``: shape () or (channels,); output i is of channel i modulo channels, which matters
    to ConvTranspose alone, where the channels of each group share the scales.
    """
    floor = np.abs(bias.astype(np.float64)) / (input_scale * _BIAS_LIMIT)
    raised = floor.reshape(-1, scale.size).max(axis=0).reshape(scale.shape)
    result: np.ndarray = np.maximum(scale, raised.astype(scale.dtype))
    return result


def bias_scale(scale: np.ndarray, outputs: int, input_scale: float) -> np.ndarray:
    """Input scale * weight scale: shape () or, like ``scale`` per channel, (outputs,)."""
    product = scale.astype(np.float32) * np.float32(input_scale)
    # The product underflows only where the bias is negligible: see weight_scale_for_bias.
    product = np.maximum(product, np.float32(_SMALLEST))
    return np.tile(product, outputs // scale.size) if scale.ndim else product


def quantize_bias(bias: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int32 values of ``bias`` (channels,) with ``scale`` = input scale * weight scale."""
    limits = np.iinfo(np.int32)
    scaled = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    integers: np.ndarray = np.clip(scaled, limits.min, limits.max).astype(np.int32)
    return integers
