"""Descents in a landscape: improving changes are made until there are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.search.landscape.deltas import Deltas
from placer.search.landscape.landscape import Landscape, Move, Moves, Objective, State, apply
from placer.search.landscape.moves import layouts_of

MAX_SWEEPS = 12
# Of a rough descent, which comes by nine tenths of the gain.
FEW_SWEEPS = 5
# Of what is guessed so much is asked at once.
AT_ONCE = 16
# A change of the objective that is a gain.
LEAST = -1e-9


def descend(
    landscape: Landscape,
    state: State,
    objective: Objective,
    moves: Moves,
    *,
    roughly: bool = False,
) -> State:
    """The end of improving changes; ``state`` if that did not improve its value.

    Each sweep makes the best changes that are far from each other. What others near to these would
    do now is predicted if they would improve by what they did before, else once nothing improves.
    ``roughly``: only a few sweeps are made, of what would improve by what changes did before.
    """
    end = state
    near = Near(landscape, state, objective, moves)
    for _ in range(FEW_SWEEPS if roughly else MAX_SWEEPS):
        chosen = near.improving() or ([] if roughly else near.improving(everywhere=True))
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
        # Pieces of which is kept what they did in an earlier state, or guessed what they do.
        self._is_old = np.zeros(len(moves.pieces), dtype=bool)
        if landscape.is_vast:
            self._pieces = np.zeros(len(moves.pieces), dtype=int)
            self._guess(np.arange(len(moves.pieces)), begins=True)
        else:
            self._pieces = landscape.pieces(state, moves)

    def go_to(self, state: State) -> None:
        """Look at ``state`` next."""
        changed = np.flatnonzero(layouts_of(state) != layouts_of(self._state))
        altered = self._moves.altered(changed)
        self._state = state
        if self._landscape.is_vast:
            self._guess(np.flatnonzero(altered), begins=False)
        else:
            self._is_old |= altered

    def gains(self) -> np.ndarray:
        """Change of the objective by each move, as far as that is known or guessed."""
        return self._landscape.gains_of(self._pieces, self._state, self._objective, self._moves)

    def in_order(self) -> Iterator[tuple[int, float]]:
        """The moves that do something to layers, with the change of the objective, the best first.

        By index.
        """
        left = np.ones(len(self._moves), dtype=bool)
        while left.any():
            gains = self.gains()
            alters = self._moves.any_part(self._pieces != Deltas.NOTHING)
            order = np.argsort(gains, kind="stable")
            order = order[left[order]]
            for start in range(0, len(order), AT_ONCE):
                first = order[start : start + AT_ONCE]
                if self.asks(first):
                    break  # Once these are known, others may come before them.
                left[first] = False
                yield from ((i, float(gains[i])) for i in first[alters[first]].tolist())

    def known_in_order(self) -> Iterator[tuple[int, float]]:
        """The same of those that are known, without asking about others."""
        gains = self.gains()
        alters = self._moves.any_part(self._pieces != Deltas.NOTHING)
        known = np.flatnonzero(alters & ~self._moves.any_part(self._is_old))
        order = known[np.argsort(gains[known], kind="stable")]
        yield from ((i, float(gains[i])) for i in order.tolist())

    def asks(self, moves: np.ndarray) -> bool:
        """Ask what ``moves``, by index, do, as far as that is guessed; whether it is of any."""
        wanted = np.zeros(len(self._moves), dtype=bool)
        wanted[moves] = True
        asked = self._is_old & self._moves.pieces_of(wanted)
        if asked.any():
            self._ask(asked)
        return bool(asked.any())

    def improving(self, *, everywhere: bool = False) -> list[Move]:
        """The best of the moves that are far from each other.

        ``everywhere``: also of those that would not improve by what they did in an earlier state.
        """
        asked = self._is_old
        while True:
            if everywhere and self._landscape.is_vast:
                self._guess(np.flatnonzero(self._is_old), begins=True)
            elif everywhere:
                self._ask(asked)
            gains = self.gains()
            asked = self._is_old & self._moves.pieces_of(gains < LEAST)
            if not asked.any():
                return _improving(gains, self._moves)
            self._ask(asked)

    def _guess(self, pieces: np.ndarray, *, begins: bool) -> None:
        self._pieces[pieces], self._is_old[pieces] = self._landscape.guesses.of(
            self._state, self._moves, pieces, begins=begins
        )

    def _ask(self, pieces: np.ndarray) -> None:
        land = self._landscape
        ask = land.guesses.ask if land.is_vast else land.numbers
        self._pieces[pieces] = ask(self._state, self._moves, np.flatnonzero(pieces))
        self._is_old &= ~pieces


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
