"""Data that functions of Python make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placer.calibration.dataset import load_dataset
from placer.errors import InputError
from placer.model import Model
from tests.calibration.conftest import error_of, images, numbers, saved

MODULE = """
import numpy as np

number = 3
calls = []

def batch(value):
    return np.full((1, 3, 2, 2), value, np.float32)

def good():
    for value in range(4):
        yield {"x": batch(value), "labels": [value]}

def unlabelled():
    return [{"x": batch(value)} for value in range(4)]

def shuffled():
    calls.append(0)
    return [{"x": batch(value + len(calls))} for value in range(4)]

def once():
    calls.append(0)
    return [{"x": batch(value)} for value in range(4 if len(calls) == 1 else 2)]

def raises():
    yield {"x": batch(0)}
    raise KeyError("label file")

def numbers():
    return 5

def arrays():
    return [batch(0)[0], *map(batch, range(1, 4))]  # The first has no axis for the batch.

def loader():
    both = [np.concatenate([batch(value), batch(value + 1)]) for value in (0, 2)]
    return [[both[0], [0, 1]], (both[1], np.array([2, 3]))]

def several():
    return [[batch(0)] * 3]

def renamed():
    return [{"image": batch(0)}]

def misshapen():
    return [{"x": batch(0)[0, 0]}]

def ragged():
    return [{"x": [[1.0], [1.0, 2.0]]}]

def mislabelled():
    return [{"x": batch(0), "labels": [1, 2]}]

def empty():
    return []
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name of its own per test."""
    name = f"user_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_broken.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # Restores the path afterwards.
    return name


def test_function_is_called_again_for_each_pass(image: Model, user_module: str) -> None:
    dataset = load_dataset(f"{user_module}:good", image)
    assert len(dataset) == 4
    assert dataset.has_labels
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3]
    assert [int(sample.labels[0]) for sample in dataset if sample.labels is not None] == numbers(
        dataset
    )


def test_batches_of_a_function_may_have_any_size_and_no_names(
    image: Model, user_module: str
) -> None:
    dataset = load_dataset(f"{user_module}:loader", image)  # As PyTorch's DataLoader gives them.
    labels = [sample.labels.tolist() for sample in dataset if sample.labels is not None]
    assert numbers(dataset) == [0, 1, 2, 3]
    assert labels == [[0], [1], [2], [3]]
    assert numbers(load_dataset(f"{user_module}:arrays", image)) == [0, 1, 2, 3]


def test_a_folder_of_single_samples(image: Model, tmp_path: Path) -> None:
    for value in range(3):
        np.save(tmp_path / f"{value}.npy", images(1, first=value)[0])
    assert numbers(load_dataset(str(tmp_path), image)) == [0, 1, 2]


def test_a_path_wins_over_a_function(image: Model, user_module: str, tmp_path: Path) -> None:
    folder = tmp_path / f"{user_module}:good"
    folder.mkdir()
    saved(folder / "data.npz", x=images(1, first=9))
    assert numbers(load_dataset(f"{user_module}:good", image)) == [9]


def test_function_and_file_of_the_same_samples_have_one_fingerprint(
    image: Model, user_module: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "data.npz", x=images(4))
    function = load_dataset(f"{user_module}:unlabelled", image)
    assert function.fingerprint == load_dataset(source, image).fingerprint
    assert function.fingerprint != load_dataset(f"{user_module}:good", image).fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shuffled", "{source}, batch 0, sample 0 differs from the first pass over {source}; "),
        ("once", "{source} gave fewer samples than in its first pass; "),
    ],
)
def test_functions_that_change_between_passes(
    image: Model, user_module: str, name: str, message: str
) -> None:
    source = f"{user_module}:{name}"
    dataset = load_dataset(source, image)
    with pytest.raises(InputError) as caught:
        list(dataset)
    fix = "make it give the same samples each time"
    assert str(caught.value) == message.format(source=source) + fix


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "module '{m}' has no function 'absent'; correct {m}:absent"),
        ("number", "'number' of module '{m}' has type int; make it a function"),
        (
            "raises",
            "{m}:raises failed with KeyError: 'label file'; correct the function ({m}.py, line 27)",
        ),
        (
            "numbers",
            "{m}:numbers failed with TypeError: 'int' object is not iterable; correct the function",
        ),
        (
            "several",
            "{m}:several, batch 0 yields sequences of 3; the model's inputs are: x; give these in "
            "order, and labels behind them if there are any",
        ),
        (
            "renamed",
            "{m}:renamed, batch 0 has arrays named: image; the model's inputs are named: x; "
            "rename the arrays",
        ),
        (
            "misshapen",
            "{m}:misshapen, batch 0: array 'x' has shape (2, 2) but the model needs "
            "(N, 3, 2, 2) or (N, 1, 3, 2, 2); reshape, pad or crop it, or set the one shape that "
            "all samples have with `shapes`",
        ),
        (
            "mislabelled",
            "{m}:mislabelled, batch 0: 'labels' has shape (2,) but array 'x' has 1 rows; give one "
            "label per row",
        ),
        ("empty", "{m}:empty holds no full batch (it gave no sample); give more data"),
    ],
)
def test_functions_that_are_refused(
    image: Model, user_module: str, name: str, message: str
) -> None:
    assert error_of(f"{user_module}:{name}", image) == message.format(m=user_module)


def test_ragged_arrays_of_a_function(image: Model, user_module: str) -> None:
    message = error_of(f"{user_module}:ragged", image)
    assert message.startswith(
        f"reading 'x' of {user_module}:ragged, batch 0 failed with ValueError"
    )
    assert message.endswith("; give numeric arrays")


def test_modules_that_cannot_be_imported(image: Model, user_module: str) -> None:
    assert error_of("no_such_module:data", image) == (
        "importing module 'no_such_module' of no_such_module:data failed with "
        "ModuleNotFoundError: No module named 'no_such_module'; correct or install it"
    )
    assert "No module named 'no_such_package'" in error_of(f"{user_module}_broken:data", image)
