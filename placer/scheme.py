"""The number format an engine wants for quantized tensors, as declared by a rule pack."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Scheme(BaseModel):
    """Formats of quantized activations, weights and biases.

    ``activation``: integer type of activations, always one scale per tensor.
    ``symmetric``: activations have zero point 0 (int8) or 128 (uint8); otherwise the zero point
    follows from the calibrated range.
    ``weight``: integer type of weights, always symmetric with zero point 0.
    ``per_channel``: weights have one scale per output channel (see ``placer.ops``).
    ``bias``: ``float`` leaves biases as they are; ``int32`` stores them as int32 behind a
    DequantizeLinear with scale x_scale * w_scale, which ONNX Runtime needs to fuse a Conv.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    activation: Literal["uint8", "int8"]
    symmetric: bool
    weight: Literal["int8"] = "int8"
    per_channel: bool = True
    bias: Literal["float", "int32"]
