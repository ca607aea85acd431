"""A placement: which edges carry a Q/DQ pair and which of them share one scale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge


@dataclass(frozen=True)
class Placement:
    """The whole decision: quantized edges partitioned into scale groups.

    Each group is a set of edges that share one scale; edges of one tensor inside a group share
    one Q/DQ pair. Two placements are equal exactly if their partitions are, however reached.
    """

    groups: frozenset[frozenset[Edge]]

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
        return frozenset(edge for group in self.groups for edge in group)

    @cached_property
    def group_of(self) -> Mapping[Edge, int]:
        """A number for each edge, the same for those of one group."""
        return {edge: number for number, group in enumerate(self.groups) for edge in group}

    @cached_property
    def id(self) -> str:
        """Fingerprint: 12 hex digits of the SHA-256 of the canonical text."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:12]

    def canonical(self) -> str:
        """One line per group, edges and groups sorted: equal text means equal placement."""
        lines = (
            "; ".join(f"{e.tensor!r}>{e.node!r}:{e.input_index}" for e in g) for g in self.sorted()
        )
        return "\n".join(lines)

    def sorted(self) -> list[list[Edge]]:
        """Groups as sorted lists of edges, in a canonical order."""
        return sorted(sorted(group) for group in self.groups)


EMPTY = Placement(frozenset())
