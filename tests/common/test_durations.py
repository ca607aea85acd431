"""Durations as users read them."""

import pytest

from placer.common.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5 s"),
        (90.0, "90 s"),
        (600.0, "10 min"),
        (5400.0, "90 min"),
        (9000.0, "2.5 h"),
        (359996400.0, "4,166.6 days"),
    ],
)
def test_a_unit_that_people_can_read(seconds: float, text: str):
    assert duration_text(seconds) == text
