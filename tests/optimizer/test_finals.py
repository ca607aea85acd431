"""The race of finalists, on an engine whose speeds are known exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.common.statistics import Ratio
from placer.engines.base import Compiled
from placer.optimizer.outcome.finals import Finalist, confirm, confirm_all, contenders, race
from placer.plan import Plan
from placer.search.records import TrialRecord
from tests.search.outcomes import measurement


@dataclass(frozen=True)
class Runner:
    """A model that takes ``seconds`` in every run."""

    seconds: float

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(inputs)

    def plan(self, inputs: Mapping[str, np.ndarray] | None = None) -> Plan:
        del inputs
        return Plan(())


class ExactEngine:
    """Times are the models' own, times a drift per round and 1% noise."""

    name = version = device = clock = "exact"
    estimated = False

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self.measured: list[int] = []

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> Compiled:
        return Runner(float(model.ir_version + len(base_dir.parts)))

    def measure(
        self, models: Sequence[Compiled], inputs: Mapping[str, np.ndarray], rounds: int
    ) -> np.ndarray:
        del inputs
        self.measured.append(len(models))
        seconds = np.array([m.seconds for m in models if isinstance(m, Runner)])
        drift = self._rng.uniform(1, 2, (rounds, 1))
        return seconds * drift * self._rng.normal(1, 0.01, (rounds, len(models)))


def finalist(name: str, *seconds: float) -> Finalist[str]:
    return Finalist(name, [Runner(s) for s in seconds])


def test_the_fastest_wins_and_clear_losers_leave_early():
    engine = ExactEngine()
    field = [finalist("slow", 1.2), finalist("fast", 0.9), finalist("close", 0.905)]
    assert race(engine, field, {}, rounds=30, races=3).entry in ("fast", "close")
    assert engine.measured[0] == 3
    assert max(engine.measured[1:], default=0) <= 2


def test_copies_count_together():
    engine = ExactEngine()
    field = [finalist("even", 1.0, 1.0, 1.0), finalist("lucky once", 0.9, 1.1, 1.1)]
    assert race(engine, field, {}, rounds=30, races=2).entry == "even"
    assert engine.measured[0] == 6


def trial(number: int, kind: str, ratio: float, low: float, high: float) -> TrialRecord:
    measured = replace(measurement(ratio), ratio=Ratio(ratio, low, high, 21))
    return TrialRecord(measured, number=number, kind=kind, choices={}, placement_id=str(number))


LUCKY = [trial(number, "near the best", 0.54, 0.51, 0.6) for number in (7, 8, 9)]


@pytest.mark.parametrize(
    ("low", "race"),
    [
        (0.59, [7, 8, 1]),  # Its interval reaches that of the fastest.
        (0.61, [7, 8]),
    ],
)
def test_the_default_races_unless_it_is_slower_for_sure(low: float, race: list[int]):
    default = trial(1, "default", 0.62, low, 0.63)
    assert [record.number for record in contenders([*LUCKY, default], 2)] == race


def test_a_default_among_the_fastest_races_once():
    default = trial(1, "default", 0.5, 0.49, 0.52)
    assert [record.number for record in contenders([default, *LUCKY], 2)] == [1, 7]
    assert contenders([], 2) == []


def test_a_single_finalist_needs_no_race():
    engine = ExactEngine()
    assert race(engine, [finalist("alone", 1.0)], {}, rounds=30, races=2).entry == "alone"
    assert engine.measured == []


def test_the_winner_must_beat_the_float_model_outside_the_noise():
    engine = ExactEngine()
    baseline = [Runner(1.0), Runner(1.0)]
    clear = confirm(engine, finalist("clear", 0.8, 0.8), baseline, {}, 40)
    assert clear.is_faster
    assert clear.seconds.shape == (40, 2)
    assert abs(clear.ratio.median - 0.8) < 0.01
    assert not confirm(engine, finalist("equal", 1.0, 1.0), baseline, {}, 40).is_faster
    assert not confirm(engine, finalist("slower", 1.1, 1.1), baseline, {}, 40).is_faster


class Estimator(ExactEngine):
    """An engine that estimates: the same for a model whenever it is asked."""

    estimated = True

    def measure(
        self, models: Sequence[Compiled], inputs: Mapping[str, np.ndarray], rounds: int
    ) -> np.ndarray:
        del inputs
        return np.array([[m.seconds for m in models if isinstance(m, Runner)]] * rounds)


@pytest.mark.parametrize(("seconds", "faster"), [(0.999, False), (0.995, False), (0.98, True)])
def test_a_tiny_estimated_gain_leaves_the_float_model(seconds: float, faster: bool):
    final = confirm(Estimator(), finalist("estimated", seconds), [Runner(1.0)], {}, 3)
    assert final.ratio.high < 1
    assert final.is_faster == faster


def test_several_are_confirmed_in_the_same_rounds():
    engine = ExactEngine()
    field, baseline = [finalist("one", 0.8, 0.8), finalist("other", 0.6, 0.6)], Runner(2.0)
    found = confirm_all(engine, field, [Runner(1.0), Runner(1.0)], {}, 40, [baseline])
    assert engine.measured == [7]
    assert [final.entry for final in found] == ["one", "other"]
    for final, seconds in zip(found, (0.8, 0.6), strict=True):
        # Columns: the float model, the finalist, the baseline.
        assert final.seconds.shape == (40, 3)
        assert abs(final.ratio.median - seconds) < 0.01
        assert abs(np.median(final.seconds[:, 2] / final.seconds[:, 0]) - 2) < 0.05
    assert (found[0].seconds[:, 0] == found[1].seconds[:, 0]).all()


class BusyEngine(ExactEngine):
    """An engine whose first measurements are worth nothing, as of a machine that others use."""

    def __init__(self, busy: int) -> None:
        super().__init__()
        self.busy = busy

    def measure(
        self, models: Sequence[Compiled], inputs: Mapping[str, np.ndarray], rounds: int
    ) -> np.ndarray:
        seconds = super().measure(models, inputs, rounds)
        if len(self.measured) <= self.busy:
            seconds *= self._rng.choice([1, 10], (rounds, len(models)))
        return seconds


@pytest.mark.usefixtures("quiet_rounds")
def test_rounds_that_disagree_too_much_are_taken_again():
    engine = BusyEngine(busy=2)
    final = confirm(engine, finalist("fast", 0.5), [Runner(1.0)], {}, rounds=21)
    assert len(engine.measured) == 3
    assert not final.inconclusive
    assert final.is_faster
    assert 0.49 < final.ratio.median < 0.51


@pytest.mark.usefixtures("quiet_rounds")
def test_a_result_whose_rounds_never_agree_is_inconclusive_not_faster():
    engine = BusyEngine(busy=99)
    final = confirm(engine, finalist("fast", 0.05), [Runner(1.0)], {}, rounds=21)
    assert len(engine.measured) == 3
    assert final.ratio.high < 1
    assert final.inconclusive
    assert not final.is_faster
