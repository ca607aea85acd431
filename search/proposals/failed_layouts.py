"""What failed trials say of layouts."""

from __future__ import annotations

from collections.abc import Sequence

from placer.search.landscape.landscape import Objective, State
from placer.search.records import TrialRecord

# What a layout costs that only failed trials had, shared by the suspects of a trial.
FAILED = 0.5


def with_failures(
    objective: Objective, states: Sequence[State], trials: Sequence[TrialRecord]
) -> Objective:
    """Add a cost to layouts that only failed trials have."""
    worked: set[tuple[int, int]] = set()
    for state, trial in zip(states, trials, strict=True):
        if trial.error is None:
            worked.update(enumerate(state))
    extras = objective.extras.copy()
    for state, trial in zip(states, trials, strict=True):
        suspects = set(enumerate(state)) - worked if trial.error is not None else set()
        for site, layout in suspects:
            extras[site, layout] += FAILED / len(suspects)
    return Objective(objective.costs, extras)
