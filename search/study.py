"""The study: an Optuna study in any storage whose trials are placements.

A trial is claimed before it is evaluated, with its placement, in one transaction, so that several
workers never evaluate the same placement: of two that claim it, the one with the lower number keeps
it. A trial's outcome is one attribute, so it is stored whole or not at all.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from placer.errors import InputError
from placer.placement import Placement
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal, Proposer, distributions
from placer.search.space import Choices, Space

StopReason = Literal["budget", "timeout", "converged"]

STUDY_NAME = "placer"
# Seconds between signs of life of a worker, and without one until its trial is given to another.
HEARTBEAT_S, GRACE_S = 5, 20
MAX_RETRIES = 3
POLL_S = 0.5
_CLAIM, _KIND, _OUTCOME, _WITHDRAWN = "placement", "kind", "outcome", "withdrawn"


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
    ) -> None:
        """Open or create the study ``name``.

        ``shared``: other processes may be working on it, so that its running trials are theirs.
        ``place``: what messages call it.
        Raises InputError if it was made with other ``settings``.
        """
        self.space = space
        self._storage = storage
        self._shared = shared
        self._lock = Lock()  # One thread at a time looks for the next trial.
        self._study = _open(storage, name)
        self._id = storage.get_study_id_from_name(name)
        _check_settings(self._study, place or name, settings)
        self._study.set_user_attr("settings", _plain(settings))
        self._distributions = distributions(space)
        if not shared:
            self._end_interrupted()

    def records(self) -> list[TrialRecord]:
        """Finished trials in order; interrupted ones are left out."""
        return [record for record in self._known() if not record.running]

    def keep(self, key: str, compute: Callable[[], float]) -> float:
        """The value kept under ``key``, or else what ``compute`` returns, which is then kept."""
        kept = self._study.user_attrs.get(key)
        if kept is None:
            kept = compute()
            self._study.set_user_attr(key, kept)
        return float(kept)

    def attribute(self, key: str) -> Any:
        """A JSON value kept with the study, None if there is none."""
        return self._study.user_attrs.get(key)

    def set_attribute(self, key: str, value: Any) -> None:
        """Keep a JSON value with the study."""
        self._study.set_user_attr(key, value)

    def run(
        self,
        proposer: Proposer,
        evaluate: Evaluate,
        *,
        budget: int | None,
        deadline: float | None,
        on_trial: Callable[[TrialRecord], None],
    ) -> StopReason:
        """Evaluate placements until ``budget`` trials are in the study or ``deadline`` passes.

        ``deadline`` is a ``time.monotonic`` time. Returns why it stopped: ``budget``, ``timeout``
        or ``converged`` (the proposer has nothing more to try). May run in several threads and
        processes at once; each returns when nothing is left to do and no trial is running, since
        the trial of a worker that died is tried again.
        """
        while True:
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            with self._lock:
                found = self._next(proposer, budget)
            if isinstance(found, int):
                on_trial(self._evaluate(found, evaluate))
            elif found == "wait":
                time.sleep(POLL_S)
            elif found != "again":
                return found

    def _next(
        self, proposer: Proposer, budget: int | None
    ) -> int | StopReason | Literal["wait", "again"]:
        """Claim the next trial and return its number; else why there is none."""
        self._retry_of_dead_workers()
        waiting = self._take_waiting()
        if waiting is not None:
            return waiting
        known = self._known()
        is_running = any(record.running for record in known)
        if budget is not None and len(known) >= budget:
            return "wait" if is_running else "budget"
        proposal = proposer.propose(known)
        if proposal is None:
            return "wait" if is_running else "converged"
        number = self._claim(proposal)
        return "again" if self._withdraw_if_late(number, budget) else number

    def _claim(self, proposal: Proposal) -> int:
        """Create a running trial; all that identifies it is stored in one transaction."""
        template = create_trial(
            state=TrialState.RUNNING,
            params=dict(proposal.choices),
            distributions=self._distributions_of(proposal.choices),
            user_attrs={
                _KIND: proposal.kind,
                _CLAIM: self.space.placement(proposal.choices).id,
            },
        )
        trial_id = self._storage.create_new_trial(self._id, template)
        return self._storage.get_trial_number_from_id(trial_id)

    def _distributions_of(self, choices: Choices) -> dict[str, Any]:
        return {name: self._distributions[name] for name in choices}

    def _withdraw_if_late(self, number: int, budget: int | None) -> bool:
        """End the claim if an earlier one has its placement or the budget's last place."""
        if not self._shared:
            return False
        known = self._known()
        own = next(record for record in known if record.number == number)
        earlier = [record for record in known if record.number < number]
        if own.placement_id not in {record.placement_id for record in earlier} and (
            budget is None or len(earlier) < budget
        ):
            return False
        trial = optuna.Trial(self._study, self._trial_id(number))
        trial.set_user_attr(_WITHDRAWN, True)
        self._study.tell(number, state=TrialState.FAIL)
        return True

    def _evaluate(self, number: int, evaluate: Evaluate) -> TrialRecord:
        trial = optuna.Trial(self._study, self._trial_id(number))
        start = time.monotonic()
        with self._signs_of_life(self._trial_id(number)):
            try:
                outcome = evaluate(self.space.placement(trial.params))
            except BaseException:
                self._study.tell(number, state=TrialState.FAIL)  # Interrupted: not a result.
                raise
        kept = {
            "ratio": outcome.ratio,
            "constraints": dict(outcome.constraints),
            "details": dict(outcome.details),
            "error": outcome.error,
            "ruled_out": outcome.ruled_out,
            "seconds": time.monotonic() - start,
        }
        trial.set_user_attr(_OUTCOME, _plain(kept))
        self._tell(number)
        found = self._storage.get_trial(self._trial_id(number))
        return _record(found)

    def _tell(self, number: int) -> None:
        """End a trial by its outcome."""
        trial = optuna.Trial(self._study, self._trial_id(number))
        outcome = trial.user_attrs[_OUTCOME]
        for name, value in outcome["constraints"].items():
            trial.set_constraint(name, value)
        if outcome["ruled_out"] is not None:
            self._study.tell(number, state=TrialState.PRUNED)
        elif outcome["ratio"] is None:
            self._study.tell(number, state=TrialState.FAIL)
        else:
            self._study.tell(number, outcome["ratio"])

    def _known(self) -> list[TrialRecord]:
        """All trials that have an outcome or are running, in order."""
        trials = self._storage.get_all_trials(self._id, deepcopy=False)
        return [
            _record(trial)
            for trial in trials
            if _CLAIM in trial.user_attrs
            and _WITHDRAWN not in trial.user_attrs
            and (_OUTCOME in trial.user_attrs or trial.state == TrialState.RUNNING)
        ]

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _take_waiting(self) -> int | None:
        """Take a trial whose worker died over, if there is one."""
        waiting = self._storage.get_all_trials(
            self._id, deepcopy=False, states=(TrialState.WAITING,)
        )
        for trial in waiting:
            trial_id = self._trial_id(trial.number)
            if _CLAIM in trial.user_attrs and self._storage.set_trial_state_values(
                trial_id, TrialState.RUNNING
            ):
                return trial.number
        return None

    def _retry_of_dead_workers(self) -> None:
        if self._shared:
            optuna.storages.fail_stale_trials(self._study)

    @contextmanager
    def _signs_of_life(self, trial_id: int) -> Iterator[None]:
        storage = self._storage
        if not self._shared or not isinstance(storage, RDBStorage):
            yield
            return
        storage.record_heartbeat(trial_id)
        done = Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_S):
                storage.record_heartbeat(trial_id)

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _end_interrupted(self) -> None:
        """End the trials that a killed process left; one that was measured keeps its result."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state != TrialState.RUNNING:
                continue
            if _OUTCOME in trial.user_attrs:
                self._tell(trial.number)
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)


def open_storage(url: str, *, shared: bool) -> BaseStorage:
    """The Optuna storage at ``url``; a ``shared`` one tells workers that died.

    Raises InputError if it cannot be opened.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)  # Heartbeats.
    try:
        if not shared:
            return RDBStorage(url)
        return RDBStorage(
            url,
            heartbeat_interval=HEARTBEAT_S,
            grace_period=GRACE_S,
            heartbeat_stale_trial_callback=_retry,
        )
    except (SQLAlchemyError, StorageInternalError, RuntimeError, ImportError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{url} cannot be opened as a study database ({reason}); "
            "remove it or choose another --output or --storage"
        ) from error


def _retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Give the trial of a dead worker to another, unless it had been measured."""
    if _OUTCOME not in trial.user_attrs and _WITHDRAWN not in trial.user_attrs:
        RetryHeartbeatStaleTrialCallback(max_retry=MAX_RETRIES)(study, trial)


def _open(storage: BaseStorage, name: str) -> optuna.Study:
    # Placements are chosen by proposers; Optuna's sampler is never asked.
    sampler = RandomSampler(seed=0)
    return optuna.create_study(
        storage=storage, study_name=name, sampler=sampler, load_if_exists=True
    )


def _check_settings(study: optuna.Study, place: str, settings: Mapping[str, Any]) -> None:
    wanted = _plain(settings)
    kept = study.user_attrs.get("settings", wanted)
    for key in sorted(wanted.keys() | kept.keys()):
        if kept.get(key) != wanted.get(key):
            raise InputError(
                f"{place} holds a study with another {key} "
                f"({kept.get(key)}, now {wanted.get(key)}); "
                "choose another --output or --study, or remove it"
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
    )
