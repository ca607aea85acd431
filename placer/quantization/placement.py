"""A placement: which edges carry a Q/DQ pair and which of them share one scale."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from placer.graph import Edge
from placer.quantization.scheme import FLOAT8, Format, Scheme


class ScaleGroup(NamedTuple):
    """Edges that share one scale. ``format``: of their pairs, None where it is the scheme's own.

    ``variant``: tells apart the scales that a file has for one tensor, from 1 on; 0: it has one.
    """

    edges: frozenset[Edge]
    format: Format | None = None
    variant: int = 0


@dataclass(frozen=True)
class Change:
    """What turns one placement into another one: groups that it loses and that it gains."""

    gone: frozenset[ScaleGroup]
    come: frozenset[ScaleGroup]

    @property
    def added(self) -> tuple[Edge, ...]:
        """The edges that become quantized, sorted."""
        return tuple(sorted(_edges(self.come) - _edges(self.gone)))

    @property
    def removed(self) -> tuple[Edge, ...]:
        """The edges that become float, sorted."""
        return tuple(sorted(_edges(self.gone) - _edges(self.come)))

    @property
    def reformatted(self) -> tuple[Edge, ...]:
        """The edges that stay quantized, but in another format, sorted."""
        before, after = _formats(self.gone), self.formats
        both = _edges(self.gone) & _edges(self.come)
        return tuple(sorted(edge for edge in both if before.get(edge) != after.get(edge)))

    @property
    def formats(self) -> Mapping[Edge, Format]:
        """The format of each edge of ``come`` that has another one than the scheme's own."""
        return _formats(self.come)


@dataclass(frozen=True)
class Placement:
    """The whole decision: quantized edges partitioned into scale groups.

    Edges of one tensor inside a group share one Q/DQ pair. ``per_tensor``: edges of weights that
    have one scale where the scheme gives them one for each channel. ``base``: the type that what is
    not quantized is computed in, where the search decides on it and it is another than the model's
    own. Two placements are equal exactly if their partitions with the formats and variants, these
    edges and this type are, however reached.
    """

    groups: frozenset[ScaleGroup]
    per_tensor: frozenset[Edge] = frozenset()
    base: str | None = None

    @staticmethod
    def of(
        edges: Iterable[Edge],
        shared: Iterable[Iterable[str]] = (),
        formats: Mapping[Edge, Format] | None = None,
    ) -> Placement:
        """Group ``edges`` by tensor, then merge the tensors of each set in ``shared``.

        Sets of ``shared`` that overlap are merged; tensors without a quantized edge are ignored.
        ``formats``: of edges that have another one than the scheme's own; edges of unequal formats
        are never in one group.
        """
        leader: dict[str, str] = {}

        def find(tensor: str) -> str:
            while (parent := leader.setdefault(tensor, tensor)) != tensor:
                tensor = parent
            return tensor

        quantized = set(edges)
        present = {edge.tensor for edge in quantized}
        for tensors in shared:
            members = [t for t in tensors if t in present]
            for other in members[1:]:
                leader[find(other)] = find(members[0])
        groups: dict[tuple[str, Format | None], set[Edge]] = {}
        format_of = formats or {}
        for edge in quantized:
            groups.setdefault((find(edge.tensor), format_of.get(edge)), set()).add(edge)
        return Placement(
            frozenset(ScaleGroup(frozenset(g), chosen) for (_, chosen), g in groups.items())
        )

    @staticmethod
    def of_groups(groups: Iterable[Iterable[Edge]]) -> Placement:
        """A scale for each of ``groups``, in the scheme's own format; empty groups are left out.

        Those of the same tensors have the same range, so the same scale.
        """
        sets = filter(None, map(frozenset, groups))
        return Placement(frozenset(ScaleGroup(edges) for edges in sets))

    @staticmethod
    def of_scales(groups: Iterable[ScaleGroup]) -> Placement:
        """A scale for each of ``groups``; those that share a tensor are numbered as variants.

        So they stay apart whatever edges they lose.
        """
        ordered = sorted(groups, key=lambda group: min(group.edges))
        kinds = [{(edge.tensor, group.format) for edge in group.edges} for group in ordered]
        count = Counter(kind for own in kinds for kind in own)
        taken: dict[tuple[str, Format | None], set[int]] = {kind: set() for kind in count}
        numbered = set[ScaleGroup]()
        for group, own in zip(ordered, kinds, strict=True):
            others = set[int]().union(*(taken[kind] for kind in own))
            is_one = all(count[kind] == 1 for kind in own)
            variant = 0 if is_one else next(n for n in itertools.count(1) if n not in others)
            numbered.add(group._replace(variant=variant))
            for kind in own:
                taken[kind].add(variant)
        return Placement(frozenset(numbered))

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """All quantized edges."""
        return _edges(self.groups)

    @cached_property
    def formats(self) -> Mapping[Edge, Format]:
        """The format of each edge that has another one than the scheme's own."""
        return _formats(self.groups)

    def change_to(self, other: Placement) -> Change:
        """What turns this placement into ``other``."""
        return Change(self.groups - other.groups, other.groups - self.groups)

    def changed(self, change: Change) -> Placement:
        """The placement after ``change``."""
        placement = Placement((self.groups - change.gone) | change.come, base=self.base)
        return placement.with_weights(self.per_tensor)

    def with_weights(self, per_tensor: frozenset[Edge]) -> Placement:
        """This placement with those of ``per_tensor`` that it quantizes as its own."""
        kept = per_tensor & self.edges if per_tensor else per_tensor
        return Placement(self.groups, kept, self.base)

    def computed_in(self, base: str | None) -> Placement:
        """This placement with what is not quantized in ``base``."""
        return Placement(self.groups, self.per_tensor, base)

    def in_format(self, chosen: Format | None) -> Placement:
        """This placement with all its groups in ``chosen``; None: the scheme's own format."""
        groups = frozenset(group._replace(format=chosen) for group in self.groups)
        return Placement(groups, self.per_tensor, self.base)

    def without(self, edges: Container[Edge]) -> Placement:
        """This placement with ``edges`` left in float."""
        left = (
            group._replace(edges=frozenset(e for e in group.edges if e not in edges))
            for group in self.groups
        )
        placement = Placement(frozenset(group for group in left if group.edges), base=self.base)
        return placement.with_weights(self.per_tensor)

    def translated(self, given: Scheme, wanted: Scheme) -> Placement:
        """This placement of the scheme ``given`` as one of ``wanted``.

        A scheme of FP8 alone does not tell its format, which beside INT8 is one of several.
        """
        return self.in_format(FLOAT8) if given.is_float8 and not wanted.is_float8 else self

    @cached_property
    def group_of(self) -> Mapping[Edge, int]:
        """A number for each edge, the same for those of one group."""
        return {edge: number for number, group in enumerate(self.groups) for edge in group.edges}

    @cached_property
    def id(self) -> str:
        """Fingerprint: 12 hex digits of the SHA-256 of the canonical text."""
        return self._digest(self._lines)

    def id_after(self, change: Change) -> str:
        """``id`` after ``change``; the groups that stay are not sorted again."""
        gone = {line for _, line in _lines(change.gone, self.per_tensor)}
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


def _edges(groups: Iterable[ScaleGroup]) -> frozenset[Edge]:
    return frozenset(edge for group in groups for edge in group.edges)


def _formats(groups: Iterable[ScaleGroup]) -> dict[Edge, Format]:
    return {
        edge: group.format for group in groups if group.format is not None for edge in group.edges
    }


def _lines(
    groups: Iterable[ScaleGroup], per_tensor: frozenset[Edge]
) -> Iterator[tuple[list[Edge], str]]:
    for group in groups:
        edges = sorted(group.edges)
        line = _line(edges, per_tensor)
        if group.format is not None:
            line += f" in {group.format}"
        yield edges, f"{line} by scale {group.variant}" if group.variant else line


def _line(edges: Iterable[Edge], per_tensor: frozenset[Edge]) -> str:
    return "; ".join(
        f"{e.tensor!r}>{e.node!r}:{e.input_index}{' per tensor' if e in per_tensor else ''}"
        for e in edges
    )


def edges_by_format(scheme: Scheme, placement: Placement) -> dict[str, int]:
    """How many edges have each of the formats of ``scheme``; empty if it has its own alone."""
    if not scheme.formats:
        return {}
    given = Counter(placement.formats.values())
    counts: dict[str, int] = {scheme.activation: len(placement.edges) - len(placement.formats)}
    return counts | {name: given[name] for name in scheme.formats}


EMPTY = Placement(frozenset())
# Of the float model in any type that a placement may say it is computed in.
FLOAT_IDS = frozenset(EMPTY.computed_in(base).id for base in (None, "bfloat16"))
