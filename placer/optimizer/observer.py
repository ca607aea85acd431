"""Observers, which are told how a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.errors import InputError

if TYPE_CHECKING:
    from placer.results.objective import Objective
    from placer.search.records import TrialRecord


class Observer:
    """Is told how a run goes on, and does nothing."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def warn(self, text: str) -> None:
        """Something the user should know."""

    def search(self, budget: int | None, done: int, estimated: bool, objective: Objective) -> None:
        """The search begins; ``done`` trials were found in the study.

        ``estimated``: latencies are estimates. With the ``objective`` throughput a measurement's
        milliseconds are wall time per inference, of which its latency is no part.
        """

    def trial(self, record: TrialRecord) -> None:
        """A trial has ended."""

    def probe(self, done: int) -> None:
        """Beside the trials, the noise of a placement is measured on a few samples.

        ``done``: how often in the study, this one included.
        """

    def progress(self, done: int, total: int) -> None:
        """Part of a stage is done."""


class QuietObserver(Observer):
    """Shows nothing; warnings are in result.json."""


def observer_of(given: Observer | None) -> Observer:
    """``given``, or one that shows nothing; InputError where it lacks a method of an observer."""
    observer = QuietObserver() if given is None else given
    for name in (name for name in vars(Observer) if not name.startswith("_")):
        if not callable(getattr(observer, name, None)):
            raise InputError(
                f"`observer` has no method '{name}'; derive its class from placer.Observer, whose "
                "methods do nothing"
            )
    return observer
