"""Where the search for the best prediction begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.search.landscape.landscape import Landscape, State, apply
from placer.search.proposals.progress import Progress
from placer.search.records import TrialRecord

# Random restarts, and how many changes of the best trial each begins with.
RESTARTS, KICK = 4, 4


def starts(
    landscape: Landscape,
    trials: Sequence[tuple[State, TrialRecord]],
    progress: Progress,
    seed: Sequence[int],
) -> list[State]:
    """The best of ``trials``, what the rules and the extremes say, and changes of the best.

    ``trials``: with the states of their placements; one at least has a latency.
    """
    space = landscape.space
    ranked = sorted(
        (trial.violation, progress.excess(trial), trial.ratio, state)
        for state, trial in trials
        if trial.ratio is not None
    )
    best = [state for *_, state in ranked[:2]]
    fixed = (space.defaults, space.least, space.everything, space.weighted_only)
    states = [*best, *(landscape.state(choices) for choices in fixed)]
    rng = np.random.default_rng(seed)
    for _ in range(RESTARTS):
        picks = rng.integers(len(landscape.group_moves), size=KICK)
        states.append(apply(best[0], [landscape.group_moves.moves[int(i)] for i in picks]))
    return list(dict.fromkeys(states))
