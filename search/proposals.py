"""What to try next: seeds, a bisection over noise, then TPE and neighbours of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placer.search.space import Group, Space


def neighbour(space: Space, best: Mapping[str, str], seed: Sequence[int]) -> dict[str, str]:
    """Return ``best`` with one to three groups changed to another of their layouts.

    TPE learns each group's effect from scratch, which takes many times as many trials as groups;
    small changes of the best known choices find improvements within tens of trials.
    """
    rng = np.random.default_rng(list(seed))
    count = min(int(rng.integers(1, 4)), len(space.groups))
    changed = dict(best)
    for index in rng.choice(len(space.groups), size=count, replace=False):
        group = space.groups[int(index)]
        others = [name for name in group.layouts if name != best[group.name]]
        changed[group.name] = others[int(rng.integers(len(others)))]
    return changed


def noisiest_first(space: Space, noise: Mapping[str, float]) -> list[Group]:
    """Groups that the default quantizes, by the noise they add when quantized alone."""
    quantized = [g for g in space.groups if space.defaults[g.name] != space.floats[g.name]]
    return sorted(quantized, key=lambda g: (-noise[g.name], g.name))


def bisect(outcomes: Mapping[int, bool], total: int) -> int | None:
    """How many of ``total`` noisiest groups to leave float next, None when that is settled.

    ``outcomes`` tells for counts tried whether the gates held. Assumes that leaving more groups
    float never lowers accuracy, and finds the smallest count that holds; 0 counts as failed.
    """
    failed = max((count for count, held in outcomes.items() if not held), default=0)
    held = min((count for count, held in outcomes.items() if held), default=total)
    if held - failed <= 1:
        return None
    return (failed + held) // 2
