"""Descents in a landscape: improving changes are made until there are none."""

from __future__ import annotations

import numpy as np

from placer.search.landscape import Landscape, Move, Moves, Objective, State, apply

MAX_SWEEPS, MAX_PAIRS = 12, 400
# A change of the objective that is a gain.
LEAST = -1e-9


def descend(
    landscape: Landscape, state: State, objective: Objective, moves: Moves, *, pairs: bool = False
) -> State:
    """The end of improving changes; ``state`` if that did not improve its value.

    Each sweep makes the best changes that are far from each other. What others near to these would
    do now is predicted if they would improve by what they did before, else once nothing improves.
    ``pairs``: where no single change improves, two near groups are changed at once.
    """
    end = state
    near = Near(landscape, state, objective, moves)
    for _ in range(MAX_SWEEPS):
        chosen = near.improving() or near.improving(everywhere=True)
        if not chosen and pairs:
            both = pair_moves(landscape, end, objective)
            chosen = _improving(landscape.gains(end, objective, both)[0], both)
        if not chosen:
            break
        end = apply(end, chosen)
        near.go_to(end)
    before = landscape.value(state, objective)
    return end if landscape.value(end, objective) < before - 1e-12 else state


class Near:
    """What ``moves`` change around one state after the other."""

    def __init__(
        self, landscape: Landscape, state: State, objective: Objective, moves: Moves
    ) -> None:
        self._landscape = landscape
        self._state = state
        self._objective = objective
        self._moves = moves
        self._pieces = landscape.pieces(state, moves)
        # Pieces of which is kept what they did in an earlier state.
        self._is_old = np.zeros(len(self._pieces), dtype=bool)

    def go_to(self, state: State) -> None:
        """Look at ``state`` next."""
        changed = np.flatnonzero(np.array(state) != np.array(self._state))
        self._is_old |= self._moves.altered(changed)
        self._state = state

    def improving(self, *, everywhere: bool = False) -> list[Move]:
        """The best of the moves that are far from each other.

        ``everywhere``: also of those that would not improve by what they did in an earlier state.
        """
        asked = self._is_old
        while True:
            if everywhere:
                self._ask(asked)
            gains = self._landscape.gains_of(
                self._pieces, self._state, self._objective, self._moves
            )
            asked = self._is_old & self._moves.pieces_of(gains < LEAST)
            if not asked.any():
                return _improving(gains, self._moves)
            self._ask(asked)

    def _ask(self, pieces: np.ndarray) -> None:
        numbers = self._landscape.numbers(self._state, self._moves, np.flatnonzero(pieces))
        self._pieces[pieces] = numbers
        self._is_old &= ~pieces


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


def _improving(gains: np.ndarray, moves: Moves) -> list[Move]:
    """The best of ``moves`` that are far from each other."""
    chosen: list[Move] = []
    taken = 0
    for index in np.argsort(gains, kind="stable").tolist():
        if gains[index] >= LEAST:
            break
        ball = moves.balls[index]
        if not ball & taken:
            chosen.append(moves.moves[index])
            taken |= ball
    return chosen
