"""Predictions for the next proposal while a trial runs.

The thread that works them out only fills what the landscape keeps, and is stopped when the trial
has ended. So proposals are the same whatever the timing, and with or without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

from placer.quantization import Placement
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.study import Evaluate
from placer.search.surrogate import SurrogateProposer


class RehearsingSearch:
    """A proposer and the evaluation of what it proposes, beside which it rehearses the next.

    Used by one thread: ``propose`` and ``evaluate`` in turn.
    """

    def __init__(self, proposer: SurrogateProposer, evaluate: Evaluate) -> None:
        self._proposer = proposer
        self._evaluate = evaluate
        self._last: tuple[tuple[TrialRecord, ...], Proposal] | None = None

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        proposal = self._proposer.propose(trials)
        self._last = None if proposal is None else (tuple(trials), proposal)
        return proposal

    def evaluate(self, placement: Placement) -> Outcome:
        """See ``placer.search.study.Evaluate``."""
        space, last, self._last = self._proposer.landscape.space, self._last, None
        # A trial that waited, as after a kill, is another than was proposed last.
        if last is None or space.placement(last[1].choices) != placement:
            return self._evaluate(placement)
        with self._rehearsing(*last):
            return self._evaluate(placement)

    @contextmanager
    def _rehearsing(self, trials: Sequence[TrialRecord], running: Proposal) -> Iterator[None]:
        done: Future[None] = Future()

        def rehearse() -> None:
            try:
                self._proposer.rehearse(trials, running)
            except BaseException as error:  # Raised below, in the thread that asked for it.
                done.set_exception(error)
            else:
                done.set_result(None)

        cancel = self._proposer.landscape.cancel
        Thread(target=rehearse, daemon=True).start()
        try:
            yield
        finally:
            cancel.set()
            error = done.exception()
            cancel.clear()
        if error is not None:
            raise error
