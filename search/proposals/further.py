"""Placements further from the best one, where latencies are off the sum of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

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
    found, passed = dict[State, None](), set[State]()
    for start in starts:
        path = _descent(landscape, latency, objective, start, moves, holds, passed)
        found.update(dict.fromkeys(path))
    return list(found)


def _descent(
    landscape: Landscape,
    latency: LatencyModel,
    objective: Objective,
    start: State,
    moves: Moves,
    holds: Callable[[State], bool],
    passed: set[State],
) -> Sequence[State]:
    """The states on the way down, the best change each time, and the best beside its end.

    ``passed``: where descents have been, from where this one would go on as they did.
    """
    path = [start]
    while len(path) <= STEPS and path[-1] not in passed:
        state = path[-1]
        passed.add(state)
        gains, changes = landscape.gains(state, objective, moves)
        order = [i for i in np.argsort(gains, kind="stable").tolist() if changes[i]][:SINGLE]
        with_errors = gains + latency.errors_after(state, moves) - latency.error(state)
        order.sort(key=with_errors.__getitem__)
        others = ((with_errors[i], apply(state, [moves.moves[i]])) for i in order)
        held = list(islice(((change, other) for change, other in others if holds(other)), BESIDE))
        if not held or held[0][0] > LEAST:
            return [*path, *(other for _, other in held)]
        path.append(held[0][1])
    return path
