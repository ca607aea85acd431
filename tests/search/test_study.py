"""The study: seeds, duplicates, gates, resuming. Evaluations are exact functions of placements."""

from collections.abc import Mapping
from pathlib import Path

import optuna
import pytest

from placer.errors import InputError
from placer.placement import EMPTY, Placement
from placer.search.proposals import bisect
from placer.search.study import STUDY_NAME, Outcome, Study, TrialRecord, by_latency
from tests.search.test_space import space


def cost(placement: Placement) -> Outcome:
    """Each quantized edge makes the model 2% faster."""
    return Outcome(ratio=1 - 0.02 * len(placement.edges), constraints={"sqnr>=15": -1.0})


def strict(placement: Placement) -> Outcome:
    """Only placements that leave conv2 float meet the gate."""
    missed = any(edge.node == "conv2" and edge.input_index == 1 for edge in placement.edges)
    return Outcome(cost(placement).ratio, {"sqnr>=15": 5.0 if missed else -1.0})


def noise() -> Mapping[str, float]:
    names = [group.name for group in space().groups]
    return {name: 1.0 if name == "conv-act:conv2" else 0.1 for name in names}


def run(path: Path, evaluate=cost, budget: int = 12, seed: int = 0) -> list[TrialRecord]:
    study = Study(path, space(), {"model": "m"}, seed)
    study.run(evaluate, noise, budget=budget, deadline=None, on_trial=lambda _: None)
    return study.records()


def test_seeds_come_first_and_no_placement_is_evaluated_twice(tmp_path: Path):
    evaluated: list[str] = []

    def count(placement: Placement) -> Outcome:
        evaluated.append(placement.id)
        return cost(placement)

    records = run(tmp_path / "study.db", count)
    assert [r.kind for r in records[:4]] == ["none", "default", "everything", "weighted only"]
    assert len(evaluated) == len(set(evaluated)) == len(records) == 12
    assert records[0].placement_id == EMPTY.id


def test_a_small_space_is_exhausted_before_the_budget(tmp_path: Path):
    study = Study(tmp_path / "study.db", space(), {}, 0)
    why = study.run(cost, noise, budget=1000, deadline=None, on_trial=lambda _: None)
    assert why == "exhausted"
    best = by_latency(study.records())[0]
    assert best.ratio == min(r.ratio for r in study.records())


def test_a_missed_gate_leaves_the_noisiest_group_float_first(tmp_path: Path):
    records = run(tmp_path / "study.db", strict, budget=20)
    kinds = [r.kind for r in records]
    assert "default without the 1 noisiest" in kinds or "default without the last layer" in kinds
    best = by_latency(records)[0]
    assert best.feasible
    assert best.choices["conv-act:conv2"] == "float"
    assert {r.feasible for r in records} == {True, False}


def test_a_refused_candidate_is_a_failed_trial(tmp_path: Path):
    def refuse(placement: Placement) -> Outcome:
        if placement == EMPTY:
            return Outcome(1.0, {"sqnr>=15": -1.0})
        return Outcome(None, error="the engine refuses the model")

    records = run(tmp_path / "study.db", refuse, budget=5)
    assert len(records) == 5
    assert [r.error for r in records] == [None] + ["the engine refuses the model"] * 4
    assert [r.feasible for r in records] == [True] + [False] * 4


@pytest.mark.parametrize("stop_after", [1, 3, 7, 10])
def test_an_interrupted_study_resumes_to_the_same_trials(tmp_path: Path, stop_after: int):
    whole = run(tmp_path / "whole.db")
    left = stop_after

    def interrupted(placement: Placement) -> Outcome:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return cost(placement)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut.db", interrupted)
    resumed = run(tmp_path / "cut.db")
    seeds = len(space().seeds())
    assert [r.placement_id for r in resumed[:seeds]] == [r.placement_id for r in whole[:seeds]]
    assert len(resumed) == len({r.placement_id for r in resumed}) == len(whole)


def test_a_trial_that_was_measured_but_not_told_when_killed_keeps_its_result(tmp_path: Path):
    whole = run(tmp_path / "study.db", budget=4)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.load_study(study_name=STUDY_NAME, storage=storage)
    told = study.trials[3]
    study.enqueue_trial(told.params)
    cut = study.ask(dict(told.distributions))
    for key, value in {**told.user_attrs, "placement": "measured"}.items():
        cut.set_user_attr(key, value)
    study.enqueue_trial(told.params)
    study.ask(dict(told.distributions))
    study.enqueue_trial(told.params)
    resumed = run(tmp_path / "study.db", budget=5)
    assert resumed[:4] == whole
    assert resumed[4].placement_id == "measured"
    assert resumed[4].ratio == whole[3].ratio
    states = [trial.state.name for trial in study.trials[4:]]
    assert states == ["COMPLETE", "FAIL", "FAIL"]


def test_the_seed_fixes_the_trials(tmp_path: Path):
    first, again = run(tmp_path / "a.db", seed=3), run(tmp_path / "b.db", seed=3)
    assert [r.choices for r in first] == [r.choices for r in again]
    other = run(tmp_path / "c.db", seed=4)
    assert [r.choices for r in first] != [r.choices for r in other]


def test_a_study_of_other_settings_is_refused(tmp_path: Path):
    Study(tmp_path / "study.db", space(), {"model": "sha256:aa", "seed": 0}, 0)
    with pytest.raises(InputError, match=r"another model \(sha256:aa, now sha256:bb\)"):
        Study(tmp_path / "study.db", space(), {"model": "sha256:bb", "seed": 0}, 0)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "study.db").write_text("not a database, just text " * 100)
    with pytest.raises(InputError, match="cannot be opened as a study database"):
        Study(tmp_path / "study.db", space(), {}, 0)


def test_bisection_finds_the_smallest_count_that_holds():
    for smallest in range(1, 21):
        outcomes: dict[int, bool] = {}
        while (count := bisect(outcomes, 20)) is not None:
            outcomes[count] = count >= smallest
        assert min([c for c, held in outcomes.items() if held], default=20) == smallest
        assert len(outcomes) <= 5
