"""Shapes and types that a model wants of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import helper

from placer.errors import InputError
from placer.model import Model


@dataclass(frozen=True)
class InputSpec:
    """Shape and type that the model wants of one input."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def batch(self) -> int:
        """Rows of one sample: the leading dimension."""
        return self.shape[0] if self.shape else 1

    @property
    def size(self) -> int:
        """Values in one sample."""
        return math.prod(self.shape)

    @property
    def advice(self) -> str:
        """What to do about a type that NumPy's files cannot hold; empty for those that they can."""
        if self.dtype.name == "bfloat16":
            return "export the model in float32, which `base` bfloat16 converts"
        return ""

    @property
    def layouts(self) -> str:
        """Shapes of an array of N samples, for messages."""
        stacked = _shown(("N", *self.shape))
        if not self.shape:
            return stacked
        leading = "N" if self.batch == 1 else f"N*{self.batch}"
        return f"{_shown((leading, *self.shape[1:]))} or {stacked}"


Specs = Mapping[str, InputSpec]


def input_specs(model: Model) -> Specs:
    """Specs of all graph inputs in order; raises InputError if there is none or it is no tensor."""
    if not model.graph.inputs:
        raise InputError(f"{model.path} has no input, so no data can be given; export it again")
    specs = {}
    for name in model.graph.inputs:
        code = model.graph.type_of(name).dtype
        if code is None:
            raise InputError(f"input '{name}' of {model.path} has no tensor type; export it again")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
        specs[name] = InputSpec(name, tuple(model.input_shapes[name]), dtype)
    return specs


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
