"""Open the Optuna storage that holds a study, with retries where others write to it."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import (
    ExperimentalWarning,
    StorageInternalError,
)
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import URL, create_engine, event, inspect, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from placer.errors import InputError, RunError
from placer.search.records import Outcome
from placer.search.study.database_errors import reason_of
from placer.search.study.study_storage import StudyStorage
from placer.search.study.tables import (
    OPEN_ATTEMPTS,
    check_tables,
    engine_arguments,
    make_file,
    template,
)
from placer.search.study.trial_attributes import (
    CLAIM,
    DEATHS,
    FIX,
    OUTCOME,
    WITHDRAWN,
    outcome_json,
)

log = logging.getLogger(__name__)


# Seconds between heartbeats of a worker, and without one until its trial is given to another.
HEARTBEAT_S, GRACE_S = 5, 30
# A trial that kills its worker once more than this has failed.
MAX_RETRIES = 3
# What to tell of a disk on which no study can be kept.
FULL = "the disk is full or refuses to write; free some space, or choose another output"


def open_storage(
    url: str, *, shared: bool, heartbeat_s: int = HEARTBEAT_S, grace_s: int = GRACE_S
) -> StudyStorage:
    """The Optuna storage at ``url``; a ``shared`` one tells workers that died.

    ``heartbeat_s``: seconds between heartbeats of a shared study's worker, and ``grace_s``
    without one until it counts as dead. ``postgresql://`` takes the driver psycopg.
    Raises InputError, which hides passwords, if it cannot be opened, and RunError if the disk is
    full.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)  # Heartbeats.
    parsed = _parse(url)
    options: dict[str, Any] = {}
    if shared:
        options = {
            "heartbeat_interval": heartbeat_s,
            "grace_period": grace_s,
            "heartbeat_stale_trial_callback": _retry,
        }
    with _opening(parsed):
        if make_file(parsed):
            options["skip_compatibility_check"] = True  # It reads all of Optuna's migrations.
        else:
            check_tables(parsed)
        storage = _connect(parsed, options)
    if parsed.get_backend_name() == "sqlite":
        _lock_whole_transactions(storage)
    return storage


@contextmanager
def _opening(url: URL) -> Iterator[None]:
    """Turn what is raised while the database at ``url`` is opened into one sentence."""
    name = masked(url.render_as_string(hide_password=False))
    try:
        yield
    except ImportError as error:
        driver = url.get_dialect().driver
        package = "psycopg[binary]" if driver == "psycopg" else driver
        raise InputError(
            f"{name} needs the package {driver}, which is not installed; "
            f"run: pip install '{package}'"
        ) from error
    except (SQLAlchemyError, StorageInternalError, RuntimeError, ValueError) as error:
        if is_full(error):
            raise RunError(f"{name} cannot be written: {FULL}") from error
        advice = "remove it, or choose another output or storage"
        if url.get_backend_name() != "sqlite":
            advice = "start the server, or correct its address, user or database in the storage"
        elif "database is locked" in reason_of(error):
            advice = "another process holds it: wait for that, or choose another output or storage"
        raise InputError(
            f"{name} cannot be opened as a study database ({reason_of(error, url)}); {advice}"
        ) from error


def is_full(error: Exception) -> bool:
    """Whether the disk has no room for the database, or refuses to write to it."""
    return bool(re.search(r"disk is full|disk I/O error|No space left", reason_of(error)))


def holds_studies(url: str) -> bool:
    """Whether there is a database at ``url`` with Optuna's tables; makes neither.

    Raises InputError if it cannot be asked.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        return False
    with _opening(parsed):
        engine = create_engine(parsed, **engine_arguments(parsed))
        try:
            return bool(inspect(engine).has_table("studies"))
        finally:
            engine.dispose()


def kept_attributes(storage: BaseStorage, name: str) -> Mapping[str, Any] | None:
    """What was kept with the study ``name``; None if there is no such study.

    Raises InputError if the database is damaged.
    """
    try:
        study = storage.get_study_id_from_name(name)
    except KeyError:
        return None
    with reading(f"study '{name}'"):
        return storage.get_study_user_attrs(study)


def study_names(storage: BaseStorage) -> list[str]:
    """Names of all studies in ``storage``; raises InputError if the database is damaged."""
    with reading("the storage"):
        return sorted(study.study_name for study in storage.get_all_studies())


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Raise InputError where Optuna cannot make sense of the rows of ``place``."""
    try:
        yield
    except (LookupError, ValueError, TypeError) as error:
        raise InputError(f"{place} is damaged: a row cannot be read; {FIX}") from error


def masked(url: str) -> str:
    """``url`` without its passwords, for messages."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "the URL of the storage"
    query = {key: "***" if "pass" in key.lower() else v for key, v in parsed.query.items()}
    text = parsed.set(query=query).render_as_string(hide_password=True)
    return text.replace("%2A%2A%2A", "***")


def check_url(url: str) -> None:
    """Raise InputError unless ``url`` is one of a database; does not connect."""
    _parse(url)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            # SQLAlchemy itself would take psycopg2, which is no longer developed.
            parsed = parsed.set(drivername="postgresql+psycopg")
        parsed.get_dialect()
    except (SQLAlchemyError, ValueError) as error:
        raise InputError(
            "`storage` is not the URL of a database; write e.g. sqlite:///study.db or "
            "postgresql://user@host/database"
        ) from error
    return parsed


def _connect(url: URL, arguments: Mapping[str, Any]) -> StudyStorage:
    text = template(url)
    for attempt in range(1, OPEN_ATTEMPTS + 1):
        try:
            return StudyStorage(text, engine_kwargs=engine_arguments(url), **arguments)
        except (SQLAlchemyError, StorageInternalError) as error:
            is_race = isinstance(error, IntegrityError) or "already exists" in str(error)
            if not is_race or attempt == OPEN_ATTEMPTS:
                raise
            time.sleep(0.2 * attempt)
    raise AssertionError("the last attempt returns or raises")


def _lock_whole_transactions(storage: RDBStorage) -> None:
    """Lock a SQLite file from a transaction's first read on, as SELECT FOR UPDATE does elsewhere.

    Optuna reads a trial's state before it changes it, which SQLite allows two processes at once.
    After https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#sqlite-transactions.
    """

    def take_over(connection: Any, record: object) -> None:
        del record
        connection.isolation_level = None  # Python's sqlite3 begins no transactions itself.

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()  # Connections from before know nothing of this.
    event.listen(storage.engine, "connect", take_over)
    event.listen(storage.engine, "begin", begin)


def _retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Give the trial of a dead worker to another, unless it had been measured.

    One that has died too often is kept as failed, so that it is not proposed again.
    """
    attributes = trial.user_attrs
    if CLAIM not in attributes or OUTCOME in attributes or WITHDRAWN in attributes:
        return
    deaths = attributes.get(DEATHS, 0) + 1
    log.warning("the worker of trial %d sends no more heartbeats", trial.number)
    kept = {**attributes, DEATHS: deaths}
    state = TrialState.WAITING
    if deaths > MAX_RETRIES:
        error = f"{deaths} workers died while they evaluated it"
        kept[OUTCOME] = outcome_json(Outcome(error=error))
        state = TrialState.FAIL
    study.add_trial(
        create_trial(
            state=state,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=kept,
        )
    )


def open_study(storage: BaseStorage, name: str) -> optuna.Study:
    """The study called ``name``, made if it is not there."""
    # Placements are chosen by proposers; Optuna's sampler is never asked.
    sampler = RandomSampler(seed=0)
    return optuna.create_study(
        storage=storage, study_name=name, sampler=sampler, load_if_exists=True
    )
