"""Name the best candidate: race the finalists, then confirm the winner against the float model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from placer.engines.base import Compiled, Engine, Tensors
from placer.search.race import Ratio, fastest, paired_ratio, still_in

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Finalist(Generic[T]):
    """A candidate in the race and what it stands for."""

    entry: T
    compiled: Compiled


@dataclass(frozen=True, eq=False)
class Final(Generic[T]):
    """The winner and fresh measurements of it and of the float model, in the same rounds.

    ``seconds``: shape (rounds, 2), columns float model and winner.
    """

    entry: T
    compiled: Compiled
    seconds: np.ndarray
    ratio: Ratio

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval of the ratio to the float model lies below 1."""
        return self.ratio.high < 1


def race(
    engine: Engine, finalists: Sequence[Finalist[T]], inputs: Tensors, rounds: int, races: int
) -> Finalist[T]:
    """Return the fastest of ``finalists``.

    Runs at most ``races`` times ``rounds`` interleaved rounds over those that remain and drops
    after each those that are slower than the leader outside the noise. Earlier rounds count.
    """
    running = list(finalists)
    seconds = np.empty((0, len(running)))
    for _ in range(races):
        if len(running) == 1:
            break
        compiled = [finalist.compiled for finalist in running]
        seconds = np.vstack([seconds, engine.measure(compiled, inputs, rounds)])
        kept = still_in(seconds)
        running = [running[i] for i in kept]
        seconds = seconds[:, kept]
    return running[fastest(seconds)] if len(running) > 1 else running[0]


def confirm(
    engine: Engine, winner: Finalist[T], baseline: Compiled, inputs: Tensors, rounds: int
) -> Final[T]:
    """Measure the winner afresh: its race selected it partly for lucky rounds."""
    seconds = engine.measure([baseline, winner.compiled], inputs, rounds)
    ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
    return Final(winner.entry, winner.compiled, seconds, ratio)
