"""The limit of noise in a vast landscape: the price at which it is held, and what fits in.

One change more or less is next to nothing there, so many are chosen at once: those that gain most
for their noise, as in the relaxation of a knapsack (Dantzig 1957, Discrete-variable extremum
problems).
"""

from __future__ import annotations

import numpy as np

from placer.search.landscape.descent import LEAST, Near
from placer.search.landscape.landscape import Landscape, Move, Moves, Objective, State, apply
from placer.search.models.noise_model import NoiseModel

# Prices that are compared: parts of the float model's latency for all noise that gates allow.
PRICES = np.concatenate([[0.0], np.geomspace(1e-3, 30, 60)])
# So often is what room is left filled, each time with so many changes at most.
FILLS, AT_ONCE = 4, 256


def price_at_limit(
    landscape: Landscape, state: State, objective: Objective, noise: NoiseModel, limit: float
) -> float:
    """The price of noise at which changes of groups of ``state`` that pay lead to ``limit``.

    As if what groups do added up; the least of ``PRICES`` at which that is held.
    """
    moves = landscape.group_moves
    gains = Near(landscape, state, objective, moves).gains()
    noises, room = moves.change(noise.extras, state), limit - noise.predict(state)
    owners = moves.sites[moves.site_starts]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    for price in PRICES.tolist():
        values = gains + price / limit * noises
        best = np.minimum.reduceat(values, starts)
        # Of each group the best change, the first of equals.
        taken = (values < LEAST) & (values == np.repeat(best, np.diff([*starts, len(values)])))
        if noises[taken].sum() <= room:
            return float(price)
    return float(PRICES[-1])


def filled(
    landscape: Landscape,
    state: State,
    objective: Objective,
    moves: Moves,
    noise: NoiseModel,
    limit: float,
) -> State:
    """``state`` after changes that gain latency within ``limit``, those of most gain for their
    noise.
    """
    near = Near(landscape, state, objective, moves)
    for _ in range(FILLS):
        noises, room = moves.change(noise.extras, state), limit - noise.predict(state)
        after = apply(state, _fitting(near, moves, noises, room))
        if landscape.value(after, objective) >= landscape.value(state, objective) + LEAST:
            break
        state = after
        near.go_to(state)
    return state


def _fitting(near: Near, moves: Moves, noises: np.ndarray, room: float) -> list[Move]:
    """Changes that are far from each other and make at most ``room`` more noise together."""
    order = _by_gain_for_noise(near.gains(), noises, room)
    while near.asks(order):
        order = _by_gain_for_noise(near.gains(), noises, room)
    chosen: list[Move] = []
    taken = 0
    for index in order.tolist():
        if noises[index] <= room and not moves.balls[index] & taken:
            chosen.append(moves.moves[index])
            taken |= moves.balls[index]
            room -= float(noises[index])
    return chosen


def _by_gain_for_noise(gains: np.ndarray, noises: np.ndarray, room: float) -> np.ndarray:
    """Indices of changes that gain and fit in ``room``, those of most gain for their noise first.

    Before them those that make no more noise.
    """
    fit = np.flatnonzero((gains < LEAST) & (noises <= room))
    costs = noises[fit]
    ratio = np.where(costs > 0, gains[fit] / np.where(costs > 0, costs, 1.0), -np.inf)
    return np.asarray(fit[np.argsort(ratio, kind="stable")[:AT_ONCE]])
