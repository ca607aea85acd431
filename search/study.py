"""The study: an Optuna study in any storage whose trials are placements.

A trial begins as a waiting claim on its placement, written in one transaction. Whoever takes the
claim gives a sign of life before it runs, so a worker that dies leaves a waiting trial or one whose
signs of life end; both are taken over. Of two claims on one placement, and of those beyond the
budget, the lower number stays and the other is withdrawn. A trial's outcome is one attribute, so it
is stored whole or not at all, and whoever finds a trial with an outcome may end it.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol

import optuna
from optuna.exceptions import (
    ExperimentalWarning,
    StorageInternalError,
    UpdateFinishedTrialError,
)
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import URL, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from placer.errors import InputError, RunError
from placer.placement import Placement
from placer.search.interrupts import held_back
from placer.search.records import Outcome, Skip, TrialRecord
from placer.search.samplers import Proposal, Proposer, distributions
from placer.search.space import Choices, Space

StopReason = Literal["budget", "timeout", "converged", "interrupted"]

log = logging.getLogger(__name__)

STUDY_NAME = "placer"
# Seconds between signs of life of a worker, and without one until its trial is given to another.
HEARTBEAT_S, GRACE_S = 5, 30
# A trial that kills its worker once more than this has failed.
MAX_RETRIES = 3
POLL_S = 0.5
# How long a process waits for others that are writing to the same SQLite file.
SQLITE_TIMEOUT_S = 60
# Processes that create the tables of one empty database at once get in each other's way so often.
OPEN_ATTEMPTS = 5
FIX = "choose another --output or --study, or remove it"
_CLAIM, _KIND, _OUTCOME, _WITHDRAWN = "placement", "kind", "outcome", "withdrawn"
_DEATHS = "deaths"
_SKIPPED = "skipped"


class Evaluate(Protocol):
    """Builds, gates and measures one placement; must not raise for what an engine refuses."""

    def __call__(self, placement: Placement) -> Outcome:
        """Return the outcome of ``placement``."""


class Study:
    """Trials over a space, kept in a storage so that a killed run resumes and workers share."""

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        space: Space,
        settings: Mapping[str, Any],
        *,
        shared: bool = False,
        place: str = "",
        fix: str = FIX,
    ) -> None:
        """Open or create the study ``name``.

        ``shared``: other processes may be working on it, so that its running trials are theirs.
        ``place``: what messages call it. ``fix``: what they tell to do about other settings.
        Raises InputError if it was made with other ``settings``.
        """
        self.space = space
        self._storage = storage
        self._shared = shared
        self._place = place or name
        self._lock = Lock()  # One thread at a time looks for the next trial.
        self._study = _open(storage, name)
        self._id = storage.get_study_id_from_name(name)
        _check_settings(self._study, self._place, settings, fix)
        self._distributions = distributions(space)
        if not shared:
            self._end_interrupted()

    @property
    def name(self) -> str:
        """Its name in the storage."""
        return self._study.study_name

    @property
    def shared(self) -> bool:
        """Whether other processes may be working on it."""
        return self._shared

    def records(self) -> list[TrialRecord]:
        """Finished trials in order; interrupted ones are left out."""
        with held_back():
            return [record for record in self._known() if not record.running]

    def keep(self, key: str, compute: Callable[[], float]) -> float:
        """The value kept under ``key``, or else what ``compute`` returns, which is then kept."""
        if self.attribute(key) is None:
            self.set_attribute(key, compute())
        return float(self.attribute(key))  # Another worker may have kept its own.

    def attribute(self, key: str) -> Any:
        """A JSON value kept with the study, None if there is none."""
        with held_back():
            return self._study.user_attrs.get(key)

    def set_attribute(self, key: str, value: Any) -> None:
        """Keep a JSON value with the study."""
        with held_back():
            self._study.set_user_attr(key, value)

    def run(
        self,
        proposer: Proposer,
        evaluate: Evaluate,
        *,
        budget: int | None,
        deadline: float | None,
        on_trial: Callable[[TrialRecord], None],
        stop: Event | None = None,
    ) -> StopReason:
        """Evaluate placements until ``budget`` trials are in the study or ``deadline`` passes.

        ``deadline`` is a ``time.monotonic`` time. Returns why it stopped: ``budget``, ``timeout``,
        ``converged`` (the proposer has nothing more to try) or ``interrupted`` (``stop`` is set).
        May run in several threads and processes at once, each with its own ``proposer`` and
        ``evaluate``; each returns when nothing is left to do and no trial is running, since the
        trial of a worker that died is tried again. Proposers are asked by one thread at a time.
        An exception from ``evaluate`` gives the trial back. Raises RunError if the storage fails.
        """
        asked = _Asked(proposer)
        try:
            while stop is None or not stop.is_set():
                if deadline is not None and time.monotonic() >= deadline:
                    return "timeout"
                with self._lock:
                    found = self._next(asked, budget)
                if isinstance(found, int):
                    record = self._evaluate(found, evaluate)
                    if record is not None:
                        on_trial(record)
                elif found == "wait":
                    time.sleep(POLL_S)
                elif found != "again":
                    return found
        except (SQLAlchemyError, StorageInternalError) as error:
            raise RunError(
                f"the database of {self._place} failed ({_reason(error)}); "
                "run the same command again to resume"
            ) from error
        return "interrupted"

    def _next(
        self, proposer: Proposer, budget: int | None
    ) -> int | StopReason | Literal["wait", "again"]:
        """Claim the next trial and return its number; else why there is none."""
        with held_back():
            if self._shared:
                self._end_measured()
                optuna.storages.fail_stale_trials(self._study)
            waiting = self._take_waiting(budget)
            if waiting is not None:
                return waiting
            known = self._known()
        is_running = any(record.running for record in known)
        if budget is not None and len(known) >= budget:
            return "wait" if is_running else "budget"
        proposal = proposer.propose(known)
        if proposal is None:
            return "wait" if is_running else "converged"
        with held_back():
            self._claim(proposal)
        return "again"

    def _claim(self, proposal: Proposal) -> None:
        """Create a waiting trial; all that identifies it is stored in one transaction."""
        template = create_trial(
            state=TrialState.WAITING,
            params=dict(proposal.choices),
            distributions=self._distributions_of(proposal.choices),
            user_attrs={
                _KIND: proposal.kind,
                _CLAIM: self.space.placement(proposal.choices).id,
                _SKIPPED: [[dict(skip.choices), skip.noise] for skip in proposal.skipped],
            },
        )
        self._storage.create_new_trial(self._id, template)

    def _distributions_of(self, choices: Choices) -> dict[str, Any]:
        return {name: self._distributions[name] for name in choices}

    def _take_waiting(self, budget: int | None) -> int | None:
        """Take the first waiting trial, a new one or that of a dead worker; None without one."""
        waiting = self._storage.get_all_trials(
            self._id, deepcopy=False, states=(TrialState.WAITING,)
        )
        for trial in waiting:
            if _CLAIM not in trial.user_attrs:
                continue
            trial_id = self._trial_id(trial.number)
            # Before it runs: a running trial that never gave a sign of life would run forever.
            self._give_sign_of_life(trial_id)
            if self._set_state(trial_id, TrialState.RUNNING) and not self._withdraw_if_late(
                trial.number, budget
            ):
                return trial.number
        return None

    def _set_state(self, trial_id: int, state: TrialState) -> bool:
        """Whether this worker changed the state, and not another before it."""
        try:
            return self._storage.set_trial_state_values(trial_id, state)
        except UpdateFinishedTrialError:
            return False

    def _withdraw_if_late(self, number: int, budget: int | None) -> bool:
        """End the trial if an earlier one has its placement or the budget's last place."""
        if not self._shared:
            return False
        known = self._known()
        own = next(record for record in known if record.number == number)
        earlier = [record for record in known if record.number < number]
        if own.placement_id not in {record.placement_id for record in earlier} and (
            budget is None or len(earlier) < budget
        ):
            return False
        trial_id = self._trial_id(number)
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial_id, _WITHDRAWN, True)
        self._set_state(trial_id, TrialState.FAIL)
        return True

    def _evaluate(self, number: int, evaluate: Evaluate) -> TrialRecord | None:
        """Evaluate the trial; None if it was given to another worker meanwhile."""
        trial_id = self._trial_id(number)
        start = time.monotonic()
        with self._signs_of_life(trial_id):
            try:
                with held_back():
                    choices = self._storage.get_trial(trial_id).params
                outcome = evaluate(self.space.placement(choices))
            except BaseException:
                with held_back():
                    self._set_state(trial_id, TrialState.FAIL)  # Interrupted: not a result.
                raise
        kept = {
            "ratio": outcome.ratio,
            "constraints": dict(outcome.constraints),
            "details": dict(outcome.details),
            "error": outcome.error,
            "ruled_out": outcome.ruled_out,
            "seconds": time.monotonic() - start,
        }
        with held_back():
            return self._end(number, kept)

    def _end(self, number: int, kept: Mapping[str, Any]) -> TrialRecord | None:
        trial_id = self._trial_id(number)
        try:
            # Optuna's constraints can be set once only, so before others may end the trial.
            trial = optuna.Trial(self._study, trial_id)
            for name, value in kept["constraints"].items():
                trial.set_constraint(name, value)
            self._storage.set_trial_user_attr(trial_id, _OUTCOME, _plain(kept))
        except UpdateFinishedTrialError:
            log.warning(
                "trial %d had gone to another worker, as this one had given no sign of life; "
                "its result is dropped",
                number,
            )
            return None
        self._tell(number)
        return _record(self._storage.get_trial(trial_id))

    def _tell(self, number: int) -> None:
        """End a trial by its outcome, unless another worker just did."""
        outcome = self._storage.get_trial(self._trial_id(number)).user_attrs[_OUTCOME]
        with suppress(UpdateFinishedTrialError):
            if outcome["ruled_out"] is not None:
                self._study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)
            elif outcome["ratio"] is None:
                self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
            else:
                self._study.tell(number, outcome["ratio"], skip_if_finished=True)

    def _known(self) -> list[TrialRecord]:
        """All trials that have an outcome, are running or wait for a worker, in order."""
        trials = self._storage.get_all_trials(self._id, deepcopy=False)
        return [
            _record(trial)
            for trial in trials
            if _CLAIM in trial.user_attrs
            and _WITHDRAWN not in trial.user_attrs
            and (_OUTCOME in trial.user_attrs or not trial.state.is_finished())
        ]

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    @contextmanager
    def _signs_of_life(self, trial_id: int) -> Iterator[None]:
        interval = (
            self._storage.get_heartbeat_interval()
            if isinstance(self._storage, RDBStorage)
            else None
        )
        if interval is None:
            yield
            return
        done = Event()

        def beat() -> None:
            while not done.wait(interval):
                try:
                    self._give_sign_of_life(trial_id)
                except (SQLAlchemyError, StorageInternalError) as error:
                    log.warning("no sign of life could be given: %s", _reason(error))

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _give_sign_of_life(self, trial_id: int) -> None:
        if self._shared and isinstance(self._storage, RDBStorage):
            self._storage.record_heartbeat(trial_id)

    def _running(self) -> list[FrozenTrial]:
        states = (TrialState.RUNNING,)
        return self._storage.get_all_trials(self._id, deepcopy=False, states=states)

    def _end_measured(self) -> None:
        """End trials whose workers stored the outcome; if such a worker lives it does the same."""
        for trial in self._running():
            if _OUTCOME in trial.user_attrs:
                self._tell(trial.number)

    def _end_interrupted(self) -> None:
        """End the trials that a killed process left; one that was measured keeps its result."""
        self._end_measured()
        for trial in self._running():
            self._set_state(self._trial_id(trial.number), TrialState.FAIL)


class _Asked:
    """A proposer that is not asked again for trials for which it had nothing to propose."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._nothing_for: list[tuple[int, bool]] | None = None

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        state = [(trial.number, trial.running) for trial in trials]
        if state == self._nothing_for:
            return None
        proposal = self._proposer.propose(trials)
        self._nothing_for = state if proposal is None else None
        return proposal


def open_storage(
    url: str, *, shared: bool, heartbeat_s: int = HEARTBEAT_S, grace_s: int = GRACE_S
) -> RDBStorage:
    """The Optuna storage at ``url``; a ``shared`` one tells workers that died.

    ``heartbeat_s``: seconds between signs of life of a shared study's worker, and ``grace_s``
    without one until it counts as dead. ``postgresql://`` takes the driver psycopg.
    Raises InputError, which hides passwords, if it cannot be opened.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)  # Heartbeats.
    parsed = _parse(url)
    own: dict[str, Any] = {}
    if shared:
        own = {
            "heartbeat_interval": heartbeat_s,
            "grace_period": grace_s,
            "heartbeat_stale_trial_callback": _retry,
        }
    try:
        storage = _connect(parsed, own)
    except ImportError as error:
        driver = parsed.get_dialect().driver
        package = "placer[postgresql]" if driver == "psycopg" else driver
        raise InputError(
            f"{masked(url)} needs the package {driver}, which is not installed; "
            f"run: pip install '{package}'"
        ) from error
    except (SQLAlchemyError, StorageInternalError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{masked(url)} cannot be opened as a study database ({_reason(error, parsed)}); "
            "remove it or choose another --output or --storage"
        ) from error
    if parsed.get_backend_name() == "sqlite":
        _lock_whole_transactions(storage)
    return storage


def kept_attributes(storage: BaseStorage, name: str) -> Mapping[str, Any] | None:
    """What was kept with the study ``name``; None if there is no such study."""
    try:
        return storage.get_study_user_attrs(storage.get_study_id_from_name(name))
    except KeyError:
        return None


def study_names(storage: BaseStorage) -> list[str]:
    """Names of all studies in ``storage``."""
    return sorted(study.study_name for study in storage.get_all_studies())


def masked(url: str) -> str:
    """``url`` without its passwords, for messages."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "the URL of --storage"
    query = {key: "***" if "pass" in key.lower() else v for key, v in parsed.query.items()}
    text = parsed.set(query=query).render_as_string(hide_password=True)
    return text.replace("%2A%2A%2A", "***")


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            # SQLAlchemy itself would take psycopg2, which is no longer developed.
            parsed = parsed.set(drivername="postgresql+psycopg")
        parsed.get_dialect()
    except (SQLAlchemyError, ValueError) as error:
        raise InputError(
            "--storage is no URL of a database; write e.g. sqlite:///study.db or "
            "postgresql://user@host/database"
        ) from error
    return parsed


def _connect(url: URL, arguments: Mapping[str, Any]) -> RDBStorage:
    # Optuna fills in templates in braces.
    text = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    is_file = url.get_backend_name() == "sqlite"
    engine: dict[str, Any] = (
        {"connect_args": {"timeout": SQLITE_TIMEOUT_S}} if is_file else {"pool_pre_ping": True}
    )
    for attempt in range(1, OPEN_ATTEMPTS + 1):
        try:
            return RDBStorage(text, engine_kwargs=dict(engine), **arguments)
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


def _reason(error: Exception, url: URL | None = None) -> str:
    """The first line or so of ``error``, without the password of ``url``."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else None
    text = " ".join(str(cause or error).split()).split(" (Background on", 1)[0]
    secret = None if url is None else url.password
    return (text.replace(secret, "***") if secret else text)[:200]


def _retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Give the trial of a dead worker to another, unless it had been measured.

    One that has died too often is kept as failed, so that it is not proposed again.
    """
    attributes = trial.user_attrs
    if _CLAIM not in attributes or _OUTCOME in attributes or _WITHDRAWN in attributes:
        return
    deaths = attributes.get(_DEATHS, 0) + 1
    log.warning("the worker of trial %d gave no sign of life any more", trial.number)
    kept = {**attributes, _DEATHS: deaths}
    state = TrialState.WAITING
    if deaths > MAX_RETRIES:
        error = f"{deaths} workers died while they evaluated it"
        kept[_OUTCOME] = {
            "ratio": None,
            "constraints": {},
            "details": {},
            "error": error,
            "ruled_out": None,
            "seconds": 0.0,
        }
        state = TrialState.FAIL
    study.add_trial(
        create_trial(
            state=state,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=kept,
        )
    )


def _open(storage: BaseStorage, name: str) -> optuna.Study:
    # Placements are chosen by proposers; Optuna's sampler is never asked.
    sampler = RandomSampler(seed=0)
    return optuna.create_study(
        storage=storage, study_name=name, sampler=sampler, load_if_exists=True
    )


def _check_settings(study: optuna.Study, place: str, settings: Mapping[str, Any], fix: str) -> None:
    """Raise InputError if the study was made with other ``settings``; a new one keeps them."""
    wanted = _plain(settings)
    kept = study.user_attrs.get("settings")
    if kept is None:
        study.set_user_attr("settings", wanted)
        return
    for key in sorted(wanted.keys() | kept.keys()):
        if kept.get(key) != wanted.get(key):
            raise InputError(
                f"{place} holds a study with another {key} "
                f"({kept.get(key)}, now {wanted.get(key)}); {fix}"
            )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` as they come back from the database."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _record(trial: FrozenTrial) -> TrialRecord:
    attributes = trial.user_attrs
    outcome = attributes.get(_OUTCOME)
    return TrialRecord(
        number=trial.number,
        kind=attributes[_KIND],
        choices=dict(trial.params),
        placement_id=attributes[_CLAIM],
        ratio=outcome["ratio"] if outcome else None,
        constraints=outcome["constraints"] if outcome else {},
        details=outcome["details"] if outcome else {},
        error=outcome["error"] if outcome else None,
        seconds=outcome["seconds"] if outcome else 0.0,
        ruled_out=outcome["ruled_out"] if outcome else None,
        running=outcome is None,
        skipped=tuple(Skip(*skip) for skip in attributes.get(_SKIPPED, ())),
    )
