"""What is left of a placement that misses the gates once the changes that miss them are undone.

Noise is measured, not predicted: where sites destroy parts of the outputs it neither adds up nor
tells how many of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.search.landscape.descent import LEAST
from placer.search.landscape.landscape import Landscape, Moves, Objective, State, apply
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
    # By what each does to layers: to predict a whole placement for each takes far longer.
    undone = _changes(landscape, held, _differing(landscape, state, held))
    while True:
        gains, changes = landscape.gains(state, objective, undone)
        left = [
            (gain, apply(state, [undone.moves[i]]))
            for i, gain in enumerate(gains.tolist())
            if changes[i]
        ]
        least, best = min(left, default=(0.0, state))
        if least > LEAST:
            return state
        state = best


def _in_order(
    landscape: Landscape, held: State, missed: State, noises: np.ndarray, objective: Objective
) -> list[int]:
    """The groups that differ, least noise for a gain first; those that gain nothing come last."""
    differ = _differing(landscape, held, missed)
    moves = _changes(landscape, missed, differ)
    changes, _ = landscape.gains(held, objective, moves)
    rank_of = {
        group: (change >= 0, noise if change >= 0 else -noise / change)
        for group, change, noise in zip(
            differ, changes.tolist(), moves.change(noises, held).tolist(), strict=True
        )
    }
    return sorted(differ, key=rank_of.__getitem__)


def _differing(landscape: Landscape, state: State, other: State) -> list[int]:
    """The groups in which both have unlike layouts."""
    return [
        group
        for group, sites in enumerate(landscape.members)
        if any(state[site] != other[site] for site in sites)
    ]


def _changes(landscape: Landscape, other: State, groups: Sequence[int]) -> Moves:
    """The change of each of ``groups`` to what it is in ``other``."""
    return landscape.moves(
        [tuple((site, other[site]) for site in landscape.members[group]) for group in groups]
    )


def _with(landscape: Landscape, state: State, other: State, groups: Sequence[int]) -> State:
    """``state`` with the layouts that ``groups`` have in ``other``."""
    for group in groups:
        state = with_sites(state, other, landscape.members[group])
    return state
