"""A part of the bundled data, for runs whose subject is not how accurate the result is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.conftest import DIGITS

IMAGES = {"calibration": 12, "evaluation": 32}
CALIBRATION, EVALUATION = "tests.few_digits:calibration", "tests.few_digits:evaluation"
FEW = ("--data", CALIBRATION, "--eval-data", EVALUATION)
# Without the comparison of calibration methods, a third of a short run's time.
FEW_BY_MINMAX = (*FEW, "--calibration", "minmax")


def calibration() -> Iterator[dict[str, np.ndarray]]:
    """The data source ``CALIBRATION``: images one by one."""
    return _one_by_one("calibration")


def evaluation() -> Iterator[dict[str, np.ndarray]]:
    """The data source ``EVALUATION``: images one by one, with their labels."""
    return _one_by_one("evaluation")


def copy_few_digits(folder: Path) -> None:
    """Put the bundled model into ``folder``, with the same data as .npz files."""
    shutil.copy(DIGITS / "digits.onnx", folder)
    for name in IMAGES:
        np.savez(folder / f"{name}.npz", **_arrays(name))


def _arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(DIGITS / f"{name}.npz") as arrays:
        return {key: arrays[key][: IMAGES[name]] for key in arrays.files}


def _one_by_one(name: str) -> Iterator[dict[str, np.ndarray]]:
    arrays = _arrays(name)
    for index in range(IMAGES[name]):
        yield {key: values[index : index + 1] for key, values in arrays.items()}
