"""What is prepared while a trial runs: the same proposals however far that gets, made sooner."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from placer.quantization import Placement
from placer.search.ahead import EvaluateOnEngine, RehearsingSearch
from placer.search.landscape.landscape import Cancelled, Landscape
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.pools import NO_PLAN
from placer.search.proposals.round import Round
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices
from tests.search.landscapes import BRANCHES, landscape
from tests.search.simulated_engines import Engine

NET = (BRANCHES, "tensorrt", "float16")
# How long searches are, by the limit of their noise. Short ones reach proposals that are planned.
SHORT, LONG = 6, 14
LIMITS = [
    (None, SHORT),
    pytest.param(None, LONG, marks=pytest.mark.slow),
    pytest.param(0.6, LONG, marks=pytest.mark.slow),
]


def silent(choices: Choices) -> float:
    del choices
    return 0.0


def nothing(placement: Placement, on_built: Callable[[], None]) -> Outcome:
    del placement
    on_built()
    return Outcome()


def noise(land: Landscape) -> Callable[[Choices], float]:
    def of(choices: Choices) -> float:
        return sum(
            0.1 + 0.05 * (len(edge.node) % 3) for edge in land.space.placement(choices).edges
        )

    return of


def finished(placement: Placement, on_built: Callable[[], None]) -> Outcome:
    """A trial during which all is prepared that can be."""
    outcome = nothing(placement, on_built)
    for thread in threading.enumerate():
        if thread.name == "rehearsal":
            thread.join()
    return outcome


class Study:
    """Trials of one search; ``Engine`` predicts with a landscape of its own."""

    def __init__(self, limit: float | None, evaluate: EvaluateOnEngine) -> None:
        self._limit = limit
        self._evaluate = evaluate
        land = landscape(*NET)
        self._engine = Engine(land, noise=None if limit is None else noise(land), limit=limit or 1)
        self.records: list[TrialRecord] = []
        self.begin()

    def begin(self) -> None:
        """Begin to search, or go on as another process does."""
        self.proposer = SurrogateProposer(
            landscape(*NET), 0, self._engine.noise, noise_limit=self._limit
        )
        self.search = RehearsingSearch(self.proposer, self._evaluate)

    def run_trial(self) -> bool:
        """Whether there was something to try."""
        proposal = self.search.propose(self.records)
        if proposal is not None:
            self.search.evaluate(self.proposer.landscape.space.placement(proposal.choices))
            self.records.append(self._engine.trial(len(self.records), proposal))
        return proposal is not None

    @property
    def trials(self) -> list[tuple[str, str]]:
        return [(record.kind, record.placement_id) for record in self.records]


@cache
def trials_that_leave_time(limit: float | None, count: int) -> list[tuple[str, str]]:
    study = Study(limit, finished)
    while len(study.records) < count and study.run_trial():
        pass
    study.search.close()
    return study.trials


@pytest.mark.parametrize(("limit", "count"), LIMITS)
def test_proposals_are_the_same_however_long_trials_take(limit: float | None, count: int):
    study = Study(limit, nothing)
    while len(study.records) < count and study.run_trial():
        pass
    study.search.close()
    assert len(study.records) == count
    assert study.trials == trials_that_leave_time(limit, count)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "count"), LIMITS)
def test_a_search_that_is_killed_after_each_trial_proposes_the_same(
    limit: float | None, count: int
):
    study = Study(limit, nothing)
    while len(study.records) < count and study.run_trial():
        study.search.close()
        study.begin()
    assert study.trials == trials_that_leave_time(limit, count)


class StopsAfter:
    """``cancel`` of a landscape, set once it was asked ``count`` times."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def predictions_for(proposals: range, limit: float | None, *, rehearses: bool) -> int:
    """How often changes are predicted for these proposals, besides in rehearsals."""
    land = landscape(*NET)
    engine = Engine(land, noise=None if limit is None else noise(land), limit=limit or 1.0)
    proposer = SurrogateProposer(land, 0, engine.noise, noise_limit=limit)
    records: list[TrialRecord] = []
    never, found, plan = land.cancel, 0, NO_PLAN
    for number in range(proposals.stop):
        land.cancel = StopsAfter(10_000)  # type: ignore[assignment]
        proposal = proposer.propose(records, plan)
        assert proposal is not None
        found += (10_000 - land.cancel.left) * (number in proposals)  # type: ignore[attr-defined]
        land.cancel = never
        if rehearses:
            plan = proposer.rehearse(records, proposal)
        records.append(engine.trial(number, proposal))
        plan = plan if proposer.plans(records) else NO_PLAN
    return found


# The first three proposals are given; the gate binds from the second on.
@pytest.mark.parametrize(
    ("limit", "proposals", "share"),
    [
        (None, range(3, 4), 0.5),
        pytest.param(0.6, range(3, 7), 0.2, marks=pytest.mark.slow),
    ],
)
def test_after_a_rehearsal_less_is_left_to_predict(
    limit: float | None, proposals: range, share: float
):
    with_it = predictions_for(proposals, limit, rehearses=True)
    assert with_it < share * predictions_for(proposals, limit, rehearses=False)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 0.6])
def test_what_a_surprise_leads_to_is_prepared_for(limit: float | None):
    def left_to_predict(*, prepares: bool) -> int:
        land = landscape(*NET)
        engine = Engine(land, noise=None if limit is None else noise(land), limit=limit or 1.0)
        proposer = SurrogateProposer(land, 0, engine.noise, noise_limit=limit)
        records: list[TrialRecord] = []
        for number in range(4):
            proposal = proposer.propose(records)
            assert proposal is not None
            if prepares and number == 3:
                proposer.rehearse_surprises(records, proposal, NO_PLAN)
            records.append(engine.trial(number, proposal))
        measurement = records[-1].measurement
        assert measurement is not None
        slower = replace(measurement.ratio, median=1.2 * measurement.ratio.median)
        records[-1] = replace(records[-1], measurement=replace(measurement, ratio=slower))
        land.cancel = StopsAfter(10_000)  # type: ignore[assignment]
        proposer.propose(records)
        return 10_000 - land.cancel.left  # type: ignore[attr-defined]

    assert left_to_predict(prepares=True) < 0.5 * left_to_predict(prepares=False)


@pytest.mark.slow
def test_sites_are_looked_at_though_groups_are_expected_to_gain():
    def left_to_predict(*, prepares: bool) -> int:
        land = landscape(*NET)
        engine = Engine(land)
        knowledge = Knowledge(land, 0, silent, {}, True, None, 0)
        proposer = SurrogateProposer(land, 0, silent)
        records: list[TrialRecord] = []
        for number in range(5):
            proposal = proposer.propose(records)
            assert proposal is not None
            if prepares and number == 4:
                plan = proposer.rehearse(records, proposal)
                assert plan.keys() == {False}
                proposer.rehearse_surprises(records, proposal, plan)
            records.append(engine.trial(number, proposal))
        land.cancel = StopsAfter(10_000)  # type: ignore[assignment]
        Round(knowledge, records, math.inf, 5, explores=True).look_at_sites()
        return 10_000 - land.cancel.left  # type: ignore[attr-defined]

    assert left_to_predict(prepares=True) < 0.5 * left_to_predict(prepares=False)


def after_one_that_took(factor: float) -> tuple[Study, Proposal]:
    """A search whose last trial took ``factor`` times as long, and what it then proposes."""
    study = Study(None, finished)
    while len(study.records) < 5:
        study.run_trial()
    *before, last = study.records
    assert last.measurement is not None
    slower = replace(last.measurement.ratio, median=factor * last.measurement.ratio.median)
    measured = replace(last.measurement, ratio=slower)
    study.records[:] = [*before, replace(last, measurement=measured)]
    proposal = study.search.propose(study.records)
    assert proposal is not None
    return study, proposal


@pytest.mark.slow
def test_what_was_planned_is_of_no_use_after_a_surprise():
    study, proposal = after_one_that_took(3)
    study.begin()
    assert study.proposer.propose(study.records) == proposal


def test_what_changes_the_search_is_not_planned():
    land = landscape(*NET)
    engine = Engine(land, noise=noise(land), limit=0.6)
    proposer = SurrogateProposer(land, 0, engine.noise, noise_limit=0.6)
    space = land.space
    given = [
        Proposal(own, choices)
        for own, choices in (
            ("none", space.floats),
            ("default", space.defaults),
            ("everything", space.everything),
        )
    ]
    trials = [engine.trial(number, proposal) for number, proposal in enumerate(given)]
    assert not proposer.plans(trials[:1])  # What comes next is given.
    assert not proposer.plans(trials)  # Noise is to be measured first.
    fourth = proposer.propose(trials)
    assert fourth is not None
    trials.append(engine.trial(3, fourth))
    assert proposer.plans(trials)
    assert not proposer.plans([*trials[:3], replace(trials[3], error="the engine refuses it")])
    assert not proposer.plans([*trials[:2], replace(trials[2], running=True), trials[3]])


def test_noise_is_not_measured_in_a_rehearsal():
    land = landscape(*NET)
    asked = []
    engine = Engine(land, noise=noise(land), limit=0.6)

    def probe(choices: Choices) -> float:
        asked.append(choices)
        return engine.noise(choices)

    proposer = SurrogateProposer(land, 0, probe, noise_limit=0.6)
    records = [engine.trial(0, Proposal("everything", land.space.everything))]
    proposer.rehearse(records, Proposal("none", land.space.floats))
    assert not asked


def test_a_rehearsal_ends_when_nothing_more_is_to_be_proposed():
    land = landscape(*NET)
    proposer = SurrogateProposer(land, 0, silent)
    placements: list[Placement] = []

    def evaluate(placement: Placement, on_built: Callable[[], None]) -> Outcome:
        placements.append(placement)
        return nothing(placement, on_built)

    search = RehearsingSearch(proposer, evaluate)
    proposal = search.propose([])
    assert proposal is not None
    search.evaluate(land.space.placement(proposal.choices))
    search.close()
    assert placements == [land.space.placement(proposal.choices)]
    assert not land.cancel.is_set()


def test_what_fails_in_a_rehearsal_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    land = landscape(*NET)
    proposer = SurrogateProposer(land, 0, silent)
    rehearsed = threading.Event()

    def until_then(placement: Placement, on_built: Callable[[], None]) -> Outcome:
        outcome = nothing(placement, on_built)
        assert rehearsed.wait(60)
        return outcome

    def fails(trials: Sequence[TrialRecord], running: Proposal) -> None:
        del trials, running
        rehearsed.set()
        raise ArithmeticError("in the rehearsal")

    search = RehearsingSearch(proposer, until_then)
    proposal = search.propose([])
    assert proposal is not None
    monkeypatch.setattr(proposer, "rehearse", fails)
    search.evaluate(land.space.placement(proposal.choices))
    with pytest.raises(ArithmeticError, match="in the rehearsal"):
        search.close()


def test_a_cancelled_landscape_predicts_nothing_new():
    land = landscape(*NET)
    land.cancel.set()
    with pytest.raises(Cancelled):
        land.predict(land.state(land.space.floats))
