"""What a rule, a layout, a layer or a scheme may demand of the engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from placer.common.yaml_file import Strict
from placer.rules.field_types import Integers, Versions


class Condition(Strict):
    """On which engines something holds; what is not given is not asked.

    What is not known of the engine or its GPU is taken to fit.
    """

    engine_versions: Versions | None = Field(
        default=None, description="Version range of the engine, e.g. `>=8.5,<11`."
    )
    compute_capability: Versions | None = Field(
        default=None, description="Range of the GPU's compute capability, e.g. `>=7.2`."
    )
    typing: Literal["strong", "weak"] | None = Field(
        default=None,
        description="`strong`: types as the graph says; `weak`: the engine chooses among FP32 and "
        "FP16.",
    )
    base: Literal["float", "half"] | None = Field(
        default=None,
        description="Type of what is not quantized: `float` is FP32, `half` FP16 or BF16. Known "
        "where plans are predicted, for fusions.",
    )
    integers: Integers | None = Field(
        default=None,
        description="Type that the scheme quantizes activations to, `int8` for `int8-or-uint8` and "
        "where no scheme is known.",
    )
    signed_products: bool | None = Field(
        default=None,
        description="Whether the processor has products of two int8 operands (AMX-INT8 or "
        "AVX-VNNI-INT8).",
    )
    avx512: bool | None = Field(
        default=None, description="Whether the processor has vectors of 512 bits (AVX-512)."
    )
    exact_products: bool | None = Field(
        default=None,
        description="Whether the processor adds products of uint8 by int8 in 32 bits (VNNI).",
    )

    @property
    def asks_for_processor(self) -> bool:
        """Whether it holds on some processors only."""
        asked = (self.signed_products, self.avx512, self.exact_products)
        return any(value is not None for value in asked)
