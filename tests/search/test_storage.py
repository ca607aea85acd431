"""Databases that cannot be opened, are full, are damaged, or go away while they are in use.

Points 10, 13 and 14 of the attacks on state and sharing.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from pydantic import NonNegativeFloat
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from placer.errors import InputError, RunError
from placer.quantization import Placement
from placer.search.records import Outcome
from placer.search.samplers import Proposal, RandomProposer
from placer.search.study import database_retries
from placer.search.study.database_errors import reason_of
from placer.search.study.database_retries import DatabaseRetries
from placer.search.study.storage import open_storage, open_study
from placer.search.study.study import Study
from placer.search.study.trial_store import Claim, TrialStore
from tests import postgresql
from tests.conftest import Finished
from tests.search.landscapes import space
from tests.search.outcomes import outcome

Placer = Callable[..., Finished]


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    why = postgresql.unavailable()
    if why is not None:
        pytest.skip(why)
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql.restartable() as found:
        yield found


def test_with_a_dead_server_the_advice_is_about_the_server():
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match="start the server, or correct its address") as raised:
        open_storage("postgresql://me:secret@127.0.0.1:9/nothing", shared=True)
    assert "secret" not in str(raised.value)
    assert "output" not in str(raised.value)


def test_a_worker_makes_no_database(placer: Placer):
    ended = placer("worker", "--study", "s", "--storage", "sqlite:///missing.db")
    assert ended.code == 2
    assert "sqlite:///missing.db holds no studies; begin the study with" in ended.err
    assert not Path("missing.db").exists()


def test_a_worker_makes_no_tables_in_a_database_of_something_else(placer: Placer):
    with closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    before = Path("other.db").read_bytes()
    ended = placer("worker", "--study", "s", "--storage", "sqlite:///other.db")
    assert ended.code == 2
    assert "sqlite:///other.db holds no studies; begin the study with" in ended.err
    assert Path("other.db").read_bytes() == before


KILLED_AT_TABLE = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from placer.search.study.storage import open_storage

def count(connection, cursor, statement, *others):
    count.tables += statement.lstrip().startswith("CREATE TABLE")
    if count.tables == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

count.tables = 0
event.listen(Engine, "before_cursor_execute", count)
open_storage("sqlite:///study.db", shared=False)
"""


@pytest.mark.parametrize("table", [pytest.param(2, marks=pytest.mark.slow), 9])
def test_a_process_killed_while_it_makes_tables_leaves_no_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: int
):
    monkeypatch.chdir(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED_AT_TABLE, str(table)], check=False)
    assert killed.returncode == -9
    open_study(open_storage("sqlite:///study.db", shared=False), "s")
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
from placer.cli.app import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [20_000, 90_000])
def test_a_disk_that_is_full_while_the_study_is_made_ends_in_one_sentence_without_sql(
    size: int, tmp_path: Path, save: Callable[..., Path]
):
    """Files may not grow beyond ``size``, which SQLite is told as it is told of a full disk."""
    model = save(
        """<ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,8,8] x) => (float[1,8,8,8] y) <float[8,8,3,3] w = {0.1}> {
          c = Conv <pads = [1, 1, 1, 1]> (x, w)
          y = Relu(c)
        }"""
    )
    out = tmp_path / "out"
    arguments = ("optimize", model, "--engine", "onnxruntime", "--budget", "2", "-o", out)
    # Modules compiled meanwhile would be cut off, too, and stay.
    code = [sys.executable, "-B", "-c", FULL_DISK, str(size)]
    ended = subprocess.run(
        [*code, *map(str, arguments), "--no-cache", "--preset", "quick", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 1
    (line,) = [one for one in ended.stderr.splitlines() if not one.startswith("warning")]
    assert "the disk is full or refuses to write; free some space" in line
    assert "SQL" not in line
    assert not out.exists()


def evaluate(placement: Placement) -> Outcome:
    time.sleep(0.5)
    return outcome(1 - 0.02 * len(placement.edges))


def shared_study(url: str, name: str) -> Study:
    storage = open_storage(url, shared=True)
    return Study(storage, name, space(), {"model": "m"}, shared=True, place=f"study '{name}'")


def search(study: Study, budget: int) -> str:
    proposer = RandomProposer(space(), 0)
    return study.run(proposer, evaluate, budget=budget, deadline=None, on_trial=lambda _: None)


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_restart_of_the_server_and_cut_connections_lose_no_trial(server: postgresql.Server):
    study = shared_study(server.url, "restarted")

    def disturb() -> None:
        for _ in range(2):
            time.sleep(0.7)
            server.stop()
            time.sleep(1.5)
            server.start()
        own = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
        for _ in range(10):
            time.sleep(0.1)
            with own.connect() as connection:
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    )
                )
        own.dispose()

    thread = Thread(target=disturb)
    thread.start()
    assert search(study, budget=12) == "budget"
    thread.join()
    records = study.records()
    assert len(records) == len({record.placement_id for record in records}) == 12
    assert all(record.ratio is not None for record in records)


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_server_that_stays_away_ends_the_search_in_one_sentence(
    server: postgresql.Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_retries, "WAIT_S", 2.0)
    study = shared_study(server.url, "left alone")
    server.stop()
    try:
        start = time.monotonic()
        with pytest.raises(RunError, match="the database of study 'left alone': failed") as raised:
            search(study, budget=3)
        assert 1 < time.monotonic() - start < 60
    finally:
        server.start()
    assert "\n" not in str(raised.value)
    assert "SELECT" not in str(raised.value)
    assert search(study, budget=3) == "budget"


def lost() -> StorageInternalError:
    error = StorageInternalError("")
    error.__cause__ = OperationalError("SELECT 1", {}, Exception("server closed the connection"))
    return error


def test_only_lost_connections_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    errors: list[Exception] = [lost(), lost(), lost()]

    def operation() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert DatabaseRetries(100)(operation) == "done"
    assert pauses == [0.25, 0.5, 1.0]
    errors += [StorageInternalError("something else"), lost()]
    with pytest.raises(StorageInternalError, match="something else"):
        DatabaseRetries(100)(operation)
    errors[:] = [lost()]
    with pytest.raises(StorageInternalError):
        DatabaseRetries(0)(operation)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("settings", "[1]"),
        ("settings", "{"),
        ("noise", '"loud"'),
        ("noise", "[]"),
        ("remembered", '{"a": "b"}'),
        ("remembered", '{"a": NaN}'),
        ("remembered", "7"),
        ("warm starts", '[["a", 7]]'),
    ],
)
def test_damaged_attributes_of_a_study_are_named(tmp_path: Path, key: str, value: str):
    kinds: dict[str, Any] = {
        "remembered": dict[str, NonNegativeFloat],
        "warm starts": list[tuple[str, dict[str, str]]],
    }
    path = tmp_path / "study.db"

    def opened() -> Study:
        storage = open_storage(f"sqlite:///{path}", shared=False)
        return Study(storage, "s", space(), {"model": "m"}, place="out")

    study = opened()
    study.set_attribute(key, {} if key != "settings" else {"model": "m"})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE study_user_attributes SET value_json = ? WHERE key = ?", (value, key)
        )
    with pytest.raises(InputError, match=rf"out holds a damaged study: its '{key}' cannot be read"):
        if key == "noise":
            opened().keep(key, lambda: 1.0)
        else:
            opened().attribute(key, kinds.get(key))


def test_a_transaction_that_fails_leaves_nothing_and_one_that_ends_leaves_all(tmp_path: Path):
    storage = open_storage(f"sqlite:///{tmp_path / 'study.db'}", shared=False)
    study = storage.create_new_study([StudyDirection.MINIMIZE], "s")
    with pytest.raises(ZeroDivisionError), storage.transaction(study):
        storage.create_new_trial(study)
        storage.set_study_user_attr(study, "key", 1 / 0)
    with pytest.raises(StorageInternalError) as failed, storage.transaction(study):
        trial = storage.create_new_trial(study)
        with suppress(KeyError):  # Undoes the trial, too.
            storage.get_trial(trial + 1)
        storage.set_trial_user_attr(trial, "key", 1)
    assert "Record does not exist" in reason_of(failed.value)  # What undid the others.
    assert storage.get_all_trials(study) == []
    with storage.transaction(study):
        trial = storage.create_new_trial(study)
        storage.set_trial_user_attr(trial, "key", 1)
    assert [own.user_attrs for own in storage.get_all_trials(study)] == [{"key": 1}]


def test_a_claim_is_written_as_optuna_writes_it(tmp_path: Path):
    """Optuna's own storage in memory writes each decision by itself."""
    file = open_storage(f"sqlite:///{tmp_path / 'study.db'}", shared=False)
    trials = []
    for storage in (file, InMemoryStorage()):
        study = open_study(storage, "s")
        store = TrialStore(storage, study, space(), shared=False, place="s")
        for choices in (space().defaults, space().everything):
            store.claim(Proposal("surrogate", choices), [], None)
        trials.append(study.trials)
    for written, expected in zip(*trials, strict=True):
        assert written.number == expected.number
        assert written.params == expected.params
        assert written.distributions == expected.distributions
        assert written.user_attrs == expected.user_attrs
    with pytest.raises(KeyError):
        file.get_trial_number_from_id(99)


@pytest.mark.parametrize(("budget", "claimed"), [(None, True), (1, False)])
def test_a_claim_is_refused_once_another_worker_has_the_placement_or_the_last_place(
    tmp_path: Path, budget: int | None, claimed: bool
):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    storages = [open_storage(url, shared=True) for _ in range(2)]
    first, second = (
        TrialStore(own, open_study(own, "s"), space(), shared=True, place="s") for own in storages
    )
    default = Proposal("default", space().defaults)
    assert first.claim(default, (), budget) == Claim(0, default.choices)
    assert second.claim(default, (), budget) is None
    other = Proposal("none", space().floats)
    assert (second.claim(other, (), budget) is not None) == claimed


def test_no_two_proposals_of_a_shared_study_have_one_number(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    first, second = (
        Study(open_storage(url, shared=True), "s", space(), {}, shared=True) for _ in range(2)
    )
    assert [first.reserve(3), second.reserve(3), first.reserve(3), second.reserve(9)] == [
        3,
        4,
        5,
        9,
    ]
