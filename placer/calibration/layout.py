"""How the samples lie in an array of many: one after the other, stacked, or one for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.calibration.specs import InputSpec
from placer.errors import InputError


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of one input in one array.

    ``rows``: shape (samples, \\*shape of the input) or, where every sample is the same, (1, ...).
    ``dropped``: rows of the given array that fill no sample.
    """

    spec: InputSpec
    rows: np.ndarray
    dropped: int = 0

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        """The sample of that index, of the input's shape; the only one stands for all."""
        row: np.ndarray = self.rows[index if len(self.rows) > 1 else 0]
        return row


def samples_in(array: np.ndarray, spec: InputSpec, where: str) -> Samples:
    """Find the samples of ``spec`` in ``array``.

    For an input of shape (b, \\*rest), ``array`` has one of the shapes

    * (n * b, \\*rest): samples one after the other along the leading axis; rows beyond the last
      full sample are dropped;
    * (n, b, \\*rest): samples stacked along an axis of their own;
    * rest: one sample without its batch, if b is 1;
    * of one value, if the input has one value: the same in all samples.

    Raises InputError, which begins with ``where``, for any other shape and for an empty array.
    """
    if array.size == 0:
        raise InputError(f"{where}: array '{spec.name}' is empty; give at least one sample")
    shape = spec.shape
    if array.shape[1:] == shape and array.ndim == len(shape) + 1:
        return Samples(spec, array)
    if array.ndim == len(shape) and array.shape[1:] == shape[1:] and shape:
        count, rest = divmod(len(array), spec.batch)
        rows = array[: count * spec.batch].reshape(count, *shape)
        return Samples(spec, rows, rest)
    is_sample = spec.batch == 1 and array.shape == shape[1:]
    if is_sample or array.size == spec.size == 1:
        return Samples(spec, array.reshape(1, *shape))
    inner, turned = array.shape[1:], sorted(array.shape[1:])
    is_turned = turned in (sorted(shape), sorted(shape[1:])) and len(inner) > 1
    fix = "transpose it: its axes are in another order"
    if not is_turned:
        fix = "reshape, pad or crop it, or set the one shape that all samples have with `shapes`"
    raise InputError(
        f"{where}: array '{spec.name}' has shape {array.shape} but the model needs "
        f"{spec.layouts}; {fix}"
    )
