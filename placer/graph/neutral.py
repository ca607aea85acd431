"""Nodes that hand on what they read, whatever that is: sums with 0, products with 1, copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, numpy_helper

from placer.graph.external_data import is_external

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
_COMMUTATIVE = frozenset({"Add", "Mul"})
_COPYING = frozenset({"Slice", "Pad", "Expand", "Tile"})
_MAX_ELEMENTS = 1 << 20


def handed_on(op: str, inputs: Sequence[str], constants: Mapping[str, TensorProto]) -> str | None:
    """The input that a node of the standard domain writes again, None if it changes values.

    It does so only if what it writes has the shape of that input. Constants of more than 2**20
    elements and those in other files are not looked at.
    """
    if op in _COPYING and inputs:
        return inputs[0]
    if op not in _NEUTRAL or len(inputs) != 2:
        return None
    data, constant = inputs
    if op in _COMMUTATIVE and data in constants:
        data, constant = constant, data
    is_neutral = constant in constants and _is_all(constants[constant], _NEUTRAL[op])
    return data if is_neutral and data not in constants else None


def _is_all(constant: TensorProto, value: float) -> bool:
    if is_external(constant) or math.prod(constant.dims) > _MAX_ELEMENTS:
        return False
    return bool(np.all(numpy_helper.to_array(constant) == value))
