"""Constants of one element, by which composite activations are told."""

from __future__ import annotations

import math

from onnx import numpy_helper

from placer.graph import Graph

_CLOSE = 1e-3  # Constants are rounded to FP16 or written with few digits.


def only_number(graph: Graph, tensor: str) -> float | None:
    """The only element of a constant; None if it is none or has more."""
    initializer = graph.initializers.get(tensor)
    if initializer is None or math.prod(initializer.dims) != 1:
        return None
    return float(numpy_helper.to_array(initializer).item())


def is_near(value: float | None, expected: float) -> bool:
    """Whether a value is what was expected but for rounding."""
    return value is not None and abs(value - expected) < _CLOSE
