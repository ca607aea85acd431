"""The effects of moves, remembered for the states that were asked about last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from placer.search.landscape.moves import Moves, State

Ask = Callable[[State, Moves, np.ndarray], np.ndarray]
KEPT = 32


class Answers:
    """The number of what each piece of some moves does, by state.

    A state is mostly like one that was asked about before: only pieces whose numbers depend on a
    site that differs are asked about anew.
    """

    def __init__(self, ask: Ask) -> None:
        """``ask``: given a state, moves and indices of their pieces, the numbers of these."""
        self._ask = ask
        # The latest at the end.
        self._known: OrderedDict[tuple[State, Moves], tuple[np.ndarray, np.ndarray]] = OrderedDict()

    def of(self, state: State, moves: Moves) -> np.ndarray:
        """The number of each piece of ``moves`` in ``state``; not to be changed."""
        key = state, moves
        if key not in self._known:
            layouts = np.array(state, dtype=np.int16)
            self._known[key] = layouts, self._found(state, layouts, moves)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key][1]

    def _found(self, state: State, layouts: np.ndarray, moves: Moves) -> np.ndarray:
        near = [kept for (_, others), kept in self._known.items() if others is moves]
        if not near:
            return self._ask(state, moves, np.arange(len(moves.pieces)))
        differs = np.stack([other for other, _ in near]) != layouts
        nearest = int(np.argmin(differs.sum(axis=1)))
        due = np.flatnonzero(moves.altered(np.flatnonzero(differs[nearest])))
        numbers: np.ndarray = near[nearest][1].copy()
        numbers[due] = self._ask(state, moves, due)
        return numbers
