"""What groups may have instead of staying float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placer.rules.sites import rule_layout
from placer.search.space import Space


class OtherLayouts(NamedTuple):
    """The layouts of groups other than their float ones, numbered group by group.

    ``columns``: the number of each layout at each site, -1 where it has none; shape (sites, most
    layouts of any site). ``members``: how many sites the group of each site has, shape (sites,).
    ``groups``: the group of each such layout, by number, and ``fuses``: whether its rule says what
    fuses; both of shape (other layouts,).
    """

    columns: np.ndarray
    members: np.ndarray
    groups: np.ndarray
    fuses: np.ndarray


def other_layouts(space: Space, members: Sequence[Sequence[int]]) -> OtherLayouts:
    """``members``: the sites of each group, by number."""
    width = max((len(group.layouts) for group in space.groups), default=0)
    count = sum(map(len, members))
    columns, sizes = np.full((count, width), -1), np.ones(count)
    groups, fuses = list[int](), list[bool]()
    for index, (group, own) in enumerate(zip(space.groups, members, strict=True)):
        sites, rule = list(own), group.sites[0].match.rule
        sizes[sites] = len(sites)
        for number, layout in enumerate(group.layouts):
            if layout != space.floats[group.name]:
                columns[sites, number] = len(groups)
                groups.append(index)
                fuses.append(bool(rule.layouts[rule_layout(layout)].fuses))
    return OtherLayouts(columns, sizes, np.array(groups, dtype=int), np.array(fuses, dtype=bool))
