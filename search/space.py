"""From sites to the decisions a study takes: one per group of sites of equal structure.

A group may be split: its layout is then ``PER_SITE`` and each of its sites has a layout of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from placer.graph import Edge, Graph
from placer.graph.weights import weight_input
from placer.quantization import Format, Placement
from placer.rules.sites import Site, place

# Layout by group name, and by ``site_key`` for split groups; the base precision by ``BASE``.
Choices = Mapping[str, str]
PER_SITE = "per site"
# Name of the decision on the base precision; no group has such a name.
BASE = "base precision"
# The base precision that is the model's own type.
OWN_TYPE = "float"
KEPT_PLACEMENTS = 64


def site_key(site: Site) -> str:
    """Name of the decision at one site of a split group; no group has such a name."""
    return f"site {site.name}"


@dataclass(frozen=True, eq=False)
class Group:
    """Sites that are decided together; ``name`` is the first site's and unique in a model.

    ``layouts``: all, of which ``offered`` may be proposed.
    """

    name: str
    sites: tuple[Site, ...]
    layouts: tuple[str, ...]
    default: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the sites."""
        return tuple(site.name for site in self.sites)

    @cached_property
    def offered(self) -> tuple[str, ...]:
        """The layouts that may be proposed: all but those that the user bars."""
        return tuple(name for name in self.layouts if name not in self.sites[0].barred)

    def default_in(self, chosen: Format) -> str:
        """The offered layout that is the default but for the format; the default without one."""
        layouts = self.sites[0].layouts
        like = replace(layouts[self.default], format=chosen)
        return next((name for name in self.offered if layouts[name] == like), self.default)

    def layout_with(self, *, most_edges: bool, barred: bool = False) -> str:
        """The layout that quantizes the most or the fewest edges; the default wins ties.

        ``barred``: of all layouts, also those that may not be proposed.
        """
        sign = -1 if most_edges else 1
        layouts, names = self.sites[0].layouts, self.layouts if barred else self.offered
        return min(names, key=lambda n: (sign * len(layouts[n].quantize), n != self.default))


@dataclass(frozen=True, eq=False)
class Space:
    """All sites of a model and the groups that leave a choice.

    ``per_tensor``: edges of weights that have one scale wherever they are quantized. ``bases``: the
    base precisions to decide between, that of the float model first; one if it is decided, none if
    placements do not say it.
    """

    graph: Graph
    sites: tuple[Site, ...]
    groups: tuple[Group, ...]
    per_tensor: frozenset[Edge] = frozenset()
    bases: tuple[str, ...] = ()

    def placement(self, choices: Choices) -> Placement:
        """The placement of ``choices``; what is left out takes its default."""
        return self._placed(tuple(choices.items()))

    @cached_property
    def _placed(self) -> Callable[[tuple[tuple[str, str], ...]], Placement]:
        """The same, kept for a while: what is tried or measured is asked for several times."""
        return lru_cache(maxsize=KEPT_PLACEMENTS)(lambda items: self._place(dict(items)))

    def _place(self, choices: Choices) -> Placement:
        placed = place(self.sites, self.layouts(choices)).with_weights(self.per_tensor)
        return placed.computed_in(self.base_of(choices))

    def base_of(self, choices: Choices) -> str | None:
        """What placements of ``choices`` say of the base precision; see ``Placement.base``."""
        base = choices.get(BASE, self.bases[0]) if self.bases else OWN_TYPE
        return None if base == OWN_TYPE else base

    def within(self, base: str) -> Space:
        """The same with the base precision decided."""
        return replace(self, bases=(base,))

    @property
    def decisions(self) -> dict[str, tuple[str, ...]]:
        """What may be proposed, by the name of each decision; single sites are left out."""
        offered_of = {group.name: group.offered for group in self.groups}
        return {**offered_of, BASE: self.bases} if self.bases else offered_of

    @property
    def _own_base(self) -> dict[str, str]:
        return {BASE: self.bases[0]} if self.bases else {}

    def layouts(self, choices: Choices) -> dict[str, str]:
        """The layout of each site that is decided, by its name."""
        layout_of = {}
        for group in self.groups:
            layout = choices.get(group.name, group.default)
            if layout == PER_SITE:
                for site in group.sites:
                    layout_of[site.name] = choices.get(site_key(site), group.default)
            else:
                layout_of.update(dict.fromkeys(group.names, layout))
        return layout_of

    def choices(self, layouts: Mapping[str, str]) -> dict[str, str]:
        """The choices that give each site its layout; groups are split only where they must be."""
        choice_of = self._own_base
        for group in self.groups:
            chosen = [layouts[name] for name in group.names]
            if len(set(chosen)) == 1:
                choice_of[group.name] = chosen[0]
                continue
            choice_of[group.name] = PER_SITE
            choice_of.update({site_key(s): lay for s, lay in zip(group.sites, chosen, strict=True)})
        return choice_of

    def nearest(self, placement: Placement) -> dict[str, str]:
        """The choices that come closest to ``placement``, site by site.

        Of each site's layouts, the one that differs from it in the fewest edges that any of them
        quantizes, and of these the one in whose format the most are; the default wins ties.
        """
        layouts = {}
        for group in self.groups:
            for site in group.sites:
                layouts[site.name] = _nearest_layout(site, placement)
        return self.choices(layouts)

    @cached_property
    def defaults(self) -> dict[str, str]:
        """The pack's default placement as choices."""
        return {**self._own_base, **{group.name: group.default for group in self.groups}}

    def defaults_in(self, chosen: Format) -> dict[str, str]:
        """The default placement in another format, as far as its layouts have that."""
        layouts = {group.name: group.default_in(chosen) for group in self.groups}
        return {**self._own_base, **layouts}

    @cached_property
    def formats(self) -> tuple[Format, ...]:
        """The formats that single sites may have instead of the scheme's own."""
        layouts = (layout for site in self.sites for layout in site.layouts.values())
        distinct = dict.fromkeys(layout.format for layout in layouts)
        return tuple(chosen for chosen in distinct if chosen is not None)

    @cached_property
    def floats(self) -> dict[str, str]:
        """The fewest quantized edges everywhere, whatever may be proposed.

        Models of latency and noise begin here: it is the float model but for sites without a
        choice.
        """
        layouts = {g.name: g.layout_with(most_edges=False, barred=True) for g in self.groups}
        return {**self._own_base, **layouts}

    @cached_property
    def least(self) -> dict[str, str]:
        """The fewest quantized edges that may be proposed."""
        layouts = {group.name: group.layout_with(most_edges=False) for group in self.groups}
        return {**self._own_base, **layouts}

    @cached_property
    def everything(self) -> dict[str, str]:
        """The most quantized edges everywhere."""
        layouts = {group.name: group.layout_with(most_edges=True) for group in self.groups}
        return {**self._own_base, **layouts}

    @cached_property
    def weighted_only(self) -> dict[str, str]:
        """The default at groups with weights, as little as may be elsewhere."""
        weighted = [group for group in self.groups if self._is_weighted(group)]
        return {**self.least, **{g.name: g.default for g in weighted}}

    def _is_weighted(self, group: Group) -> bool:
        nodes = group.sites[0].match.nodes.values()
        return any(weight_input(self.graph, node) is not None for node in nodes)


def _nearest_layout(site: Site, placement: Placement) -> str:
    quantizable = {edge for layout in site.layouts.values() for edge in layout.quantize}
    wanted = quantizable & placement.edges

    offered = {layout.format for layout in site.layouts.values()}

    def distance(name: str) -> tuple[int, int, bool]:
        layout = site.layouts[name]
        formats = (placement.formats.get(edge) for edge in layout.quantize & wanted)
        others = sum(chosen in offered and chosen != layout.format for chosen in formats)
        return len(layout.quantize ^ wanted), others, name != site.default

    return min((name for name in site.layouts if name not in site.barred), key=distance)


def build_space(graph: Graph, sites: Sequence[Site]) -> Space:
    """Group ``sites`` by signature, in order of their first site.

    Sites with a single layout are placed but leave nothing to decide.
    """
    by_signature: dict[str, list[Site]] = {}
    for site in sites:
        if len(site.layouts) > 1:
            by_signature.setdefault(site.signature, []).append(site)
    groups = tuple(
        Group(same[0].name, tuple(same), tuple(same[0].layouts), same[0].default)
        for same in by_signature.values()
    )
    return Space(graph, tuple(sites), groups)
