"""Searches that benchmarks compare placer's with: how they take gates and failures, how they end.

On the engine here every quantized group takes a tenth off; one group, and a Softmax, which the
default leaves as it is, are too noisy for the gate.
"""

from collections.abc import Callable

import pytest

from benchmarks.search import runs
from benchmarks.search.measured_results import ends
from benchmarks.search.region_scheme import RegionProposer
from benchmarks.search.rivals import (
    CmaEsProposer,
    LocalProposer,
    QuietestProposer,
    StartedProposer,
    decided_by_default,
)
from placer.search.records import Outcome, TrialRecord, by_latency
from placer.search.samplers import Proposer
from placer.search.space import Choices
from tests.search.landscapes import space
from tests.search.outcomes import outcome

SPACE = space()
NOISY = ("conv-act:conv2", "softmax:softmax1")
RIVALS: dict[str, Callable[[], Proposer]] = {
    "tpe": lambda: runs.make_rival(runs.SEEDED_TPE, SPACE, 0),
    "cma-es": lambda: runs.make_rival(runs.CMA_ES, SPACE, 0),
    "local": lambda: runs.make_rival(runs.LOCAL, SPACE, 0),
    "regions": lambda: RegionProposer(SPACE, 0),
    "regions, default imported": lambda: RegionProposer(SPACE, 0, baseline=SPACE.defaults),
}


def quantized(choices: Choices) -> set[str]:
    return {name for name, layout in choices.items() if layout != SPACE.floats[name]}


def judged(choices: Choices) -> Outcome:
    missed = len(quantized(choices) & set(NOISY))
    return outcome(1 - 0.1 * len(quantized(choices)), violation=missed or -1.0)


def search(
    proposer: Proposer, evaluate: Callable[[Choices], Outcome] = judged, budget: int = 40
) -> list[TrialRecord]:
    found: list[TrialRecord] = []
    while len(found) < budget and (proposal := proposer.propose(found)) is not None:
        own = evaluate(proposal.choices)
        found.append(
            TrialRecord(
                number=len(found),
                kind=proposal.kind,
                choices=proposal.choices,
                placement_id=SPACE.placement(proposal.choices).id,
                measurement=own.measurement,
                judgement=own.judgement,
                error=own.error,
            )
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rival", RIVALS)
def test_rivals_look_for_the_fastest_that_meets_the_gate(rival: str):
    found = search(RIVALS[rival]())
    assert quantized(by_latency(found)[0].choices) == {"conv-act:conv0", "elementwise:add1"}
    assert len({trial.placement_id for trial in found}) == len(found)


@pytest.mark.parametrize(
    "rival",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("tpe", "cma-es") else name
        for name in RIVALS
    ],
)
def test_rivals_go_on_after_trials_that_fail(rival: str):
    def refused(choices: Choices) -> Outcome:
        if "softmax:softmax1" in quantized(choices):
            return Outcome(error="the engine refuses a quantized Softmax")
        return judged(choices)

    found = search(RIVALS[rival](), refused)
    assert any(trial.error for trial in found)
    assert quantized(by_latency(found)[0].choices) == {"conv-act:conv0", "elementwise:add1"}


def test_local_search_starts_from_what_meets_the_gate_though_it_is_slower():
    rival = StartedProposer(SPACE, runs.starts_of(SPACE), LocalProposer(SPACE, 0).propose)
    first = next(trial for trial in search(rival) if trial.kind == "local")
    assert len(quantized(first.choices)) == 1  # A change of the float model, not of the default.


def test_cma_es_is_told_that_what_misses_the_gate_is_slower_than_all():
    rival = CmaEsProposer(SPACE, 0, ())
    floats, default = search(RIVALS["local"](), budget=2)
    assert (floats.ratio, default.ratio) == (1.0, pytest.approx(0.7))
    assert (rival.value(floats), rival.value(default)) == (1.0, 1001.0)
    assert not rival.constraints(default)


def test_the_quietest_groups_are_bisected_and_then_the_others_are_added():
    assert decided_by_default(SPACE) == ["conv-act:conv0", "conv-act:conv2", "elementwise:add1"]
    noise = {"conv-act:conv0": 3.0, "conv-act:conv2": 1.0, "elementwise:add1": 2.0}
    found = search(QuietestProposer(SPACE, noise))
    # The quietest misses the gate, so bisection ends at none, and the others come one by one.
    assert [quantized(trial.choices) for trial in found] == [
        {"conv-act:conv2", "elementwise:add1"},
        {"conv-act:conv2"},
        {"elementwise:add1"},
        {"elementwise:add1", "conv-act:conv0"},
    ]


def test_a_search_that_did_not_use_its_budget_is_named():
    studies = [
        {"stopped": "budget", "evaluations": {"trials": 30}},
        {"stopped": "converged", "evaluations": {"trials": 12}},
        {"stopped": "failed: ValueError: no trial", "evaluations": {"trials": 3}},
    ]
    assert ends(studies) == "12, 3 (failed: ValueError: no trial)"
