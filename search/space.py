"""From sites to the decisions a study takes: one per group of sites of equal structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Graph
from placer.ops import weight_input
from placer.placement import Placement
from placer.rules.sites import Site, place

Choices = Mapping[str, str]  # layout by group name


@dataclass(frozen=True, eq=False)
class Group:
    """Sites that are decided together; ``name`` is the first site's and unique in a model."""

    name: str
    sites: tuple[Site, ...]
    layouts: tuple[str, ...]
    default: str

    def layout_with(self, *, most_edges: bool) -> str:
        """The layout that quantizes the most or the fewest edges; the default wins ties."""
        sign = -1 if most_edges else 1
        layouts = self.sites[0].layouts
        return min(self.layouts, key=lambda n: (sign * len(layouts[n].quantize), n != self.default))


@dataclass(frozen=True, eq=False)
class Space:
    """All sites of a model and the groups that leave a choice."""

    graph: Graph
    sites: tuple[Site, ...]
    groups: tuple[Group, ...]

    def placement(self, choices: Choices) -> Placement:
        """The placement of ``choices``; groups left out take their default layout."""
        by_site = {
            site.name: choices[group.name]
            for group in self.groups
            if group.name in choices
            for site in group.sites
        }
        return place(self.sites, by_site)

    @cached_property
    def defaults(self) -> dict[str, str]:
        """The pack's default placement as choices."""
        return {group.name: group.default for group in self.groups}

    @cached_property
    def floats(self) -> dict[str, str]:
        """The fewest quantized edges everywhere."""
        return {group.name: group.layout_with(most_edges=False) for group in self.groups}

    def seeds(self) -> dict[str, dict[str, str]]:
        """Choices worth trying before any search, by name, in order.

        Engines differ on whether the first and the last weighted layers gain from INT8, and
        accuracy often hangs on them, so the default without either is among the seeds.
        """
        weighted = [group for group in self.groups if self._is_weighted(group)]
        seeds = {
            "none": self.floats,
            "default": self.defaults,
            "everything": {g.name: g.layout_with(most_edges=True) for g in self.groups},
            "weighted only": {**self.floats, **{g.name: g.default for g in weighted}},
        }
        if weighted:
            seeds["default without the first layer"] = self.without(weighted[:1])
            seeds["default without the last layer"] = self.without(weighted[-1:])
        return seeds

    def without(self, groups: Sequence[Group]) -> dict[str, str]:
        """The default placement with ``groups`` left in float."""
        return {**self.defaults, **{group.name: self.floats[group.name] for group in groups}}

    def _is_weighted(self, group: Group) -> bool:
        nodes = group.sites[0].match.nodes.values()
        return any(weight_input(self.graph, node) is not None for node in nodes)


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
