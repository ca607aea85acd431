"""Data in memory: arrays, and batches from anything that yields them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest

from placer.errors import InputError
from placer.optimizer.options.given_data import packed

IMAGES = np.arange(12, dtype=np.float32).reshape(4, 3)


def read(data: object, *inputs: str) -> dict[str, np.ndarray]:
    """What the .npz file of ``data`` holds, for a model with these inputs."""
    return dict(np.load(BytesIO(packed(data, lambda: inputs, "data"))))


def refused(data: object, *inputs: str) -> str:
    with pytest.raises(InputError) as caught:
        packed(data, lambda: inputs, "data")
    return str(caught.value)


class Tensor:
    """As a PyTorch tensor: no NumPy array, but readable as one, and iterable by rows."""

    def __array__(self, dtype: None = None, copy: None = None) -> np.ndarray:
        return IMAGES

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(IMAGES)


class Loader:
    """As a PyTorch DataLoader of a labelled dataset: pairs of a batch and its labels."""

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        for first in (0, 2):
            yield [IMAGES[first : first + 2], np.array([first, first + 1])]


def test_a_loader_yields_inputs_in_order_and_labels() -> None:
    found = read(Loader(), "image")
    np.testing.assert_array_equal(found["image"], IMAGES)
    np.testing.assert_array_equal(found["labels"], [0, 1, 2, 3])


@pytest.mark.parametrize(
    "data",
    [
        IMAGES,
        Tensor(),
        {"image": IMAGES},
        [IMAGES[:1], IMAGES[1:]],
        ({"image": IMAGES},),
        iter([[IMAGES]]),
    ],
    ids=[
        "an array",
        "a tensor",
        "arrays",
        "a list of batches",
        "mappings",
        "an iterator of sequences",
    ],
)
def test_ways_to_give_one_input(data: object) -> None:
    found = read(data, "image")
    assert list(found) == ["image"]
    np.testing.assert_array_equal(found["image"], IMAGES)


def test_numbers_are_stacked() -> None:
    found = read([(IMAGES[:2], 16000), (IMAGES[2:], 8000)], "frame", "rate")
    np.testing.assert_array_equal(found["rate"], [16000, 8000])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (3, "`data` is of type int; give a path, arrays by input name or an iterable of batches"),
        ([], "`data` yields no batch; give at least one"),
        ([IMAGES], "`data` has one array but the model's inputs are: a, b; give arrays by input"),
        ([(IMAGES,)], "`data` yields sequences of 1; the model's inputs are: a, b; give these in"),
        ([{"a": IMAGES}, {"b": IMAGES}], "`data` yields batches of a and of b; give the same in"),
        ([{"a": IMAGES}, {"a": IMAGES.T}], "yields 'a' in batches of different shapes after"),
        ([{"a": [object()]}], "array 'a' holds Python objects; give numbers"),
        ((1 / 0 for _ in "a"), "reading `data` failed with ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_refused(data: object, sentence: str) -> None:
    assert sentence in refused(data, "a", "b")


def test_a_loader_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_MAX_DATA_BYTES", "1000")
    endless = itertools.repeat(IMAGES)
    assert "yields more than 1000 bytes; give a few hundred samples" in refused(endless, "image")


def test_rows_of_different_lengths_are_no_array() -> None:
    assert "reading `data` failed with ValueError" in refused({"image": [[1, 2], [3]]}, "image")


def test_labels_are_single_values_or_arrays() -> None:
    batches = [[IMAGES[:1], 3], [IMAGES[:1], [3]]]
    assert "yields 'labels' as single values and as arrays" in refused(batches, "image")
