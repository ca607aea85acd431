"""How a quantized model quantizes one tensor, and the types that it does so in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from onnx import TensorProto, helper

from placer.errors import InputError
from placer.quantization import FLOAT8, Range, Scheme
from placer.quantization.numerics import quantized_dtype

# Smallest and largest value of the types that QuantizeLinear makes (ONNX, TensorProto.DataType).
_LIMITS: Mapping[int, tuple[float, float]] = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT32: (-(2**31), 2**31 - 1),
    TensorProto.FLOAT8E4M3FN: (-448, 448),
    TensorProto.FLOAT8E4M3FNUZ: (-240, 240),
    TensorProto.FLOAT8E5M2: (-57344, 57344),
    TensorProto.FLOAT8E5M2FNUZ: (-57344, 57344),
}
# Of biases, which DequantizeLinear reads; of int64 those of TensorFlow Lite's int16 activations.
BIAS_TYPES = frozenset({TensorProto.INT32, TensorProto.INT64})
_FLOAT8 = str(quantized_dtype(FLOAT8))  # What NumPy calls it.


def is_quantized_type(dtype: int) -> bool:
    """Whether QuantizeLinear may make the type ``dtype`` (ONNX, TensorProto.DataType)."""
    return dtype in _LIMITS


def limits_of(dtype: int) -> tuple[float, float]:
    """Smallest and largest value of the type ``dtype``, one of ``BIAS_TYPES`` or which Q makes.

    Raises InputError for other types.
    """
    if dtype == TensorProto.INT64:
        return -(2.0**63), 2.0**63
    if dtype in _LIMITS:
        return _LIMITS[dtype]
    name = TensorProto.DataType.Name(dtype) if dtype in TensorProto.DataType.values() else dtype
    raise InputError(f"quantized values of type {name} cannot be taken apart; use int8 or uint8")


@dataclass(frozen=True)
class ActivationScale:
    """How the source quantizes one tensor: q = saturate(round(x / scale) + zero_point).

    ``lowest``, ``highest``: limits of q. ``type``: name of q's type, e.g. ``uint8``.
    """

    scale: float
    zero_point: int
    lowest: float
    highest: float
    type: str

    @property
    def is_symmetric(self) -> bool:
        """Whether q is symmetric around the zero point, but for one value at its low end."""
        return self.highest - self.zero_point in (
            self.zero_point - self.lowest,
            self.zero_point - self.lowest - 1,
        )

    @property
    def amax(self) -> float:
        """Largest magnitude that q represents."""
        largest = max(self.highest - self.zero_point, self.zero_point - self.lowest)
        return largest * self.scale

    def range(self, scheme: Scheme) -> Range:
        """The range that gives this very scale under ``scheme``, if it can have it.

        That is what q represents; of symmetric scales, under a symmetric scheme, whose scale is
        amax / 127, without the one value more at the low end.
        """
        high = (self.highest - self.zero_point) * self.scale
        low = (self.lowest - self.zero_point) * self.scale
        return Range(-high if scheme.symmetric and self.is_symmetric else low, high)

    @property
    def is_float8(self) -> bool:
        """Whether q is FP8 of the kind that schemes have."""
        return self.type == _FLOAT8

    @cached_property
    def text(self) -> str:
        """For example ``uint8, zero point 12``."""
        return f"{self.type}, zero point {self.zero_point}"


@dataclass(frozen=True, eq=False)
class WeightScale:
    """How the source quantizes a constant: ``scale`` of shape () or (channels,) along ``axis``.

    ``digest``: SHA-256 of the float values that the scale belongs to. ``is_float8``: whether the
    quantized values are FP8.
    """

    scale: np.ndarray
    axis: int
    digest: str
    is_float8: bool = False

    def multiplied(self, factors: np.ndarray, axis: int) -> WeightScale:
        """The scales of the weight times ``factors``, (channels,) along ``axis``.

        Several scales lie along that axis, too. ``digest`` stays that of the weight.
        """
        is_one = self.scale.size == 1 and (factors == factors[0]).all()
        shown = factors[0] if is_one else factors
        return replace(self, scale=self.scale * np.abs(shown), axis=axis)

    def reaching(self, values: np.ndarray) -> WeightScale:
        """The scales, larger for channels of ``values`` that end beyond 127 of their steps.

        As where a negative factor, or scale, makes 128 of -128. FP8 ends at the same magnitude on
        both sides.
        """
        if self.is_float8:
            return self
        along = () if self.scale.size == 1 else (self.axis,)
        others = tuple(axis for axis in range(values.ndim) if axis not in along)
        largest = values.max(axis=others, initial=0.0).astype(np.float64)
        is_beyond = largest >= 127.5 * self.scale
        return replace(self, scale=np.where(is_beyond, largest / 127, self.scale))


def type_name(dtype: int) -> str:
    """NumPy's name of an ONNX element type, e.g. ``uint8``."""
    return str(helper.tensor_dtype_to_np_dtype(dtype))
