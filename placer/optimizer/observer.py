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

    def search(
        self,
        budget: int | None,
        done: int,
        best: float | None,
        estimated: bool,
        objective: Objective,
    ) -> None:
        """The search begins; ``done`` trials were found in the study.

        ``best``: the latency of the fastest of these that meets the gates, as a part of the float
        model's; None if none does. ``estimated``: latencies are estimates. With the ``objective``
        throughput a measurement's milliseconds are wall time per inference, of which its latency
        is no part.
        """

    def trial(self, record: TrialRecord) -> None:
        """A trial has ended."""

    def probe(self, done: int) -> None:
        """Beside the trials, the noise of a placement is measured on a few samples.

        ``done``: how often in the study, this one included.
        """

    def progress(self, done: int, total: int) -> None:
        """Part of a stage is done."""


QuietObserver = Observer  # Warnings are in result.json, too.


def observer_of(given: Observer | None) -> Observer:
    """``given``, or one that does nothing; InputError where it is a class or lacks a method.

    It need not derive from ``Observer``, though type checkers ask for that.
    """
    observer = Observer() if given is None else given
    if isinstance(observer, type):
        raise InputError(
            f"`observer` is the class {observer.__name__}; give an object of it, as "
            f"`{observer.__name__}()`"
        )
    for name in (name for name in vars(Observer) if not name.startswith("_")):
        if not callable(getattr(observer, name, None)):
            raise InputError(
                f"`observer` has no method '{name}'; derive its class from placer.Observer, whose "
                "methods do nothing"
            )
    return observer
