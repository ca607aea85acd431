"""Data that a Python program gives in memory: arrays by input name, or batches one by one."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from os import PathLike
from typing import TypeAlias

import numpy as np

from placer.calibration.batches import named_arrays, only_input
from placer.common.limits import Limits, how_to_lift, in_bytes
from placer.common.user_code import UserCode
from placer.errors import InputError

StrPath: TypeAlias = str | PathLike[str]
Arrays: TypeAlias = Mapping[str, np.ndarray]
Data: TypeAlias = StrPath | Arrays | Iterable[object]
InputNames = Callable[[], Sequence[str]]


def is_in_memory(data: Data | None) -> bool:
    """Whether ``data`` is no path or ``module:function``."""
    return data is not None and not isinstance(data, str | PathLike)


def packed(data: Data, inputs: InputNames, keyword: str) -> bytes:
    """An .npz file of ``data``, which is in memory.

    ``data``: arrays by input name that hold all samples, an array for the only input, or anything
    that yields batches, such as a PyTorch DataLoader: each a mapping by input name, a sequence of
    the inputs in order (and of labels, if it has one more), or an array for the only input.
    ``inputs``: returns the model's inputs in order. ``keyword``: what the caller calls ``data``.
    Raises InputError, which names ``keyword``, for anything else and for more than
    ``Limits.data_bytes``.
    """
    guard = UserCode(f"reading `{keyword}`", "give numeric arrays")
    # Tensors of PyTorch and others say so; iterated over, they would give rows without their batch.
    if hasattr(data, "__array__"):
        with guard:
            array = np.asarray(data)
        return _archive({only_input(inputs(), f"`{keyword}`"): array})
    if isinstance(data, Mapping):
        with guard:
            arrays = {name: np.asanyarray(values) for name, values in data.items()}
        return _archive(arrays)
    if not isinstance(data, Iterable):
        raise InputError(
            f"`{keyword}` is of type {type(data).__name__}; give a path, arrays by input name or "
            "an iterable of batches"
        )
    return _archive(_gathered(data, inputs(), keyword))


def _gathered(batches: Iterable[object], inputs: Sequence[str], keyword: str) -> Arrays:
    """All batches, one after the other along the leading axis."""
    limit, taken = Limits.from_environment().data_bytes, 0
    parts: dict[str, list[np.ndarray]] = {}
    guard = UserCode(f"reading `{keyword}`", "give batches of numeric arrays")
    for batch in guard.items(lambda: batches):
        arrays = named_arrays(batch, inputs, f"`{keyword}`")
        if parts and arrays.keys() != parts.keys():
            raise InputError(
                f"`{keyword}` yields batches of {', '.join(parts)} and of {', '.join(arrays)}; "
                "give the same in all"
            )
        for name, values in arrays.items():
            parts.setdefault(name, []).append(values)
            taken += values.nbytes
        if taken > limit:
            raise InputError(
                f"`{keyword}` yields more than {in_bytes(limit)}; give a few hundred samples, or "
                f"{how_to_lift('data_bytes', taken)}"
            )
    if not parts:
        raise InputError(f"`{keyword}` yields no batch; give at least one")
    return {name: _joined(values, name, keyword) for name, values in parts.items()}


def _joined(arrays: Sequence[np.ndarray], name: str, keyword: str) -> np.ndarray:
    if not any(array.ndim for array in arrays):
        return np.stack(arrays)
    if not all(array.ndim for array in arrays):
        raise InputError(f"`{keyword}` yields '{name}' as single values and as arrays; give either")
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        shown = " and ".join(map(str, sorted(shapes)[:2]))
        raise InputError(
            f"`{keyword}` yields '{name}' in batches of different shapes after the first "
            f"dimension, {shown}; make them equal"
        )
    return np.concatenate(arrays)


def _archive(arrays: Arrays) -> bytes:
    """An .npz file of ``arrays``; InputError if one holds Python objects."""
    written = BytesIO()
    # As np.savez does, which would take an input called 'file' for its own argument.
    with zipfile.ZipFile(written, "w") as archive:
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise InputError(f"array '{name}' holds Python objects; give numbers")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return written.getvalue()
