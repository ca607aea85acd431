"""What candidates are judged on, and what they scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from placer.accuracy.gates import GateValue
from placer.accuracy.metrics import decibels

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class Sample(Protocol):
    """One batch of evaluation data."""

    @property
    def inputs(self) -> Mapping[str, np.ndarray]:
        """Input tensors by name."""

    @property
    def labels(self) -> np.ndarray | None:
        """Class indices, None without labels."""

    @property
    def origin(self) -> str:
        """Where it came from, for error messages."""


class Samples(Protocol):
    """Evaluation data: can be iterated any number of times, in the same order."""

    def __iter__(self) -> Iterator[Sample]:
        """Yield the batches."""


@dataclass(frozen=True)
class Evaluation:
    """What one candidate scored: its gates and all built-in metrics by where they were taken.

    ``noises``: error power over signal power of each channel group of float outputs, by its name.
    """

    gates: tuple[GateValue, ...]
    metrics: Mapping[str, float]
    noises: Mapping[str, float]

    @property
    def noise(self) -> float:
        """The worst of ``noises``; 0 without any."""
        return max(self.noises.values(), default=0.0)

    @property
    def sqnr(self) -> float:
        """``noise`` in dB: the worst SQNR of all channel groups."""
        return decibels(self.noise)

    @property
    def passed(self) -> bool:
        """Whether all gates are met."""
        return all(value.passed for value in self.gates)


class Score(NamedTuple):
    """One built-in metric: of which output, its value, and the output's or part's name."""

    metric: str
    output: str
    value: float
    where: str
