"""The next proposal, prepared while a trial runs.

Once the engine works on the candidate, a thread looks for placements as if the trial took what is
predicted. If that is what it takes, the next proposal is chosen among them and what is near them,
by predictions that know the outcome; the search for them is not repeated. Else only the predictions
made on the way are of use, which the landscape keeps. So what is left of the trial's time goes into
a search site by site, in case groups promise nothing any more, and into searches as if the trial
took more, or less, than is predicted. Which of these it is, and what was planned, depends on the
trials alone: proposals are the same whatever the timing, and in a study that was killed and goes
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Protocol

from placer.quantization import Placement
from placer.search.landscape.landscape import Cancelled
from placer.search.proposals.pools import NO_PLAN, Plan
from placer.search.proposals.surrogate import SurrogateProposer, proposal_of
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal

# A thread waits so long before it begins: the candidate is sent to the engine first.
HEAD_START_S = 0.02
Expected = tuple[float, float]  # Predicted latency and its standard deviation.


class EvaluateOnEngine(Protocol):
    """As ``placer.search.study.study.Evaluate``; tells when the engine begins to work."""

    def __call__(self, placement: Placement, on_built: Callable[[], None]) -> Outcome:
        """``on_built``: called once the candidate is built, before the engine gets it.

        Threads of one process take turns, so what runs beside the building doubles its time.
        """


class RehearsingSearch:
    """A proposer and the evaluation of what it proposes, beside which it prepares the next.

    Used by one thread: ``propose`` and ``evaluate`` in turn, then ``close``.
    """

    def __init__(
        self, proposer: SurrogateProposer, evaluate: EvaluateOnEngine, *, alone: bool = True
    ) -> None:
        """``alone``: whether no other thread works on the study; else nothing is planned."""
        self._proposer = proposer
        self._evaluate = evaluate
        self._alone = alone
        self._last: tuple[tuple[TrialRecord, ...], Proposal] | None = None
        self._rehearsal: _Rehearsal | None = None

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        try:
            plan = self._plan(trials)
        finally:
            self.close()
        proposal = self._proposer.propose(trials, plan)
        self._last = None if proposal is None else (tuple(trials), proposal)
        return proposal

    def evaluate(self, placement: Placement) -> Outcome:
        """See ``placer.search.study.study.Evaluate``."""
        space, last, self._last = self._proposer.landscape.space, self._last, None
        # A trial that waited, as after a kill, is another than was proposed last.
        if last is None or space.placement(last[1].choices) != placement:
            return self._evaluate(placement, lambda: None)
        before, running = last

        def rehearse() -> None:
            self._rehearsal = _Rehearsal(self._proposer, before, running)

        try:
            return self._evaluate(placement, rehearse)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End what is being prepared. Raises what has failed in it."""
        rehearsal, self._rehearsal = self._rehearsal, None
        if rehearsal is not None:
            rehearsal.end()

    def _plan(self, trials: Sequence[TrialRecord]) -> Plan:
        """Where to look, if that may be planned and the last trial is as expected."""
        if not (self._alone and trials and self._proposer.plans(trials)):
            return NO_PLAN
        before, last = trials[:-1], trials[-1]
        rehearsal = self._rehearsal
        if rehearsal is not None and rehearsal.is_of(trials):
            if self._proposer.is_expected(last, rehearsal.expected.result()):
                return rehearsal.plan.result()
            return NO_PLAN
        self.close()
        expected = self._proposer.expected(before, last.choices)
        return self._proposer.planned(trials) if self._proposer.is_expected(last, expected) else {}


class _Rehearsal:
    """A thread that prepares the proposal after ``running``."""

    def __init__(
        self, proposer: SurrogateProposer, trials: Sequence[TrialRecord], running: Proposal
    ) -> None:
        self.expected: Future[Expected] = Future()
        self.plan: Future[Plan] = Future()
        self._done: Future[None] = Future()
        self._proposer = proposer
        self._trials, self._proposal = tuple(trials), running
        Thread(target=self._run, name="rehearsal", daemon=True).start()

    def is_of(self, trials: Sequence[TrialRecord]) -> bool:
        """Whether it expects the last of ``trials``."""
        return tuple(trials[:-1]) == self._trials and proposal_of(trials[-1]) == self._proposal

    def end(self) -> None:
        """Have it end now. Raises what has failed in it."""
        cancel = self._proposer.landscape.cancel
        cancel.set()
        error = self._done.exception()
        cancel.clear()
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            with suppress(Cancelled):  # Then nobody asks for what is not there.
                self._proposer.landscape.cancel.wait(HEAD_START_S)
                choices = self._proposal.choices
                self.expected.set_result(self._proposer.expected(self._trials, choices))
                plan = self._proposer.rehearse(self._trials, self._proposal)
                self.plan.set_result(plan)
                self._proposer.rehearse_surprises(self._trials, self._proposal, plan)
        except BaseException as error:  # Raised in the thread that asks for it.
            for asked in (self.expected, self.plan):
                if not asked.done():
                    asked.set_exception(error)
            self._done.set_exception(error)
        else:
            self._done.set_result(None)
