"""Trials of one study in its Optuna storage: claimed, taken by a worker, ended.

A trial begins as a claim on its placement with a heartbeat, and ends with its outcome; either is
one transaction. So a worker that dies leaves a trial whose heartbeats end, which then waits for
another worker. No claim is made on the placement of another trial that counts, or beyond the
budget; a trial that waited and is late by then is withdrawn. A trial's outcome is one attribute,
and whoever finds a trial with an outcome may end it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from threading import Event, Thread
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from placer.errors import InputError
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices, Space
from placer.search.study.database_errors import reason_of
from placer.search.study.study_storage import Decision, StudyStorage, decisions_by_choice
from placer.search.study.trial_attributes import (
    CLAIM,
    FIX,
    OUTCOME,
    PROPOSALS,
    WITHDRAWN,
    TrialReader,
    claim_json,
    distributions,
    outcome_json,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claim:
    """A trial that this worker runs, and its placement as choices."""

    number: int
    choices: Choices


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
        self._ids: dict[int, int] = {}

    def placement_id(self, proposal: Proposal) -> str:
        """The id of the placement of ``proposal``."""
        return self._space.placement(proposal.choices).id

    def count(self) -> int:
        """How many trials the storage has, those that do not count included."""
        return len(self._trials())

    def claim(
        self, proposal: Proposal, known: Sequence[TrialRecord], budget: int | None
    ) -> Claim | None:
        """Create a trial that this worker runs; one transaction.

        ``known``: the trials that were known when it was proposed. None if since then another
        worker's trial came first: on the same placement, or as the last of the budget.
        """
        placement_id = self.placement_id(proposal)
        with self._transaction(self._id):
            if self._shared and self._is_late(placement_id, known, budget):
                return None
            trial_id = self._create(proposal, placement_id)
            # Before it runs: a running trial that never had a heartbeat would run forever.
            self._send_heartbeat(trial_id)
            self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        number = self._storage.get_trial_number_from_id(trial_id)
        self._ids[number] = trial_id
        return Claim(number, proposal.choices)

    def _transaction(self, study_id: int | None = None) -> AbstractContextManager[None]:
        """See ``StudyStorage.transaction``; other storages have none."""
        storage = self._storage
        return storage.transaction(study_id) if isinstance(storage, StudyStorage) else nullcontext()

    def _is_late(self, placement_id: str, known: Sequence[TrialRecord], budget: int | None) -> bool:
        """Whether trials that came after ``known`` leave no place for the placement."""
        storage = self._storage
        if not isinstance(storage, StudyStorage):
            return False
        last = self.id_of(known[-1].number) if known else -1
        later = self._records(storage.trials_after(self._id, last))
        full = budget is not None and len(known) + len(later) >= budget
        return full or placement_id in {record.placement_id for record in later}

    def reserve(self, least: int) -> int:
        """A number of at least ``least`` for a proposal, which no other proposal gets."""
        with self._transaction(self._id):
            kept = self._storage.get_study_user_attrs(self._id).get(PROPOSALS, 0)
            number = max(least, kept if isinstance(kept, int) else 0)
            self._storage.set_study_user_attr(self._id, PROPOSALS, number + 1)
        return number

    def _create(self, proposal: Proposal, placement_id: str) -> int:
        """Create a trial that waits; its id in the storage."""
        choices, storage = proposal.choices, self._storage
        attributes = claim_json(proposal.kind, placement_id, proposal.skipped)
        if isinstance(storage, StudyStorage):
            # Optuna looks at each of hundreds of decisions several times.
            template = create_trial(state=TrialState.WAITING, user_attrs=attributes)
            trial_id = storage.create_new_trial(self._id, template)
            written = self._decisions
            storage.add_decisions(trial_id, [written[name][choices[name]] for name in choices])
            return trial_id
        template = create_trial(
            state=TrialState.WAITING,
            params=dict(choices),
            distributions={name: self._distributions[name] for name in choices},
            user_attrs=attributes,
        )
        return storage.create_new_trial(self._id, template)

    @cached_property
    def _decisions(self) -> Mapping[str, Mapping[str, Decision]]:
        """All decisions as they are written, by name and choice."""
        return {name: decisions_by_choice(name, own) for name, own in self._distributions.items()}

    def take_waiting(self, budget: int | None) -> Claim | list[TrialRecord]:
        """Take the first waiting trial, that of a worker that died; without one all ``known``."""
        trials = self._trials()
        for trial in trials:
            if trial.state != TrialState.WAITING or CLAIM not in trial.user_attrs:
                continue
            trial_id = self.id_of(trial.number)
            # Before it runs: a running trial that never had a heartbeat would run forever.
            self._send_heartbeat(trial_id)
            if self._set_state(trial_id, TrialState.RUNNING) and not self._withdraw_if_late(
                trial.number, budget
            ):
                return Claim(trial.number, self._reader.record(trial).choices)
        return self._records(trials)

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
        trial_id = self.id_of(number)
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial_id, WITHDRAWN, True)
        self._set_state(trial_id, TrialState.FAIL)
        return True

    def give_back(self, number: int) -> None:
        """End a trial that was interrupted: it has no result and may be tried again."""
        self._set_state(self.id_of(number), TrialState.FAIL)

    def fail_stale(self) -> None:
        """Take over trials whose workers send no more heartbeats."""
        optuna.storages.fail_stale_trials(self._study)

    def end(self, number: int, outcome: Outcome) -> TrialRecord | None:
        """Keep ``outcome`` and end the trial; None if it was given to another worker meanwhile."""
        trial_id = self.id_of(number)
        try:
            with self._transaction():
                self._write_outcome(trial_id, outcome)
                record = self._reader.record(self._storage.get_trial(trial_id))
                self._storage.set_trial_state_values(trial_id, *_ending(record))
        except UpdateFinishedTrialError:
            log.warning(
                "trial %d had gone to another worker, as this one had sent no heartbeat; "
                "its result is dropped",
                number,
            )
            return None
        return record

    def write_end(self, number: int, outcome: Outcome) -> None:
        """The same for a trial that no other worker may have been given."""
        trial_id = self.id_of(number)
        with self._transaction():
            self._write_outcome(trial_id, outcome)
            self._storage.set_trial_state_values(trial_id, *_ending(outcome))

    def _write_outcome(self, trial_id: int, outcome: Outcome) -> None:
        for name, value in _constraints(outcome).items():
            self._storage.set_trial_system_attr(trial_id, name, value)
        self._storage.set_trial_user_attr(trial_id, OUTCOME, outcome_json(outcome))

    def _tell(self, record: TrialRecord) -> None:
        """End a trial by its outcome, unless another worker just did."""
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_state_values(self.id_of(record.number), *_ending(record))

    def known(self) -> list[TrialRecord]:
        """All trials that have an outcome, are running or wait for a worker, in order."""
        return self._records(self._trials())

    def _records(self, trials: Iterable[FrozenTrial]) -> list[TrialRecord]:
        """Those of ``trials`` that count."""
        return [
            self._reader.record(trial)
            for trial in trials
            if CLAIM in trial.user_attrs
            and WITHDRAWN not in trial.user_attrs
            and (OUTCOME in trial.user_attrs or not trial.state.is_finished())
        ]

    def check(self) -> None:
        """Raise InputError for a trial whose outcome is kept and that cannot be read."""
        for trial in self._trials():
            if CLAIM in trial.user_attrs and OUTCOME in trial.user_attrs:
                self._reader.record(trial)

    def id_of(self, number: int) -> int:
        """The storage's own id of a trial."""
        if number not in self._ids:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
            self._ids[number] = trial_id
        return self._ids[number]

    @contextmanager
    def signs_of_life(self, number: int) -> Iterator[None]:
        """Tell others that this worker lives, as long as it evaluates the trial."""
        interval = (
            self._storage.get_heartbeat_interval()
            if isinstance(self._storage, RDBStorage)
            else None
        )
        if interval is None:
            yield
            return
        trial_id, done = self.id_of(number), Event()

        def beat() -> None:
            while not done.wait(interval):
                try:
                    self._send_heartbeat(trial_id)
                except (SQLAlchemyError, StorageInternalError) as error:
                    log.warning("no heartbeat could be sent: %s", reason_of(error))

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _send_heartbeat(self, trial_id: int) -> None:
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
                trial_id = self.id_of(number)
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
            self._set_state(self.id_of(trial.number), TrialState.FAIL)


def _constraints(outcome: Outcome) -> dict[str, Any]:
    """How Optuna keeps what gates say."""
    return create_trial(state=TrialState.RUNNING, constraints=outcome.constraints).system_attrs


def _ending(outcome: Outcome) -> tuple[TrialState, Sequence[float] | None]:
    """How Optuna has a trial end, and with what value."""
    if outcome.ruled_out is not None:
        return TrialState.PRUNED, None
    return (
        (TrialState.FAIL, None) if outcome.ratio is None else (TrialState.COMPLETE, [outcome.ratio])
    )
