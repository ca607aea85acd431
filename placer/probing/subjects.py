"""What is probed: single sites, groups of sites of equal structure, and rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from placer.quantization import Placement
from placer.results.sensitivity import Kind
from placer.rules.sites import Site
from placer.search.space import Group, Space


@dataclass(frozen=True, eq=False)
class Subject:
    """Sites that are quantized, or left float, together.

    ``groups``: each site's, in the same order.
    """

    kind: Kind
    name: str
    sites: tuple[Site, ...]
    groups: tuple[Group, ...]

    def alone(self, space: Space) -> Placement:
        """Only these sites quantized, as their default has it.

        Sites that the default leaves float take the layout that quantizes most.
        """
        layouts = space.layouts(space.floats)
        for site, group in zip(self.sites, self.groups, strict=True):
            name = group.default
            if not site.layouts[name].quantize:
                name = group.layout_with(most_edges=True)
            layouts[site.name] = name
        return space.placement(space.choices(layouts))

    def without(self, space: Space) -> Placement:
        """The default placement with these sites left float."""
        layouts = space.layouts(space.defaults)
        for site, group in zip(self.sites, self.groups, strict=True):
            layouts[site.name] = group.layout_with(most_edges=False)
        return space.placement(space.choices(layouts))


def subjects(space: Space, kinds: Collection[Kind]) -> list[Subject]:
    """All subjects of ``kinds`` among the sites that leave a choice."""
    listed: list[Subject] = []
    if "rule" in kinds:
        listed += _rules(space.groups)
    for group in space.groups:
        many = (group,) * len(group.sites)
        if "group" in kinds:
            listed.append(Subject("group", group.name, group.sites, many))
        if "site" in kinds:
            listed += [Subject("site", site.name, (site,), (group,)) for site in group.sites]
    return listed


def _rules(groups: Sequence[Group]) -> Iterator[Subject]:
    by_rule: dict[str, list[Group]] = {}
    for group in groups:
        by_rule.setdefault(group.sites[0].match.rule.id, []).append(group)
    for rule, groups_of_rule in by_rule.items():
        pairs = [(site, group) for group in groups_of_rule for site in group.sites]
        yield Subject("rule", rule, tuple(s for s, _ in pairs), tuple(g for _, g in pairs))
