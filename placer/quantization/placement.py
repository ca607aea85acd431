"""A placement: which edges carry a Q/DQ pair and which of them share one scale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from placer.graph import Edge

Group = frozenset[Edge]


@dataclass(frozen=True)
class Change:
    """What turns one placement into another one: groups that it loses and that it gains."""

    gone: frozenset[Group]
    come: frozenset[Group]

    @property
    def added(self) -> tuple[Edge, ...]:
        """The edges that become quantized, sorted."""
        return tuple(sorted(_edges(self.come) - _edges(self.gone)))

    @property
    def removed(self) -> tuple[Edge, ...]:
        """The edges that become float, sorted."""
        return tuple(sorted(_edges(self.gone) - _edges(self.come)))


@dataclass(frozen=True)
class Placement:
    """The whole decision: quantized edges partitioned into scale groups.

    Each group is a set of edges that share one scale; edges of one tensor inside a group share
    one Q/DQ pair. ``per_tensor``: edges of weights that have one scale where the scheme gives them
    one for each channel. ``base``: the type that what is not quantized is computed in, where the
    search decides on it and it is another than the model's own. Two placements are equal exactly if
    their partitions, these edges and this type are, however reached.
    """

    groups: frozenset[Group]
    per_tensor: frozenset[Edge] = frozenset()
    base: str | None = None

    @staticmethod
    def of(edges: Iterable[Edge], shared: Iterable[Iterable[str]] = ()) -> Placement:
        """Group ``edges`` by tensor, then merge the tensors of each set in ``shared``.

        Sets of ``shared`` that overlap are merged; tensors without a quantized edge are ignored.
        """
        leader: dict[str, str] = {}

        def find(tensor: str) -> str:
            while (parent := leader.setdefault(tensor, tensor)) != tensor:
                tensor = parent
            return tensor

        chosen = set(edges)
        present = {edge.tensor for edge in chosen}
        for tensors in shared:
            members = [t for t in tensors if t in present]
            for other in members[1:]:
                leader[find(other)] = find(members[0])
        groups: dict[str, set[Edge]] = {}
        for edge in chosen:
            groups.setdefault(find(edge.tensor), set()).add(edge)
        return Placement(frozenset(frozenset(g) for g in groups.values()))

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """All quantized edges."""
        return _edges(self.groups)

    def change_to(self, other: Placement) -> Change:
        """What turns this placement into ``other``."""
        return Change(self.groups - other.groups, other.groups - self.groups)

    def changed(self, change: Change) -> Placement:
        """The placement after ``change``."""
        found = Placement((self.groups - change.gone) | change.come, base=self.base)
        return found.with_weights(self.per_tensor)

    def with_weights(self, per_tensor: frozenset[Edge]) -> Placement:
        """This placement with those of ``per_tensor`` that it quantizes as its own."""
        own = per_tensor & self.edges if per_tensor else per_tensor
        return Placement(self.groups, own, self.base)

    def computed_in(self, base: str | None) -> Placement:
        """This placement with what is not quantized in ``base``."""
        return Placement(self.groups, self.per_tensor, base)

    @cached_property
    def group_of(self) -> Mapping[Edge, int]:
        """A number for each edge, the same for those of one group."""
        return {edge: number for number, group in enumerate(self.groups) for edge in group}

    @cached_property
    def id(self) -> str:
        """Fingerprint: 12 hex digits of the SHA-256 of the canonical text."""
        return self._digest(self._lines)

    def id_after(self, change: Change) -> str:
        """``id`` after ``change``; the groups that stay are not sorted again."""
        gone = {_line(sorted(group), self.per_tensor) for group in change.gone}
        kept = [item for item in self._lines if item[1] not in gone]
        come = _lines(change.come, self.per_tensor)
        return self._digest(sorted([*kept, *come], key=_ORDER))

    def canonical(self) -> str:
        """One line per group, edges and groups sorted, and one for a base: equal text means equal
        placement.
        """
        return self._text(self._lines)

    def sorted(self) -> list[list[Edge]]:
        """Groups as sorted lists of edges, in a canonical order."""
        return [list(edges) for edges, _ in self._lines]

    def _text(self, lines: Iterable[tuple[list[Edge], str]]) -> str:
        last = () if self.base is None else (f"base {self.base}",)
        return "\n".join((*(line for _, line in lines), *last))

    def _digest(self, lines: Iterable[tuple[list[Edge], str]]) -> str:
        return hashlib.sha256(self._text(lines).encode()).hexdigest()[:12]

    @cached_property
    def _lines(self) -> Sequence[tuple[list[Edge], str]]:
        """Groups in canonical order, with the line of each in the canonical text."""
        return sorted(_lines(self.groups, self.per_tensor), key=_ORDER)


_ORDER = itemgetter(0)


def _edges(groups: Iterable[Group]) -> Group:
    return frozenset(edge for group in groups for edge in group)


def _lines(groups: Iterable[Group], per_tensor: Group) -> Iterator[tuple[list[Edge], str]]:
    for edges in map(sorted, groups):
        yield edges, _line(edges, per_tensor)


def _line(edges: Iterable[Edge], per_tensor: Group) -> str:
    return "; ".join(
        f"{e.tensor!r}>{e.node!r}:{e.input_index}{' per tensor' if e in per_tensor else ''}"
        for e in edges
    )


EMPTY = Placement(frozenset())
# Of the float model in any type that a placement may say it is computed in.
FLOAT_IDS = frozenset(EMPTY.computed_in(base).id for base in (None, "bfloat16"))
