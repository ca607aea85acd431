"""The number format an engine wants for quantized tensors, as declared by a rule pack."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from placer.errors import InputError

FLOAT8: Final = "float8e4m3fn"
# Types of files that others quantized, in which no engine here computes: nodes that only move
# elements pass them on (ONNX Runtime's DropQDQNodesSelector), others read floats.
WIDE_TYPES: Final = frozenset({"int16", "uint16"})
FLOAT8_TYPES: Final = frozenset({"float8e4m3fn", "float8e5m2"})
INT32: Final = "int32"  # Of biases that products of integers add.
MOVED_FORMATS: Final = WIDE_TYPES | {"int4", "uint4"}
# A type that single sites may be quantized to instead of the scheme's own.
Format = Literal["float8e4m3fn"]
# Zero point 0 everywhere: uint8 where nothing is negative, which has twice the steps there.
INT8_OR_UINT8 = "int8-or-uint8"
WeightRange = Literal["full", "reduced"]
WeightRangeOption = Literal["auto", "full", "reduced"]


def foreign_format(dtype: str) -> Format:
    """The type of pairs of a file as a format of theirs, though no site can be quantized to it.

    Pairs in it have nothing to do with those of the scheme: no kernel reads both.
    """
    return cast(Format, dtype)


def in_weight_range(scheme: Scheme, asked: WeightRangeOption) -> Scheme:
    """``scheme`` with weights in the range ``asked`` for; ``auto``: its own.

    Raises InputError if weights in FP8 are to have a reduced range.
    """
    if asked in ("auto", scheme.weight_range):
        return scheme
    if scheme.weight != "int8":
        raise InputError(
            "`weight_range` reduced is for weights in int8, and those of this scheme are "
            f"{scheme.weight}; leave it out"
        )
    return scheme.model_copy(update={"weight_range": asked})


class Scheme(BaseModel):
    """Formats of quantized activations, weights and biases.

    ``float8e4m3fn`` is ONNX's FP8 type; it is symmetric, for activations and weights alike, and
    leaves biases as they are. ``int8-or-uint8`` is decided by each tensor's range; see ``of``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    activation: Literal["uint8", "int8", "float8e4m3fn", "int8-or-uint8"] = Field(
        description="Type of activations, always one scale per tensor. `int8-or-uint8`, with zero "
        "point 0, is uint8 where a range has no negative values, else int8."
    )
    symmetric: bool = Field(
        description="Activations have zero point 0 (int8) or 128 (uint8); otherwise the zero point "
        "follows from the calibrated range."
    )
    weight: Literal["int8", "float8e4m3fn"] = Field(
        default="int8", description="Type of weights, always symmetric with zero point 0."
    )
    per_channel: bool = Field(
        default=True, description="Weights have one scale per output channel."
    )
    weight_range: WeightRange = Field(
        default="full",
        description="`full`: the largest weight of a scale becomes 127. `reduced`: so does the "
        "largest sum of two neighbours, if that is larger, so that products do not saturate on "
        "processors that add them in pairs in 16 bits (x86 without VNNI).",
    )
    bias: Literal["float", "int32"] = Field(
        description="`float` leaves biases as they are; `int32` stores them behind a "
        "DequantizeLinear with scale x_scale * w_scale, which ONNX Runtime needs to fuse a Conv."
    )
    formats: tuple[Format, ...] = Field(
        default=(),
        max_length=1,
        description="Types that the search may choose for single sites instead, for activations "
        "and weights alike. `float8e4m3fn` beside `int8`.",
    )

    @property
    def is_float8(self) -> bool:
        """Whether quantized tensors hold FP8 values."""
        return self.activation == FLOAT8

    @property
    def has_float8(self) -> bool:
        """Whether quantized tensors may hold FP8 values."""
        return self.is_float8 or FLOAT8 in self.formats

    def in_format(self, chosen: Format | None) -> Scheme:
        """The scheme of what is quantized in ``chosen``, one of ``formats``; None: the own."""
        return self if chosen is None or self.is_float8 else self._in_float8

    @cached_property
    def _in_float8(self) -> Scheme:
        return Scheme(
            activation=FLOAT8,
            symmetric=True,
            weight=FLOAT8,
            per_channel=self.per_channel,
            bias="float",
        )

    @property
    def integer(self) -> str:
        """Type of quantized activations of either sign."""
        return "int8" if self.activation == INT8_OR_UINT8 else self.activation

    def of(self, low: float) -> Scheme:
        """The scheme of a tensor whose range begins at ``low``."""
        if self.activation != INT8_OR_UINT8:
            return self
        return self._unsigned if low >= 0 else self._signed

    @cached_property
    def _unsigned(self) -> Scheme:
        """Of ranges that begin at zero, which is where the zero point falls by itself."""
        return self.model_copy(update={"activation": "uint8", "symmetric": False})

    @cached_property
    def _signed(self) -> Scheme:
        return self.model_copy(update={"activation": "int8"})

    @model_validator(mode="after")
    def _check_zero_point(self) -> Scheme:
        if self.activation == INT8_OR_UINT8 and not self.symmetric:
            raise ValueError(f"activation {INT8_OR_UINT8} needs symmetric: true")
        return self

    @model_validator(mode="after")
    def _check_float8(self) -> Scheme:
        if (self.activation == FLOAT8) != (self.weight == FLOAT8):
            raise ValueError(f"activation and weight must both be {FLOAT8}, or neither")
        if self.is_float8 and not (self.symmetric and self.bias == "float"):
            raise ValueError(f"{FLOAT8} needs symmetric: true and bias: float")
        return self

    @model_validator(mode="after")
    def _check_range(self) -> Scheme:
        if self.weight_range == "reduced" and self.weight != "int8":
            raise ValueError("weight_range: reduced is for weights in int8")
        return self

    @model_validator(mode="after")
    def _check_formats(self) -> Scheme:
        fits = self.symmetric and self.bias == "float" and self.activation == "int8"
        if self.formats and not fits:
            raise ValueError("formats need activation: int8, symmetric: true and bias: float")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Schemes are written as they were before there were formats and ranges of weights."""
        written: dict[str, Any] = write(self)
        usual = {"formats": (), "weight_range": "full"}
        return {k: v for k, v in written.items() if k not in usual or v not in (usual[k], [])}
