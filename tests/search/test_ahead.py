"""What is worked out while a trial runs changes no proposal, however far it gets."""

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from placer.quantization import Placement
from placer.search.ahead import RehearsingSearch
from placer.search.landscape import Cancelled, Landscape
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices
from placer.search.surrogate import SurrogateProposer
from tests.search.test_landscape import BRANCHES, landscape
from tests.search.test_surrogate import Engine

NET = (BRANCHES, "tensorrt", "float16")
TRIALS = 14


class StopsAfter:
    """``cancel`` of a landscape, set once it was asked ``count`` times in a rehearsal."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def silent(choices: Choices) -> float:
    del choices
    return 0.0


def nothing(placement: Placement) -> Outcome:
    del placement
    return Outcome()


def noise(land: Landscape) -> Callable[[Choices], float]:
    def of(choices: Choices) -> float:
        return sum(
            0.1 + 0.05 * (len(edge.node) % 3) for edge in land.space.placement(choices).edges
        )

    return of


def proposals(limit: float | None, steps: Sequence[int] | None) -> list[tuple[str, str]]:
    """Kinds and placements; ``steps``: how far each rehearsal gets, None without any."""
    land = landscape(*NET)
    engine = Engine(land, noise=None if limit is None else noise(land), limit=limit or 1.0)
    proposer = SurrogateProposer(land, 0, engine.noise, noise_limit=limit)
    records: list[TrialRecord] = []
    never = land.cancel
    for number in range(TRIALS):
        proposal = proposer.propose(records)
        if proposal is None:
            break
        if steps is not None:
            land.cancel = StopsAfter(steps[number % len(steps)])  # type: ignore[assignment]
            proposer.rehearse(records, proposal)
            land.cancel = never
        records.append(engine.trial(number, proposal))
    return [(record.kind, record.placement_id) for record in records]


@cache
def proposals_without_rehearsals(limit: float | None) -> list[tuple[str, str]]:
    return proposals(limit, None)


@pytest.mark.parametrize("limit", [None, 0.6])
@pytest.mark.parametrize("steps", [[10_000], [0], [1, 7, 2, 30, 3]])
def test_rehearsals_that_end_anywhere_change_no_proposal(limit: float | None, steps: list[int]):
    plain = proposals_without_rehearsals(limit)
    assert len(plain) > 6
    assert proposals(limit, steps) == plain


def predictions_for(proposals: range, limit: float | None, *, rehearses: bool) -> int:
    """How often changes are predicted for these proposals, besides in rehearsals."""
    land = landscape(*NET)
    engine = Engine(land, noise=None if limit is None else noise(land), limit=limit or 1.0)
    proposer = SurrogateProposer(land, 0, engine.noise, noise_limit=limit)
    records: list[TrialRecord] = []
    never, found = land.cancel, 0
    for number in range(proposals.stop):
        land.cancel = StopsAfter(10_000)  # type: ignore[assignment]
        proposal = proposer.propose(records)
        assert proposal is not None
        found += (10_000 - land.cancel.left) * (number in proposals)  # type: ignore[attr-defined]
        land.cancel = never
        if rehearses:
            proposer.rehearse(records, proposal)
        records.append(engine.trial(number, proposal))
    return found


# The first three proposals are given; the gate binds from the second on.
@pytest.mark.parametrize(
    ("limit", "proposals", "share"), [(None, range(3, 4), 0.5), (0.6, range(3, 7), 0.1)]
)
def test_after_a_rehearsal_less_is_left_to_predict(
    limit: float | None, proposals: range, share: float
):
    with_it = predictions_for(proposals, limit, rehearses=True)
    assert with_it < share * predictions_for(proposals, limit, rehearses=False)


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


def test_the_rehearsal_has_ended_when_the_trial_has():
    land = landscape(*NET)
    proposer = SurrogateProposer(land, 0, silent)
    placements: list[Placement] = []

    def evaluate(placement: Placement) -> Outcome:
        placements.append(placement)
        return Outcome()

    search = RehearsingSearch(proposer, evaluate)
    proposal = search.propose([])
    assert proposal is not None
    search.evaluate(land.space.placement(proposal.choices))
    assert placements == [land.space.placement(proposal.choices)]
    assert not land.cancel.is_set()


def test_what_fails_in_a_rehearsal_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    land = landscape(*NET)
    proposer = SurrogateProposer(land, 0, silent)
    search = RehearsingSearch(proposer, nothing)
    proposal = search.propose([])
    assert proposal is not None

    def fails(trials: Sequence[TrialRecord], running: Proposal) -> None:
        del trials, running
        raise ArithmeticError("in the rehearsal")

    monkeypatch.setattr(proposer, "rehearse", fails)
    with pytest.raises(ArithmeticError, match="in the rehearsal"):
        search.evaluate(land.space.placement(proposal.choices))


def test_a_cancelled_landscape_predicts_nothing_new():
    land = landscape(*NET)
    land.cancel.set()
    with pytest.raises(Cancelled):
        land.predict(land.state(land.space.floats))
