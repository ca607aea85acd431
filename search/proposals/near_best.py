"""Changes of one or two groups of the best placement, where predictions cannot be trusted afar."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, islice

import numpy as np

from placer.search.landscape.landscape import Landscape, Move, Moves, State, apply
from placer.search.landscape.moves import sites_of
from placer.search.models.latency_model import LatencyModel

# Of changes of one group, and then of two untried ones, so many are looked at one by one; of the
# first, so many are paired, those with the least predicted latency.
SINGLE, DOUBLE, PAIRED = 192, 48, 16

# An expected gain, in parts of the float model's latency, and what it is expected of.
Promising = tuple[float, State]
# Expected latency and its standard deviation, of the float model's.
Predicted = tuple[float, float]


def near_best(
    landscape: Landscape,
    latency: LatencyModel,
    best: tuple[float, State],
    moves: Moves,
    allowed: Callable[[State], bool],
    likely: Callable[[State], bool],
    known: dict[Move, Predicted],
) -> Promising | None:
    """The change of ``best``, a latency and its state, of which most gain is expected.

    Losses count as 0 (expected improvement: Jones, Schonlau and Welch 1998). ``allowed``: whether a
    state is untried and may hold the gates. ``likely``: the same but for other states that are one
    to the engine, which takes longer to tell. ``known``: predictions of changes of ``best``, to
    which those are added that are made. None if none is allowed.
    """
    ratio, state = best
    gains, changes = landscape.gains(state, latency.objective(), moves)
    alters = changes & landscape.alters(state, moves)
    order = [i for i in np.argsort(gains, kind="stable").tolist() if alters[i]]
    alone = [moves.moves[i] for i in order[:SINGLE]]
    single = _predicted(landscape, latency, state, alone, known)
    paired = sorted(single, key=lambda move: single[move][0])[:PAIRED]
    pairs = sorted(
        (single[a][0] + single[b][0], tuple(sorted((*a, *b))))
        for a, b in combinations(paired, 2)
        if not sites_of(a) & sites_of(b)
    )
    # Else those that were tried would leave no place for others.
    untried = (pair for _, pair in pairs if likely(apply(state, [pair])))
    double = _predicted(landscape, latency, state, list(islice(untried, DOUBLE)), known)
    promising = [
        (expected_gain(ratio - mean, deviation), apply(state, [move]))
        for move, (mean, deviation) in (double | single).items()
    ]
    return _best_allowed(promising, allowed)


def most_promising(
    latency: LatencyModel,
    ratio: float,
    states: Sequence[State],
    allowed: Callable[[State], bool],
) -> Promising | None:
    """That of ``states`` of which most gain is expected over ``ratio``, a latency."""
    predicted = [(state, latency.predict(state)) for state in states]
    promising = [(expected_gain(ratio - mean, d), state) for state, (mean, d) in predicted]
    return _best_allowed(promising, allowed)


def _best_allowed(
    promising: Sequence[Promising], allowed: Callable[[State], bool]
) -> Promising | None:
    # Whether a state is allowed takes longer to tell than its latency.
    return next((own for own in sorted(promising, reverse=True) if allowed(own[1])), None)


def _predicted(
    landscape: Landscape,
    latency: LatencyModel,
    state: State,
    changes: Sequence[Move],
    known: dict[Move, Predicted],
) -> dict[Move, Predicted]:
    """Predictions by change of ``state``; those that are not ``known`` are added to it."""
    moves = landscape.moves([change for change in changes if change not in known])
    known.update(zip(moves.moves, latency.predict_changes(state, moves), strict=True))
    return {change: known[change] for change in changes}


def expected_gain(gain: float, deviation: float) -> float:
    """Expectation of a normal ``gain`` where losses count as 0."""
    if deviation <= 0:
        return max(gain, 0.0)
    z = gain / deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return gain * 0.5 * (1 + math.erf(z / math.sqrt(2))) + deviation * density
