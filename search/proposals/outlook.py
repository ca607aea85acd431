"""What one proposal expects of latency, and where it begins to look."""

from __future__ import annotations

import math
from functools import cached_property

from placer.search.landscape.landscape import Objective, State
from placer.search.models.latency_model import LatencyModel
from placer.search.proposals.failed_layouts import costs_of_failures
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.progress import Progress
from placer.search.proposals.starts import starts
from placer.search.proposals.tried import Tried

# What random numbers are drawn for.
DRAW, START, NOISE, CHECK = 1, 2, 3, 4


class Outlook:
    """What the trials tell of latency.

    ``turn``: number of the proposal, the seed of its random numbers. ``explores``: whether costs
    are drawn instead of expected.
    """

    def __init__(
        self, knowledge: Knowledge, tried: Tried, progress: Progress, turn: int, *, explores: bool
    ) -> None:
        self.landscape = knowledge.landscape
        self.turn = turn
        self.explores = explores
        self._knowledge, self._tried, self._progress = knowledge, tried, progress

    @cached_property
    def latency(self) -> LatencyModel:
        """The model of latency, in which layouts that only failed trials have cost more."""
        model = self._knowledge.latency(self._tried.trials)
        tried = self._tried
        costs = costs_of_failures(self.landscape, tried.states, tried.trials, tried.best_held())
        return model.with_extras(costs) if costs.any() else model

    @cached_property
    def objective(self) -> Objective:
        """What descents lower."""
        draw = seed_for(self._knowledge, self.turn, DRAW) if self.explores else None
        return self.latency.objective(draw)

    @cached_property
    def starts(self) -> list[State]:
        """Where descents begin."""
        tried = list(zip(self._tried.states, self._tried.trials, strict=True))
        seed = seed_for(self._knowledge, self.turn, START)
        return starts(self.landscape, tried, self._progress, seed)

    @property
    def is_misfit(self) -> bool:
        """Whether latencies are off what layers explain by more than their measurement."""
        has_best = self._progress.holds_best and self._progress.best < math.inf
        return has_best and self.latency.misfit.deviation > 0

    def optimistic(self, state: State) -> float:
        """Predicted latency, two standard deviations below what is expected."""
        mean, deviation = self.latency.predict(state)
        return mean - 2 * deviation


def seed_for(knowledge: Knowledge, turn: int, purpose: int) -> list[int]:
    """Every purpose draws from a seed of its own, however often others draw."""
    return [knowledge.seed, turn, purpose]
