"""The best trial that holds the gates so far, and how many trials came since."""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.search.records import TrialRecord

# What counts as a gain, in parts of the float model's latency, and after how many trials without
# one the search may end.
RESOLUTION, PATIENCE = 1e-3, 16


class Progress:
    """Of ``trials`` towards ``target``, a noise power; infinite for the gates alone.

    ``best``: the least latency, infinite if nothing held. ``holds_best``: whether it is of one of
    ``counted``, the trials in this base precision.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], counted: Sequence[TrialRecord], target: float
    ) -> None:
        self._trials = trials
        self._target = target
        self.best = min(self.feasible(trials), default=math.inf)
        self.holds_best = min(self.feasible(counted), default=math.inf) <= self.best

    def feasible(self, trials: Sequence[TrialRecord]) -> list[float]:
        """Latencies of the trials that hold the gates within the target."""
        ended = (trial for trial in trials if not trial.running)
        held = (trial for trial in ended if trial.feasible and self.excess(trial) <= 0)
        return [trial.ratio for trial in held if trial.ratio is not None]

    def excess(self, trial: TrialRecord) -> float:
        """By how many times a trial's noise is above the target; 0 if it is within."""
        if math.isinf(self._target):
            return 0.0
        return math.inf if trial.noise is None else max(0.0, trial.noise / self._target - 1)

    def is_gain(self, latency: float) -> bool:
        """Whether ``latency`` is clearly less than the best."""
        return latency < self.best - RESOLUTION

    def has_stalled(self, patience: int = PATIENCE) -> bool:
        """Whether the last trials, as many as ``patience``, brought nothing."""
        ended = [trial for trial in self._trials if not trial.running]
        before = min(self.feasible(ended[:-patience]), default=math.inf)
        return len(ended) > patience and before <= self.best + RESOLUTION
