"""What single inferences took, told from running averages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.engines.openvino.profile import usual_us


def _means(times: list[int]) -> list[float]:
    """As OpenVINO tells them: of all inferences so far, cut to whole microseconds."""
    return [float(sum(times[:n]) // n) for n in range(1, len(times) + 1)]


def test_the_first_inferences_do_not_count() -> None:
    assert usual_us(_means([16000, 400, *[100] * 15])) == pytest.approx(100, abs=1)


def test_an_interrupted_inference_does_not_count() -> None:
    times = [100] * 17
    times[8] += 4000
    assert _means(times)[-1] > 300
    assert usual_us(_means(times)) == pytest.approx(100, abs=2)


def test_a_layer_that_never_takes_a_microsecond_takes_none() -> None:
    assert usual_us([0.0] * 10) == 0


@given(
    usual=st.integers(0, 2000),
    first=st.lists(st.integers(0, 50000), min_size=2, max_size=2),
    interrupted=st.dictionaries(st.integers(2, 16), st.integers(1000, 20000), max_size=4),
)
def test_the_usual_time_is_told_to_microseconds(
    usual: int, first: list[int], interrupted: dict[int, int]
) -> None:
    times = np.array([*first, *[usual] * 15])
    for place, extra in interrupted.items():
        times[place] += extra
    told = usual_us(_means(times.tolist()))
    # An interruption ends one row of inferences and begins another: each known to a mean's cut.
    assert told == pytest.approx(usual, abs=1 + 2 * len(interrupted))
