"""Calls timed in turn, by a clock that ticks with them."""

import time

import numpy as np
import pytest

from placer.engines import rounds
from placer.engines.rounds import expected_seconds, time_calls


class Machine:
    """A clock on which a call after another model's takes 5 seconds, and one after its own 1."""

    def __init__(self) -> None:
        self.time, self.last = 0.0, ""

    def run(self, model: str) -> None:
        self.time += 1.0 if model == self.last else 5.0
        self.last = model


def test_a_short_call_is_timed_as_it_is_after_itself():
    machine = Machine()
    calls = [lambda: machine.run("one"), lambda: machine.run("other")]
    seconds = time_calls(calls, 3, lambda: machine.time)
    assert np.array_equal(seconds, np.ones((3, 2)))


def test_a_long_call_is_made_once_a_round_in_orders_that_are_balanced():
    made: list[str] = []

    def call(model: str) -> None:
        time.sleep(0.021)
        made.append(model)

    models = ("one", "other", "third")
    calls = [lambda model=model: call(model) for model in models]
    seconds = time_calls(calls, 2, time.perf_counter)
    assert seconds.shape == (2, 3)
    assert made[-6:] == ["one", "other", "third", "other", "third", "one"]


def test_what_a_model_takes_is_known_before_it_is_measured(monkeypatch: pytest.MonkeyPatch):
    """Seconds of the warm-up and of a round: a short call is made once more, and then repeated."""
    monkeypatch.setattr(rounds, "WARM_UP_S", 0.05)
    assert expected_seconds(1.0) == (2.0, 1.0)
    assert expected_seconds(0.01) == (0.01 + 0.05, 0.01 + 0.01)
    assert expected_seconds(0.0005) == (0.0005 + 0.05, 0.0005 + 4 * 0.0005)
