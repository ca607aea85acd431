"""What profiles of several candidates say of the time of each layer.

A profile tells what part of a candidate's latency each layer takes. Where the whole takes longer
than its layers do elsewhere, all of them would count as slower, float ones too. So each profile
has a factor of its own, which is learned from the layers that several candidates have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Weights of a factor of 1: where all of a profile's time has the weight 1, and of the float model,
# whose latency is the unit. The first is small: it decides where candidates share next to nothing.
OPEN, FLOAT = 0.02, 1e6


def agreed(
    profiles: Sequence[Mapping[int, float]],
    counts: Sequence[Mapping[int, int]],
    floats: Sequence[bool],
) -> list[dict[int, float]]:
    """``profiles``, each times the factor under which all differ least in what they share.

    ``profiles``: the time of one layer by number; 0 tells nothing of the factor. ``counts``: how
    many such layers each profile has. ``floats``: which are of the float model.
    Least squares of the logarithms of times, as the sum of one number for the layer and one for
    the profile. Layers count by the part of the profile that all those of their number take.
    """
    columns = {n: i for i, n in enumerate(sorted({n for own in profiles for n in own}))}
    times, taken = np.zeros((2, len(profiles), len(columns)))
    for i, (own, numbers) in enumerate(zip(profiles, counts, strict=True)):
        for number, time in own.items():
            times[i, columns[number]] = time
            taken[i, columns[number]] = numbers[number] * time
    shared = (times > 0) & (np.count_nonzero(times, axis=0) > 1)
    logs = np.log(times, out=np.zeros_like(times), where=shared)
    weights = np.divide(taken, taken.sum(axis=1, keepdims=True), out=logs * 0, where=shared)
    totals = weights.sum(axis=0)
    parts = np.divide(weights, totals, out=logs * 0, where=shared)
    off = (weights * ((parts * logs).sum(axis=0) - logs)).sum(axis=1)
    own_weight = weights.sum(axis=1) + np.where(floats, FLOAT, OPEN)
    factors = np.exp(np.linalg.solve(np.diag(own_weight) - weights @ parts.T, off))
    return [
        {number: factor * time for number, time in own.items()}
        for factor, own in zip(factors.tolist(), profiles, strict=True)
    ]
