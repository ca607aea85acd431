"""The states of a search and what single changes do to the predicted layers.

Whether a layer fuses depends on the pairs near it, so what a change does depends on the layouts of
near sites only. A change is therefore taken apart into pieces that are far from each other, and
what a piece does is kept by the layouts near it. Pieces that are not known are predicted together
where they are far from each other: looking at all changes costs little more in a large model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Event

import numpy as np

from placer.graph import Graph, Node
from placer.quantization import Placement
from placer.rules.connected import connected
from placer.rules.sites import Placer, Site
from placer.search.layer_signatures import Change, LayerModel, PredictedLayers
from placer.search.space import Choices, Space

State = tuple[int, ...]  # Number of the layout of each decided site.
Move = tuple[tuple[int, int], ...]  # Sites and the layouts they change to.

# Fusions span a few nodes; a change further away than this many leaves a layer as it is, but for
# layers of however many nodes (``LayerModel.spans``).
REACH = 3
MAX_SWEEPS, MAX_PAIRS = 12, 400
# Predictions are large, what is summed up in them is not.
KEPT_PREDICTIONS, KEPT_SUMS, KEPT_PARTS = 32, 1 << 12, 1 << 14
# Changes of an objective that differ by less are equal: sums depend on the order of terms.
DIGITS = 12


@dataclass(frozen=True, eq=False)
class Objective:
    """A linear function of states.

    ``costs``: by signature number. ``extras``: by site and layout, shape (sites, layouts).
    """

    costs: Mapping[int, float]
    extras: np.ndarray

    def of_counts(self, counts: Mapping[int, int]) -> float:
        """Cost of layers."""
        return sum(self.costs[signature] * count for signature, count in counts.items())


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a change that is far from its other parts.

    ``near``: the sites that what it does depends on. ``nodes``: those it may do something to.
    ``known``: number of what it does by the layouts of ``near``.
    """

    move: Move
    near: tuple[int, ...]
    nodes: tuple[int, ...]
    known: dict[State, int] = field(default_factory=dict, repr=False)

    @cached_property
    def ball(self) -> int:
        """``nodes`` as bits."""
        return _bits(self.nodes)


class Moves:
    """Changes to choose from."""

    def __init__(self, moves: Sequence[Move], pieces: Sequence[Sequence[Piece]]) -> None:
        """``pieces``: of each of ``moves``."""
        self.moves = tuple(moves)
        self.balls = tuple(_bits(n for piece in own for n in piece.nodes) for own in pieces)
        self.pieces = tuple(dict.fromkeys(piece for own in pieces for piece in own))
        index = {piece: i for i, piece in enumerate(self.pieces)}
        # Flat arrays, and where each move begins in them.
        self.parts = np.array([index[piece] for own in pieces for piece in own], dtype=int)
        self.part_starts = _starts([len(own) for own in pieces])
        self.sites = np.array([site for move in moves for site, _ in move], dtype=int)
        self.layouts = np.array([layout for move in moves for _, layout in move], dtype=int)
        self.site_starts = _starts([len(move) for move in moves])

    def __len__(self) -> int:
        return len(self.moves)

    def parts_of(self, index: int) -> np.ndarray:
        """Numbers of the pieces of one move."""
        ends = [*self.part_starts[1:].tolist(), len(self.parts)]
        return self.parts[self.part_starts[index] : ends[index]]

    def any_part(self, found: np.ndarray) -> np.ndarray:
        """Whether something was ``found`` of a piece of each move, shape (moves,)."""
        empty = np.zeros(0, dtype=bool)
        return np.logical_or.reduceat(found[self.parts], self.part_starts) if len(self) else empty

    def change(self, table: np.ndarray, state: State) -> np.ndarray:
        """What each move adds to a sum over sites of a ``table`` by site and layout."""
        now = np.array(state)[self.sites]
        return self.sums(table[self.sites, self.layouts] - table[self.sites, now])

    def sums(self, by_site: np.ndarray) -> np.ndarray:
        """Sum up what each move does to each of its sites, shape (moves,)."""
        return np.add.reduceat(by_site, self.site_starts) if len(self) else np.zeros(0)


class Cancelled(Exception):
    """Nobody waits any more for what was being worked out."""


class Landscape:
    """States of one space and changes between them.

    For one thread at a time. ``cancel``: once it is set, predictions raise ``Cancelled``; what was
    predicted until then stays known.
    """

    def __init__(self, space: Space, layers: LayerModel) -> None:
        self.space = space
        self.layers = layers
        self.cancel = Event()
        self.sites: tuple[Site, ...] = tuple(s for group in space.groups for s in group.sites)
        self.members: tuple[tuple[int, ...], ...] = _members(space)
        self.names: tuple[tuple[str, ...], ...] = tuple(tuple(s.layouts) for s in self.sites)
        # What may be proposed at each site.
        self._offered: tuple[tuple[int, ...], ...] = tuple(
            tuple(number for number, name in enumerate(site.layouts) if name not in site.barred)
            for site in self.sites
        )
        decided = set(self.sites)
        fixed = [site for site in space.sites if site not in decided]
        self._fixed = tuple(tuple(site.layouts).index(site.default) for site in fixed)
        self._placer = Placer([*self.sites, *fixed])
        self._last: PredictedLayers | None = None
        self._predicted = lru_cache(maxsize=KEPT_PREDICTIONS)(self._predict)
        self._counts = lru_cache(maxsize=KEPT_SUMS)(lambda state: self.predict(state).counts())
        self._form = lru_cache(maxsize=KEPT_SUMS)(lambda state: self.predict(state).form)
        self._pieces: dict[Move, Piece] = {}
        self._deltas = _Deltas()
        spans = {name: span for span in layers.spans for name in span}
        self._balls = tuple(_ball(space.graph, site, spans) for site in self.sites)
        self._sites_at: dict[int, list[int]] = {}
        for index in range(len(self.sites)):
            for node in self._nodes([index]):
                self._sites_at.setdefault(node, []).append(index)
        self._known = lru_cache(maxsize=KEPT_PREDICTIONS)(self._find)
        self._far_apart = lru_cache(maxsize=KEPT_PARTS)(self._split)

    def state(self, choices: Choices) -> State:
        """The state of ``choices``."""
        layouts = self.space.layouts(choices)
        return tuple(
            names.index(layouts[site.name])
            for site, names in zip(self.sites, self.names, strict=True)
        )

    def choices(self, state: State) -> dict[str, str]:
        """The choices that lead to ``state``."""
        layouts = {
            site.name: names[number]
            for site, names, number in zip(self.sites, self.names, state, strict=True)
        }
        return self.space.choices(layouts)

    def is_whole(self, state: State) -> bool:
        """Whether all sites of each group have one layout."""
        return all(len({state[site] for site in members}) == 1 for members in self.members)

    def predict(self, state: State) -> PredictedLayers:
        """The predicted layers of ``state``."""
        return self._predicted(state)

    def counts(self, state: State) -> Mapping[int, int]:
        """How many of the predicted layers of ``state`` there are of each signature number."""
        return self._counts(state)

    def form(self, state: State) -> str:
        """Fingerprint of the motion-normal form; states of one form are one to the engine."""
        return self._form(state)

    def _predict(self, state: State) -> PredictedLayers:
        self._go_on()
        self._last = self.layers.predict(self._place(state), self._last)
        return self._last

    def _go_on(self) -> None:
        if self.cancel.is_set():
            raise Cancelled

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
        return Moves(moves, [self._apart(move) for move in moves])

    def pair_moves(self, state: State, objective: Objective) -> Moves:
        """Changes of two near groups at once: the ``MAX_PAIRS`` that lose least one by one."""
        gains, changes = self.gains(state, objective, self.group_moves)
        first, second = self._near_groups
        both = changes[first] & changes[second]
        first, second = first[both], second[both]
        least = np.argsort(gains[first] + gains[second], kind="stable")[:MAX_PAIRS]
        moves = self.group_moves.moves
        pairs = zip(first[least].tolist(), second[least].tolist(), strict=True)
        return self.moves([tuple(sorted((*moves[i], *moves[j]))) for i, j in pairs])

    @cached_property
    def _near_groups(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of group moves of different groups that are near each other."""
        balls = [self._ball(members) for members in self.members]
        nodes = [self._nodes(members) for members in self.members]
        start, owners = 0, []
        for members in self.members:
            count = len(self._offered[members[0]])
            owners.append(range(start, start + count))
            start += count
        pairs = [
            (i, j)
            for a in range(len(balls))
            for b in range(a + 1, len(balls))
            if nodes[a] & balls[b]
            for i in owners[a]
            for j in owners[b]
        ]
        found = np.array(pairs, dtype=int).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def value(self, state: State, objective: Objective) -> float:
        """The objective of ``state`` by its own predicted layers."""
        extras = objective.extras[np.arange(len(state)), state].sum()
        return objective.of_counts(self.counts(state)) + float(extras)

    def deltas(self, state: State, moves: Moves) -> dict[Move, dict[int, int]]:
        """What each of ``moves`` that changes ``state`` does to the counts of layers."""
        known = self._known(state, moves)
        found = {}
        for index, move in enumerate(moves.moves):
            if any(state[site] != layout for site, layout in move):
                counts: dict[int, int] = {}
                for number in known[moves.parts_of(index)].tolist():
                    for signature, count in self._deltas[number]:
                        counts[signature] = counts.get(signature, 0) + count
                found[move] = counts
        return found

    def descend(
        self, state: State, objective: Objective, moves: Moves, *, pairs: bool = False
    ) -> State:
        """Make improving changes until there are none; ``state`` if that did not improve ``value``.

        Each sweep makes the best changes that are far from each other. ``pairs``: where no single
        change improves, two near groups are changed at once.
        """
        end = state
        for _ in range(MAX_SWEEPS):
            chosen = self._improving(end, objective, moves)
            if not chosen and pairs:
                chosen = self._improving(end, objective, self.pair_moves(end, objective))
            if not chosen:
                break
            end = apply(end, chosen)
        return end if self.value(end, objective) < self.value(state, objective) - 1e-12 else state

    def gains(
        self, state: State, objective: Objective, moves: Moves
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change of the objective by each move, and whether the move changes ``state`` at all."""
        if not len(moves):
            return np.zeros(0), np.zeros(0, dtype=bool)
        numbers = self._known(state, moves)
        costs = self._deltas.costs(objective)[numbers]
        gains = np.add.reduceat(costs[moves.parts], moves.part_starts)
        gains += moves.change(objective.extras, state)
        changes = moves.sums((np.array(state)[moves.sites] != moves.layouts).astype(int)) > 0
        return np.round(gains, DIGITS), changes

    def alters(self, state: State, moves: Moves) -> np.ndarray:
        """Whether each move does something to layers; many do not, for want of a pair near them."""
        return moves.any_part(self._known(state, moves) != _Deltas.NOTHING)

    def _improving(self, state: State, objective: Objective, moves: Moves) -> list[Move]:
        gains, _ = self.gains(state, objective, moves)
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

    def _find(self, state: State, moves: Moves) -> np.ndarray:
        """The number of what each piece of ``moves`` does in ``state``."""
        contexts = [tuple([state[site] for site in piece.near]) for piece in moves.pieces]
        found = [p.known.get(own) for p, own in zip(moves.pieces, contexts, strict=True)]
        missing = [i for i, number in enumerate(found) if number is None]
        for batch in _batches([(i, moves.pieces[i]) for i in missing]):
            pieces = [moves.pieces[i] for i in batch]
            for i, number in zip(batch, self._probe(state, pieces), strict=True):
                moves.pieces[i].known[contexts[i]] = found[i] = number
        return np.array(found, dtype=int)

    def _probe(self, state: State, pieces: Sequence[Piece]) -> list[int]:
        """Predict all of ``pieces``, which are far from each other, at once."""
        self._go_on()
        after = apply(state, [piece.move for piece in pieces])
        owner = {node: i for i, piece in enumerate(pieces) for node in piece.nodes}
        found: list[list[Change]] = [[] for _ in pieces]
        for change in self.layers.changes(self._place(after), self.predict(state)):
            index = owner.get(change.node)
            if index is not None:
                found[index].append(change)
        return [self._deltas.number(changes) for changes in found]

    def _apart(self, move: Move) -> list[Piece]:
        """The pieces of ``move``: sites that may do something to one node are in one piece."""
        layouts = dict(move)
        return [
            self._piece(tuple((site, layouts[site]) for site in part))
            for part in self._far_apart(tuple(layouts))
        ]

    def _split(self, sites: tuple[int, ...]) -> list[tuple[int, ...]]:
        """``sites`` in parts that are far from each other."""
        parts = connected([self._balls[site] for site in sites])
        return [tuple(sites[i] for i in part) for part in parts]

    def _piece(self, move: Move) -> Piece:
        if move not in self._pieces:
            nodes = self._ball(site for site, _ in move)
            near = {site for node in nodes for site in self._sites_at.get(node, ())}
            self._pieces[move] = Piece(move, tuple(sorted(near)), tuple(sorted(nodes)))
        return self._pieces[move]

    def _ball(self, sites: Iterable[int]) -> frozenset[int]:
        return frozenset(node for site in sites for node in self._balls[site])

    def _nodes(self, sites: Iterable[int]) -> frozenset[int]:
        return frozenset(n.index for i in sites for n in self.sites[i].match.nodes.values())


class _Deltas:
    """Changes of the number of layers by signature number, each kept once under a number."""

    NOTHING = 0  # The number of no change.

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {(): self.NOTHING}
        self._found: list[tuple[tuple[int, int], ...]] = [()]
        self._costs: tuple[Mapping[int, float], np.ndarray] = {}, np.zeros(0)

    def __getitem__(self, number: int) -> tuple[tuple[int, int], ...]:
        return self._found[number]

    def number(self, changes: Iterable[Change]) -> int:
        """The number of what ``changes`` sum up to."""
        counts: Counter[int] = Counter()
        for change in changes:
            counts[change.signature] += change.sign
        delta = tuple(sorted((n, count) for n, count in counts.items() if count))
        number = self._numbers.setdefault(delta, len(self._found))
        if number == len(self._found):
            self._found.append(delta)
        return number

    def costs(self, objective: Objective) -> np.ndarray:
        """What each costs, by number."""
        of, known = self._costs
        if of is not objective.costs:
            known = np.zeros(0)
        new = [objective.of_counts(dict(delta)) for delta in self._found[len(known) :]]
        known = np.concatenate([known, new])
        self._costs = objective.costs, known
        return known


def _starts(sizes: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *sizes[:-1]]).astype(int)


def _bits(numbers: Iterable[int]) -> int:
    """A set of numbers as the bits of one, of which many are quickly held against each other."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def _batches(pieces: Sequence[tuple[int, Piece]]) -> Iterator[list[int]]:
    """Split numbered ``pieces`` into lists of those that are far from each other."""
    waiting = list(pieces)
    while waiting:
        batch: list[int] = []
        taken = 0
        left: list[tuple[int, Piece]] = []
        for index, piece in waiting:
            if piece.ball & taken:
                left.append((index, piece))
            else:
                batch.append(index)
                taken |= piece.ball
        yield batch
        waiting = left


def apply(state: State, moves: Iterable[Move]) -> State:
    """``state`` after ``moves``."""
    changed = list(state)
    for move in moves:
        for site, layout in move:
            changed[site] = layout
    return tuple(changed)


def _members(space: Space) -> tuple[tuple[int, ...], ...]:
    found, start = [], 0
    for group in space.groups:
        found.append(tuple(range(start, start + len(group.sites))))
        start += len(group.sites)
    return tuple(found)


def _ball(graph: Graph, site: Site, spans: Mapping[str, frozenset[str]]) -> frozenset[int]:
    """Indices of the nodes within ``REACH`` of the site's.

    ``spans``: by name the nodes with which a node may be one layer; it is no step to these.
    """
    seen: set[int] = set()
    around = list(site.match.nodes.values())
    for step in range(REACH + 1):
        border = []
        for node in around:
            for name in spans.get(node.name, (node.name,)):
                other = graph.by_name[name]
                if other.index not in seen:
                    seen.add(other.index)
                    border.append(other)
        around = [] if step == REACH else [near for node in border for near in _around(graph, node)]
    return frozenset(seen)


def _around(graph: Graph, node: Node) -> list[Node]:
    """The nodes that write what ``node`` reads, read what it writes or read its graph inputs."""
    writers = [graph.producer[t] for t in node.inputs if t in graph.producer]
    tensors = (*node.outputs, *(t for t in node.inputs if t in graph.inputs))
    edges = (e for t in tensors for e in graph.edges_of(t) if not e.is_graph_output)
    return [*writers, *(graph.by_name[edge.node] for edge in edges)]
