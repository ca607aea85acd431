"""The study: seeds, duplicates, gates, resuming. Evaluations are exact functions of placements."""

import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from sqlalchemy import event

from placer.errors import InputError
from placer.quantization import EMPTY, Placement
from placer.search.out_of_time import OutOfTime
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import Outcome, Skip, TrialRecord, by_latency
from placer.search.samplers import Proposal, RandomProposer
from placer.search.space import Choices
from placer.search.study.storage import open_storage
from placer.search.study.study import STUDY_NAME, Study
from tests.search.landscapes import landscape, space
from tests.search.outcomes import outcome


def cost(placement: Placement) -> Outcome:
    """Each quantized edge makes the model 2% faster."""
    return outcome(1 - 0.02 * len(placement.edges))


def strict(placement: Placement) -> Outcome:
    """Only placements that leave conv2 float meet the gate."""
    missed = any(edge.node == "conv2" and edge.input_index == 1 for edge in placement.edges)
    return outcome(1 - 0.02 * len(placement.edges), 5.0 if missed else -1.0)


def probe(choices: Choices) -> float:
    """conv2 is ten times as noisy as others."""
    placement = space().placement(choices)
    return sum(1.0 if edge.node == "conv2" else 0.1 for edge in placement.edges)


def open_study(path: Path, settings: dict[str, object] | None = None) -> Study:
    storage = open_storage(f"sqlite:///{path}", shared=False)
    return Study(storage, STUDY_NAME, space(), settings or {"model": "m"}, place=str(path.parent))


def run(path: Path, evaluate=cost, budget: int = 8, seed: int = 0) -> list[TrialRecord]:
    study = open_study(path)
    proposer = SurrogateProposer(landscape(), seed, probe)
    study.run(proposer, evaluate, budget=budget, deadline=None, on_trial=lambda _: None)
    return study.records()


def test_seeds_come_first_and_no_placement_is_evaluated_twice(tmp_path: Path):
    evaluated: list[str] = []

    def count(placement: Placement) -> Outcome:
        evaluated.append(placement.id)
        return cost(placement)

    records = run(tmp_path / "study.db", count)
    assert [r.kind for r in records[:3]] == ["none", "default", "everything"]
    assert len(evaluated) == len(set(evaluated)) == len(records)
    assert records[0].placement_id == EMPTY.id


@pytest.mark.slow
def test_the_search_ends_where_nothing_more_is_to_gain(tmp_path: Path):
    study = open_study(tmp_path / "study.db")
    proposer = SurrogateProposer(landscape(), 0, probe)
    why = study.run(proposer, cost, budget=1000, deadline=None, on_trial=lambda _: None)
    assert why == "converged"
    everything = space().placement(space().everything)
    assert by_latency(study.records())[0].ratio == cost(everything).ratio


def statements_to_store(path: Path, decisions: int) -> list[str]:
    """What is asked of the database for a trial with so many decisions."""
    storage, asked = open_storage(f"sqlite:///{path}", shared=False), list[str]()
    number = storage.create_new_study([optuna.study.StudyDirection.MINIMIZE], "study")
    choices = {f"group {i}": "float" for i in range(decisions)}
    options = optuna.distributions.CategoricalDistribution(["float", "quantized"])
    template = optuna.trial.create_trial(
        state=optuna.trial.TrialState.WAITING,
        params=choices,
        distributions=dict.fromkeys(choices, options),
    )
    storage.create_new_trial(number, template)  # Connections are opened with the first.
    event.listen(storage.engine, "before_cursor_execute", lambda *own: asked.append(own[2]))
    storage.create_new_trial(number, template)
    assert [trial.params for trial in storage.get_all_trials(number)] == [choices, choices]
    return asked


def test_all_decisions_of_a_trial_are_stored_at_once(tmp_path: Path):
    few = statements_to_store(tmp_path / "few.db", 2)
    many = statements_to_store(tmp_path / "many.db", 200)
    assert len(many) == len(few)


class Clock:
    """A clock that stands still but for what is added to ``now``."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def timed_run(path: Path, clock: Clock, seconds: Sequence[float], limit: float) -> int:
    """Trials in the study after a run of at most ``limit`` whose trials take ``seconds``."""
    left = list(seconds)

    def slow(placement: Placement) -> Outcome:
        clock.now += left.pop(0)
        return cost(placement)

    study = open_study(path)
    proposer, deadline = SurrogateProposer(landscape(), 0, probe), clock.now + limit
    why = study.run(proposer, slow, budget=None, deadline=deadline, on_trial=lambda _: None)
    assert why == "timeout"
    return len(study.records())


def test_no_trial_begins_that_would_end_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr("placer.search.study.study.time", clock)
    path = tmp_path / "study.db"
    assert timed_run(path, clock, [30, 20, 25, 10], limit=100) == 3
    assert clock.now == 175
    # What the trials of the study took is known when it goes on; the limit counts from then.
    assert timed_run(path, clock, [10], limit=29) == 3
    assert timed_run(path, clock, [10, 5, 5], limit=40) == 4


def test_trials_leave_time_for_what_follows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr("placer.search.study.study.time", clock)

    def slow(placement: Placement) -> Outcome:
        clock.now += 10
        return cost(placement)

    def kept(trials: Sequence[TrialRecord]) -> float:
        return 15.0 * len(trials)

    study, proposer = open_study(tmp_path / "study.db"), SurrogateProposer(landscape(), 0, probe)
    deadline = clock.now + 60
    why = study.run(
        proposer, slow, budget=None, deadline=deadline, on_trial=lambda _: None, kept_s=kept
    )
    # After two trials another one would end at 130, and 30 s are kept of 160; after three, 45.
    assert (why, len(study.records()), clock.now) == ("timeout", 2, 120)


def test_without_time_to_measure_noise_trials_tell_it(tmp_path: Path):
    def late(_: Choices) -> float:
        raise OutOfTime

    study = open_study(tmp_path / "study.db")
    why = study.run(
        SurrogateProposer(landscape(), 0, late),
        strict,
        budget=8,
        deadline=None,
        on_trial=lambda _: None,
    )
    found = study.records()
    assert why == "budget"
    assert any(trial.violation > 0 for trial in found)  # A gate binds.
    quantized = [trial for trial in by_latency(found) if trial.kind != "none"]
    assert quantized
    assert all(not trial.skipped for trial in found)


def probed_run(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """Why a run ends, and what noise it keeps in 90 s: a trial takes 2 s, a noise 20 s."""
    monkeypatch.setattr("placer.search.study.study.time", clock)
    study, deadline = open_study(path), clock.now + 90
    kept: list[str] = []

    def slow(choices: Choices) -> float:
        key = f"noise of {space().placement(choices).id}"

        def measure() -> float:
            clock.now += 20
            kept.append(key)
            return probe(choices)

        return study.keep(key, measure, deadline)

    def trial(placement: Placement) -> Outcome:
        assert clock.now + 2 <= deadline
        clock.now += 2
        missed = strict(placement).violation > 0
        return outcome(0.5, 5.0 if missed else -1.0, 2.0 if missed else 0.5)

    proposer = SurrogateProposer(landscape(), 0, slow)
    why = study.run(proposer, trial, budget=None, deadline=deadline, on_trial=lambda _: None)
    return why, kept


@pytest.mark.slow
def test_noise_is_not_measured_for_a_trial_that_would_begin_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    why, kept = probed_run(tmp_path / "study.db", clock, monkeypatch)
    # Three trials that every search begins with, then noise until the time is up.
    assert (why, len(kept), clock.now) == ("timeout", 5, 206)
    # What was measured stays known.
    _, again = probed_run(tmp_path / "study.db", clock, monkeypatch)
    assert not {*kept} & {*again}


def test_the_first_trial_begins_however_little_time_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr("placer.search.study.study.time", clock)
    assert timed_run(tmp_path / "study.db", clock, [30], limit=5) == 1


def test_random_sampling_ends_when_all_placements_are_tried(tmp_path: Path):
    study = open_study(tmp_path / "study.db")
    proposer = RandomProposer(space(), 0)
    study.run(proposer, cost, budget=99, deadline=None, on_trial=lambda _: None)
    tried = [record.placement_id for record in study.records()]
    groups = space().groups
    every = {
        space().placement(dict(zip([g.name for g in groups], layouts, strict=True))).id
        for layouts in itertools.product(*(group.layouts for group in groups))
    }
    assert sorted(tried) == sorted(every)


@pytest.mark.slow
def test_the_noisy_site_is_found_and_left_float(tmp_path: Path):
    records = run(tmp_path / "study.db", strict, budget=12)
    best = by_latency(records)[0]
    assert best.choices["conv-act:conv2"] == "float"
    rest = space().placement({**space().everything, "conv-act:conv2": "float"})
    assert best.ratio == cost(rest).ratio


def test_a_refused_candidate_is_a_failed_trial(tmp_path: Path):
    def refuse(placement: Placement) -> Outcome:
        if placement == EMPTY:
            return outcome(1.0)
        return Outcome(error="the engine refuses the model")

    records = run(tmp_path / "study.db", refuse, budget=5)
    assert len(records) == 5
    assert [r.error for r in records] == [None] + ["the engine refuses the model"] * 4
    assert [r.feasible for r in records] == [True] + [False] * 4


@pytest.mark.parametrize(
    ("stop_after", "budget"),
    [(4, 6), *(pytest.param(n, 12, marks=pytest.mark.slow) for n in (0, 1, 3, 7))],
)
def test_an_interrupted_study_resumes_to_the_same_trials(
    tmp_path: Path, stop_after: int, budget: int
):
    whole = run(tmp_path / "whole.db", budget=budget)
    left = stop_after

    def interrupted(placement: Placement) -> Outcome:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return cost(placement)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut.db", interrupted, budget)
    resumed = run(tmp_path / "cut.db", budget=budget)
    assert [(r.kind, r.choices, r.ratio) for r in resumed] == [
        (r.kind, r.choices, r.ratio) for r in whole
    ]


def test_a_trial_that_was_measured_but_not_told_when_killed_keeps_its_result(tmp_path: Path):
    whole = run(tmp_path / "study.db", budget=4)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.load_study(study_name=STUDY_NAME, storage=storage)
    told = study.trials[3]
    for attributes in ({**told.user_attrs, "placement": "measured"}, {"placement": "begun"}):
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=told.params,
                distributions=told.distributions,
                user_attrs=attributes,
            )
        )
    resumed = open_study(tmp_path / "study.db").records()
    assert resumed[:4] == whole
    assert [record.placement_id for record in resumed[4:]] == ["measured"]
    assert resumed[4].ratio == whole[3].ratio
    assert [trial.state.name for trial in study.trials[4:]] == ["COMPLETE", "FAIL"]


@pytest.mark.slow
def test_the_seed_fixes_the_trials(tmp_path: Path):
    first, again = run(tmp_path / "a.db", seed=3), run(tmp_path / "b.db", seed=3)
    assert [r.choices for r in first] == [r.choices for r in again]
    other = RandomProposer(space(), 4).propose([])
    assert other != RandomProposer(space(), 3).propose([])


def test_a_study_of_other_settings_is_refused(tmp_path: Path):
    open_study(tmp_path / "study.db", {"model": "sha256:aa", "seed": 0})
    with pytest.raises(InputError, match=r"other settings \(model: sha256:aa, now sha256:bb\)"):
        open_study(tmp_path / "study.db", {"model": "sha256:bb", "seed": 0})


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "study.db").write_text("not a database, just text " * 100)
    with pytest.raises(InputError, match="cannot be opened as a study database"):
        open_study(tmp_path / "study.db")


def test_a_database_that_another_program_holds_is_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("placer.search.study.tables.SQLITE_TIMEOUT_S", 0.1)
    open_study(tmp_path / "study.db")
    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="another process holds it: wait for that"):
            open_study(tmp_path / "study.db")


def test_what_was_skipped_before_a_trial_is_kept_with_it(tmp_path: Path):
    skip = Skip(space().everything, 0.5)

    class Skipping:
        def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
            return None if trials else Proposal("surrogate", space().floats, (skip,))

    path = tmp_path / "study.db"
    open_study(path).run(Skipping(), cost, budget=9, deadline=None, on_trial=lambda _: None)
    (record,) = open_study(path).records()
    assert record.skipped == (skip,)


def damage(path: Path, sql: str) -> None:
    """Change rows of trial 2, whose id in SQLite is 3."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(f"{sql} WHERE trial_id = 3").rowcount > 0


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (
            "UPDATE trial_user_attributes SET value_json = iif(key = 'outcome', '7', value_json)",
            "'outcome'",
        ),
        (
            "UPDATE trial_user_attributes SET value_json = iif(key = 'outcome', "
            "json_set(value_json, '$.measurement.ratio.median', 'fast'), value_json)",
            "'outcome.measurement.ratio.median'",
        ),
        (
            "UPDATE trial_user_attributes SET key = iif(key = 'kind', 'sort', key)",
            "'kind'",
        ),
        (
            "UPDATE trial_user_attributes SET value_json = iif(key = 'outcome', '{', value_json)",
            "its row in the database",
        ),
        (
            "UPDATE trial_params SET param_name = iif(param_name = 'conv-act:conv2', 'x', "
            "param_name)",
            "the layout of 'conv-act:conv2'",
        ),
    ],
)
def test_a_damaged_trial_is_named(tmp_path: Path, sql: str, what: str):
    path = tmp_path / "study.db"
    run(path, budget=4)
    damage(path, sql)
    with pytest.raises(InputError) as error:
        open_study(path).records()
    assert str(error.value) == (
        f"{tmp_path} holds a study of which trial 2 is damaged: {what} cannot be read; "
        "choose another `output` or `study`, or remove it"
    )
