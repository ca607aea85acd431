"""Numerics of quantization: scales, zero points and integer values.

Formulas follow the ONNX operators QuantizeLinear and DequantizeLinear:
q = saturate(round(x / scale) + zero_point), x' = (q - zero_point) * scale, rounding half to even.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placer.ranges import Range
from placer.scheme import Scheme

# Scales below this flush to zero or lose digits in float32 arithmetic of engines.
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny) * 2**10
# Half of the int32 range leaves room for the sums that a bias is added to.
_BIAS_LIMIT = float(2**30)


class Quantization(NamedTuple):
    """Scale and zero point of a tensor with one scale."""

    scale: float
    zero_point: int


def activation_quantization(value_range: Range, scheme: Scheme) -> Quantization:
    """Scale and zero point that represent ``value_range`` widened to hold zero.

    Symmetric: scale = amax / 127, zero point 0 (int8) or 128 (uint8). Otherwise
    scale = (high - low) / 255 and the zero point is where zero falls, rounded.
    """
    low, high = min(value_range.low, 0.0), max(value_range.high, 0.0)
    lowest = 0 if scheme.activation == "uint8" else -128
    if scheme.symmetric:
        return Quantization(_positive(max(-low, high) / 127), lowest + 128)
    scale = _positive((high - low) / 255)
    return Quantization(scale, int(np.clip(lowest + round(-low / scale), lowest, lowest + 255)))


def _positive(scale: float) -> float:
    """A tensor that is always zero may have any scale; engines want a normal positive one."""
    return float(np.float32(scale)) if scale > _SMALLEST_SCALE else 1.0


def quantize_activation(values: np.ndarray, to: Quantization, scheme: Scheme) -> np.ndarray:
    """Integer values of a constant with the activation type of ``scheme``."""
    limits = np.iinfo(scheme.activation)
    scaled = np.rint(values.astype(np.float64) / to.scale) + to.zero_point
    integers: np.ndarray = np.clip(scaled, limits.min, limits.max).astype(scheme.activation)
    return integers


def weight_scale(values: np.ndarray, axis: int | None) -> np.ndarray:
    """amax / 127 as float32: shape () or, per channel, (channels,).

    A channel of zeros takes the tensor's scale, so that its bias keeps a usable resolution.
    """
    magnitude = np.abs(values.astype(np.float32))
    whole = float(magnitude.max(initial=0.0)) / 127
    fallback = whole if whole > _SMALLEST_SCALE else 1.0
    if axis is None:
        return np.array(fallback, np.float32)
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    scale = magnitude.max(axis=others, initial=0.0).astype(np.float64) / 127
    return np.where(scale > _SMALLEST_SCALE, scale, fallback).astype(np.float32)


def quantize_weight(values: np.ndarray, scale: np.ndarray, axis: int | None) -> np.ndarray:
    """int8 values with zero point 0, symmetric in [-127, 127] while ``scale`` is amax / 127."""
    if axis is not None:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale = scale.reshape(shape)
    scaled = np.rint(values.astype(np.float32) / scale)
    integers: np.ndarray = np.clip(scaled, -128, 127).astype(np.int8)
    return integers


def bias_scale_floor(bias: np.ndarray, input_scale: float) -> np.ndarray:
    """Smallest weight scale per channel with which the bias fits int32 with room to spare."""
    floor: np.ndarray = np.abs(bias.astype(np.float64)) / (input_scale * _BIAS_LIMIT)
    return floor.astype(np.float32)


def quantize_bias(bias: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int32 values of ``bias`` (channels,) with ``scale`` = input scale * weight scale."""
    limits = np.iinfo(np.int32)
    scaled = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    integers: np.ndarray = np.clip(scaled, limits.min, limits.max).astype(np.int32)
    return integers
