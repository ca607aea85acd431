"""Which trials are recovered after the search: by what they lack, and what they would gain."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from placer.accuracy.gates import Gate, GateResult
from placer.optimizer.outcome.near_misses import near_misses
from placer.optimizer.setup.task import Task
from placer.quantization import EMPTY
from placer.search.records import Judgement, TrialRecord
from tests.search.outcomes import measurement


def task(*gates: str) -> Task:
    engine = SimpleNamespace(estimated=False)
    return cast(Task, SimpleNamespace(engine=engine, gates=tuple(map(Gate.parse, gates))))


def trial(
    number: int, ratio: float, sqnr: float, *, missed: bool, placement: str = ""
) -> TrialRecord:
    """``sqnr`` in dB."""
    gate = GateResult("sqnr>=20", sqnr, "y", 1.0 if missed else -1.0)
    return TrialRecord(
        number=number,
        kind="surrogate",
        choices={},
        placement_id=placement or f"placement {number}",
        measurement=measurement(ratio),
        judgement=Judgement((gate,), 10 ** (-sqnr / 10)),
    )


FASTEST = trial(0, 0.8, 25, missed=False)


def found(gate: str, *records: TrialRecord) -> list[tuple[int, float]]:
    return [(r.number, round(lacks, 3)) for r, lacks in near_misses(task(gate), records)]


def test_the_fastest_come_first_and_those_too_slow_or_too_far_off_are_left_out():
    slow, far = trial(1, 0.795, 19, missed=True), trial(2, 0.4, 13.9, missed=True)
    near, nearest = trial(3, 0.5, 14.1, missed=True), trial(4, 0.6, 19.5, missed=True)
    assert found("sqnr>=20", FASTEST, slow, far, nearest, near) == [(3, 5.9), (4, 0.5)]


def test_one_that_misses_a_gate_on_latency_too_is_left_out():
    near = trial(1, 0.5, 19, missed=True)
    assert found("sqnr>=20", FASTEST, near) == [(1, 1.0)]
    assert near.measurement is not None
    late = replace(near.measurement, gates=(GateResult("fp16<=1", 1.2, "", 0.2),))
    assert found("sqnr>=20", FASTEST, replace(near, measurement=late)) == []


@pytest.mark.parametrize("base", [None, "bfloat16"])
def test_the_float_model_in_another_precision_has_nothing_to_recover(base: str | None):
    placement = EMPTY.computed_in(base).id
    assert found("sqnr>=20", FASTEST, trial(1, 0.5, 19, missed=True, placement=placement)) == []


def test_nothing_lacks_less_than_nothing():
    """What a gate on labels allows is learned, and trials about it may be on either side."""
    held, missed = trial(1, 0.9, 18, missed=False), trial(2, 0.5, 19, missed=True)
    assert found("top1_drop<=0.01", held, missed) == [(2, 0.0)]
