"""Where estimates cannot tell candidates apart, the rules' default stands."""

from types import SimpleNamespace
from typing import cast

import pytest

from placer.optimizer.outcome.ties import tie_with_default
from placer.optimizer.setup.task import Task


def record(number: int, ratio: float, placement: str, feasible: bool = True) -> SimpleNamespace:
    return SimpleNamespace(number=number, ratio=ratio, placement_id=placement, feasible=feasible)


def task(error: float = 0.07, estimated: bool = True) -> Task:
    """A run whose rules' default is the placement ``default``."""
    space = SimpleNamespace(defaults={}, placement=lambda _choices: SimpleNamespace(id="default"))
    engine = SimpleNamespace(estimated=estimated, ratio_error=error)
    return cast(Task, SimpleNamespace(space=space, engine=engine))


DEFAULT = record(1, 0.60, "default")


@pytest.mark.parametrize(
    ("ratio", "is_tie"), [(0.597, True), (0.57, True), (0.55, False), (0.61, False)]
)
def test_a_gain_inside_the_estimates_error_is_a_tie(ratio: float, is_tie: bool):
    tie = tie_with_default(task(), [DEFAULT, record(2, ratio, "other")])
    assert (tie is not None) == is_tie


def test_the_tie_is_said_with_its_interval():
    tie = tie_with_default(task(), [DEFAULT, record(2, 0.597, "other")])
    assert str(tie) == (
        "trial 2 is estimated to take 0.995 of the time of the rules' default "
        "(80% interval 0.93 to 1.06), too close to 1 for the estimate to tell; "
        "the default is the result"
    )


def test_measured_latencies_and_defaults_that_miss_a_gate_tie_with_nothing():
    other = record(2, 0.597, "other")
    assert tie_with_default(task(estimated=False), [DEFAULT, other]) is None
    missed = record(1, 0.60, "default", feasible=False)
    assert tie_with_default(task(), [missed, other]) is None
