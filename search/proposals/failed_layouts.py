"""What failed trials say of layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.search.landscape.landscape import State
from placer.search.records import TrialRecord

# What a layout costs that only failed trials had, shared by the suspects of a trial.
FAILED = 0.5


def costs_of_failures(
    states: Sequence[State], trials: Sequence[TrialRecord], shape: tuple[int, int]
) -> np.ndarray:
    """The cost of layouts that only failed trials have, ``shape`` (sites, layouts)."""
    worked: set[tuple[int, int]] = set()
    for state, trial in zip(states, trials, strict=True):
        if trial.error is None:
            worked.update(enumerate(state))
    costs = np.zeros(shape)
    for state, trial in zip(states, trials, strict=True):
        suspects = set(enumerate(state)) - worked if trial.error is not None else set()
        for site, layout in suspects:
            costs[site, layout] += FAILED / len(suspects)
    return costs
