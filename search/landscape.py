"""The states of a search and what single changes do to the predicted layers.

Whether a layer fuses depends on the pairs near it, so what a change does depends on the layouts of
near sites only. It is therefore kept with those layouts, and changes far from each other are
predicted together: the cost of looking at all changes hardly grows with the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from placer.graph import Graph
from placer.rules.sites import Placer, Site
from placer.search.layers import KEPT_PREDICTIONS, LayerModel, PredictedLayers
from placer.search.space import Choices, Space

State = tuple[int, ...]  # Number of the layout of each decided site.
Move = tuple[tuple[int, int], ...]  # Sites and the layouts they change to.
Delta = Mapping[int, int]  # Change of the number of layers by signature number.

# Fusions span a few nodes; a change further away than this many leaves a layer as it is.
REACH = 3
MAX_SWEEPS, MAX_PAIRS = 12, 400


@dataclass(frozen=True, eq=False)
class Objective:
    """A linear function of states: ``costs`` by signature number, ``extras`` by site and layout."""

    costs: np.ndarray
    extras: Sequence[np.ndarray]

    def of_counts(self, counts: Mapping[int, int]) -> float:
        """Cost of layers; signatures that appeared after the objective was made cost nothing."""
        known = len(self.costs)
        return sum(float(self.costs[s]) * n for s, n in counts.items() if s < known)


class Landscape:
    """States of one space and changes between them."""

    def __init__(self, space: Space, layers: LayerModel) -> None:
        self.space = space
        self.layers = layers
        self.sites: tuple[Site, ...] = tuple(s for group in space.groups for s in group.sites)
        self.members: tuple[tuple[int, ...], ...] = _members(space)
        self.names: tuple[tuple[str, ...], ...] = tuple(tuple(s.layouts) for s in self.sites)
        near = [_ball(space.graph, site) for site in self.sites]
        self._balls = near
        self._deltas: dict[tuple[Move, State], Delta] = {}
        self._placer = Placer(space.sites)
        self._last: PredictedLayers | None = None
        self._predicted = lru_cache(maxsize=KEPT_PREDICTIONS)(self._predict)

    def state(self, choices: Choices) -> State:
        """The state of ``choices``."""
        layouts = self.space.layouts(choices)
        return tuple(
            names.index(layouts[site.name])
            for site, names in zip(self.sites, self.names, strict=True)
        )

    def choices(self, state: State) -> dict[str, str]:
        """The choices that lead to ``state``."""
        return self.space.choices(self.layouts(state))

    def layouts(self, state: State) -> dict[str, str]:
        """The layout of each decided site, by its name."""
        return {
            site.name: names[number]
            for site, names, number in zip(self.sites, self.names, state, strict=True)
        }

    def predict(self, state: State) -> PredictedLayers:
        """The predicted layers of ``state``."""
        return self._predicted(state)

    def _predict(self, state: State) -> PredictedLayers:
        self._last = self.layers.predict(self._placer.place(self.layouts(state)), self._last)
        return self._last

    @cached_property
    def group_moves(self) -> tuple[Move, ...]:
        """All changes of one whole group."""
        return tuple(
            tuple((site, layout) for site in members)
            for members in self.members
            for layout in range(len(self.names[members[0]]))
        )

    @cached_property
    def site_moves(self) -> tuple[Move, ...]:
        """All changes of one site of a group of several."""
        return tuple(
            ((site, layout),)
            for members in self.members
            if len(members) > 1
            for site in members
            for layout in range(len(self.names[site]))
        )

    def pair_moves(self, state: State, objective: Objective) -> list[Move]:
        """Changes of two near groups at once: the ``MAX_PAIRS`` that lose least one by one."""
        single = self.gains(state, objective, self.group_moves)
        nodes = [self._nodes(move) for _, move in single]
        balls = [self._ball(move) for _, move in single]
        found = [
            (single[i][0] + single[j][0], tuple(sorted((*single[i][1], *single[j][1]))))
            for i in range(len(single))
            for j in range(i + 1, len(single))
            if single[i][1][0][0] != single[j][1][0][0] and nodes[i] & balls[j]
        ]
        return [move for _, move in sorted(found)[:MAX_PAIRS]]

    def value(self, state: State, objective: Objective) -> float:
        """The objective of ``state`` by its own predicted layers."""
        extras = sum(
            float(own[layout]) for own, layout in zip(objective.extras, state, strict=True)
        )
        return objective.of_counts(self.predict(state).counts()) + extras

    def deltas(self, state: State, moves: Iterable[Move]) -> dict[Move, Delta]:
        """What each of ``moves`` that changes ``state`` does to the counts of layers."""
        found: dict[Move, Delta] = {}
        missing: list[tuple[Move, State]] = []
        for move in moves:
            if _changes(state, move):
                key = (move, self._context(state, move))
                if key in self._deltas:
                    found[move] = self._deltas[key]
                else:
                    missing.append(key)
        for batch in self._batches(missing):
            for key, delta in zip(batch, self._probe(state, [m for m, _ in batch]), strict=True):
                self._deltas[key] = found[key[0]] = delta
        return found

    def descend(
        self, state: State, objective: Objective, moves: Sequence[Move], *, pairs: bool = False
    ) -> State:
        """Make improving changes until there are none; returns the best state by ``value``.

        Each sweep makes the best changes that are far from each other. ``pairs``: where no single
        change improves, two near groups are changed at once.
        """
        best, best_value = state, self.value(state, objective)
        for _ in range(MAX_SWEEPS):
            chosen = self._improving(state, objective, moves)
            if not chosen and pairs:
                chosen = self._improving(state, objective, self.pair_moves(state, objective))
            if not chosen:
                break
            state = apply(state, chosen)
            value = self.value(state, objective)
            if value >= best_value - 1e-12:
                break
            best, best_value = state, value
        return best

    def gains(
        self, state: State, objective: Objective, moves: Iterable[Move]
    ) -> list[tuple[float, Move]]:
        """Change of the objective by each move that changes ``state``, the best first."""
        found = []
        for move, delta in self.deltas(state, moves).items():
            gain = objective.of_counts(delta)
            for site, layout in move:
                gain += float(objective.extras[site][layout] - objective.extras[site][state[site]])
            found.append((gain, move))
        return sorted(found)

    def _improving(self, state: State, objective: Objective, moves: Iterable[Move]) -> list[Move]:
        chosen: list[Move] = []
        taken: set[int] = set()
        for gain, move in self.gains(state, objective, moves):
            if gain >= -1e-9:
                break
            ball = self._ball(move)
            if not ball & taken:
                chosen.append(move)
                taken |= ball
        return chosen

    def _probe(self, state: State, batch: Sequence[Move]) -> Sequence[Delta]:
        """Predict all of ``batch``, which are far from each other, at once."""
        before = self.predict(state)
        placement = self._placer.place(self.layouts(apply(state, batch)))
        after = self.layers.predict(placement, before)
        owner = {node: i for i, move in enumerate(batch) for node in self._ball(move)}
        found: list[dict[int, int]] = [{} for _ in batch]
        for signature, node, sign in self.layers.changes(before, after):
            index = owner.get(node)
            if index is not None:
                found[index][signature] = found[index].get(signature, 0) + sign
        return found

    def _batches(self, keys: Sequence[tuple[Move, State]]) -> Iterator[list[tuple[Move, State]]]:
        """Split into lists of moves that are far from each other."""
        waiting = deque(keys)
        while waiting:
            batch: list[tuple[Move, State]] = []
            taken: set[int] = set()
            left: deque[tuple[Move, State]] = deque()
            for key in waiting:
                ball = self._ball(key[0])
                if ball & taken:
                    left.append(key)
                else:
                    batch.append(key)
                    taken |= ball
            yield batch
            waiting = left

    def _context(self, state: State, move: Move) -> State:
        return tuple(state[site] for site in self._near(tuple(site for site, _ in move)))

    @cached_property
    def _site_nodes(self) -> tuple[frozenset[int], ...]:
        return tuple(
            frozenset(node.index for node in site.match.nodes.values()) for site in self.sites
        )

    @cached_property
    def _kept_near(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        return {}

    def _near(self, sites: tuple[int, ...]) -> tuple[int, ...]:
        if sites not in self._kept_near:
            ball = frozenset(n for site in sites for n in self._balls[site])
            self._kept_near[sites] = tuple(
                i for i, nodes in enumerate(self._site_nodes) if nodes & ball
            )
        return self._kept_near[sites]

    def _ball(self, move: Move) -> frozenset[int]:
        if len(move) == 1:
            return self._balls[move[0][0]]
        return frozenset(node for site, _ in move for node in self._balls[site])

    def _nodes(self, move: Move) -> frozenset[int]:
        return frozenset(node for site, _ in move for node in self._site_nodes[site])


def apply(state: State, moves: Iterable[Move]) -> State:
    """``state`` after ``moves``."""
    changed = list(state)
    for move in moves:
        for site, layout in move:
            changed[site] = layout
    return tuple(changed)


def _changes(state: State, move: Move) -> bool:
    return any(state[site] != layout for site, layout in move)


def _members(space: Space) -> tuple[tuple[int, ...], ...]:
    found, start = [], 0
    for group in space.groups:
        found.append(tuple(range(start, start + len(group.sites))))
        start += len(group.sites)
    return tuple(found)


def _ball(graph: Graph, site: Site) -> frozenset[int]:
    """Indices of the nodes within ``REACH`` of the site's."""
    seen = {node.index for node in site.match.nodes.values()}
    border = list(site.match.nodes.values())
    for _ in range(REACH):
        reached = []
        for node in border:
            around = [graph.producer[t] for t in node.inputs if t in graph.producer]
            readers = (e for t in node.outputs for e in graph.edges_of(t) if not e.is_graph_output)
            around += [graph.by_name[edge.node] for edge in readers]
            for other in around:
                if other.index not in seen:
                    seen.add(other.index)
                    reached.append(other)
        border = reached
    return frozenset(seen)
