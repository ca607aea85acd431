"""The number format an engine wants for quantized tensors, as declared by a rule pack."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FLOAT8 = "float8e4m3fn"


class Scheme(BaseModel):
    """Formats of quantized activations, weights and biases.

    ``float8e4m3fn`` is ONNX's FP8 type; it is symmetric, for activations and weights alike, and
    leaves biases as they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    activation: Literal["uint8", "int8", "float8e4m3fn"] = Field(
        description="Type of activations, always one scale per tensor."
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
    bias: Literal["float", "int32"] = Field(
        description="`float` leaves biases as they are; `int32` stores them behind a "
        "DequantizeLinear with scale x_scale * w_scale, which ONNX Runtime needs to fuse a Conv."
    )

    @property
    def is_float8(self) -> bool:
        """Whether quantized tensors hold FP8 values."""
        return self.activation == FLOAT8

    @model_validator(mode="after")
    def _check_float8(self) -> Scheme:
        if (self.activation == FLOAT8) != (self.weight == FLOAT8):
            raise ValueError(f"activation and weight must both be {FLOAT8}, or neither")
        if self.is_float8 and not (self.symmetric and self.bias == "float"):
            raise ValueError(f"{FLOAT8} needs symmetric: true and bias: float")
        return self
