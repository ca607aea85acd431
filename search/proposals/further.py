"""Placements further from the best one, where latencies are off the sum of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from placer.search.landscape.landscape import Landscape, Moves, Objective, State, apply
from placer.search.models.latency_model import LatencyModel
from placer.search.proposals.near_best import SINGLE

# A descent has at most so many steps; of what is beside its end so many are looked at, too.
STEPS, BESIDE = 20, 4
# A change of the predicted latency that is a gain.
LEAST = -1e-9


def on_descents(
    landscape: Landscape,
    latency: LatencyModel,
    starts: Iterable[State],
    moves: Moves,
    holds: Callable[[State], bool],
) -> list[State]:
    """What descents of the predicted latency, its errors included, come by from ``starts``.

    Other descents know the sum of layers only. ``holds``: whether a state may hold the gates.
    """
    objective = latency.objective()
    paths = (_descent(landscape, latency, objective, start, moves, holds) for start in starts)
    return list(dict.fromkeys(state for path in paths for state in path))


def _descent(
    landscape: Landscape,
    latency: LatencyModel,
    objective: Objective,
    start: State,
    moves: Moves,
    holds: Callable[[State], bool],
) -> Sequence[State]:
    """The states on the way down, the best change each time, and the best beside its end."""
    path = [start]
    for _ in range(STEPS):
        state = path[-1]
        gains, changes = landscape.gains(state, objective, moves)
        order = [i for i in np.argsort(gains, kind="stable").tolist() if changes[i]]
        others = [(gains[i], apply(state, [moves.moves[i]])) for i in order[:SINGLE]]
        error = latency.error(state)
        ranked = sorted((g + latency.error(other) - error, other) for g, other in others)
        held = [(change, other) for change, other in ranked if holds(other)]
        if not held or held[0][0] > LEAST:
            return [*path, *(other for _, other in held[:BESIDE])]
        path.append(held[0][1])
    return path
