"""Trials of one study in its Optuna storage: claimed, taken by a worker, ended.

A trial begins as a waiting claim on its placement, written in one transaction. Whoever takes the
claim gives a sign of life before it runs, so a worker that dies leaves a waiting trial or one whose
signs of life end; both are taken over. Of two claims on one placement, and of those beyond the
budget, the lower number stays and the other is withdrawn. A trial's outcome is one attribute, so it
is stored whole or not at all, and whoever finds a trial with an outcome may end it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Event, Thread
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from placer.errors import InputError
from placer.search.reasons import reason_of
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices, Space
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


class TrialStore:
    """The trials of ``study``; methods are called with interrupts held back."""

    def __init__(
        self, storage: BaseStorage, study: optuna.Study, space: Space, *, shared: bool, place: str
    ) -> None:
        """``shared``: other processes may take and end trials. ``place``: for messages."""
        self._storage = storage
        self._study = study
        self._id = storage.get_study_id_from_name(study.study_name)
        self._space = space
        self._shared = shared
        self._place = place
        self._reader = TrialReader(space, place)
        self._distributions = distributions(space)

    def claim(self, proposal: Proposal) -> None:
        """Create a waiting trial; all that identifies it is stored in one transaction."""
        template = create_trial(
            state=TrialState.WAITING,
            params=dict(proposal.choices),
            distributions=self._distributions_of(proposal.choices),
            user_attrs=claim_json(
                proposal.kind, self._space.placement(proposal.choices).id, proposal.skipped
            ),
        )
        self._storage.create_new_trial(self._id, template)

    def _distributions_of(self, choices: Choices) -> dict[str, Any]:
        return {name: self._distributions[name] for name in choices}

    def take_waiting(self, budget: int | None) -> int | None:
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
        known = self.known()
        late = next(record for record in known if record.number == number)
        earlier = [record for record in known if record.number < number]
        if late.placement_id not in {record.placement_id for record in earlier} and (
            budget is None or len(earlier) < budget
        ):
            return False
        trial_id = self._trial_id(number)
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial_id, WITHDRAWN, True)
        self._set_state(trial_id, TrialState.FAIL)
        return True

    def choices(self, number: int) -> Choices:
        """What the claim is on."""
        return self._reader.record(self._storage.get_trial(self._trial_id(number))).choices

    def give_back(self, number: int) -> None:
        """End a trial that was interrupted: it has no result and may be tried again."""
        self._set_state(self._trial_id(number), TrialState.FAIL)

    def fail_stale(self) -> None:
        """Take over trials whose workers give no sign of life any more."""
        optuna.storages.fail_stale_trials(self._study)

    def end(self, number: int, outcome: Outcome) -> TrialRecord | None:
        """Keep ``outcome`` and end the trial; None if it was given to another worker meanwhile."""
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

    def known(self) -> list[TrialRecord]:
        """All trials that have an outcome, are running or wait for a worker, in order."""
        return [
            self._reader.record(trial)
            for trial in self._trials()
            if CLAIM in trial.user_attrs
            and WITHDRAWN not in trial.user_attrs
            and (OUTCOME in trial.user_attrs or not trial.state.is_finished())
        ]

    def check(self) -> None:
        """Raise InputError for a trial whose outcome is kept and that cannot be read."""
        for trial in self._trials():
            if CLAIM in trial.user_attrs and OUTCOME in trial.user_attrs:
                self._reader.record(trial)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    @contextmanager
    def signs_of_life(self, number: int) -> Iterator[None]:
        """Tell others that this worker lives, as long as it evaluates the trial."""
        trial_id = self._trial_id(number)
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
            # Through the study, which does not read again what has ended.
            return self._study.get_trials(deepcopy=False, states=states or None)
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

    def end_measured(self) -> None:
        """End trials whose workers stored the outcome; if such a worker lives it does the same."""
        for trial in self._trials(TrialState.RUNNING):
            if OUTCOME in trial.user_attrs:
                self._tell(self._reader.record(trial))

    def end_interrupted(self) -> None:
        """End the trials that a killed process left; one that was measured keeps its result."""
        self.end_measured()
        for trial in self._trials(TrialState.RUNNING):
            self._set_state(self._trial_id(trial.number), TrialState.FAIL)
