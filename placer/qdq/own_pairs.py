"""What the pairs of a quantized file say of its tensors: their ranges and integer types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from placer.graph.external_data import is_external
from placer.qdq.extract import ExtractedModel
from placer.quantization import Range, Ranges
from placer.quantization.ranges import union

_LEVELS: Mapping[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
}


@dataclass(frozen=True)
class OwnPairs:
    """By float tensor: what its pairs can represent, and the type that all of them have, ONNX's
    name in lower case. Tensors with scales that are not known, or of 16 bits, are left out.
    """

    ranges: Ranges
    types: Mapping[str, str]


def own_pairs(model: ExtractedModel) -> OwnPairs:
    """Read the pairs on the activations of ``model``."""
    ranges: dict[str, Range] = {}
    types: dict[str, set[int]] = {}
    for edge, pair in model.pairs.items():
        if edge.tensor in model.constants:
            continue
        for dtype, found in _range(pair, model.constants):
            ranges[edge.tensor] = union([ranges.get(edge.tensor, found), found])
            types.setdefault(edge.tensor, set()).add(dtype)
    names = {
        tensor: str(TensorProto.DataType.Name(min(found))).lower()
        for tensor, found in types.items()
        if len(found) == 1
    }
    return OwnPairs(ranges, names)


def _range(pair: NodeProto, constants: Mapping[str, TensorProto]) -> Iterator[tuple[int, Range]]:
    """The type and the range of a pair with one scale; none where it is not known."""
    known = [constants.get(name) for name in pair.input[1:] if name]
    if any(tensor is None or is_external(tensor) for tensor in known):
        return
    scale, *zero_point = (numpy_helper.to_array(tensor) for tensor in known if tensor is not None)
    dtype = known[1].data_type if len(known) > 1 and known[1] is not None else TensorProto.UINT8
    if dtype not in _LEVELS or scale.size != 1 or not np.isfinite(scale).all():
        return
    step, zero = float(scale.ravel()[0]), int(zero_point[0].ravel()[0]) if zero_point else 0
    low, high = (step * (level - zero) for level in _LEVELS[dtype])
    if low <= high:
        yield dtype, Range(low, high)
