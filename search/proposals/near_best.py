"""Changes of one or two groups of the best placement, where predictions cannot be trusted afar."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np

from placer.search.landscape.landscape import Landscape, Move, Moves, State, apply
from placer.search.models.latency_model import LatencyModel

# Of changes of one group, and then of two, so many are looked at one by one; of the first, so many
# are paired, those with the least predicted latency.
SINGLE, DOUBLE, PAIRED = 192, 48, 16


def near_best(
    landscape: Landscape,
    latency: LatencyModel,
    best: tuple[float, State],
    moves: Moves,
    allowed: Callable[[State], bool],
) -> State | None:
    """The change of ``best``, a latency and its state, of which most gain is expected.

    Losses count as 0 (expected improvement: Jones, Schonlau and Welch 1998). ``allowed``: whether a
    state is untried and may hold the gates. None if none is.
    """
    ratio, state = best
    gains, changes = landscape.gains(state, latency.objective(), moves)
    alters = changes & landscape.alters(state, moves)
    order = [i for i in np.argsort(gains, kind="stable").tolist() if alters[i]]
    single = {i: apply(state, [moves.moves[i]]) for i in order[:SINGLE]}
    predicted = {other: latency.predict(other) for other in single.values()}
    means = {i: predicted[other][0] for i, other in single.items()}
    pairs = sorted(
        (means[i] + means[j], apply(state, [moves.moves[i], moves.moves[j]]))
        for i, j in combinations(sorted(single, key=lambda i: means[i])[:PAIRED], 2)
        if not _sites(moves.moves[i]) & _sites(moves.moves[j])
    )
    for _, pair in pairs[:DOUBLE]:
        predicted.setdefault(pair, latency.predict(pair))
    promising = [(expected_gain(ratio - mean, d), other) for other, (mean, d) in predicted.items()]
    # Whether a state is allowed takes longer to tell than its latency.
    return next((other for _, other in sorted(promising, reverse=True) if allowed(other)), None)


def _sites(move: Move) -> set[int]:
    return {site for site, _ in move}


def expected_gain(gain: float, deviation: float) -> float:
    """Expectation of a normal ``gain`` where losses count as 0."""
    if deviation <= 0:
        return max(gain, 0.0)
    z = gain / deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return gain * 0.5 * (1 + math.erf(z / math.sqrt(2))) + deviation * density
