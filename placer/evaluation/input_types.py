"""Samples in the float types that a model reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from placer.model import Model

# Those that NumPy has; the others are left to the engine.
_TYPES: Mapping[int | None, np.dtype] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.FLOAT16: np.dtype(np.float16),
}


def in_types_of(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``inputs`` by name, floats in the types that ``model`` reads them in."""
    cast = {}
    for name, array in inputs.items():
        kind = model.graph.type_of(name).dtype if name in model.graph.inputs else None
        with np.errstate(over="ignore"):  # What float16 cannot hold is infinite to the model, too.
            cast[name] = array.astype(_TYPES.get(kind, array.dtype), copy=False)
    return cast
