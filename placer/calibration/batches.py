"""Batches that Python code gives: arrays by input name, in the order of the inputs, or one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placer.calibration.sample import LABELS
from placer.common.user_code import UserCode
from placer.errors import InputError


def named_arrays(batch: object, inputs: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """The arrays of one batch by input name, and labels by theirs.

    ``batch``: a mapping by input name, a list or tuple of the inputs in order (and of labels, if it
    has one more, as PyTorch's DataLoader gives), or an array for the only input. ``where``: what
    gave it. Raises InputError, which begins with ``where``, for anything else.
    """
    if isinstance(batch, Mapping):
        return {str(name): _array(values, str(name), where) for name, values in batch.items()}
    if not isinstance(batch, list | tuple):
        name = only_input(inputs, where)
        return {name: _array(batch, name, where)}
    names = [*inputs, LABELS]
    if len(batch) not in (len(inputs), len(names)):
        raise InputError(
            f"{where} yields sequences of {len(batch)}; the model's inputs are: "
            f"{', '.join(inputs)}; give these in order, and labels behind them if there are any"
        )
    pairs = zip(names, batch, strict=False)
    return {name: _array(values, name, where) for name, values in pairs}


def only_input(inputs: Sequence[str], where: str) -> str:
    """The name of the only input; InputError, which begins with ``where``, if there are others."""
    if len(inputs) != 1:
        raise InputError(
            f"{where} has one array but the model's inputs are: {', '.join(inputs) or 'none'}; "
            "give arrays by input name"
        )
    return inputs[0]


def _array(values: object, name: str, where: str) -> np.ndarray:
    with UserCode(f"reading '{name}' of {where}", "give numeric arrays"):
        return np.asarray(values)
