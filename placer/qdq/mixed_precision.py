"""Candidates of which what is not quantized is FP16 or BF16."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from placer.graph import Edge
from placer.graph.float_choices import COPY
from placer.model import Model
from placer.qdq.bases import Base, InputOutputTypes
from placer.qdq.insert import Inserter
from placer.qdq.precision import convert
from placer.qdq.translation import translate, translate_ranges
from placer.quantization import Placement, Ranges
from placer.quantization.numerics import ScaleError

_FLOAT16 = np.dtype(np.float16)


@dataclass(frozen=True, eq=False)
class MixedPrecision:
    """The float model with what is not quantized in another type; see ``placer.qdq.precision``.

    ``kept``: nodes that stay float32 since FP16 cannot hold one of their scales, and why.
    """

    model: Model
    inserter: Inserter
    ranges: Ranges
    kept: Mapping[str, str]

    @staticmethod
    def of(
        inserter: Inserter,
        base: Base,
        io: InputOutputTypes,
        ranges: Ranges,
        edges: Collection[Edge],
    ) -> MixedPrecision:
        """Convert the model of ``inserter`` to ``base``; raises InputError if it cannot be.

        ``edges``: all that any placement will quantize.
        """
        kept = _beyond_float16(inserter, ranges, edges) if base == "float16" else {}
        copies = [name for name in inserter.model.graph.by_name if name.startswith(COPY)]
        converted = convert(inserter.model, base, io, {*kept, *copies}, ranges)
        translated = translate_ranges(ranges, converted.graph)
        return MixedPrecision(converted, Inserter(converted, inserter.scheme), translated, kept)

    def insert(self, placement: Placement) -> onnx.ModelProto:
        """The candidate of ``placement``, which is one of the float model."""
        return self.inserter.insert(translate(placement, self.model.graph), self.ranges)


def _beyond_float16(inserter: Inserter, ranges: Ranges, edges: Collection[Edge]) -> dict[str, str]:
    """Nodes with an edge whose scale is too small or too large for FP16, and which that is.

    A pair behind a node, of a graph output, has the type of what the node writes.
    """
    graph = inserter.model.graph
    reasons: dict[str, str] = {}
    for edge in sorted(edges):
        node = edge.node or graph.producer[edge.tensor].name
        if node in reasons or graph.type_of(edge.tensor).dtype != TensorProto.FLOAT:
            continue
        try:
            inserter.check_scale(edge, ranges, _FLOAT16)
        except ScaleError as error:
            reasons[node] = f"of '{edge.tensor}', {error}"
    return reasons


def weights_beyond_float16(inserter: Inserter, edges: Collection[Edge]) -> dict[Edge, str]:
    """Edges of FP16 weights with a scale that FP16 cannot hold, and which that is."""
    types = inserter.model.graph.type_of
    reasons: dict[Edge, str] = {}
    for edge in sorted(edges):
        if inserter.is_weight(edge) and types(edge.tensor).dtype == TensorProto.FLOAT16:
            try:
                inserter.check_scale(edge, {}, _FLOAT16)
            except ScaleError as error:
                reasons[edge] = f"of '{edge.tensor}', {error}"
    return reasons
