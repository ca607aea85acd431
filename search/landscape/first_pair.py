"""What the first pair of a model does, where layers depend on whether any activation carries one.

Such layers may be anywhere, so that is no part of what a change does near it, and of several
changes it is done once. So ``placer.search.landscape.effects`` takes all states as if they had
pairs, and what is otherwise in a state without one is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np

from placer.prediction.layers.predictor import Predictor
from placer.rules.incremental_placement import IncrementalPlacer
from placer.search.landscape.deltas import Deltas
from placer.search.landscape.layer_signatures import LayerModel, PredictedLayers
from placer.search.landscape.moves import Moves, State, apply

KEPT_PREDICTIONS, KEPT_NUMBERS = 32, 64


class FirstPair:
    """Numbers of what changes do by leading to a state with the first pair, or away from it."""

    def __init__(
        self,
        layers: LayerModel,
        placer: IncrementalPlacer,
        fixed: Sequence[int],
        predict: Callable[[State], PredictedLayers],
        deltas: Deltas,
    ) -> None:
        """``fixed``: layouts of the sites of ``placer`` that are not decided, the last ones.

        ``predict``: the layers of a state. ``deltas``: what the numbers stand for.
        """
        self._layers, self._placer, self._fixed = layers, placer, tuple(fixed)
        self._predict, self._deltas = predict, deltas
        # The layers of a state if some activation carried a pair.
        self.with_pairs = predict
        if layers.asking is not None:
            self.with_pairs = lru_cache(maxsize=KEPT_PREDICTIONS)(self._as_with_pairs)
        self._known = lru_cache(maxsize=KEPT_NUMBERS)(self._find)

    def numbers(self, state: State, moves: Moves) -> np.ndarray | None:
        """What each of ``moves`` does so to ``state``; None where no layer depends on it."""
        asking = self._layers.asking
        return None if asking is None else self._known(asking, state, moves)

    def _as_with_pairs(self, state: State) -> PredictedLayers:
        return self._layers.with_pairs(self._predict(state))

    @cached_property
    def _decides(self) -> np.ndarray:
        """Of how many tensors each site may decide the pairs, shape (sites,)."""
        counts = np.zeros(self._placer.count, dtype=int)
        for tensor in sorted(frozenset[str]().union(*self._placer.parts)):
            counts[list(self._placer.deciding([tensor]))] += 1
        return counts

    def _find(self, asking: Predictor, state: State, moves: Moves) -> np.ndarray:
        placement = self._predict(state).prediction.placement
        paired = asking.paired(placement)
        own = {} if paired else self._without(state)
        numbers = np.full(len(moves), Deltas.NOTHING)
        # Any other move leaves some tensor with its pair.
        can_flip = moves.sums(self._decides[moves.sites]) >= len(paired)
        for index in np.flatnonzero(can_flip).tolist():
            move, after = moves.moves[index], apply(state, [moves.moves[index]])
            change = self._placer.change_at(
                [site for site, _ in move], (*state, *self._fixed), (*after, *self._fixed)
            )
            has_pairs = asking.has_pairs_after(placement, change)
            there = {} if has_pairs else self._without(after)
            counts = {n: there.get(n, 0) - own.get(n, 0) for n in there.keys() | own.keys()}
            numbers[index] = self._deltas.number_of(counts)
        return numbers

    def _without(self, state: State) -> Mapping[int, int]:
        """By signature number, how many layers more ``state`` has than if it had pairs."""
        own, other = self._predict(state).counts(), self.with_pairs(state).counts()
        return {n: own[n] - other[n] for n in own.keys() | other.keys()}
