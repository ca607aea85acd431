"""The study: an Optuna study in any storage whose trials are placements.

How several workers share its trials: ``placer.search.study.trial_store``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from threading import Event, Lock
from typing import Any, Literal, Protocol, TypeVar

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage
from pydantic import FiniteFloat, TypeAdapter
from sqlalchemy.exc import SQLAlchemyError

from placer.common.interrupts import held_back
from placer.errors import InputError, RunError
from placer.quantization import Placement
from placer.results.parts import StopReason
from placer.search.out_of_time import OutOfTime
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal, Proposer
from placer.search.space import Space
from placer.search.study.background_writes import BackgroundWrites
from placer.search.study.database_errors import reason_of
from placer.search.study.database_retries import DatabaseRetries
from placer.search.study.own_trials import OwnTrials
from placer.search.study.shared_trials import SharedTrials
from placer.search.study.storage import FULL, is_full, open_study, reading
from placer.search.study.trial_attributes import FIX
from placer.search.study.trial_store import Claim, TrialStore

STUDY_NAME = "placer"
T = TypeVar("T")
POLL_S = 0.5
# Trials by which it is judged how long the next one may take.
RECENT = 5
# The first digits of a SHA-256 hash.
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


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
        self._shared = shared
        self._place = place or name
        self._lock = Lock()  # One thread at a time looks for the next trial.
        self._retries = DatabaseRetries.of(storage)
        self._writes = BackgroundWrites()
        with reading(self._place):
            self._study = self._ask(lambda: open_study(storage, name))
        self._store = TrialStore(storage, self._study, space, shared=shared, place=self._place)
        self._trials = (
            SharedTrials(self._store, self._ask)
            if shared
            else OwnTrials(self._store, self._ask, self._write, self._place)
        )
        self._attributes: dict[str, Any] | None = None  # Those of a study of its own, once read.
        wanted: dict[str, Any] = json.loads(json.dumps(settings))  # As they come back.
        # With other settings, trials of another space are no damaged ones.
        is_new = self._check_settings(wanted, fix)
        self._ask(self._store.check)  # Before anything is written.
        if is_new:
            self.set_attribute("settings", wanted)
        if not shared:
            self._ask(self._store.end_interrupted)

    def _ask(self, operation: Callable[[], T]) -> T:
        """What ``operation``, which Ctrl-C does not cut short, returns once the database answers.

        It is done after all that is to be written. Raises RunError if that or it fails, or the
        database does not answer for ``database_retries.WAIT_S``.
        """
        self._writes.wait()
        return self._done(operation)

    def _write(self, operation: Callable[[], object], after_s: float = 0.0) -> None:
        """Have ``operation`` done beside what comes next; raises what an earlier one raised.

        ``after_s``: see ``BackgroundWrites.add``.
        """
        self._writes.add(lambda: self._done(operation), after_s=after_s)

    def _done(self, operation: Callable[[], T]) -> T:
        """See ``_ask``."""

        def uncut() -> T:
            with held_back():
                return operation()

        try:
            return self._retries(uncut)
        except (SQLAlchemyError, StorageInternalError) as error:
            reason = FULL if is_full(error) else f"failed ({reason_of(error)})"
            raise RunError(
                f"the database of {self._place}: {reason}; run the same command again to resume"
            ) from error

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
        return [record for record in self._trials.known() if not record.running]

    def reserve(self, least: int) -> int:
        """A number of at least ``least`` for a proposal, which no other worker's proposal gets."""
        return self._ask(lambda: self._store.reserve(least))

    def keep(self, key: str, compute: Callable[[], float], deadline: float | None = None) -> float:
        """The value kept under ``key``, or else what ``compute`` returns, which is then kept.

        Raises OutOfTime instead of computing after ``deadline``, a ``time.monotonic`` time.
        """
        if self.attribute(key, FiniteFloat) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise OutOfTime
            self._set(key, compute(), waits=False)
        return float(self.attribute(key, FiniteFloat))  # Another worker may have kept its own.

    def kept(self, prefix: str) -> int:
        """How many values are kept under keys that begin with ``prefix``."""
        return sum(key.startswith(prefix) for key in [*self._all_attributes()])

    def attribute(self, key: str, kind: Any = Any) -> Any:
        """A JSON value of type ``kind`` that is kept with the study, None if there is none.

        Raises InputError if it is damaged.
        """
        try:
            value = self._all_attributes().get(key)
            return None if value is None else _reader(kind).validate_python(value)
        except ValueError as error:
            raise InputError(
                f"{self._place} holds a damaged study: its '{key}' cannot be read; {FIX}"
            ) from error

    def set_attribute(self, key: str, value: Any) -> None:
        """Keep a JSON value with the study."""
        self._set(key, value, waits=True)

    def _all_attributes(self) -> Mapping[str, Any]:
        """What is kept with the study; read once where no other process writes to it."""
        if self._shared:
            return self._ask(lambda: self._study.user_attrs)
        if self._attributes is None:
            self._attributes = self._ask(lambda: self._study.user_attrs)
        return self._attributes

    def _set(self, key: str, value: Any, *, waits: bool) -> None:
        """``waits``: until it is written."""
        do = self._ask if waits or self._shared else self._write
        do(lambda: self._study.set_user_attr(key, value))
        if self._attributes is not None:
            self._attributes[key] = json.loads(json.dumps(value))

    def _check_settings(self, wanted: Mapping[str, Any], fix: str) -> bool:
        """Whether no settings are kept yet; InputError if they are other ones than ``wanted``."""
        kept = self.attribute("settings", dict[str, Any])
        if kept is None:
            return True
        # In the order of `wanted`: another model has other data, too, and that says less.
        for key in (*wanted, *sorted(kept.keys() - wanted.keys())):
            if kept.get(key) != wanted.get(key):
                raise InputError(
                    f"{self._place} holds a study with other settings ({key}: "
                    f"{_shown(kept.get(key))}, now {_shown(wanted.get(key))}); {fix}"
                )
        return False

    def run(
        self,
        proposer: Proposer,
        evaluate: Evaluate,
        *,
        budget: int | None,
        deadline: float | None,
        on_trial: Callable[[TrialRecord], None],
        stop: Event | None = None,
        kept_s: Callable[[Sequence[TrialRecord]], float] | None = None,
    ) -> StopReason:
        """Evaluate placements until ``budget`` trials are in the study or ``deadline`` passes.

        ``deadline`` is a ``time.monotonic`` time; no trial begins that would end after it if it
        took as long as the longest of the last ``RECENT``, and ``proposer`` may raise OutOfTime
        after it. ``kept_s``: seconds before it that are not for trials, by all trials so far.
        Returns why it stopped: ``budget``, ``timeout``, ``converged`` (the proposer has nothing
        more to try) or ``interrupted`` (``stop`` is set).
        May run in several threads and processes at once, each with its own ``proposer`` and
        ``evaluate``; each returns when nothing is left to do and no trial is running, since the
        trial of a worker that died is tried again. Proposers are asked by one thread at a time.
        An exception from ``evaluate`` gives the trial back. Raises RunError if the storage fails.
        """
        asked = _Asked(proposer)
        known = [] if deadline is None else self.records()

        def is_late() -> bool:
            if deadline is None:
                return False
            kept = 0.0 if kept_s is None else kept_s(known)
            took = _longest([record.seconds for record in known])
            return time.monotonic() + took + kept >= deadline

        try:
            while stop is None or not stop.is_set():
                if is_late():
                    return "timeout"
                with self._lock:
                    step = self._next(asked, budget, is_late)
                if isinstance(step, Claim):
                    record = self._evaluate(step, evaluate)
                    if record is not None:
                        known.append(record)
                        on_trial(record)
                elif step == "wait":
                    time.sleep(POLL_S)
                elif step != "again":
                    return step
            return "interrupted"
        finally:
            self._writes.wait()

    def _next(
        self, proposer: Proposer, budget: int | None, is_late: Callable[[], bool]
    ) -> Claim | StopReason | Literal["wait", "again"]:
        """Claim the next trial; else why there is none."""
        answer = self._trials.take_waiting(budget)
        if isinstance(answer, Claim):
            return answer
        is_running = any(record.running for record in answer)
        if budget is not None and len(answer) >= budget:
            return "wait" if is_running else "budget"
        try:
            proposal = proposer.propose(answer)
        except OutOfTime:
            return "timeout"
        if proposal is None:
            return "wait" if is_running else "converged"
        if is_late():  # What noise had to be measured for the proposal may have taken long.
            return "timeout"
        return self._trials.claim(proposal, answer, budget) or "again"

    def _evaluate(self, claim: Claim, evaluate: Evaluate) -> TrialRecord | None:
        """Evaluate the trial; None if it was given to another worker meanwhile."""
        start, number = time.monotonic(), claim.number
        with self._store.signs_of_life(number):
            try:
                outcome = evaluate(self.space.placement(claim.choices))
            except BaseException:
                with held_back():
                    self._trials.give_back(number)
                raise
        ended = replace(outcome, seconds=time.monotonic() - start)
        return self._trials.end(number, ended)


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _longest(seconds: Sequence[float]) -> float:
    """What the next trial may take by those before it; nothing is known before the first."""
    return max(seconds[-RECENT:], default=0.0)


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


def _shown(setting: object) -> str:
    """A setting for messages, hashes cut short; one that is not there was not asked for."""
    if isinstance(setting, list):
        setting = ", ".join(map(str, setting))
    return "none" if setting is None else _HASH.sub(r"\1", str(setting))
