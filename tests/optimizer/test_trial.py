"""A trial on ONNX Runtime: what is cheaper is done first, and may rule the candidate out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import pytest

from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.optimizer.trials.layer_times import ProfiledLayers
from placer.optimizer.trials.proposer import make_landscapes
from placer.optimizer.trials.trial import TrialRunner
from placer.quantization import EMPTY, Placement
from placer.results.parts import LatencyPart
from placer.search.records import Judgement, Measurement, Outcome, TrialRecord
from tests.conftest import with_random_weights
from tests.optimizer.test_layer_cache import SMALL

MET, MISSED = "sqnr>=5", "sqnr>=200"
MISSED_FIRST = "a gate is missed, so it was not measured"


@dataclass(frozen=True)
class Setting:
    """One model under one gate."""

    task: Task
    bench: TrialSetup

    @property
    def default(self) -> Placement:
        """The pack's default placement."""
        return self.task.space.placement(self.task.space.defaults)

    def earlier(self, *, best: float, judging_s: float, measuring_s: float) -> TrialRecord:
        """A trial that held the gate, whose ratio to float is at most ``best``."""
        return TrialRecord(
            number=0,
            kind="default",
            choices=self.task.space.defaults,
            placement_id="of another placement",
            measurement=Measurement(
                Ratio(best, best / 2, best, 5),
                LatencyPart(median_ms=best, p10_ms=best, p90_ms=best, rounds=5),
                seconds=measuring_s,
            ),
            judgement=Judgement((GateResult(MET, 10.0, "y", -5.0),), 0.1, judging_s),
        )

    def run(
        self,
        placement: Placement,
        *earlier: TrialRecord,
        profiles: bool = False,
        judge_all: bool = False,
    ) -> Outcome:
        """One trial of a study that holds ``earlier``."""
        layers = ProfiledLayers(self.task, make_landscapes(self.task), ()) if profiles else None
        runner = TrialRunner(
            self.bench.candidates,
            self.bench.evaluator,
            self.bench.baseline,
            self.task.inputs,
            5,
            layers=layers,
            earlier=earlier,
            judge_all=judge_all,
        )
        return runner(placement)


def setting(folder: Path, gate: str) -> Setting:
    onnx.save(with_random_weights(SMALL), folder / "model.onnx")
    request = Request(
        folder / "model.onnx",
        engine="onnxruntime",
        preset="quick",
        calibration="minmax",
        gates=(gate,),
    )
    task = prepare(request, QuietObserver())
    return Setting(task, set_up(task, QuietObserver()))


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """The default placement holds the gate."""
    return setting(tmp_path_factory.mktemp("lenient"), MET)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Only the float model holds the gate."""
    return setting(tmp_path_factory.mktemp("strict"), MISSED)


def gates_of(outcome: Outcome) -> Mapping[str, bool]:
    return {gate.gate: gate.passed for gate in outcome.gates}


def test_the_first_candidates_are_judged_and_measured(lenient: Setting, strict: Setting):
    held, missed = lenient.run(lenient.default), strict.run(strict.default)
    for outcome in (held, missed):
        assert outcome.ruled_out is None
        assert outcome.ratio > 0
        ratio = outcome.measurement.ratio
        assert ratio.low <= outcome.ratio <= ratio.high
        assert outcome.measurement.latency.rounds == 5
        assert 0 < outcome.noise < 0.1
    assert gates_of(held) == {MET: True}
    assert gates_of(missed) == {MISSED: False}
    assert held.violation == 0 < missed.violation


def test_the_float_model_has_no_noise_and_holds_every_gate(strict: Setting):
    outcome = strict.run(EMPTY)
    assert outcome.noise == 0
    assert gates_of(outcome) == {MISSED: True}


def test_what_was_built_to_measure_its_noise_is_not_built_again_to_be_tried(
    lenient: Setting, monkeypatch: pytest.MonkeyPatch
):
    candidates, built = lenient.bench.candidates, list[Placement]()
    build = candidates.build
    monkeypatch.setattr(candidates, "build", lambda own: built.append(own) or build(own))
    lenient.run(EMPTY)  # The latest candidate is kept.
    built.clear()
    noise = lenient.bench.noise(lenient.task.space.defaults)
    assert lenient.run(lenient.default).noise == pytest.approx(noise, rel=0.5)
    assert built == [lenient.default]
    lenient.run(EMPTY)
    assert built == [lenient.default, EMPTY]


def test_of_a_large_model_no_second_candidate_is_held(
    tmp_path: Path, lenient: Setting, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("placer.optimizer.setup.candidates.KEPT_BYTES", 0)
    candidates, built = setting(tmp_path, MET).bench.candidates, list[Placement]()
    build = candidates.build
    monkeypatch.setattr(candidates, "build", lambda own: built.append(own) or build(own))
    for _ in range(2):
        candidates.compile(lenient.default)
    assert built == [lenient.default] * 2


def test_what_is_slower_than_the_best_is_not_judged_where_judging_takes_longer(lenient: Setting):
    fast = lenient.earlier(best=1e-4, judging_s=9, measuring_s=1)
    outcome = lenient.run(lenient.default, fast)
    assert outcome.ruled_out == (
        "slower than the best known (0.000 of float), so it was not judged"
    )
    assert outcome.ratio > 1e-4
    assert gates_of(outcome) == {}
    assert outcome.judgement is None


def test_for_a_front_what_is_slower_is_judged_too(lenient: Setting):
    fast = lenient.earlier(best=1e-4, judging_s=9, measuring_s=1)
    outcome = lenient.run(lenient.default, fast, judge_all=True)
    assert outcome.ruled_out is None
    assert outcome.ratio > 1e-4
    assert gates_of(outcome) == {MET: True}
    assert outcome.noise > 0


def test_what_misses_a_gate_is_not_measured_where_measuring_takes_longer(strict: Setting):
    known = strict.earlier(best=0.9, judging_s=1, measuring_s=9)
    outcome = strict.run(strict.default, known)
    assert outcome.ruled_out == MISSED_FIRST
    assert outcome.ratio is None
    assert gates_of(outcome) == {MISSED: False}
    assert outcome.noise > 0
    assert outcome.measurement is None


def test_what_might_be_the_best_is_judged_and_measured_in_either_order(lenient: Setting):
    for judging_s, measuring_s in ((1, 9), (9, 1)):
        slow = lenient.earlier(best=50.0, judging_s=judging_s, measuring_s=measuring_s)
        outcome = lenient.run(lenient.default, slow)
        assert outcome.ruled_out is None
        assert outcome.ratio > 0
        assert gates_of(outcome) == {MET: True}


def test_slower_is_not_ruled_out_where_judging_comes_first(lenient: Setting):
    """What holds the gate is measured: its latency is worth knowing."""
    fast = lenient.earlier(best=1e-4, judging_s=1, measuring_s=9)
    outcome = lenient.run(lenient.default, fast)
    assert outcome.ruled_out is None
    assert outcome.ratio > 1e-4


def test_layers_of_unknown_time_are_measured_although_a_gate_is_missed(strict: Setting):
    known = strict.earlier(best=0.9, judging_s=1, measuring_s=9)
    outcome = strict.run(strict.default, known, profiles=True)
    assert outcome.ruled_out is None
    assert outcome.ratio > 0
    assert gates_of(outcome) == {MISSED: False}
    assert outcome.measurement.layers
    assert all(time >= 0 for time in outcome.measurement.layers.values())


def test_the_float_model_is_never_the_best_that_rules_others_out(strict: Setting):
    """Before a quantized candidate holds the gates, everything is judged and measured."""
    floats = strict.earlier(best=1.0, judging_s=1, measuring_s=9)
    floats = replace(floats, placement_id=EMPTY.id)
    outcome = strict.run(strict.default, floats)
    assert outcome.ruled_out is None
    assert outcome.ratio > 0
