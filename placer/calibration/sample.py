"""A sample: one batch of the engine's size, checked and of the types that the model takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from placer.calibration.specs import InputSpec
from placer.errors import InputError

LABELS = "labels"

Note = Callable[[str], None]
Read = Callable[[Note], Iterator["Sample"]]


@dataclass(frozen=True, eq=False)
class Sample:
    """One batch of the engine's size.

    ``inputs``: array by input name, of exactly the model's input shape and type. ``labels``: one
    label per row of the batch, or None. ``origin``: where it came from, for error messages.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None
    origin: str


def converted(
    array: np.ndarray, spec: InputSpec, origin: str, source: str, note: Note
) -> np.ndarray:
    """A read-only copy with the input's type: floats of another width, integers that fit, text.

    Raises InputError, naming ``origin``, for other types and for numbers that do not fit.
    """
    kind, wanted = array.dtype.kind, spec.dtype.kind
    if kind == "U" and wanted == "O":  # ONNX Runtime takes strings as Python objects.
        array = array.astype(object)
    if array.dtype != spec.dtype:
        if wanted == "O":
            raise InputError(
                f"{origin}: array '{spec.name}' has type {array.dtype} but the model needs text; "
                "save it as an array of str"
            )
        if not (kind == wanted == "f" or (kind in "iu" and wanted in "iu")):
            hint = "preprocess it as in training and " if kind in "iu" and wanted == "f" else ""
            fix = spec.advice or f"{hint}save it as {spec.dtype}"
            raise InputError(
                f"{origin}: array '{spec.name}' has type {array.dtype} but the model needs "
                f"{spec.dtype}; {fix}"
            )
        if wanted in "iu":
            _check_fits(array, spec, origin)
        note(f"{source}: array '{spec.name}' is {array.dtype} and was converted to {spec.dtype}")
    with np.errstate(over="ignore"):
        copy = np.array(array, dtype=spec.dtype, order="C")
    if wanted == "f" and array.dtype != spec.dtype and (np.isinf(copy) & np.isfinite(array)).any():
        raise InputError(
            f"{origin}: array '{spec.name}' ({array.dtype}) has values beyond {spec.dtype}; scale "
            "or remove that sample"
        )
    copy.flags.writeable = False
    return copy


def _check_fits(array: np.ndarray, spec: InputSpec, origin: str) -> None:
    limits = np.iinfo(spec.dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise InputError(
            f"{origin}: array '{spec.name}' ({array.dtype}) has values that do not fit the "
            f"model's {spec.dtype}; correct them"
        )
