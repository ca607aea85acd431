"""What engines return as times."""

from types import SimpleNamespace

import numpy as np
import pytest

from placer.engines.times import measured_seconds
from placer.errors import RunError


def engine(returned: object, *, estimated: bool = False) -> SimpleNamespace:
    return SimpleNamespace(name="npu", estimated=estimated, measure=lambda *_: returned)


def test_times_are_given_as_an_array_of_rounds_and_models():
    seconds = measured_seconds(engine([[1, 2], [3, 4], [5, 6]]), ["float", "int8"], {}, 3)
    assert seconds.shape == (3, 2)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([[1.0, np.nan]], r"returned nan s as a time; report it to its authors"),
        ([[1.0, np.inf]], r"returned inf s as a time"),
        ([[1.0, -1.0]], r"returned -1 s as a time"),
        ([[1.0, 0.0]], r"returned 0 s as a time"),
        ([[1.0]], r"returned times of shape \(1, 1\) instead of \(1, 2\)"),
        (np.empty((0, 2)), r"returned times of shape \(0, 2\) instead of \(1, 2\)"),
        (None, r"returned times of shape \(\) instead of \(1, 2\)"),
        ("fast", r"returned no array of times"),
    ],
)
def test_what_is_no_time_is_an_error_that_names_the_engine(returned: object, said: str):
    with pytest.raises(RunError, match=rf"measure\(\) of engine npu {said}"):
        measured_seconds(engine(returned), ["float", "int8"], {}, 1)


def test_a_network_that_does_nothing_may_be_estimated_at_no_time():
    assert measured_seconds(engine([[0.0]], estimated=True), ["float"], {}, 1) == 0
