"""Measured times as whoever compares them needs them, also from plug-ins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.engines.base import Compiled, Engine, Tensors
from placer.errors import RunError


def measured_seconds(
    engine: Engine, models: Sequence[Compiled], inputs: Tensors, rounds: int
) -> np.ndarray:
    """What ``engine.measure`` returns: seconds, shape (rounds, len(models)).

    Raises RunError where these are no times, since what would follow from them is no result.
    """
    given = engine.measure(models, inputs, rounds)
    whose, blame = f"measure() of engine {engine.name} returned", "report it to its authors"
    try:
        seconds = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise RunError(f"{whose} no array of times; {blame}") from None
    if seconds.ndim != 2 or len(seconds) == 0 or seconds.shape[1] != len(models):
        raise RunError(
            f"{whose} times of shape {seconds.shape} instead of {(rounds, len(models))}; {blame}"
        )
    least = 0.0 if engine.estimated else np.nextafter(0.0, 1.0)
    wrong = seconds[~(np.isfinite(seconds) & (seconds >= least))]
    if wrong.size:
        raise RunError(f"{whose} {wrong[0]:g} s as a time; {blame}")
    return seconds
