"""Guessed effects of moves, where there are too many to predict the effect of each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import ne

import numpy as np

from placer.search.landscape.answers import Ask
from placer.search.landscape.deltas import Deltas
from placer.search.landscape.moves import Moves, State

# Where a descent begins, what a piece does is guessed from a state in which at most this part of
# the sites around it had other layouts: of the states around a piece most lead to the same.
APART = 1 / 3

Layouts = tuple[int, ...]


class Guesses:
    """Numbers of what pieces do, some of which are guessed.

    They rest on what was asked about since ``begin``, not on all that is known: what is proposed
    is to follow from the trials, whatever was predicted before.
    """

    def __init__(self, ask: Ask, deltas: Deltas) -> None:
        """``ask``: given a state, moves and indices of their pieces, the numbers of these."""
        self._ask = ask
        self._deltas = deltas
        # Numbers by the layouts around, by what is alike, its own layouts and those it changes to.
        self._asked: dict[Hashable, dict[Layouts, int]] = {}

    def begin(self) -> None:
        """Forget what was asked about."""
        self._asked.clear()

    def ask(self, state: State, moves: Moves, pieces: np.ndarray) -> np.ndarray:
        """The number of what each of ``pieces``, by index, does in ``state``."""
        distinct, same = moves.distinct(state, pieces)
        numbers = self._ask(state, moves, distinct)
        for index, number in zip(distinct.tolist(), numbers.tolist(), strict=True):
            piece = moves.pieces[index]
            own, around = piece.own(state), piece.around(state)
            self._asked.setdefault((piece.alike, own, piece.layouts), {})[around] = number
            # The way back does the opposite.
            back = self._asked.setdefault((piece.alike, piece.layouts, own), {})
            back[around] = self._deltas.opposite(number)
        return np.asarray(numbers[same])

    def of(
        self, state: State, moves: Moves, pieces: np.ndarray, *, begins: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same, and whether it is a guess: what a piece, or one like it, does in the state that
        is most like this one around it, of those in which it was asked about.

        ``begins``: whether to ask where none is much like it.
        """
        distinct, same = moves.distinct(state, pieces)
        due, guessed, found = list[int](), list[int](), list[int]()
        for place, piece in enumerate(moves.pieces[i] for i in distinct.tolist()):
            own = piece.own(state)
            if own == piece.layouts:
                found.append(Deltas.NOTHING)
                continue
            asked = self._asked.get((piece.alike, own, piece.layouts), {})
            around = piece.around(state)
            number = asked.get(around)
            if number is None:
                number, apart = _nearest(asked, around)
                (due if begins and apart > APART else guessed).append(place)
            found.append(number)
        numbers, is_guess = np.array(found, dtype=int), np.zeros(len(distinct), dtype=bool)
        is_guess[guessed] = True
        if due:
            numbers[due] = self.ask(state, moves, distinct[due])
        return numbers[same], is_guess[same]


def _nearest(asked: Mapping[Layouts, int], around: Layouts) -> tuple[int, float]:
    """What a piece does in the state most like one, and which part ``around`` it is unlike.

    ``asked``: what it does by the layouts around it. Nothing, where it was never asked about.
    """
    nearest, least = Deltas.NOTHING, len(around) + 1
    for other, number in asked.items():
        apart = sum(map(ne, other, around))
        if apart < least:
            nearest, least = number, apart
    return nearest, least / max(1, len(around))
