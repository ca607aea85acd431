"""The states of a search and what single changes do to the predicted layers.

Whether a layer fuses depends on the pairs near it, so what a change does depends on the layouts of
near sites only. A change is therefore taken apart into pieces that are far from each other, and
what a piece does is kept by the layouts near it (``placer.search.landscape.effects``).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import combinations
from operator import getitem
from threading import Event

import numpy as np

from placer.quantization import Placement
from placer.rules.incremental_placement import IncrementalPlacer
from placer.rules.sites import Site
from placer.search.landscape.alike import Alike
from placer.search.landscape.answers import Answers
from placer.search.landscape.deltas import Deltas, Objective
from placer.search.landscape.effects import Effects
from placer.search.landscape.first_pair import FirstPair
from placer.search.landscape.guesses import Guesses
from placer.search.landscape.layer_signatures import LayerModel, PredictedLayers
from placer.search.landscape.moves import Move, Moves, State, apply
from placer.search.landscape.other_layouts import OtherLayouts, other_layouts
from placer.search.landscape.reach import Reach, sharing
from placer.search.out_of_time import OutOfTime
from placer.search.space import Choices, Space

__all__ = ["Cancelled", "Landscape", "Move", "Moves", "Objective", "State", "apply"]

# Predictions are large, what is summed up in them is not.
KEPT_PREDICTIONS, KEPT_SUMS = 32, 1 << 12
# With more changes than this to choose from, what one does is only asked if it may be of use.
VAST = 5000
# Changes of an objective that differ by less are equal: sums depend on the order of terms.
DIGITS = 12


class Cancelled(Exception):
    """Nobody waits any more for what was being worked out."""


class Landscape:
    """States of one space and changes between them.

    For one thread at a time. ``cancel``: once it is set, predictions raise ``Cancelled``; what was
    predicted until then stays known. ``until``: a ``time.monotonic`` time after which they raise
    ``OutOfTime``.
    """

    def __init__(self, space: Space, layers: LayerModel) -> None:
        self.space = space
        self.layers = layers
        self.cancel = Event()
        self.until = math.inf
        self.sites: tuple[Site, ...] = tuple(s for group in space.groups for s in group.sites)
        self.members: tuple[tuple[int, ...], ...] = _members(space)
        self.names: tuple[tuple[str, ...], ...] = tuple(tuple(s.layouts) for s in self.sites)
        self._site_names = tuple(site.name for site in self.sites)
        # What may be proposed at each site.
        self._offered: tuple[tuple[int, ...], ...] = tuple(
            tuple(number for number, name in enumerate(site.layouts) if name not in site.barred)
            for site in self.sites
        )
        decided = set(self.sites)
        fixed = [site for site in space.sites if site not in decided]
        self._fixed = tuple(tuple(site.layouts).index(site.default) for site in fixed)
        every = [*self.sites, *fixed]
        self._placer = IncrementalPlacer(every)
        self._deltas = Deltas()
        self._first_pair = FirstPair(layers, self._placer, self._fixed, self.predict, self._deltas)
        with_pairs = self._first_pair.with_pairs
        self.effects = Effects(
            layers, self._placer, self._fixed, with_pairs, self._go_on, self._deltas
        )
        # The states predicted last, the latest at the end, and where each is in ``_layouts``.
        self._predicted: OrderedDict[State, tuple[int, PredictedLayers]] = OrderedDict()
        self._layouts = np.zeros((KEPT_PREDICTIONS, len(self.sites)), dtype=np.int16)
        self._state = lru_cache(maxsize=KEPT_SUMS)(self._make_state)
        self._counts = lru_cache(maxsize=KEPT_SUMS)(lambda state: self.predict(state).counts())
        self._form = lru_cache(maxsize=KEPT_SUMS)(lambda state: self.predict(state).form)
        properties = layers.fixed_properties
        alike = (
            None if properties is None else Alike(space.graph, every, len(self.sites), properties)
        )
        self._reach = Reach(space.graph, self.sites, layers.spans, layers.linked, alike)
        self._answers = Answers(self.numbers)

    def state(self, choices: Choices) -> State:
        """The state of ``choices``."""
        return self._state(tuple(choices.items()))

    def _make_state(self, choices: tuple[tuple[str, str], ...]) -> State:
        layouts = self.space.layouts(dict(choices))
        return tuple(
            names.index(layouts[site.name])
            for site, names in zip(self.sites, self.names, strict=True)
        )

    def choices(self, state: State) -> dict[str, str]:
        """The choices that lead to ``state``."""
        layouts = map(getitem, self.names, state)
        return self.space.choices(dict(zip(self._site_names, layouts, strict=True)))

    def is_whole(self, state: State) -> bool:
        """Whether all sites of each group have one layout."""
        return all(len({state[site] for site in members}) == 1 for members in self.members)

    def predict(self, state: State) -> PredictedLayers:
        """The predicted layers of ``state``."""
        if state not in self._predicted:
            self._go_on()
            layouts = np.array(state, dtype=np.int16)
            layers = self.layers.predict(self._place(state), self._nearest(layouts))
            place = len(self._predicted)
            if place == KEPT_PREDICTIONS:
                _, (place, _) = self._predicted.popitem(last=False)
            self._layouts[place] = layouts
            self._predicted[state] = place, layers
        self._predicted.move_to_end(state)
        return self._predicted[state][1]

    def _nearest(self, state: np.ndarray) -> PredictedLayers | None:
        """Of the predictions that are kept the one of which least has to be made anew."""
        if not self._predicted:
            return None
        kept = list(self._predicted.values())
        layouts = self._layouts[[place for place, _ in kept]]
        differing = np.count_nonzero(layouts != state, axis=1)
        return kept[int(np.argmin(differing))][1]

    def counts(self, state: State) -> Mapping[int, int]:
        """How many of the predicted layers of ``state`` there are of each signature number."""
        return self._counts(state)

    def form(self, state: State) -> int:
        """Fingerprint of the motion-normal form; states of one form are one to the engine."""
        return self._form(state)

    def _go_on(self) -> None:
        if self.cancel.is_set():
            raise Cancelled
        if time.monotonic() >= self.until:
            raise OutOfTime

    def _place(self, state: State) -> Placement:
        return self._placer.place((*state, *self._fixed))

    @cached_property
    def group_moves(self) -> Moves:
        """All changes of one whole group to a layout that may be proposed."""
        return self.moves(
            [
                tuple((site, layout) for site in members)
                for members in self.members
                for layout in self._offered[members[0]]
            ]
        )

    @cached_property
    def all_moves(self) -> Moves:
        """All changes of one whole group, or of one site of a group of several."""
        single = [
            ((site, layout),)
            for members in self.members
            if len(members) > 1
            for site in members
            for layout in self._offered[site]
        ]
        return self.moves([*self.group_moves.moves, *single])

    def moves(self, moves: Sequence[Move]) -> Moves:
        """``moves`` taken apart."""
        return Moves(moves, [self._reach.apart(move) for move in moves])

    @cached_property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """All pairs of groups, by number, that are near each other."""
        nodes = [self._reach.nodes(members) for members in self.members]
        return sharing(nodes, [self._reach.ball(members) for members in self.members])

    @cached_property
    def neighbouring_sites(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of sites of two groups that are near each other, or of one group."""
        members = self.members
        pairs = [(i, j) for a, b in self.neighbours for i in members[a] for j in members[b]]
        pairs += [pair for own in members for pair in combinations(own, 2)]
        near = np.array(pairs, dtype=int).reshape(-1, 2)
        return near[:, 0], near[:, 1]

    @cached_property
    def near_groups(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of group moves of different groups that may do something to one layer."""
        shared = self.neighbours
        if self.effects.regions is not None:  # What two groups touch alone adds up.
            touched = [self.effects.regions.touched(members) for members in self.members]
            shared = sharing(touched, touched)
        start, owners = 0, []
        for members in self.members:
            count = len(self._offered[members[0]])
            owners.append(range(start, start + count))
            start += count
        pairs = [(i, j) for a, b in shared for i in owners[a] for j in owners[b]]
        near = np.array(pairs, dtype=int).reshape(-1, 2)
        return near[:, 0], near[:, 1]

    @cached_property
    def edge_shares(self) -> np.ndarray:
        """Edges that each layout quantizes beyond the float one, of those that the default does.

        Shape (sites, most layouts of any site).
        """
        floats = self.state(self.space.floats)
        shares = np.zeros((len(self.sites), max(len(names) for names in self.names)))
        for index, (site, number) in enumerate(zip(self.sites, floats, strict=True)):
            edges = [len(layout.quantize) for layout in site.layouts.values()]
            span = max(1, len(site.layouts[site.default].quantize) - edges[number])
            shares[index, : len(edges)] = (np.array(edges) - edges[number]) / span
        return shares

    @cached_property
    def other_layouts(self) -> OtherLayouts:
        """The layouts of groups other than their float ones."""
        return other_layouts(self.space, self.members)

    @cached_property
    def is_vast(self) -> bool:
        """Whether there are too many changes to ask of each what it does in every state."""
        return len(self.all_moves) > VAST

    def value(self, state: State, objective: Objective) -> float:
        """The objective of ``state`` by its own predicted layers."""
        extras = objective.extras[np.arange(len(state)), state].sum()
        return objective.of_counts(self.counts(state)) + float(extras)

    def deltas(self, state: State, moves: Moves) -> dict[Move, dict[int, int]]:
        """What each of ``moves`` that changes ``state`` does to the counts of layers."""
        known, first = self._answers.of(state, moves), self._first_pair.numbers(state, moves)
        delta_of = {}
        for index, move in enumerate(moves.moves):
            if any(state[site] != layout for site, layout in move):
                counts: dict[int, int] = {}
                besides = [] if first is None else [int(first[index])]
                for number in (*known[moves.parts_of(index)].tolist(), *besides):
                    for signature, count in self._deltas[number]:
                        counts[signature] = counts.get(signature, 0) + count
                delta_of[move] = counts
        return delta_of

    def gains(
        self, state: State, objective: Objective, moves: Moves
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change of the objective by each move, and whether the move changes ``state`` at all."""
        if not len(moves):
            return np.zeros(0), np.zeros(0, dtype=bool)
        gains = self.additive_gains(state, objective, moves)
        first = self._first_pair.numbers(state, moves)
        if first is not None:
            gains = np.round(gains + self._deltas.costs(objective, first), DIGITS)
        return gains, moves.changing(state)

    def additive_gains(self, state: State, objective: Objective, moves: Moves) -> np.ndarray:
        """``gains`` that add up: without what the first pair of a placement does anywhere in it."""
        return self.gains_of(self.pieces(state, moves), state, objective, moves)

    def pieces(self, state: State, moves: Moves) -> np.ndarray:
        """The number of what each piece of ``moves`` does to layers in ``state``, a new array."""
        return np.array(self._answers.of(state, moves))

    def numbers(self, state: State, moves: Moves, pieces: np.ndarray) -> np.ndarray:
        """The number of what each of ``pieces`` of ``moves``, by index, does in ``state``."""
        return self.effects.numbers(state, [moves.pieces[i] for i in pieces.tolist()])

    @cached_property
    def float_layers(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The float model's layers: the number of the signature and names of nodes of each."""
        layers = self.predict(self.state(self.space.floats)).layers
        return tuple(
            (self.layers.number(layer), tuple(node.name for node in layer.nodes))
            for layer in layers
        )

    @cached_property
    def float_shares(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """What each group's nodes are in the float model: of each node the number of its layer's
        signature, and how many nodes that layer has.
        """
        layer_of = {
            node: (number, len(nodes)) for number, nodes in self.float_layers for node in nodes
        }
        named = (
            {node.name for site in group.sites for node in site.match.nodes.values()}
            for group in self.space.groups
        )
        return tuple(tuple(layer_of[n] for n in names if n in layer_of) for names in named)

    @cached_property
    def guesses(self) -> Guesses:
        """Guesses of what changes do, where there are very many of them."""
        return Guesses(self.numbers, self._deltas)

    def gains_of(
        self, pieces: np.ndarray, state: State, objective: Objective, moves: Moves
    ) -> np.ndarray:
        """See ``additive_gains``; ``pieces``: the numbers of what the moves' pieces do."""
        if not len(moves):
            return np.zeros(0)
        costs = self._deltas.costs(objective, pieces)
        gains = np.add.reduceat(costs[moves.parts], moves.part_starts)
        gains += moves.change(objective.extras, state)
        return np.round(gains, DIGITS)

    def alters(self, state: State, moves: Moves) -> np.ndarray:
        """Whether each move does something to layers; many do not, for want of a pair near them."""
        alters = moves.any_part(self._answers.of(state, moves) != Deltas.NOTHING)
        first = self._first_pair.numbers(state, moves)
        return alters if first is None else alters | (first != Deltas.NOTHING)


def _members(space: Space) -> tuple[tuple[int, ...], ...]:
    members, start = [], 0
    for group in space.groups:
        members.append(tuple(range(start, start + len(group.sites))))
        start += len(group.sites)
    return tuple(members)
