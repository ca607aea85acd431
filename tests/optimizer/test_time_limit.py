"""``--timeout``: a run ends within it with what it has found, or says what did not fit."""

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer.common.statistics import Ratio
from placer.errors import RunError
from placer.optimizer.observer import Observer, QuietObserver
from placer.optimizer.options.presets import load_preset
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.end_costs import (
    end_seconds,
    first_trial_s,
    kept_by,
    kept_for_the_end,
    lighter,
    recovery_s,
    with_affordable_end,
)
from placer.optimizer.outcome.missed_gates import TimeNeeds
from placer.optimizer.outcome.recovered import recover
from placer.optimizer.run import optimize
from placer.optimizer.setup import trial_setup
from placer.optimizer.setup.calibrated import calibration_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.optimizer.time_limit import TimeLimit, TimeSpent, plausible_age
from placer.optimizer.trials import search_time
from placer.optimizer.trials.costs import TrialCosts
from placer.optimizer.trials.search_time import SearchTime, TimedProposer
from placer.recovery.halves import SplitCalibration
from placer.results.parts import LatencyPart
from placer.results.result import Result
from placer.search.proposals.surrogate import SurrogateProposer, seed_proposals
from placer.search.records import Judgement, Measurement, TrialRecord
from tests.conftest import DIGITS, two_convs
from tests.optimizer.test_optimize import MODEL
from tests.search.landscapes import landscape
from tests.search.test_study import cost, open_study, probe

Save = Callable[..., Path]
CONVS = two_convs(channels=64, size=8, weight=1)


class Told(QuietObserver):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class Clock:
    """A clock that stands still but for what is added to ``now``."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def request_of(folder: Path, save: Save, **options: object) -> Request:
    data = np.random.default_rng(0).normal(size=(16, 64, 8, 8)).astype(np.float32)
    np.savez(folder / "data.npz", x=data)
    given = {"engine": "onnxruntime", "gates": ("sqnr>=5",), "output": folder / "out", **options}
    return Request(save(CONVS), data=str(folder / "data.npz"), **given)


def over(seconds: float = 1.0) -> TimeLimit:
    """A limit whose time has passed."""
    return TimeLimit(time.monotonic() - 100, seconds)


def trial(number: int, seconds: float, *, placement_id: str = "p") -> TrialRecord:
    """A trial that spent 2 s on measuring and 1 s on judging."""
    part = LatencyPart(median_ms=1.0, p10_ms=1.0, p90_ms=1.0, rounds=21)
    return TrialRecord(
        number=number,
        kind="surrogate",
        choices={},
        placement_id=placement_id,
        measurement=Measurement(Ratio(0.5, 0.5, 0.5, 21), part, seconds=2.0),
        judgement=Judgement(seconds=1.0),
        seconds=seconds,
    )


@pytest.fixture(scope="module")
def digits() -> Iterator[tuple[Task, TrialSetup]]:
    task = prepare(
        Request(
            MODEL,
            data=str(DIGITS / "calibration.npz"),
            evaluation_data=str(DIGITS / "evaluation.npz"),
            engine="onnxruntime",
        ),
        QuietObserver(),
    )
    task = replace(task, limit=over())
    yield task, set_up(task, QuietObserver())


def test_what_trials_took_tells_what_the_end_will_take(digits: tuple[Task, TrialSetup]):
    task, setup = digits
    costs = TrialCosts.of([trial(0, 8.0), trial(1, 7.0), trial(2, 9.0)], setup, task)
    # 8 - 2 - 1 s to build; a model is warmed up for 0.1 s, and 21 rounds take the rest of 1 s.
    assert costs == TrialCosts(5.0, 5.0, warm_up=0.1, round=0.9 / 21, judge=1.0, trial=9.0)
    quick = load_preset("quick")
    # Three finalists and the float model twice each, the file as it was written, and two plans.
    builds = (2 * (3 + 1) + 1 + 2) * 5.0
    races = 2 * 3 * 2 * (0.1 + 9 * 0.9 / 21)
    confirmed = 2 * 2 * (0.1 + 21 * 0.9 / 21)
    told = end_seconds(quick, costs, 3, task)
    assert told == pytest.approx(builds + races + confirmed + 2 * 1.0 + 2.0)
    # One finalist does not race.
    alone = end_seconds(quick, costs, 1, task)
    assert alone == pytest.approx((2 * 2 + 1 + 2) * 5.0 + confirmed + 2 * 1.0 + 2.0)


def test_trials_leave_a_full_end_its_time_and_never_less_than_the_shortest_one(
    digits: tuple[Task, TrialSetup],
):
    task, _ = digits
    costs = TrialCosts(1.0, 1.0, warm_up=0.1, round=0.01, judge=1.0, trial=3.0)
    full, *_, least = (end_seconds(own, costs, 5, task) for own in lighter(task.preset))
    within = [
        kept_for_the_end(replace(task, limit=TimeLimit(0.0, seconds)), costs, 5)
        for seconds in (None, 3600.0, full, 1.0)
    ]
    assert within == [0.0, full, 0.3 * full, least]
    assert least < 0.3 * full < full


def test_before_a_trial_was_measured_the_first_one_has_to_fit(digits: tuple[Task, TrialSetup]):
    task, setup = digits
    setup = replace(setup, float_build_s=2.0, float_run_s=0.5)
    samples = len(task.evaluation_data)
    # A model is warmed up by two calls, and one that takes so long is called once a round.
    first = 2.0 + 2 * (2 * 0.5 + 21 * 0.5) + samples * 0.5
    costs = TrialCosts.of([], setup, task)
    assert costs.trial == pytest.approx(first)
    kept = kept_by(task, setup)
    assert kept([]) == pytest.approx(kept_for_the_end(task, costs, 1) + first)


def test_calibration_leaves_a_first_trial_its_time(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch
):
    """A trial and the end seem to take 830 s, and a fifth is added."""
    request = request_of(tmp_path, save, evaluation_data=str(tmp_path / "data.npz"))
    task = replace(prepare(request, QuietObserver()), limit=TimeLimit(time.monotonic(), 1000.0))
    limits: list[TimeLimit] = []

    def calibrate(own: Task, observer: Observer) -> SplitCalibration:
        limits.append(own.limit)
        return calibration_of(own, observer)

    monkeypatch.setattr(trial_setup, "calibration_of", calibrate)
    set_up(task, QuietObserver(), first_trial_s=lambda *_: 830.0)
    assert limits == [replace(task.limit, kept_s=1.2 * 830.0)]
    assert first_trial_s(replace(task, limit=TimeLimit(0.0)), 1.0, 1.0) == 0.0


def test_the_end_is_made_with_the_effort_that_time_allows(digits: tuple[Task, TrialSetup]):
    task, setup = digits
    told = Told()
    records = [trial(0, 8.0), trial(1, 8.0)]
    late = with_affordable_end(task, setup, records, told).preset
    assert (late.finalists, late.copies, late.races, late.confirm_rounds) == (1, 1, 1, 11)
    assert told.stages == [
        "0.0 s are left: finalists 1, each built once, 11 rounds to confirm the result"
    ]
    unhurried = replace(task, limit=TimeLimit.begun(3600.0))
    assert with_affordable_end(unhurried, setup, records, told).preset == task.preset


def test_calibration_leaves_out_what_would_come_late(tmp_path: Path, save: Save):
    request = request_of(tmp_path, save, evaluation_data=str(tmp_path / "data.npz"))
    task, told = replace(prepare(request, QuietObserver()), limit=over()), Told()
    part = set_up(task, told).calibration
    # A sample of each half.
    assert (part.samples, part.method, part.requested_method) == (2, "minmax", "auto")
    assert told.warnings == [
        "the time limit left no time to calibrate on more than 2 of 8 samples",
        "the time limit left no time to compare calibration methods: ranges are by minmax",
    ]
    assert part.shortened == told.warnings


def test_a_slow_start_leaves_calibration_a_part_of_its_own(tmp_path: Path, save: Save):
    request = request_of(tmp_path, save, evaluation_data=str(tmp_path / "data.npz"))
    task = prepare(request, QuietObserver())
    late = TimeLimit(time.monotonic() - 500, 1000.0)  # Half of it has passed.
    part = set_up(replace(task, limit=late), QuietObserver()).calibration
    assert part.samples == 8
    assert late.span(0.2, 0.05) == pytest.approx(time.monotonic() + 50, abs=5)
    assert late.span(0.9, 0.05) == late.after(0.9)
    assert TimeLimit(0.0, 1.0).span(0.2, 0.05) == 1.0
    # What is kept for a first trial is no part of it.
    kept = TimeLimit(0.0, 100.0, kept_s=70.0)
    assert (kept.after(0.2), kept.after(0.5), kept.span(0.2, 0.9), kept.end) == (20, 30, 30, 100)
    assert TimeLimit(0.0).span(0.2, 0.05) == math.inf


def test_recovery_ends_with_the_time_limit(tmp_path: Path, save: Save):
    request = request_of(tmp_path, save, evaluation_data=str(tmp_path / "data.npz"))
    task = prepare(request, QuietObserver())
    setup, default = set_up(task, QuietObserver()), task.space.placement(task.space.defaults)
    found = recover(task, setup, default, ["bias-correction"], QuietObserver(), until=0.0)
    assert found.candidates is None
    assert [step.reason for step in found.part.steps] == ["the time limit left no time for it"]
    limited = replace(task, limit=TimeLimit(0.0, 50.0))
    assert recovery_s(limited) == 0.0
    asked = replace(limited, request=replace(request, recover=("auto",)))
    assert recovery_s(asked) == 10.0


def test_noise_takes_at_most_half_of_the_search_and_leaves_time_for_a_trial(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = Clock()
    monkeypatch.setattr(search_time, "time", clock)
    spent = SearchTime(200.0, lambda _: 20.0, [])
    spent.add(trial(0, 30.0))
    assert spent.probing_ends == 200 - 20 - 30
    for _ in range(4):
        with spent.of_noise():
            clock.now += 9
    # Another measurement may take as long as the longest.
    assert (spent.noise_s, spent.probing_ends) == (36.0, 200 - 20 - 30 - 9)
    with spent.of_noise():
        clock.now += 9
    assert spent.probing_ends == -np.inf  # 45 of 80 s.


@pytest.mark.slow
def test_a_proposal_ends_where_no_trial_would_fit_behind_it(tmp_path: Path):
    study, land = open_study(tmp_path / "study.db"), landscape()
    spent = SearchTime(time.monotonic() - 1, lambda _: 0.0, [])
    timed = TimedProposer(SurrogateProposer(land, 0, probe), [land], spent)
    why = study.run(timed, cost, budget=None, deadline=None, on_trial=lambda _: None)
    # What every search begins with needs no prediction.
    assert (why, [trial.kind for trial in study.records()]) == (
        "timeout",
        ["none", "default", "everything"],
    )
    assert land.until == np.inf


def test_the_default_comes_first_where_time_may_not_suffice_for_more(
    digits: tuple[Task, TrialSetup],
):
    task, _ = digits
    kinds = [[own.kind for own in seed_proposals(task.space, hurries=h)] for h in (False, True)]
    assert kinds == [["none", "default", "everything"], ["default", "none", "everything"]]


@pytest.mark.slow
def test_a_run_says_in_one_sentence_what_did_not_fit(tmp_path: Path, save: Save):
    request = request_of(tmp_path, save, timeout=1e-3)
    with pytest.raises(
        RunError, match=r"^no quantized candidate fits into 0\.001 s: start 0\.0 s, p"
    ) as e:
        optimize(request, QuietObserver())
    assert str(e.value).count("; ") == 1
    kept = Result.read(tmp_path / "out")
    assert {*kept.calibration.shortened} <= {*kept.warnings}
    assert (kept.trials, kept.calibration.samples) == ([], 2)
    assert (kept.budget.trials, kept.budget.stopped) == (None, "timeout")
    # A report and plans would be late and show nothing.
    assert not {*(tmp_path / "out").glob("plan*"), *(tmp_path / "out").glob("*.html")}
    # More time goes on with the same study.
    finished = optimize(replace(request, timeout=600.0, budget=2), QuietObserver())
    assert [t.kind for t in finished.trials] == ["default", "none"]
    assert finished.budget.stopped == "budget"
    # And calibrates anew, as no trial rests on what was done in haste.
    assert (finished.calibration.samples, finished.calibration.shortened) == (8, [])


def test_what_did_not_fit_is_told_with_a_limit_that_would_do():
    needs = TimeNeeds(5.0, {"start": 1.0, "calibration": 2.5}, trial=1.0, end=3.0)
    assert needs.sentence() == (
        "no quantized candidate fits into 5 s: start 1.0 s, calibration 2.5 s, a trial takes about "
        "1.0 s, to confirm and write a result 3.0 s; give `timeout` 9 or more"
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "fusion-model"])
def test_a_result_tells_what_the_time_was_spent_on(engine: str, tmp_path: Path, save: Save):
    gpu = "l4" if engine == "fusion-model" else None
    options = {"engine": engine, "gpu": gpu, "preset": "quick", "budget": 3, "timeout": 600.0}
    found = optimize(request_of(tmp_path, save, **options), QuietObserver()).budget
    assert [*found.spent_s] == [
        "start",
        "preparation",
        "calibration",
        "trials",
        "noise",
        "proposals",
        "finals",
        "noise sources",
        "total",
    ]
    *parts, total = found.spent_s.values()
    assert min(found.spent_s["trials"], found.spent_s["calibration"]) > 0
    assert sum(parts) <= total
    shown = json.loads((tmp_path / "out" / "result.json").read_text())["budget"]
    assert shown["spent_s"] == found.spent_s
    assert f"total {total:.1f} s" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_command_has_its_time_from_the_start_of_the_process():
    code = (
        "import time; from placer.optimizer.time_limit import TimeLimit, with_the_process\n"
        "import placer.optimizer.run\n"
        "apart = TimeLimit.begun(60.0)\n"
        "with with_the_process(): begun = TimeLimit.begun(60.0)\n"
        "print(apart.start - begun.start, time.process_time(), apart.busy, begun.busy)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    earlier, cpu, apart, busy = map(float, ran.stdout.split())
    # Imports take most of the process's time; a clock of the system ticks in hundredths.
    assert 0.5 * cpu < earlier
    assert (apart, 1 <= busy <= 5) == (1.0, True)


def test_an_age_that_no_new_process_has_is_not_believed():
    assert plausible_age(1.5, 1.2) == 1.5
    assert plausible_age(8.0, 1.2) == 8.0
    # The clock of the container's host, and one that began later than the process.
    assert plausible_age(86400.0, 1.2) == 1.2
    assert plausible_age(-5.0, 1.2) == 1.2


def test_parts_of_the_time_add_up(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr("placer.optimizer.time_limit.time", clock)
    limit = TimeLimit.begun(60.0)
    spent = TimeSpent(limit)
    with spent.on("finals"):
        clock.now += 12.5
    spent.add("trials", 30.0)
    clock.now += 40
    assert (limit.passed_s, limit.left_s, limit.end) == (52.5, 7.5, 160.0)
    assert spent.seconds == {"finals": 12.5, "trials": 30.0, "total": 52.5}
    clock.now += 40
    assert limit.left_s == 0.0


@pytest.mark.slow
def test_the_limit_that_is_advised_suffices_where_builds_take_long(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch
):
    """Each build takes 1.5 s more than ONNX Runtime's, as those of engines that try kernels do."""
    engine = type(prepare(request_of(tmp_path, save), QuietObserver()).engine)
    build, builds = engine.compile, []

    def compiled(*arguments: object, **options: object) -> object:
        builds.append(time.monotonic())
        time.sleep(1.5)
        return build(*arguments, **options)

    monkeypatch.setattr(engine, "compile", compiled)
    with pytest.raises(RunError, match=r"give `timeout` \d+ or more") as refused:
        optimize(request_of(tmp_path, save, timeout=4.0), QuietObserver())
    advised = float(re.findall(r"give `timeout` (\d+) or more", str(refused.value))[0])
    builds.clear()
    apart = request_of(tmp_path, save, timeout=advised, output=tmp_path / "again")
    optimize(apart, QuietObserver())
    assert len(builds) >= 4  # The float model, a candidate, and both again in the end.
    assert (tmp_path / "again" / "optimized.onnx").exists()
