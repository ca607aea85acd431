"""What is told of each network while a fit measures."""

import pytest

from placer.fitting import progress
from placer.fitting.progress import Progress


class Clock:
    """One that goes on by 20 s from one look to the next."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 20
        return self.now


def test_how_long_the_rest_takes_follows_from_networks_that_were_measured_now(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(progress, "time", Clock())
    told: list[str] = []
    of_twenty = Progress(20, told.append)
    of_twenty.begin()
    of_twenty.tell("short-0: 6 builds were measured before")
    for number in range(1, 20):
        of_twenty.begin()
        of_twenty.tell_measured(f"short-{number}")
    assert told[0] == "1 of 20, short-0: 6 builds were measured before"
    assert told[4] == "5 of 20, short-4"  # Four measured networks tell too little.
    assert told[5] == "6 of 20, short-5; about 5 min left"
    assert told[16] == "17 of 20, short-16; about 1 min left"
    assert told[18] == "19 of 20, short-18"
