"""Labels from a file of their own, for data without any."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from placer.accuracy.labels import class_indices
from placer.calibration.sample import Sample
from placer.errors import InputError


def with_given_labels(samples: list[Sample], labels: str | PathLike[str] | None) -> list[Sample]:
    """``samples`` with the class indices of the file ``labels``, or with their own labels.

    Raises InputError for a file that is no array of a label for each row of the samples.
    """
    if labels is None:
        return samples
    path = Path(labels)
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as labels: {error}; give an .npy file") from error
    counts = [_rows(sample) for sample in samples]
    if not isinstance(rows, np.ndarray) or rows.ndim == 0:
        raise InputError(f"{path} is not an array of labels; give an .npy file, a label a row")
    if len(rows) != sum(counts):
        raise InputError(
            f"{path} has {len(rows)} labels for {sum(counts)} rows of data; give one for each row "
            "that fills a batch, in the same order"
        )
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return [_with_labels(sample, part) for sample, part in zip(samples, parts, strict=True)]


def _rows(sample: Sample) -> int:
    """Rows of the first input that has any; a scalar, such as a sampling rate, has none."""
    return next((values.shape[0] for values in sample.inputs.values() if values.ndim), 1)


def _with_labels(sample: Sample, labels: np.ndarray) -> Sample:
    try:
        return Sample(sample.inputs, class_indices(labels), sample.origin)
    except ValueError as error:
        raise InputError(f"the labels of {sample.origin} {error}") from error
