"""Placements far from the best, which tell whether its latency tells anything about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.moves import with_sites

# Placements that differ from the best, and from the least that can be quantized, in such a part of
# the groups between both are far from either; so many of them are enough.
FAR, ENOUGH = 0.25, 2


def halves(
    landscape: Landscape,
    best: State,
    least: State,
    tried: Sequence[State],
    seed: Sequence[int],
) -> list[State]:
    """``best`` with a random half of its groups as in ``least``, and with the other half.

    Empty where enough of ``tried`` is as far from both, or where they differ in too few groups.
    """
    groups = [m for m in landscape.members if _differ(best, least, m)]
    far = FAR * len(groups)

    def is_between(state: State) -> bool:
        return all(sum(_differ(state, end, m) for m in groups) >= far for end in (best, least))

    if far < 1 or sum(map(is_between, tried)) >= ENOUGH:
        return []
    order = np.random.default_rng(list(seed)).permutation(len(groups))
    middle = len(groups) // 2
    parts = (
        [site for i in half for site in groups[i]] for half in (order[:middle], order[middle:])
    )
    return [with_sites(best, least, sites) for sites in parts]


def _differ(one: State, other: State, members: Sequence[int]) -> bool:
    return any(one[i] != other[i] for i in members)
