"""Descents in a landscape: improving changes are made until there are none."""

from __future__ import annotations

import numpy as np

from placer.search.landscape import Landscape, Move, Moves, Objective, State, apply

MAX_SWEEPS, MAX_PAIRS = 12, 400


def descend(
    landscape: Landscape, state: State, objective: Objective, moves: Moves, *, pairs: bool = False
) -> State:
    """The end of improving changes; ``state`` if that did not improve its value.

    Each sweep makes the best changes that are far from each other. ``pairs``: where no single
    change improves, two near groups are changed at once.
    """
    end = state
    for _ in range(MAX_SWEEPS):
        chosen = _improving(landscape, end, objective, moves)
        if not chosen and pairs:
            both = pair_moves(landscape, end, objective)
            chosen = _improving(landscape, end, objective, both)
        if not chosen:
            break
        end = apply(end, chosen)
    before = landscape.value(state, objective)
    return end if landscape.value(end, objective) < before - 1e-12 else state


def pair_moves(landscape: Landscape, state: State, objective: Objective) -> Moves:
    """Changes of two near groups at once: the ``MAX_PAIRS`` that lose least one by one."""
    gains, changes = landscape.gains(state, objective, landscape.group_moves)
    first, second = landscape.near_groups
    both = changes[first] & changes[second]
    first, second = first[both], second[both]
    least = np.argsort(gains[first] + gains[second], kind="stable")[:MAX_PAIRS]
    moves = landscape.group_moves.moves
    pairs = zip(first[least].tolist(), second[least].tolist(), strict=True)
    return landscape.moves([tuple(sorted((*moves[i], *moves[j]))) for i, j in pairs])


def _improving(
    landscape: Landscape, state: State, objective: Objective, moves: Moves
) -> list[Move]:
    """The best of ``moves`` that are far from each other."""
    gains, _ = landscape.gains(state, objective, moves)
    chosen: list[Move] = []
    taken = 0
    for index in np.argsort(gains, kind="stable").tolist():
        if gains[index] >= -1e-9:
            break
        ball = moves.balls[index]
        if not ball & taken:
            chosen.append(moves.moves[index])
            taken |= ball
    return chosen
