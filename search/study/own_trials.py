"""Trials of a study on which no other process works.

What this process has done is all there is, so nobody asks the database for it. What has to be
written is written beside the engine's work: the outcome of a trial while the next one is proposed,
and that a trial has begun while it runs. A process that is killed loses no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from placer.errors import RunError
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.study.shared_trials import Ask
from placer.search.study.trial_attributes import as_kept
from placer.search.study.trial_store import Claim, TrialStore

# Threads of one process take turns: that a trial has begun is written once its candidate is built.
HEAD_START_S = 0.1


class WritesSoon(Protocol):
    """Has something written beside what comes next, in order."""

    def __call__(self, operation: Callable[[], object], after_s: float = 0.0) -> None:
        """``after_s``: not before so many seconds, unless something else is to be written."""


@dataclass
class _Known:
    """``records``: all trials by number. ``next``: the number of the next one."""

    records: dict[int, TrialRecord]
    next: int


class OwnTrials:
    """The trials of ``store``, for threads of one process. See ``TrialStore`` for its methods."""

    def __init__(
        self,
        store: TrialStore,
        ask: Ask,
        write: WritesSoon,
        place: str,
    ) -> None:
        """``write``: has something written soon, in order. ``place``: for messages."""
        self._store = store
        self._ask = ask
        self._write = write
        self._place = place
        self._lock = Lock()
        self._known: _Known | None = None  # Until the study is read.

    def take_waiting(self, budget: int | None) -> Claim | list[TrialRecord]:
        """A trial that waits, which only another worker has left; without one all ``known``."""
        with self._lock:
            if self._known is None:
                answer = self._ask(lambda: self._store.take_waiting(budget))
                if isinstance(answer, Claim):
                    return answer
            return list(self._read().records.values())

    def known(self) -> list[TrialRecord]:
        """All trials, which are not read again once the first was asked for."""
        with self._lock:
            if self._known is not None:
                return list(self._known.records.values())
        return self._ask(self._store.known)

    def _read(self) -> _Known:
        """All trials, which are read once."""
        if self._known is None:
            records = {record.number: record for record in self._ask(self._store.known)}
            self._known = _Known(records, self._ask(self._store.count))
        return self._known

    def claim(self, proposal: Proposal, known: Sequence[TrialRecord], budget: int | None) -> Claim:
        """Begin a trial; that it has begun is written later."""
        placement_id = self._store.placement_id(proposal)
        with self._lock:
            cache = self._read()
            number, cache.next = cache.next, cache.next + 1
            cache.records[number] = TrialRecord(
                number=number,
                kind=proposal.kind,
                choices=dict(proposal.choices),
                placement_id=placement_id,
                running=True,
                skipped=proposal.skipped,
            )

        def write() -> None:
            claim = self._store.claim(proposal, known, budget)
            if claim is None or claim.number != number:
                raise RunError(
                    f"another process writes to {self._place}; run the same command again to resume"
                )

        self._write(write, HEAD_START_S)
        return Claim(number, proposal.choices)

    def end(self, number: int, outcome: Outcome) -> TrialRecord | None:
        """Return the trial with its outcome, which is written soon."""
        with self._lock:
            known = self._known
            running = None if known is None else known.records.get(number)
        if known is None or running is None:  # It had waited, and the study was not read since.
            return self._ask(lambda: self._store.end(number, outcome))
        record = as_kept(running, outcome)
        with self._lock:
            known.records[number] = record
        self._write(lambda: self._store.write_end(number, outcome))
        return record

    def give_back(self, number: int) -> None:
        """End a trial that was interrupted: it has no result and may be tried again."""
        with self._lock:
            if self._known is not None:
                self._known.records.pop(number, None)
        self._write(lambda: self._store.give_back(number))
