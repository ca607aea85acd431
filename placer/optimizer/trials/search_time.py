"""How a search divides its time between trials and measurements of noise beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from placer.optimizer.trials.costs import RECENT
from placer.search.landscape.landscape import Landscape
from placer.search.records import TrialRecord
from placer.search.samplers import Proposal, Proposer

# Of the time of a search, noise beside the trials takes at most this part.
_SHARE_OF_NOISE = 0.5

KeptForTheEnd = Callable[[Sequence[TrialRecord]], float]


class SearchTime:
    """The time of one search, which all threads of a process share.

    ``deadline``: the ``time.monotonic`` time at which the run has to end; infinite without a limit.
    ``kept_s``: seconds before it that are for what follows the trials, by all trials so far.
    ``noise_s``: seconds that noise has taken.
    """

    def __init__(
        self, deadline: float, kept_s: KeptForTheEnd, earlier: Sequence[TrialRecord]
    ) -> None:
        """``earlier``: the trials of the study so far."""
        self.deadline = deadline
        self.kept_s = kept_s
        self.noise_s = 0.0
        self._start = time.monotonic()
        self._trials = list(earlier)
        self._longest_noise = 0.0

    def add(self, record: TrialRecord) -> None:
        """A trial has ended."""
        self._trials.append(record)

    @property
    def probing_ends(self) -> float:
        """The ``time.monotonic`` time after which no measurement of noise may begin.

        A trial has to fit behind it, or its outcome is of no use, and trials get a part of the time
        whatever there is to learn of noise.
        """
        if math.isinf(self.deadline):
            return math.inf
        end = self.deadline - self.kept_s(self._trials)
        if self.noise_s >= _SHARE_OF_NOISE * (end - self._start):
            return -math.inf
        return self.proposing_ends - self._longest_noise

    @property
    def proposing_ends(self) -> float:
        """The ``time.monotonic`` time after which a trial would end too late."""
        longest = max((record.seconds for record in self._trials[-RECENT:]), default=0.0)
        return self.deadline - self.kept_s(self._trials) - longest

    @contextmanager
    def of_noise(self) -> Iterator[None]:
        """Counts what is measured in it as noise beside the trials."""
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.noise_s += took
            self._longest_noise = max(self._longest_noise, took)


class TimedProposer:
    """Raises OutOfTime where a proposal is not found while a trial would still fit."""

    def __init__(
        self, proposer: Proposer, landscapes: Collection[Landscape], spent: SearchTime
    ) -> None:
        """``landscapes``: what ``proposer`` predicts layers with."""
        self._proposer = proposer
        self._landscapes = landscapes
        self._spent = spent

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        self._limit(self._spent.proposing_ends)
        try:
            return self._proposer.propose(trials)
        finally:
            self._limit(math.inf)

    def _limit(self, until: float) -> None:
        for landscape in self._landscapes:
            landscape.until = until
