"""Placements of many choices of layouts at the same sites, each made from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import ne

from placer.graph import Edge
from placer.quantization import Placement
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.connected import connected
from placer.rules.sites import (
    Settled,
    Site,
    Vote,
    apply_layouts,
    formats_of,
    kept_float,
)

KEPT_PARTS = 1 << 15
Groups = frozenset[ScaleGroup]
Layouts = Mapping[int, int] | Sequence[int]
Cell = Mapping[int, Settled]  # By part of the tensors.


class IncrementalPlacer:
    """``placer.rules.sites.place`` for many choices of layouts of the same sites.

    What a site quantizes depends on few other sites: its cell has those that quantize what it
    requires, and the keepers of a cell those that may keep its edges float. Which edges share a
    scale is decided apart for tensors that no layout joins. So of a choice that is like the last
    one, only what differs is placed anew.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = tuple(tuple(site.layouts.values()) for site in sites)
        self._formats_vary = any(site.formats_vary for site in sites)
        self._cells = self._find_cells()
        self._read = tuple((*members, *keepers) for members, keepers in self._cells)
        self._cells_at: dict[int, list[int]] = {}
        for number, (members, keepers) in enumerate(self._cells):
            for site in dict.fromkeys((*members, *keepers)):
                self._cells_at.setdefault(site, []).append(number)
        self._part_of = self._find_parts()
        self._cells_in: dict[int, list[int]] = {}
        for number, (members, _) in enumerate(self._cells):
            for part in sorted({self._part_of[t] for s in members for t in self._tensors(s)}):
                self._cells_in.setdefault(part, []).append(number)
        self._cell = lru_cache(maxsize=KEPT_PARTS)(self._make_cell)
        self._group = lru_cache(maxsize=KEPT_PARTS)(_group)
        # The last choice: layouts, cells by number, groups by part.
        self._layouts: tuple[int, ...] = ()
        self._found: dict[int, Cell] = {}
        self._groups: dict[int, Groups] = {}

    def place(self, layouts: tuple[int, ...]) -> Placement:
        """See ``place``; ``layouts``: for each site the number of its layout."""
        if self._layouts:
            sites = compress(range(len(layouts)), map(ne, layouts, self._layouts))
            due = {cell for site in sites for cell in self._cells_at[site]}
        else:
            due = set(range(len(self._cells)))
        self._layouts = layouts
        parts: set[int] = set()
        for number in due:
            old = self._found.get(number, {})
            new = self._cell_of(number, layouts)
            self._found[number] = new
            parts.update(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))
        for part in parts:
            cells = (self._found[n] for n in self._cells_in[part])
            self._groups[part] = self._group(tuple([c[part] for c in cells if part in c]))
        return Placement(Groups().union(*self._groups.values()))

    def change(self, before: tuple[int, ...], after: tuple[int, ...]) -> Change:
        """What turns the placement of ``before`` into that of ``after``.

        Takes time for what differs only, however many sites there are.
        """
        return self.change_at(compress(range(len(before)), map(ne, before, after)), before, after)

    @property
    def count(self) -> int:
        """How many sites there are."""
        return len(self._sites)

    @property
    def parts(self) -> Sequence[frozenset[str]]:
        """Tensors by the sites that decide which of their edges are quantized with one scale."""
        tensors_of: dict[int, set[str]] = {}
        for tensor, part in self._part_of.items():
            tensors_of.setdefault(part, set()).add(tensor)
        return [frozenset(tensors) for tensors in tensors_of.values()]

    def deciding(self, tensors: Iterable[str]) -> tuple[int, ...]:
        """The sites whose layouts decide which edges of ``tensors`` are quantized, and how."""
        cells = {n for part in self._parts_of(tensors) for n in self._cells_in[part]}
        return tuple(sorted({site for cell in cells for site in self._read[cell]}))

    def groups_of(self, tensors: Iterable[str], layouts: Layouts) -> Groups:
        """The groups of the placement of ``layouts`` on ``tensors`` and those of their parts.

        ``layouts``: of all sites that are ``deciding``.
        """
        parts = sorted(self._parts_of(tensors))
        return Groups().union(*(self._in_part(part, layouts) for part in parts))

    def _parts_of(self, tensors: Iterable[str]) -> set[int]:
        return {self._part_of[tensor] for tensor in tensors if tensor in self._part_of}

    def around(self, sites: Iterable[int]) -> tuple[int, ...]:
        """The sites whose layouts decide what a change of ``sites`` changes of a placement."""
        cells = {cell for site in sites for cell in self._cells_at[site]}
        tensors = (t for cell in cells for s in self._cells[cell][0] for t in self._tensors(s))
        cells.update(
            n for part in {self._part_of[t] for t in tensors} for n in self._cells_in[part]
        )
        return tuple(sorted({site for cell in cells for site in self._read[cell]}))

    def change_at(self, sites: Iterable[int], before: Layouts, after: Layouts) -> Change:
        """What turns one placement into another one that differs from it at ``sites`` only.

        ``before``, ``after``: numbers of layouts by site, of all that are ``around`` these.
        """
        parts: set[int] = set()
        for number in {cell for site in sites for cell in self._cells_at[site]}:
            old, new = self._cell_of(number, before), self._cell_of(number, after)
            parts.update(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))
        gone, come = set[ScaleGroup](), set[ScaleGroup]()
        for part in parts:
            old_groups, new_groups = self._in_part(part, before), self._in_part(part, after)
            gone |= old_groups - new_groups
            come |= new_groups - old_groups
        return Change(frozenset(gone), frozenset(come))

    def _cell_of(self, number: int, layouts: Layouts) -> Cell:
        return self._cell(number, tuple([layouts[i] for i in self._read[number]]))

    def _in_part(self, part: int, layouts: Layouts) -> Groups:
        cells = (self._cell_of(number, layouts) for number in self._cells_in[part])
        return self._group(tuple([cell[part] for cell in cells if part in cell]))

    def _make_cell(self, cell: int, layouts: tuple[int, ...]) -> Cell:
        chosen = [self._sites[i][n] for i, n in zip(self._read[cell], layouts, strict=True)]
        members = chosen[: len(self._cells[cell][0])]
        edges, shared, votes = apply_layouts(members, kept_float(chosen), self._formats_vary)
        by_part: dict[int, tuple[set[Edge], list[tuple[str, ...]], set[Vote]]] = {}
        for edge in edges:
            by_part.setdefault(self._part_of[edge.tensor], (set(), [], set()))[0].add(edge)
        for tensors in filter(None, shared):
            by_part.setdefault(self._part_of[tensors[0]], (set(), [], set()))[1].append(tensors)
        for vote in votes:
            by_part[self._part_of[vote[0].tensor]][2].add(vote)
        return {
            part: (frozenset(part_edges), tuple(joined), frozenset(wanted))
            for part, (part_edges, joined, wanted) in by_part.items()
        }

    def _find_cells(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Members and keepers of each cell."""
        required = [frozenset(e for lay in site for e in lay.requires) for site in self._sites]
        quantized = [frozenset(e for lay in site for e in lay.quantize) for site in self._sites]
        every = frozenset[Edge]().union(*required)
        cells = connected(
            [needed | (q & every) for needed, q in zip(required, quantized, strict=True)]
        )
        keepers: dict[Edge, list[int]] = {}
        for index, site in enumerate(self._sites):
            for edge in kept_float(site):
                keepers.setdefault(edge, []).append(index)
        grouped = []
        for members in cells:
            layouts = [lay for i in members for lay in self._sites[i]]
            edges = {e for lay in layouts for e in lay.quantize.union(*lay.all_or_none)}
            others = {i for edge in edges for i in keepers.get(edge, ())} - set(members)
            grouped.append((members, tuple(sorted(others))))
        return tuple(grouped)

    def _find_parts(self) -> dict[str, int]:
        """The part of each tensor: those of one part may have to share a scale."""
        joins = [tensors for site in self._sites for lay in site for tensors in lay.shared]
        alone = [(tensor,) for site in range(len(self._sites)) for tensor in self._tensors(site)]
        sets: list[tuple[str, ...]] = [*joins, *alone]
        return {t: n for n, part in enumerate(connected(sets)) for i in part for t in sets[i]}

    def _tensors(self, site: int) -> list[str]:
        return sorted({tensor for layout in self._sites[site] for tensor in layout.tensors})


def _group(parts: tuple[Settled, ...]) -> Groups:
    edges = frozenset[Edge]().union(*(part for part, _, _ in parts))
    shared = [tensors for _, joined, _ in parts for tensors in joined]
    formats = formats_of(vote for _, _, votes in parts for vote in votes)
    return Placement.of(edges, shared, formats).groups
