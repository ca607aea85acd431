"""The Pareto front of latency and accuracy: its points, some spread over it, where to look next.

Accuracy is the noise power of the outputs (``TrialRecord.noise``), compared in decibels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placer.search.records import TrialRecord

# A placement is useful if it is faster than the float model by this part of its latency.
USEFUL = 0.01
# How much quieter than the quietest useful placement the search looks for others, in dB.
BEYOND = 10.0
# Noise power below which outputs count as exact.
EXACT = 1e-30


@dataclass(frozen=True)
class Point:
    """``latency``: relative to the float model. ``noise``: error power over signal power."""

    latency: float
    noise: float

    @property
    def decibels(self) -> float:
        """Signal power over error power in dB, at most 300."""
        return -10 * math.log10(max(self.noise, EXACT))


# Nothing is more accurate than the float model, so what is no faster is of no use.
FLOAT_MODEL = Point(1 - USEFUL, 0.0)


def point_of(trial: TrialRecord) -> Point | None:
    """Where a trial stands; None if it misses a gate, or was not judged or not measured."""
    if not trial.feasible or trial.ratio is None or trial.noise is None:
        return None
    return Point(trial.ratio, trial.noise)


def front(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other equals or beats in both, the fastest first.

    Of equal points the first one stays.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i].latency, points[i].noise, i))
    indices: list[int] = []
    for index in order:
        if not indices or points[index].noise < points[indices[-1]].noise:
            indices.append(index)
    return indices


def useful_front(points: Sequence[Point]) -> list[int]:
    """The ``front`` without what gains less than ``USEFUL`` over the float model."""
    # It comes first, as of equal points the first one stays.
    return [index - 1 for index in front([FLOAT_MODEL, *points]) if index > 0]


def spread(points: Sequence[Point], count: int) -> list[int]:
    """At most ``count`` (2 or more) indices of the ``front``, the fastest first.

    The fastest and the most accurate stay; then the point comes next that adds the most area that
    the chosen ones dominate, measured from the slowest and least accurate corner of the front
    (greedy hypervolume subset selection: Guerreiro, Fonseca and Paquete, Evolutionary Computation
    24(3), 2016). Units of latency and decibels do not matter. Of equal gains the fastest is taken.
    """
    order = front(points)
    if len(order) <= count:
        return order
    chosen, left = {order[0], order[-1]}, order[1:-1]
    while len(chosen) < count:
        best = max(left, key=lambda i: dominated_area([points[k] for k in {*chosen, i}]))
        left.remove(best)
        chosen.add(best)
    return [index for index in order if index in chosen]


def dominated_area(points: Sequence[Point]) -> float:
    """Area between a front and its corner, the latency of its last and the dB of its first."""
    ordered = sorted(points, key=lambda point: point.latency)
    latencies = np.array([point.latency for point in ordered])
    decibels = np.array([point.decibels for point in ordered])
    return float(np.diff(latencies) @ (decibels - decibels[0])[:-1])


def noise_targets(trials: Sequence[TrialRecord], count: int, cycle: int) -> tuple[float, ...]:
    """``count`` limits of noise power at which to look for the fastest placement.

    Evenly in dB from the noise of the fastest placement that is known, itself left out, to
    ``BEYOND`` below that of the quietest useful one; none while no useful one is known. Every
    ``cycle`` shifts them to where the limits of earlier ones leave the widest gaps (van der Corput
    1935), or a point between two limits would never be looked for.
    """
    measured = [point_of(trial) for trial in trials]
    useful = [p for p in measured if p is not None and p.latency < FLOAT_MODEL.latency]
    if not useful:
        return ()
    fastest = min(useful, key=lambda point: (point.latency, point.noise))
    quietest = min((point.noise for point in useful if point.noise > EXACT), default=EXACT)
    if fastest.noise <= EXACT:
        return ()  # Nothing can be more accurate.
    last = quietest * 10 ** (-BEYOND / 10)
    parts = (np.arange(1, count + 1) - _van_der_corput(cycle)) / max(count, 1)
    return tuple((fastest.noise * (last / fastest.noise) ** parts).tolist())


def _van_der_corput(number: int) -> float:
    """Element ``number`` of the sequence to base 2: 0, 1/2, 1/4, 3/4, 1/8, ..."""
    bits = f"{number:b}"[::-1]
    return int(bits, 2) / (1 << len(bits))
