"""Which vertex of one structure is which of another, whatever they are called.

Vertices are labelled by what is around them: Weisfeiler and Lehman's refinement ("A reduction of a
graph to a canonical form", 1968), where the label of the next round is made of the operator, the
labels of the inputs in order (any order where the operator commutes) and those of the readers.
Labels that occur once in either structure are anchors; from them the match spreads along edges.
What is left is symmetric: one pair is chosen, by name or else by order, and spreads again.
The same is done with less deep labels, and then with less strict ones, for structures that differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placer.graph.structure import COMMUTATIVE, Structure, Vertex

MAX_ROUNDS = 32
# Below this many rounds a label says too little to be trusted for occurring once.
_TRUSTED_ROUNDS = 2
_CONSTANT = (-1, -1)
_OMITTED = (-2, -2)

Key = Callable[[Vertex], Hashable]
Labels = tuple[Sequence[int], Sequence[int]]  # Of the source's and of the target's vertices.
_Class = tuple[list[int], list[int]]  # Source and target vertices that are alike.
_Link = tuple[str, int, int]  # Direction, input index, output index.


@dataclass(frozen=True, eq=False)
class Correspondence:
    """``pairs``: target vertices by source vertices, as positions; one to one.

    ``is_exact``: every vertex has a partner, of the same operator, attributes and shapes.
    """

    source: Structure
    target: Structure
    pairs: Mapping[int, int]

    @property
    def is_exact(self) -> bool:
        """See the class."""
        sizes = {len(self.pairs), len(self.source.vertices), len(self.target.vertices)}
        return len(sizes) == 1 and all(
            _strict(self.source.vertices[s]) == _strict(self.target.vertices[t])
            for s, t in self.pairs.items()
        )

    def input_index(self, source: int, index: int) -> int | None:
        """The target's input that is input ``index`` of ``source``; None if it has none.

        A commutative operator may have its inputs in another order.
        """
        target = self.pairs[source]
        wanted = self.source.sources[source][index]
        inputs = self.target.sources[target]
        if wanted is not None and self.target.vertices[target].op in COMMUTATIVE:
            partner = self.pairs.get(wanted.vertex)
            same = [i for i, p in enumerate(inputs) if p and p == (partner, wanted.output)]
            if same:
                return index if index in same else same[0]
        if index >= len(inputs) or not self.target.vertices[target].inputs[index]:
            return None
        is_constant = self.source.is_constant(source, index)
        return index if self.target.is_constant(target, index) == is_constant else None


def correspond(source: Structure, target: Structure) -> Correspondence:
    """Match the vertices of ``source`` with those of ``target``; the same for the same two."""
    matching = _Matching(source, target)
    for key in (_strict, _loose):
        if matching.is_complete:
            break
        rounds = _refine(source, target, key)
        last = len(rounds) - 1  # Further rounds would say no more.
        depths = _depths(last)
        trusted = min(_TRUSTED_ROUNDS, last)
        for depth in depths:
            if depth >= trusted:
                matching.anchor(rounds[depth], depth)
            matching.spread(rounds[depth], depth)
        for depth in depths:
            matching.name(rounds[depth], depth)
            if depth >= trusted:
                matching.break_ties(rounds[depth], depth)
    return Correspondence(source, target, matching.pairs)


def _strict(vertex: Vertex) -> Hashable:
    return (vertex.op, vertex.attributes, vertex.types)


def _loose(vertex: Vertex) -> Hashable:
    return vertex.kind


def _depths(last: int) -> list[int]:
    """Numbers of rounds to try, most first."""
    return sorted({last, *(d for d in (16, 8, 4, 3, 2, 1, 0) if d < last)}, reverse=True)


def _refine(source: Structure, target: Structure, key: Key) -> list[Labels]:
    """Labels of both structures after 0, 1, ... rounds, until no round tells more apart."""
    structures = (source, target)
    names: dict[Hashable, int] = {}
    labels = [[names.setdefault(key(v), len(names)) for v in s.vertices] for s in structures]
    rounds: list[Labels] = [(labels[0], labels[1])]
    while len(rounds) <= MAX_ROUNDS:
        known = len(names)
        names = {}
        labels = [
            [names.setdefault(around, len(names)) for around in _surroundings(s, old)]
            for s, old in zip(structures, labels, strict=True)
        ]
        if len(names) == known:
            break
        rounds.append((labels[0], labels[1]))
    return rounds


def _surroundings(structure: Structure, labels: Sequence[int]) -> Iterator[Hashable]:
    vertices = structure.vertices
    for i, vertex in enumerate(vertices):
        inputs = [_input_label(structure, labels, i, index) for index in range(len(vertex.inputs))]
        if vertex.op in COMMUTATIVE:
            inputs.sort()
        readers = sorted(
            (r.output, labels[r.vertex], _input_port(vertices[r.vertex], r.input))
            for r in structure.readers[i]
        )
        yield labels[i], tuple(inputs), tuple(readers)


def _input_label(
    structure: Structure, labels: Sequence[int], vertex: int, index: int
) -> tuple[int, int]:
    port = structure.sources[vertex][index]
    if port is None:
        return _CONSTANT if structure.is_constant(vertex, index) else _OMITTED
    return labels[port.vertex], port.output


def _input_port(vertex: Vertex, index: int) -> int:
    """The input's index, as far as it matters to the operator."""
    return 0 if vertex.op in COMMUTATIVE else index


@dataclass(eq=False)
class _Matching:
    """Pairs found so far; each method takes labels and how many rounds they are made of."""

    source: Structure
    target: Structure
    pairs: dict[int, int] = field(default_factory=dict)
    inverse: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether either structure has no vertex left without a partner."""
        return len(self.pairs) >= min(len(self.source.vertices), len(self.target.vertices))

    def anchor(self, labels: Labels, depth: int) -> None:
        """Pair what has a label that occurs once in each structure."""
        for ones, others in self._classes(labels):
            if len(ones) == len(others) == 1:
                self._pair(ones[0], others[0], depth)

    def spread(self, labels: Labels, depth: int) -> None:
        """Pair neighbours of pairs, on the same side of both, that no other neighbour is like."""
        self.waiting = list(self.pairs)
        self._go_on(labels, depth)

    def name(self, labels: Labels, depth: int) -> None:
        """Pair what has the same name and label, spreading after each."""
        names = {vertex.name: i for i, vertex in enumerate(self.target.vertices)}
        for s, vertex in enumerate(self.source.vertices):
            t = names.get(vertex.name)
            if t is not None and s not in self.pairs and labels[0][s] == labels[1][t]:
                self._pair(s, t, depth)
                self._go_on(labels, depth)

    def break_ties(self, labels: Labels, depth: int) -> None:
        """Pair vertices of a class of equal size in both structures one by one, spreading each.

        Classes among the neighbours of a pair come first, the smallest before the others: they are
        the most likely to be symmetric indeed.
        """
        while self._break_all(self._nearby(labels), labels, depth) or self._break_first(
            labels, depth
        ):
            pass

    def _break_all(self, classes: Iterable[_Class], labels: Labels, depth: int) -> bool:
        known = len(self.pairs)
        for tied in _smallest_first(classes):
            while self._break_one(tied, depth):
                self._go_on(labels, depth)
        return len(self.pairs) > known

    def _break_first(self, labels: Labels, depth: int) -> bool:
        for tied in _smallest_first(self._classes(labels)):
            if self._break_one(tied, depth):
                self._go_on(labels, depth)
                return True
        return False

    def _break_one(self, tied: _Class, depth: int) -> bool:
        """Pair the first of what is left of a class, if that is of equal size."""
        ones = [s for s in tied[0] if s not in self.pairs]
        others = [t for t in tied[1] if t not in self.inverse]
        if not ones or len(ones) != len(others):
            return False
        return any(self._pair(ones[0], t, depth) for t in others)

    def _go_on(self, labels: Labels, depth: int) -> None:
        while self.waiting:
            s = self.waiting.pop()
            for ones, others in self._neighbours(s, labels):
                if len(ones) == len(others) == 1:
                    self._pair(ones[0], others[0], depth)

    def _nearby(self, labels: Labels) -> Iterator[_Class]:
        for s in self.pairs:
            yield from self._neighbours(s, labels)

    def _classes(self, labels: Labels) -> list[_Class]:
        """Vertices without a partner by label, where both structures have some."""
        unpaired = (
            (i for i in range(len(self.source.vertices)) if i not in self.pairs),
            (i for i in range(len(self.target.vertices)) if i not in self.inverse),
        )
        return _common(
            [(labels[side][i], i) for i in indices] for side, indices in enumerate(unpaired)
        )

    def _neighbours(self, s: int, labels: Labels) -> list[_Class]:
        """Neighbours of a pair without a partner, by label and by the side that they are on."""
        sides = ((self.source, s, self.pairs), (self.target, self.pairs[s], self.inverse))
        return _common(
            [((link, labels[i][n]), n) for link, n in _links(st, v) if n not in done]
            for i, (st, v, done) in enumerate(sides)
        )

    def _pair(self, s: int, t: int, depth: int) -> bool:
        """Pair two vertices unless their neighbours' partners forbid it.

        Equal labels of at least one round say that the neighbours are alike too, so a neighbour's
        partner must be a neighbour on the same side.
        """
        if s in self.pairs or t in self.inverse or (depth and not self._fits(s, t)):
            return False
        self.pairs[s], self.inverse[t] = t, s
        self.waiting.append(s)
        return True

    def _fits(self, s: int, t: int) -> bool:
        ones, others = list(_links(self.source, s)), list(_links(self.target, t))
        mapped = {(link, self.pairs[n]) for link, n in ones if n in self.pairs}
        return mapped == {(link, n) for link, n in others if n in self.inverse}


def _links(structure: Structure, vertex: int) -> Iterator[tuple[_Link, int]]:
    """What ``vertex`` reads and what reads it, and how."""
    here = structure.vertices[vertex]
    for index, port in enumerate(structure.sources[vertex]):
        if port is not None:
            yield ("in", _input_port(here, index), port.output), port.vertex
    for reader in structure.readers[vertex]:
        index = _input_port(structure.vertices[reader.vertex], reader.input)
        yield ("out", index, reader.output), reader.vertex


def _smallest_first(classes: Iterable[_Class]) -> list[_Class]:
    return sorted(classes, key=lambda tied: (len(tied[0]), tied[0]))


def _common(sides: Iterable[Iterable[tuple[Hashable, int]]]) -> list[_Class]:
    """Members of either side by key, in order and each once, for keys that both sides have."""
    members_by_label: list[dict[Hashable, dict[int, None]]] = []
    for side in sides:
        members: dict[Hashable, dict[int, None]] = defaultdict(dict)
        for key, member in side:
            members[key][member] = None
        members_by_label.append(members)
    ones, others = members_by_label
    return [(list(ones[key]), list(others[key])) for key in ones if key in others]
