"""Guessed effects of moves, where there are too many to predict the effect of each."""

from __future__ import annotations

import numpy as np

from placer.search.landscape.answers import Ask
from placer.search.landscape.deltas import Deltas, Objective
from placer.search.landscape.moves import Moves, State

# What a piece does is guessed once it, or one like it, was asked about in so many states.
ENOUGH = 2


class Guesses:
    """Numbers of what pieces do, some of which are guessed.

    They rest on what was asked about since ``begin``, not on all that is known: what is proposed
    is to follow from the trials, whatever was predicted before.
    """

    def __init__(self, ask: Ask, deltas: Deltas) -> None:
        """``ask``: given a state, moves and indices of their pieces, the numbers of these."""
        self._ask = ask
        self._deltas = deltas
        # Numbers by context, by what is known of pieces that are alike.
        self._asked: dict[int, dict[object, int]] = {}

    def begin(self) -> None:
        """Forget what was asked about."""
        self._asked.clear()

    def ask(self, state: State, moves: Moves, pieces: np.ndarray) -> np.ndarray:
        """The number of what each of ``pieces``, by index, does in ``state``."""
        numbers = self._ask(state, moves, pieces)
        for piece, number in zip(pieces.tolist(), numbers.tolist(), strict=True):
            asked_piece = moves.pieces[piece]
            self._asked.setdefault(id(asked_piece.known), {})[asked_piece.context(state)] = number
        return numbers

    def of(
        self, state: State, objective: Objective, moves: Moves, pieces: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same, and whether it is a guess: what is best of all that a piece, or one like it,
        does in the states in which it was asked about.
        """
        numbers, due, guessed = np.zeros(len(pieces), dtype=int), list[int](), list[int]()
        best: dict[int, int] = {}
        for place, piece in enumerate(moves.pieces[i] for i in pieces.tolist()):
            key = id(piece.known)
            asked = self._asked.get(key, {})
            number = asked.get(piece.context(state))
            if number is None and len(asked) < ENOUGH:
                due.append(place)
                continue
            if number is None:
                if key not in best:
                    effects = np.unique([*asked.values()])
                    best[key] = int(effects[np.argmin(self._deltas.costs(objective, effects))])
                number = best[key]
                guessed.append(place)
            numbers[place] = number
        if due:
            numbers[due] = self.ask(state, moves, pieces[due])
        is_guess = np.zeros(len(pieces), dtype=bool)
        is_guess[guessed] = True
        return numbers, is_guess
