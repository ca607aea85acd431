"""Nodes that hand on what they read, whatever that is: sums with 0, products with 1, copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto, numpy_helper

from placer.graph.external_data import is_external

# By operator the constant that changes nothing.
NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
_COMMUTATIVE = frozenset({"Add", "Mul"})
_COPYING = frozenset({"Expand", "Tile", "Reshape", "Cast"})  # Where shape and type stay.
_PADS = 1  # An input of Pad.
_STARTS, _ENDS, _STEPS = 1, 2, 4  # Inputs of Slice.
_MAX_ELEMENTS = 1 << 20


def handed_on(op: str, inputs: Sequence[str], constants: Mapping[str, TensorProto]) -> str | None:
    """The input that a node of the standard domain writes again, None if it changes values.

    It does so only if what it writes has the shape and the type of that input. Constants of more
    than 2**20 elements and those in other files are not looked at, nor are pads that are an
    attribute, as in operator sets before 11.
    """
    if (
        op in _COPYING
        or (op == "Concat" and len(inputs) == 1)
        or _goes_forward(op, inputs, constants)
    ):
        return inputs[0]
    if op not in NEUTRAL or len(inputs) != 2:
        return None
    data, constant = inputs
    if op in _COMMUTATIVE and data in constants:
        data, constant = constant, data
    is_neutral = constant in constants and is_all(constants[constant], NEUTRAL[op])
    return data if is_neutral and data not in constants else None


def _goes_forward(op: str, inputs: Sequence[str], constants: Mapping[str, TensorProto]) -> bool:
    """Whether a Slice or Pad that keeps the shape keeps each element's place, too.

    A Slice of all backward reverses an axis, and pads of 1 and -1 move it by one place.
    """
    if op == "Pad":
        pads = constants.get(inputs[_PADS]) if len(inputs) > _PADS else None
        return pads is not None and is_all(pads, 0)
    if op != "Slice":
        return False
    if len(inputs) <= _STEPS or not inputs[_STEPS]:
        return True
    steps = constants.get(inputs[_STEPS])
    return steps is not None and _holds(steps, lambda values: values > 0)


def is_endless(op: str, inputs: Sequence[str], constants: Mapping[str, TensorProto]) -> bool:
    """Whether a node is a Slice from the first element to no end, step by step."""
    if op != "Slice" or len(inputs) <= _ENDS:
        return False
    starts, ends = constants.get(inputs[_STARTS]), constants.get(inputs[_ENDS])
    if starts is None or ends is None or not _goes_forward(op, inputs, constants):
        return False
    steps = constants.get(inputs[_STEPS]) if len(inputs) > _STEPS else None
    return (
        is_all(starts, 0)
        and is_all(ends, np.iinfo(np.int64).max)
        and (steps is None or is_all(steps, 1))
    )


def is_single(constant: TensorProto) -> bool:
    """Whether a constant has one element."""
    return math.prod(constant.dims) == 1


def is_all(constant: TensorProto, value: float) -> bool:
    """Whether each element of a constant in the model itself is ``value``."""
    return _holds(constant, lambda values: values == value)


def _holds(constant: TensorProto, check: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether ``check`` holds for each element of ``constant``."""
    if is_external(constant) or math.prod(constant.dims) > _MAX_ELEMENTS:
        return False
    return bool(np.all(check(numpy_helper.to_array(constant))))
