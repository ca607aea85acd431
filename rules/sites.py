"""From matches to sites, and from a choice of layouts to a placement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress
from operator import ne

from placer.graph import Edge, Graph, Node
from placer.graph.dependence import data_tensors
from placer.graph.weights import has_weights
from placer.quantization import Format, Placement
from placer.quantization.placement import Change
from placer.rules.connected import connected
from placer.rules.match import Match
from placer.rules.matcher import Matches, Overlap, match_rules_with_overlaps
from placer.rules.schema import Layout, Rule
from placer.rules.target import ANY_TARGET, Target

KEPT_PARTS = 1 << 15
# How a layout is called that quantizes to a format of its own, behind the rule's name for it.
_IN = " in "


@dataclass(frozen=True)
class ResolvedLayout:
    """A layout of one site in terms of the graph's edges and tensors.

    ``own``: of the edges that it quantizes, those into the site's own nodes. ``format``: of its
    pairs, where it is another than the scheme's own.
    """

    quantize: frozenset[Edge]
    shared: tuple[tuple[str, ...], ...]
    keep_float: frozenset[Edge]
    requires: frozenset[Edge]
    all_or_none: tuple[frozenset[Edge], ...] = ()
    own: frozenset[Edge] = frozenset()
    format: Format | None = None

    @property
    def tensors(self) -> frozenset[str]:
        """All tensors that the layout names, or names an edge of."""
        edges = self.quantize.union(self.keep_float, self.requires, *self.all_or_none)
        return frozenset(edge.tensor for edge in edges).union(*self.shared)


@dataclass(frozen=True, eq=False)
class Site:
    """A decision at one match: mutually exclusive layouts, one of which is the default.

    ``signature`` is equal for sites of equal structure: same rule, operators, attributes and
    tensor shapes. Such sites are decided together. ``barred``: layouts that nobody may propose,
    as the user forces nodes; the search still reckons with them.
    """

    match: Match
    layouts: Mapping[str, ResolvedLayout]
    default: str
    signature: str
    barred: frozenset[str] = frozenset()

    @cached_property
    def name(self) -> str:
        """Rule and anchor node, unique in a model."""
        return f"{self.match.rule.id}:{self.match.anchor.name}"


def rule_layout(name: str) -> str:
    """The rule's name of the layout that sites call ``name``, in whatever format it is."""
    return name.partition(_IN)[0]


def layout_in(name: str, chosen: Format) -> str:
    """What sites call the rule's layout ``name`` in the format ``chosen``."""
    return f"{name}{_IN}{chosen}"


def find_sites(
    graph: Graph,
    rules: Iterable[Rule],
    target: Target = ANY_TARGET,
    formats: Sequence[Format] = (),
) -> tuple[Site, ...]:
    """Return the sites of ``rules`` in ``graph`` in node order.

    Rules and layouts that do not hold for ``target`` are left out, and so are matches without
    weights that compute the same for all inputs of a shape: that takes next to no time, and what
    such nodes tell, often positions in pixels, is not to be rounded. ``formats``: those that a
    site may have instead of the scheme's own; each layout that quantizes is there in each of them
    that its rule says it has.
    """
    return find_sites_with_overlaps(Matches(graph), rules, target, formats)[0]


def find_sites_with_overlaps(
    matches: Matches,
    rules: Iterable[Rule],
    target: Target = ANY_TARGET,
    formats: Sequence[Format] = (),
) -> tuple[tuple[Site, ...], tuple[Overlap, ...]]:
    """As ``find_sites``, and the matches that gave way to others."""
    held = [rule for rule in rules if target.meets(rule.when)]
    data = data_tensors(matches.graph)

    def is_decided(match: Match) -> bool:
        # Layers with weights are computed in every run where the batch is dynamic (DETR's queries).
        nodes = match.nodes.values()
        return any(has_weights(matches.graph, n) or not data.isdisjoint(n.outputs) for n in nodes)

    kept, overlaps = match_rules_with_overlaps(matches, held, is_decided)
    return tuple(_site(match, matches.graph, target, formats) for match in kept), overlaps


def place(sites: Sequence[Site], choices: Mapping[str, str]) -> Placement:
    """Return the placement in which each site has the layout ``choices[site.name]``.

    Sites without a choice take their default. The quantized edges are the union over sites;
    an edge that any chosen layout keeps float is float. A layout with ``requires`` counts only
    once other sites have quantized those edges (repeated until nothing changes). A layout with
    ``all_or_none`` quantizes a set only if no layout keeps an edge of it float. An edge has the
    format of the site whose node reads it; where that does not quantize it, that of the others if
    it is one. A layout with ``requires`` takes that of the edges that it requires.
    """
    chosen = [s.layouts[choices.get(s.name, s.default)] for s in sites]
    vary = any(_formats_vary(site.layouts.values()) for site in sites)
    edges, shared, votes = _settle(chosen, _kept_float(chosen), vary)
    return Placement.of(edges, shared, _formats(votes))


Shared = tuple[tuple[str, ...], ...]  # Tensors that layouts want one scale for.
Groups = frozenset[frozenset[Edge]]
# The format that a site wants an edge in, and whether the edge is into its own nodes.
Vote = tuple[Edge, Format | None, bool]
Settled = tuple[frozenset[Edge], Shared, frozenset[Vote]]
Cell = Mapping[int, Settled]  # By part of the tensors.


class Placer:
    """``place`` for many choices of layouts of the same sites.

    What a site quantizes depends on few other sites: its cell has those that quantize what it
    requires, and the keepers of a cell those that may keep its edges float. Which edges share a
    scale is decided apart for tensors that no layout joins. So of a choice that is like the last
    one, only what differs is placed anew.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = tuple(tuple(site.layouts.values()) for site in sites)
        self._formats_vary = any(map(_formats_vary, self._sites))
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
        sites = compress(range(len(before)), map(ne, before, after))
        parts: set[int] = set()
        for number in {cell for site in sites for cell in self._cells_at[site]}:
            old, new = self._cell_of(number, before), self._cell_of(number, after)
            parts.update(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))
        gone, come = set[frozenset[Edge]](), set[frozenset[Edge]]()
        for part in parts:
            old_groups, new_groups = self._in_part(part, before), self._in_part(part, after)
            gone |= old_groups - new_groups
            come |= new_groups - old_groups
        return Change(frozenset(gone), frozenset(come))

    def _cell_of(self, number: int, layouts: tuple[int, ...]) -> Cell:
        return self._cell(number, tuple([layouts[i] for i in self._read[number]]))

    def _in_part(self, part: int, layouts: tuple[int, ...]) -> Groups:
        cells = (self._cell_of(number, layouts) for number in self._cells_in[part])
        return self._group(tuple([cell[part] for cell in cells if part in cell]))

    def _make_cell(self, cell: int, layouts: tuple[int, ...]) -> Cell:
        chosen = [self._sites[i][n] for i, n in zip(self._read[cell], layouts, strict=True)]
        members = chosen[: len(self._cells[cell][0])]
        edges, shared, votes = _settle(members, _kept_float(chosen), self._formats_vary)
        found: dict[int, tuple[set[Edge], list[tuple[str, ...]], set[Vote]]] = {}
        for edge in edges:
            found.setdefault(self._part_of[edge.tensor], (set(), [], set()))[0].add(edge)
        for tensors in filter(None, shared):
            found.setdefault(self._part_of[tensors[0]], (set(), [], set()))[1].append(tensors)
        for vote in votes:
            found[self._part_of[vote[0].tensor]][2].add(vote)
        return {
            part: (frozenset(own), tuple(joined), frozenset(wanted))
            for part, (own, joined, wanted) in found.items()
        }

    def _find_cells(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Members and keepers of each cell."""
        required = [frozenset(e for lay in site for e in lay.requires) for site in self._sites]
        quantized = [frozenset(e for lay in site for e in lay.quantize) for site in self._sites]
        every = frozenset[Edge]().union(*required)
        cells = connected([own | (q & every) for own, q in zip(required, quantized, strict=True)])
        keepers: dict[Edge, list[int]] = {}
        for index, site in enumerate(self._sites):
            for edge in _kept_float(site):
                keepers.setdefault(edge, []).append(index)
        found = []
        for members in cells:
            layouts = [lay for i in members for lay in self._sites[i]]
            edges = {e for lay in layouts for e in lay.quantize.union(*lay.all_or_none)}
            others = {i for edge in edges for i in keepers.get(edge, ())} - set(members)
            found.append((members, tuple(sorted(others))))
        return tuple(found)

    def _find_parts(self) -> dict[str, int]:
        """The part of each tensor: those of one part may have to share a scale."""
        joins = [tensors for site in self._sites for lay in site for tensors in lay.shared]
        alone = [(tensor,) for site in range(len(self._sites)) for tensor in self._tensors(site)]
        sets: list[tuple[str, ...]] = [*joins, *alone]
        return {t: n for n, part in enumerate(connected(sets)) for i in part for t in sets[i]}

    def _tensors(self, site: int) -> list[str]:
        return sorted({tensor for layout in self._sites[site] for tensor in layout.tensors})


def _group(parts: tuple[Settled, ...]) -> Groups:
    edges = frozenset[Edge]().union(*(own for own, _, _ in parts))
    shared = [tensors for _, joined, _ in parts for tensors in joined]
    formats = _formats(vote for _, _, votes in parts for vote in votes)
    return Placement.of(edges, shared, formats).groups


def _kept_float(layouts: Iterable[ResolvedLayout]) -> frozenset[Edge]:
    return frozenset(e for layout in layouts if not layout.requires for e in layout.keep_float)


def _formats_vary(layouts: Iterable[ResolvedLayout]) -> bool:
    return any(layout.format is not None for layout in layouts)


def _settle(
    chosen: Sequence[ResolvedLayout], floats: frozenset[Edge], formats_vary: bool
) -> Settled:
    """Quantized edges, tensors that are to share a scale, and votes where ``formats_vary``."""
    edges: set[Edge] = set()
    shared: list[tuple[str, ...]] = []
    votes: set[Vote] = set()
    waiting = chosen
    while ready := [layout for layout in waiting if layout.requires <= edges]:
        waiting = [layout for layout in waiting if not layout.requires <= edges]
        for layout in ready:
            own = layout.quantize - floats - _incomplete(layout, floats)
            edges |= own
            shared += layout.shared
            if formats_vary:
                wanted = _wanted(layout, votes)
                votes.update((edge, wanted, edge in layout.own) for edge in own)
    return frozenset(edges), tuple(shared), frozenset(votes)


def _wanted(layout: ResolvedLayout, votes: Iterable[Vote]) -> Format | None:
    """The format of what ``layout`` quantizes: its own, or that of all edges that it requires."""
    if not layout.requires:
        return layout.format
    formats = _formats(votes)
    found = {formats.get(edge) for edge in layout.requires}
    return found.pop() if len(found) == 1 else None


def _formats(votes: Iterable[Vote]) -> dict[Edge, Format]:
    """The edges that are in another format than the scheme's own; see ``place``."""
    own: dict[Edge, Format | None] = {}
    others: dict[Edge, set[Format | None]] = {}
    for edge, wanted, is_own in votes:
        if is_own:
            own[edge] = wanted
        else:
            others.setdefault(edge, set()).add(wanted)
    agreed = {edge: found.pop() for edge, found in others.items() if len(found) == 1}
    return {edge: one for edge, one in {**agreed, **own}.items() if one is not None}


def _incomplete(layout: ResolvedLayout, floats: frozenset[Edge]) -> frozenset[Edge]:
    """Edges of sets that cannot be quantized as a whole."""
    return frozenset(e for edges in layout.all_or_none if edges & floats for e in edges)


def _site(match: Match, graph: Graph, target: Target, formats: Sequence[Format]) -> Site:
    offered = {n: lay for n, lay in match.rule.layouts.items() if target.meets(lay.when)}
    layouts = {name: _resolve(layout, match, graph) for name, layout in offered.items()}
    for chosen in formats:
        layouts |= {
            layout_in(name, chosen): replace(layouts[name], format=chosen)
            for name, layout in offered.items()
            if layout.has_format(chosen) and layouts[name].quantize and not layouts[name].requires
        }
    return Site(match, layouts, match.rule.default_layout, _signature(match, graph))


def _resolve(layout: Layout, match: Match, graph: Graph) -> ResolvedLayout:
    inside = {node.name for node in match.nodes.values()}

    def edges(references: Sequence[str]) -> frozenset[Edge]:
        return frozenset(e for reference in references for e in match.edges(reference, graph))

    def tensors(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(t for name in names for t in match.tensors.get(name, ()))

    quantize = edges(layout.quantize)
    return ResolvedLayout(
        quantize=quantize,
        shared=tuple(
            tuple(t for name in names for t in match.tensors.get(name, ()))
            for names in layout.share_scale
        ),
        keep_float=edges(layout.keep_float),
        requires=edges(layout.requires),
        all_or_none=tuple(edges(references) for references in layout.all_or_none),
        own=frozenset(edge for edge in quantize if edge.node in inside),
    )


def _signature(match: Match, graph: Graph) -> str:
    parts = [match.rule.id]
    parts += [f"{name}={_describe(node, graph)}" for name, node in match.nodes.items()]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _describe(node: Node, graph: Graph) -> str:
    attributes = ",".join(f"{k}:{v}" for k, v in sorted(node.attributes.items()))
    shapes = ",".join(str(graph.type_of(t).shape) for t in node.inputs)
    return f"{node.op}({attributes})[{shapes}]"
