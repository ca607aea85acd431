"""What changes do to the predicted layers, by the layouts near them.

What is not known of a piece of a change is worked out region by region where it touches few. Else
pieces that are far from each other are predicted together in the whole model: looking at all
changes costs little more in a large one. What the first pair of all does to layers that ask for it
is told by ``placer.search.landscape.first_pair``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from placer.rules.incremental_placement import IncrementalPlacer
from placer.search.landscape.built_regions import BuiltRegions
from placer.search.landscape.deltas import Deltas
from placer.search.landscape.layer_signatures import Change, LayerModel, PredictedLayers
from placer.search.landscape.moves import Piece, State, apply, batches

# A site that touches more regions is looked at in the whole model: those of DenseNet touch 23, and
# a search takes twice the CPU time region by region, where YOLO, ViT and others take 0.6 to 0.8.
FEW_REGIONS = 16


class _Around(NamedTuple):
    """The sites that decide whether a piece alters a placement, and whether by their layouts."""

    sites: tuple[int, ...]
    alters: dict[tuple[int, ...], bool]


class Effects:
    """Numbers of what pieces of changes do.

    ``deltas``: what the numbers stand for. ``regions``: None if layers are predicted in the whole
    model only.
    """

    def __init__(
        self,
        layers: LayerModel,
        placer: IncrementalPlacer,
        fixed: Sequence[int],
        predict: Callable[[State], PredictedLayers],
        go_on: Callable[[], None],
        deltas: Deltas,
    ) -> None:
        """``fixed``: layouts of the sites of ``placer`` that are not decided, the last ones.

        ``predict``: the layers that a state has if some activation carries a pair. ``go_on``:
        raises what ends the work.
        """
        self._layers, self._placer, self._fixed = layers, placer, tuple(fixed)
        self._predict, self._go_on = predict, go_on
        self.deltas = deltas
        regional = layers.regional
        self.regions = None if regional is None else BuiltRegions(regional, placer, self._fixed)
        self._wide = frozenset[int]()
        if self.regions is not None:
            around = self.regions.around
            sites = range(placer.count - len(self._fixed))
            self._wide = frozenset(i for i in sites if len(around((i,))) > FEW_REGIONS)
        self._around: dict[Piece, _Around] = {}

    def numbers(self, state: State, pieces: Sequence[Piece]) -> np.ndarray:
        """The number of what each of ``pieces`` does in ``state``."""
        contexts = [piece.context(state) for piece in pieces]
        numbers = [p.known.get(context) for p, context in zip(pieces, contexts, strict=True)]
        missing = [i for i, number in enumerate(numbers) if number is None]
        if missing and self.regions is not None:
            self._look_by_region(self.regions, state, pieces, contexts, missing)
        others = [i for i in missing if contexts[i] not in pieces[i].known]
        if others:
            self._look(state, pieces, contexts, others)
        for i in missing:
            numbers[i] = pieces[i].known[contexts[i]]
        return np.array(numbers, dtype=int)

    def _look_by_region(
        self,
        built: BuiltRegions,
        state: State,
        pieces: Sequence[Piece],
        contexts: Sequence[object],
        missing: Sequence[int],
    ) -> None:
        """Find out what those of ``missing`` do whose sites touch few regions, region by region."""
        near = self._predict(state)
        regions = built.from_state(state, near.prediction)
        for i in missing:
            self._go_on()
            piece = pieces[i]
            if not self._wide.isdisjoint(piece.sites):
                continue
            if contexts[i] not in piece.known:  # As where another one does the same.
                changes = self._layers.differences(near, regions.steps(piece.move))
                inside = [change for change in changes if change.node in piece.nodes]
                piece.known[contexts[i]] = self.deltas.number(inside)

    def _look(
        self,
        state: State,
        pieces: Sequence[Piece],
        contexts: Sequence[object],
        missing: Sequence[int],
    ) -> None:
        """Find out what the ``missing`` ones do where each takes a look at the whole model."""
        # So it pays to ask first.
        due = [i for i in missing if self._alters_placement(state, pieces[i])]
        for i in set(missing).difference(due):
            pieces[i].known[contexts[i]] = Deltas.NOTHING
        # Of pieces that do the same one is looked at.
        alike = {(id(pieces[i].known), contexts[i]): i for i in reversed(due)}
        for batch in batches([(i, pieces[i]) for i in reversed(alike.values())]):
            far = [pieces[i] for i in batch]
            for i, number in zip(batch, self._probe(state, far), strict=True):
                pieces[i].known[contexts[i]] = number

    def _alters_placement(self, state: State, piece: Piece) -> bool:
        """Whether ``piece`` changes the placement of ``state``, which many layouts do not."""
        if piece not in self._around:
            self._around[piece] = _Around(self._placer.around(piece.sites), {})
        around = self._around[piece]
        count = len(state)
        before = {i: state[i] if i < count else self._fixed[i - count] for i in around.sites}
        layouts = tuple(before.values())
        known = around.alters.get(layouts)
        if known is None:
            change = self._placer.change_at(piece.sites, before, before | dict(piece.move))
            known = around.alters[layouts] = bool(change.gone or change.come)
        return known

    def _probe(self, state: State, pieces: Sequence[Piece]) -> list[int]:
        """Predict all of ``pieces``, which are far from each other, at once."""
        self._go_on()
        after = apply(state, [piece.move for piece in pieces])
        change = self._placer.change((*state, *self._fixed), (*after, *self._fixed))
        owner = {node: i for i, piece in enumerate(pieces) for node in piece.nodes}
        changes_of: list[list[Change]] = [[] for _ in pieces]
        for found in self._layers.changes(change, self._predict(state)):
            index = owner.get(found.node)
            if index is not None:
                changes_of[index].append(found)
        return [self.deltas.number(changes) for changes in changes_of]
