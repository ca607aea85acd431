"""Trials of a study that several processes work on: every step asks the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.study.trial_store import Claim, TrialStore

T = TypeVar("T")


class Ask(Protocol):
    """Asks the database, and again where it does not answer."""

    def __call__(self, operation: Callable[[], T]) -> T:
        """Return what ``operation`` returns."""


class SharedTrials:
    """The trials of ``store``; see ``TrialStore`` for its methods."""

    def __init__(self, store: TrialStore, ask: Ask) -> None:
        self._store = store
        self._ask = ask

    def take_waiting(self, budget: int | None) -> Claim | list[TrialRecord]:
        """A trial that waited and is this worker's now, else all trials."""

        def take() -> Claim | list[TrialRecord]:
            self._store.end_measured()
            self._store.fail_stale()
            return self._store.take_waiting(budget)

        return self._ask(take)

    def known(self) -> list[TrialRecord]:
        """All trials."""
        return self._ask(self._store.known)

    def claim(
        self, proposal: Proposal, known: Sequence[TrialRecord], budget: int | None
    ) -> Claim | None:
        """Create a trial that this worker runs, unless another worker's trial came first."""
        return self._ask(lambda: self._store.claim(proposal, known, budget))

    def end(self, number: int, outcome: Outcome) -> TrialRecord | None:
        """Keep ``outcome``; None if the trial was given to another worker meanwhile."""
        return self._ask(lambda: self._store.end(number, outcome))

    def give_back(self, number: int) -> None:
        """End a trial that was interrupted."""
        self._store.give_back(number)
