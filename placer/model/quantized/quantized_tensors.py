"""What integer tensors stand for, and the record of all scales that were seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from placer.common.listed import listed
from placer.graph.external_data import digest
from placer.model.quantized import arithmetic
from placer.model.quantized.scales import (
    BIAS_TYPES,
    ActivationScale,
    WeightScale,
    type_name,
)

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16})
BYTES = frozenset({TensorProto.INT8, TensorProto.UINT8})
_FLOAT8 = frozenset(
    {
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    }
)
# Their values keep their scale in int8 if the zero point is the middle of the type.
_MIDDLE: dict[int, int] = {
    TensorProto.INT8: 0,
    TensorProto.UINT8: 128,
    TensorProto.INT4: 0,
    TensorProto.UINT4: 8,
}


@dataclass(frozen=True, eq=False)
class Quantized:
    """What an integer tensor stands for: a float tensor and its scale.

    ``scale`` is None where it is computed at run time, as ``symbol``. ``lowest``, ``highest``:
    limits of the integers; ``dtype``: their ONNX element type; ``axis``: of several scales.
    ``float_type``: the ONNX element type of the float tensor, 0 where it is not known.
    """

    tensor: str
    scale: np.ndarray | None
    zero_point: np.ndarray
    axis: int
    lowest: float
    highest: float
    dtype: int
    is_constant: bool = False
    symbol: str = ""
    float_type: int = 0

    @property
    def key(self) -> str:
        """Equal for edges that share a scale."""
        if self.is_constant or self.scale is None:
            return f"tensor {self.tensor}"
        zero_point = [int(z) for z in self.zero_point.ravel() if z]
        return f"value {self.scale.ravel().tolist()} {zero_point}"

    @property
    def clamps_at_zero(self) -> bool:
        """Whether no integer stands for a negative value."""
        if self.scale is None or self.scale.size != 1 or self.zero_point.size != 1:
            return False
        return float(self.zero_point.item()) == self.lowest

    def is_undone_by(self, scale: np.ndarray, zero_point: np.ndarray) -> bool:
        """Whether dequantizing with these gives the float values back, rounded."""
        if self.scale is None or not _same(scale, self.scale):
            return False
        return _same(zero_point, self.zero_point) or not (zero_point.any() or self.zero_point.any())


@dataclass(eq=False)
class Records:
    """Scales by float tensor, the formats seen, and a sentence for what could not be kept.

    ``narrow``: nodes that quantize to fewer than 7 bits. ``clamped``: tensors behind which a Relu
    or Clip was put, by operator.
    """

    seen: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    activations: dict[str, ActivationScale] = field(default_factory=dict)
    weights: dict[str, WeightScale] = field(default_factory=dict)
    narrow: list[str] = field(default_factory=list)
    clamped: dict[str, list[str]] = field(default_factory=dict)

    def add_activation(self, info: Quantized) -> None:
        """Record the scale of a tensor; of several, the one with the largest range."""
        name = type_name(info.dtype)
        self.seen[f"{'dynamic ' if info.scale is None else ''}{name} activations"] += 1
        if info.scale is None:
            return
        scale, zero_point = info.scale.astype(np.float64).ravel(), info.zero_point.ravel()
        if not (scale.size and np.isfinite(scale).all() and (scale > 0).all()):
            self.notes.append(f"scale of '{info.tensor}' dropped: it is not positive and finite")
            return
        largest = int(scale.argmax())
        if scale.size > 1:
            self.notes.append(
                f"'{info.tensor}' has one scale per channel, which engines take of weights only: "
                "the largest is kept"
            )
        point = int(zero_point[min(largest, zero_point.size - 1)])
        activation = ActivationScale(float(scale[largest]), point, info.lowest, info.highest, name)
        before = self.activations.get(info.tensor, activation)
        if before != activation:
            self.notes.append(f"'{info.tensor}' has several scales: the largest range is kept")
            activation = max(before, activation, key=lambda s: s.amax)
        self.activations[info.tensor] = activation

    def add_weight(
        self,
        tensor: TensorProto,
        values: np.ndarray,
        scale: np.ndarray,
        zero_point: np.ndarray,
        axis: int,
        dtype: int,
        block: int = 0,
    ) -> None:
        """Record the scale of a constant, quantized to ``dtype``, if symmetric int8 can have it.

        ``values``: the float ones. A bias has no scale of its own. Of negative scales, as NNCF
        gives weights, the integers change their signs.
        """
        self.seen[_weight_text(dtype, scale, block)] += 1
        dropped = f"scale of constant '{tensor.name}' dropped:"
        if dtype in BIAS_TYPES:
            return
        if block:
            self.notes.append(f"{dropped} it has one per block of {block} values")
        elif dtype in (TensorProto.INT16, TensorProto.UINT16):
            self.notes.append(f"{dropped} its values have 16 bits")
        elif dtype in _MIDDLE and np.any(zero_point.astype(np.int64) != _MIDDLE[dtype]):
            growth = arithmetic.step_growth(values, scale, axis)
            self.notes.append(
                f"{dropped} it has a zero point, {_span(zero_point)}; the symmetric step is "
                f"{growth:.2f} times as large"
            )
        elif scale.size > 1 and scale.size != _size_along(values, axis):
            self.notes.append(
                f"{dropped} {scale.size} scales do not fit axis {axis} of shape {values.shape}"
            )
        elif scale.size:
            self.keep_weight(tensor, np.abs(scale), axis, is_float8=dtype in _FLOAT8)
            if (scale < 0).any():
                # Of -128 a negative scale makes 128 steps; what is beyond is cut off.
                most = np.abs(scale.astype(np.float64)) * np.where(scale < 0, 128, 127)
                left = np.minimum(values, arithmetic.along(most, values, axis))
                self.weights[tensor.name] = self.weights[tensor.name].reaching(left)

    def check_bias(self, name: str, integers: np.ndarray) -> None:
        """Tell where an int32 bias ends at the ends of its type, so that its own value is lost.

        Its scale is that of the input times that of the weight, which is next to nothing where a
        filter is (ONNX Runtime issue 11415).
        """
        ends = np.iinfo(np.int32)
        channels = np.flatnonzero(np.isin(integers, (ends.min, ends.max))).tolist()
        if not channels:
            return
        self.notes.append(
            f"bias '{name}' was cut off at the ends of int32 in channel{'s' * (len(channels) > 1)} "
            f"{listed(channels)}, where the scale of the weight is too small for it: the file and "
            "its float model are wrong there; quantize the original again, with larger scales "
            "there"
        )

    def keep_weight(
        self, tensor: TensorProto, scale: np.ndarray, axis: int, *, is_float8: bool
    ) -> None:
        """Record ``scale`` for ``tensor``."""
        rank = len(tensor.dims)
        scale = scale.astype(np.float64)
        shaped = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
        place = axis % rank if rank else 0
        self.weights[tensor.name] = WeightScale(shaped, place, digest(tensor), is_float8)

    def rename(self, new_name: Mapping[str, str]) -> None:
        """Rename activations."""
        self.activations = {new_name.get(n, n): scale for n, scale in self.activations.items()}


def _size_along(values: np.ndarray, axis: int) -> int:
    """Entries of ``values`` along ``axis``, 0 where it has no such axis."""
    return values.shape[axis] if -values.ndim <= axis < values.ndim else 0


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    left, right = left.ravel().astype(np.float64), right.ravel().astype(np.float64)
    return bool(np.array_equal(left, right))


def _weight_text(dtype: int, scale: np.ndarray, block: int) -> str:
    if dtype in BIAS_TYPES:
        return f"{type_name(dtype)} biases"
    if block:
        return f"{type_name(dtype)} weights in blocks"
    return f"{type_name(dtype)} {'per-channel' if scale.size > 1 else 'per-tensor'} weights"


def _span(zero_point: np.ndarray) -> str:
    low, high = int(zero_point.min()), int(zero_point.max())
    return str(low) if low == high else f"{low} to {high}"
