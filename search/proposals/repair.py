"""What is left of a placement that misses the gates once the changes that miss them are undone.

Noise is measured, not predicted: where sites destroy parts of the outputs it neither adds up nor
tells how many of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.search.landscape.landscape import Landscape, Objective, State
from placer.search.landscape.moves import with_sites

# So many placements are measured for one repair.
MEASUREMENTS = 8


def repaired(
    landscape: Landscape,
    held: State,
    missed: State,
    noises: np.ndarray,
    objective: Objective,
    holds: Callable[[State], bool],
) -> State:
    """``held`` with as many of the changes that lead to ``missed`` as ``holds`` allows.

    Groups are changed in the order of predicted noise (``noises``, by site and layout) for what is
    predicted to be gained; how many are is bisected, since more of them are hardly quieter. The
    one that misses is left out, and the search goes on behind it while measurements are left.
    """
    order = _in_order(landscape, held, missed, noises, objective)
    state, left = held, MEASUREMENTS
    while order and left > 0:
        low, high = 0, len(order)  # That many changes hold; no more than so many do.
        while low < high and left > 0:
            middle = (low + high + 1) // 2
            left -= 1
            if holds(_with(landscape, state, missed, order[:middle])):
                low = middle
            else:
                high = middle - 1
        state = _with(landscape, state, missed, order[:low])
        order = order[low + 1 :]
    return state


def pruned(landscape: Landscape, held: State, state: State, objective: Objective) -> State:
    """``state`` without the changes of ``held`` that are predicted to gain nothing.

    The one whose undoing gains most goes first. Fewer changes are hardly noisier.
    """
    value = landscape.value(state, objective)
    while True:
        undone = [
            (landscape.value(other, objective), other)
            for sites in landscape.members
            if (other := with_sites(state, held, sites)) != state
        ]
        least, best = min(undone, default=(np.inf, state))
        if least > value - 1e-9:
            return state
        state, value = best, least


def _in_order(
    landscape: Landscape, held: State, missed: State, noises: np.ndarray, objective: Objective
) -> list[int]:
    """The groups that differ, least noise for a gain first; those that gain nothing come last."""
    before = landscape.value(held, objective)

    def rank(group: int) -> tuple[bool, float]:
        sites = landscape.members[group]
        noise = sum(noises[i, missed[i]] - noises[i, held[i]] for i in sites)
        gain = before - landscape.value(_with(landscape, held, missed, [group]), objective)
        return gain <= 0, float(noise / gain if gain > 0 else noise)

    differ = [
        group
        for group, sites in enumerate(landscape.members)
        if any(held[site] != missed[site] for site in sites)
    ]
    return sorted(differ, key=rank)


def _with(landscape: Landscape, state: State, other: State, groups: Sequence[int]) -> State:
    """``state`` with the layouts that ``groups`` have in ``other``."""
    for group in groups:
        state = with_sites(state, other, landscape.members[group])
    return state
