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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol

import optuna
from optuna.exceptions import (
    StorageInternalError,
    UpdateFinishedTrialError,
)
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from placer.common.interrupts import held_back
from placer.errors import InputError, RunError
from placer.quantization import Placement
from placer.results.result import StopReason
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal, Proposer
from placer.search.space import Choices, Space
from placer.search.storage import open_study, reason_of
from placer.search.trial_attributes import (
    CLAIM,
    FIX,
    OUTCOME,
    WITHDRAWN,
    TrialReader,
    claim_json,
    distributions,
    outcome_json,
)

log = logging.getLogger(__name__)

STUDY_NAME = "placer"
POLL_S = 0.5


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
        self._reader = TrialReader(space, self._place)
        self._lock = Lock()  # One thread at a time looks for the next trial.
        self._study = open_study(storage, name)
        self._id = storage.get_study_id_from_name(name)
        self._check_settings(settings, fix)
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
            try:
                return self._study.user_attrs.get(key)
            except ValueError as error:
                raise InputError(f"{self._place} holds a damaged study; {FIX}") from error

    def set_attribute(self, key: str, value: Any) -> None:
        """Keep a JSON value with the study."""
        with held_back():
            self._study.set_user_attr(key, value)

    def _check_settings(self, settings: Mapping[str, Any], fix: str) -> None:
        """Raise InputError if it was made with other ``settings``; a new study keeps them."""
        wanted: dict[str, Any] = json.loads(json.dumps(settings))  # As they come back.
        kept = self.attribute("settings")
        if kept is None:
            self.set_attribute("settings", wanted)
            return
        if not isinstance(kept, dict):
            raise InputError(f"{self._place} holds a damaged study; {FIX}")
        for key in sorted(wanted.keys() | kept.keys()):
            if kept.get(key) != wanted.get(key):
                raise InputError(
                    f"{self._place} holds a study with another {key} "
                    f"({kept.get(key)}, now {wanted.get(key)}); {fix}"
                )

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
                f"the database of {self._place} failed ({reason_of(error)}); "
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
            user_attrs=claim_json(
                proposal.kind, self.space.placement(proposal.choices).id, proposal.skipped
            ),
        )
        self._storage.create_new_trial(self._id, template)

    def _distributions_of(self, choices: Choices) -> dict[str, Any]:
        return {name: self._distributions[name] for name in choices}

    def _take_waiting(self, budget: int | None) -> int | None:
        """Take the first waiting trial, a new one or that of a dead worker; None without one."""
        for trial in self._trials(TrialState.WAITING):
            if CLAIM not in trial.user_attrs:
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
            self._storage.set_trial_user_attr(trial_id, WITHDRAWN, True)
        self._set_state(trial_id, TrialState.FAIL)
        return True

    def _evaluate(self, number: int, evaluate: Evaluate) -> TrialRecord | None:
        """Evaluate the trial; None if it was given to another worker meanwhile."""
        trial_id = self._trial_id(number)
        start = time.monotonic()
        with self._signs_of_life(trial_id):
            try:
                with held_back():
                    claimed = self._reader.record(self._storage.get_trial(trial_id))
                outcome = evaluate(self.space.placement(claimed.choices))
            except BaseException:
                with held_back():
                    self._set_state(trial_id, TrialState.FAIL)  # Interrupted: not a result.
                raise
        with held_back():
            return self._end(number, replace(outcome, seconds=time.monotonic() - start))

    def _end(self, number: int, outcome: Outcome) -> TrialRecord | None:
        trial_id = self._trial_id(number)
        try:
            # Optuna's constraints can be set once only, so before others may end the trial.
            trial = optuna.Trial(self._study, trial_id)
            for name, value in outcome.constraints.items():
                trial.set_constraint(name, value)
            self._storage.set_trial_user_attr(trial_id, OUTCOME, outcome_json(outcome))
        except UpdateFinishedTrialError:
            log.warning(
                "trial %d had gone to another worker, as this one had given no sign of life; "
                "its result is dropped",
                number,
            )
            return None
        record = self._reader.record(self._storage.get_trial(trial_id))
        self._tell(record)
        return record

    def _tell(self, record: TrialRecord) -> None:
        """End a trial by its outcome, unless another worker just did."""
        with suppress(UpdateFinishedTrialError):
            if record.ruled_out is not None:
                self._study.tell(record.number, state=TrialState.PRUNED, skip_if_finished=True)
            elif record.ratio is None:
                self._study.tell(record.number, state=TrialState.FAIL, skip_if_finished=True)
            else:
                self._study.tell(record.number, record.ratio, skip_if_finished=True)

    def _known(self) -> list[TrialRecord]:
        """All trials that have an outcome, are running or wait for a worker, in order."""
        return [
            self._reader.record(trial)
            for trial in self._trials()
            if CLAIM in trial.user_attrs
            and WITHDRAWN not in trial.user_attrs
            and (OUTCOME in trial.user_attrs or not trial.state.is_finished())
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
                    log.warning("no sign of life could be given: %s", reason_of(error))

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

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        """All trials, or those in ``states``; InputError if Optuna cannot read one."""
        try:
            return self._storage.get_all_trials(self._id, deepcopy=False, states=states or None)
        except (ValueError, LookupError, TypeError) as error:
            raise self._unreadable() from error

    def _unreadable(self) -> InputError:
        """What to raise where Optuna cannot read all trials: it does not say which is damaged."""
        for number in count():
            try:
                trial_id = self._trial_id(number)
            except KeyError:
                return InputError(f"{self._place} holds a damaged study; {FIX}")
            try:
                self._storage.get_trial(trial_id)
            except (ValueError, LookupError, TypeError):
                return self._reader.damaged(number, "its row in the database")
        raise AssertionError("the loop only ends by returning")

    def _end_measured(self) -> None:
        """End trials whose workers stored the outcome; if such a worker lives it does the same."""
        for trial in self._trials(TrialState.RUNNING):
            if OUTCOME in trial.user_attrs:
                self._tell(self._reader.record(trial))

    def _end_interrupted(self) -> None:
        """End the trials that a killed process left; one that was measured keeps its result."""
        self._end_measured()
        for trial in self._trials(TrialState.RUNNING):
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
