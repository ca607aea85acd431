"""From matches to sites, and from a choice of layouts to a placement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from placer.graph import Edge, Graph, Node
from placer.placement import Placement
from placer.rules.connected import connected
from placer.rules.matcher import Match, match_rules
from placer.rules.schema import Layout, Rule
from placer.rules.target import ANY_TARGET, Target

KEPT_PARTS = 1 << 15


@dataclass(frozen=True)
class ResolvedLayout:
    """A layout of one site in terms of the graph's edges and tensors."""

    quantize: frozenset[Edge]
    shared: tuple[tuple[str, ...], ...]
    keep_float: frozenset[Edge]
    requires: frozenset[Edge]
    all_or_none: tuple[frozenset[Edge], ...] = ()

    @property
    def tensors(self) -> frozenset[str]:
        """All tensors that the layout names, or names an edge of."""
        edges = self.quantize.union(self.keep_float, self.requires, *self.all_or_none)
        return frozenset(edge.tensor for edge in edges).union(*self.shared)


@dataclass(frozen=True, eq=False)
class Site:
    """A decision at one match: mutually exclusive layouts, one of which is the default.

    ``signature`` is equal for sites of equal structure: same rule, operators, attributes and
    tensor shapes. Such sites are decided together.
    """

    match: Match
    layouts: Mapping[str, ResolvedLayout]
    default: str
    signature: str

    @cached_property
    def name(self) -> str:
        """Rule and anchor node, unique in a model."""
        return f"{self.match.rule.id}:{self.match.anchor.name}"


def find_sites(
    graph: Graph, rules: Iterable[Rule], target: Target = ANY_TARGET
) -> tuple[Site, ...]:
    """Return the sites of ``rules`` in ``graph`` in node order.

    Rules and layouts that do not hold for ``target`` are left out.
    """
    rules = [rule for rule in rules if target.meets(rule.when)]
    return tuple(_site(match, graph, target) for match in match_rules(graph, rules))


def place(sites: Sequence[Site], choices: Mapping[str, str]) -> Placement:
    """Return the placement in which each site has the layout ``choices[site.name]``.

    Sites without a choice take their default. The quantized edges are the union over sites;
    an edge that any chosen layout keeps float is float. A layout with ``requires`` counts only
    once other sites have quantized those edges (repeated until nothing changes). A layout with
    ``all_or_none`` quantizes a set only if no layout keeps an edge of it float.
    """
    chosen = [s.layouts[choices.get(s.name, s.default)] for s in sites]
    floats = frozenset(e for layout in chosen if not layout.requires for e in layout.keep_float)
    edges: set[Edge] = set()
    shared: list[tuple[str, ...]] = []
    waiting = chosen
    while True:
        ready = [layout for layout in waiting if layout.requires <= edges]
        if not ready:
            return Placement.of(edges, shared)
        waiting = [layout for layout in waiting if not layout.requires <= edges]
        for layout in ready:
            edges |= layout.quantize - floats - _incomplete(layout, floats)
            shared += layout.shared


class Placer:
    """``place`` for many choices of layouts of the same sites.

    Sites that name no common tensor place their pairs apart, so what few sites place together is
    kept for all choices in which they have the same layouts.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        tensors = [{t for layout in s.layouts.values() for t in layout.tensors} for s in sites]
        self._parts = tuple(tuple(sites[i] for i in part) for part in connected(tensors))
        self._groups = lru_cache(maxsize=KEPT_PARTS)(_groups)

    def place(self, choices: Mapping[str, str]) -> Placement:
        """See ``place``."""
        found = (
            self._groups(part, tuple([choices.get(site.name, site.default) for site in part]))
            for part in self._parts
        )
        return Placement(frozenset[frozenset[Edge]]().union(*found))


def _groups(part: tuple[Site, ...], layouts: tuple[str, ...]) -> frozenset[frozenset[Edge]]:
    names = (site.name for site in part)
    return place(part, dict(zip(names, layouts, strict=True))).groups


def _incomplete(layout: ResolvedLayout, floats: frozenset[Edge]) -> frozenset[Edge]:
    """Edges of sets that cannot be quantized as a whole."""
    return frozenset(e for edges in layout.all_or_none if edges & floats for e in edges)


def _site(match: Match, graph: Graph, target: Target) -> Site:
    offered = {n: lay for n, lay in match.rule.layouts.items() if target.meets(lay.when)}
    layouts = {name: _resolve(layout, match, graph) for name, layout in offered.items()}
    return Site(match, layouts, match.rule.default_layout, _signature(match, graph))


def _resolve(layout: Layout, match: Match, graph: Graph) -> ResolvedLayout:
    def edges(references: Sequence[str]) -> frozenset[Edge]:
        return frozenset(e for reference in references for e in match.edges(reference, graph))

    def tensors(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(t for name in names for t in match.tensors.get(name, ()))

    return ResolvedLayout(
        quantize=edges(layout.quantize),
        shared=tuple(
            tuple(t for name in names for t in match.tensors.get(name, ()))
            for names in layout.share_scale
        ),
        keep_float=edges(layout.keep_float),
        requires=edges(layout.requires),
        all_or_none=tuple(edges(references) for references in layout.all_or_none),
    )


def _signature(match: Match, graph: Graph) -> str:
    parts = [match.rule.id]
    parts += [f"{name}={_describe(node, graph)}" for name, node in match.nodes.items()]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _describe(node: Node, graph: Graph) -> str:
    attributes = ",".join(f"{k}:{v}" for k, v in sorted(node.attributes.items()))
    shapes = ",".join(str(graph.type_of(t).shape) for t in node.inputs)
    return f"{node.op}({attributes})[{shapes}]"
