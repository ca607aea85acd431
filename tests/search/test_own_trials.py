"""Trials of a study of one process: written beside what comes next, and never lost by a fault."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest

from placer.errors import RunError
from placer.quantization import Placement
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal, RandomProposer
from placer.search.study.background_writes import BackgroundWrites
from placer.search.study.storage import open_storage
from placer.search.study.study import STUDY_NAME, Study
from placer.search.study.trial_store import TrialStore
from tests.search.landscapes import space
from tests.search.outcomes import outcome


def study_in(folder: Path) -> Study:
    storage = open_storage(f"sqlite:///{folder / 'study.db'}", shared=False)
    return Study(storage, STUDY_NAME, space(), {"model": "m"}, place=str(folder))


def ignored(record: TrialRecord) -> None:
    del record


def test_writes_are_done_in_order_and_waited_for():
    done: list[int] = []
    writes, may_begin = BackgroundWrites(), threading.Event()
    writes.add(may_begin.wait)
    for number in range(3):
        writes.add(lambda number=number: done.append(number))
    assert done == []
    may_begin.set()
    writes.wait()
    assert done == [0, 1, 2]


def test_what_may_wait_is_written_before_what_may_not():
    done: list[str] = []
    writes = BackgroundWrites()
    writes.add(lambda: done.append("begun"), after_s=600)
    writes.add(lambda: done.append("ended"))
    writes.wait()
    writes.add(lambda: done.append("begun again"), after_s=600)
    writes.wait()
    assert done == ["begun", "ended", "begun again"]


def test_nothing_waits_for_what_may_wait_where_trials_are_shorter_than_writes():
    writes, may_begin, ended = BackgroundWrites(), threading.Event(), threading.Event()
    writes.add(may_begin.wait)  # Meanwhile one trial begins and ends, and another begins.
    writes.add(lambda: None, after_s=600)
    writes.add(ended.set)
    writes.add(lambda: None, after_s=600)
    may_begin.set()
    assert ended.wait(60)
    writes.wait()


def test_a_write_that_fails_is_told_once_and_those_behind_it_are_not_done():
    done: list[str] = []
    writes, may_begin = BackgroundWrites(), threading.Event()

    def fails() -> None:
        may_begin.wait()
        raise RunError("the disk is full")

    writes.add(fails)
    writes.add(lambda: done.append("behind"))
    may_begin.set()
    with pytest.raises(RunError, match="the disk is full"):
        writes.wait()
    writes.wait()
    writes.add(lambda: done.append("later"))
    writes.wait()
    assert done == ["later"]


def test_what_a_search_is_told_of_trials_is_what_the_study_keeps(tmp_path: Path):
    told: list[list[TrialRecord]] = []

    class Listening(RandomProposer):
        def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
            told.append([*trials])
            return super().propose(trials)

    def evaluate(placement: Placement) -> Outcome:
        if len(placement.edges) % 3 == 0:
            return Outcome(error="the engine refuses the model")
        return outcome(1 - 0.02 * len(placement.edges), 5.0 if len(placement.edges) % 2 else -1.0)

    proposer = Listening(space(), 0)
    study_in(tmp_path).run(proposer, evaluate, budget=5, deadline=None, on_trial=ignored)
    kept = study_in(tmp_path).records()
    assert [len(trials) for trials in told] == [0, 1, 2, 3, 4]
    assert told[-1] == kept[:4]


def test_trials_are_read_from_the_database_once_and_known_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reads, read = list[int](), TrialStore.known

    def counted(store: TrialStore) -> list[TrialRecord]:
        reads.append(1)
        return read(store)

    monkeypatch.setattr(TrialStore, "known", counted)
    study, seen = study_in(tmp_path), list[tuple[int, int]]()

    def evaluate(placement: Placement) -> Outcome:
        seen.append((len(study.records()), len(reads)))
        return outcome(1 - 0.02 * len(placement.edges))

    assert study.records() == []
    assert len(reads) == 1  # Nobody has asked for a trial yet: another process may make some.
    study.run(RandomProposer(space(), 0), evaluate, budget=3, deadline=None, on_trial=ignored)
    assert seen == [(0, 2), (1, 2), (2, 2)]
    ended = study.records()
    assert len(reads) == 2
    assert ended == study_in(tmp_path).records()


def test_earlier_trials_are_in_the_database_while_the_next_runs(tmp_path: Path):
    study, seen = study_in(tmp_path), list[int]()

    def evaluate(placement: Placement) -> Outcome:
        url, before = f"sqlite:///{tmp_path / 'study.db'}", len(study.records())
        other = optuna.load_study(study_name=STUDY_NAME, storage=url)
        for _ in range(200):  # They are written beside this.
            kept = sum(trial.state.is_finished() for trial in other.get_trials(deepcopy=False))
            if kept == before:
                break
            time.sleep(0.05)
        seen.append(kept)
        return outcome(1 - 0.02 * len(placement.edges))

    study.run(RandomProposer(space(), 0), evaluate, budget=3, deadline=None, on_trial=ignored)
    assert seen == [0, 1, 2]


def test_a_trial_that_is_given_back_is_not_known(tmp_path: Path):
    study = study_in(tmp_path)

    def evaluate(placement: Placement) -> Outcome:
        del placement
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(RandomProposer(space(), 0), evaluate, budget=3, deadline=None, on_trial=ignored)
    assert study.records() == study_in(tmp_path).records() == []


def test_another_process_that_writes_to_the_study_is_told_of(tmp_path: Path):
    study = study_in(tmp_path)

    def evaluate(placement: Placement) -> Outcome:
        own = optuna.load_study(study_name=STUDY_NAME, storage=f"sqlite:///{tmp_path / 'study.db'}")
        own.add_trial(optuna.trial.create_trial(value=1.0))
        return outcome(1 - 0.02 * len(placement.edges))

    with pytest.raises(RunError, match="another process writes to"):
        study.run(RandomProposer(space(), 0), evaluate, budget=3, deadline=None, on_trial=ignored)


def test_noise_that_is_kept_is_there_for_another_run(tmp_path: Path):
    study = study_in(tmp_path)
    assert study.keep("noise of a", lambda: 0.25) == 0.25
    assert study.keep("noise of a", lambda: 0.5) == 0.25
    assert study.kept("noise of ") == 1
    study.records()
    assert study_in(tmp_path).attribute("noise of a") == 0.25
