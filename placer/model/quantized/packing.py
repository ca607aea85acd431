"""Constants of few bits that ONNX Runtime's operators hold themselves, several values to a byte."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import NodeProto

from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.state import ImportState

VALUES_AT_ONCE = 1 << 20  # What is unpacked takes some 20 bytes a value on the way.


def positive(state: ImportState, node: NodeProto, name: str) -> int:
    """An attribute that is a number above 0; InputError if it is none."""
    value = integer(node, name)
    if value < 1:
        raise state.refuse(
            node, f"has {name} = {value} where a number above 0 belongs: export it with its {name}"
        )
    return value


def constants_at(
    state: ImportState,
    node: NodeProto,
    needed: Iterable[int],
    optional: Iterable[int] = (),
    what: str = "packed weight",
) -> tuple[str, ...]:
    """Names of the inputs ``needed`` and ``optional`` of ``node``, empty where one of these lacks.

    They are its ``what`` and what that is scaled by. Raises InputError where a needed one is not
    there or one is no constant.
    """
    required = tuple(input_at(node, index) for index in needed)
    if not all(required):
        raise state.refuse(node, f"has no {what}, or no scale of it")
    names = *required, *(input_at(node, index) for index in optional)
    for name in filter(None, names):
        if name not in state.draft.constants:
            raise state.refuse(node, f"computes '{name}', its {what} or a scale of it")
    return names


def values_in_bytes(packed: np.ndarray, bits: int) -> np.ndarray:
    """The values in each row of bytes, of ``bits`` each, the lowest first, as uint8."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values: np.ndarray = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return values.reshape(*packed.shape[:-1], -1)
