"""Candidates of which what is not quantized is FP16 or BF16."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from placer.model import Model
from placer.qdq.insert import Inserter
from placer.qdq.precision import Base, InputOutputTypes, convert, translate, translate_ranges
from placer.quantization import Placement, Ranges, Scheme


@dataclass(frozen=True, eq=False)
class MixedPrecision:
    """The float model with what is not quantized in another type; see ``placer.qdq.precision``."""

    model: Model
    inserter: Inserter
    ranges: Ranges

    @staticmethod
    def of(
        model: Model, base: Base, io: InputOutputTypes, scheme: Scheme, ranges: Ranges
    ) -> MixedPrecision:
        """Convert ``model`` to ``base``; raises InputError if it cannot be."""
        converted = convert(model, base, io, ranges=ranges)
        translated = translate_ranges(ranges, converted.graph)
        return MixedPrecision(converted, Inserter(converted, scheme), translated)

    def insert(self, placement: Placement) -> onnx.ModelProto:
        """The candidate of ``placement``, which is one of the float model."""
        return self.inserter.insert(translate(placement, self.model.graph), self.ranges)
