"""Effects of changes on the counts of layers, and the costs of layers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from placer.search.landscape.layer_signatures import Change


@dataclass(frozen=True, eq=False)
class Objective:
    """A linear function of states.

    ``costs``: by signature number. ``extras``: by site and layout, shape (sites, layouts).
    """

    costs: Mapping[int, float]
    extras: np.ndarray

    def of_counts(self, counts: Mapping[int, int]) -> float:
        """Cost of layers, the same in whatever order they were numbered."""
        return math.fsum(self.costs[signature] * count for signature, count in counts.items())


class Deltas:
    """Changes of the number of layers by signature number, each kept once under a number."""

    NOTHING = 0  # The number of no change.

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {(): self.NOTHING}
        self._found: list[tuple[tuple[int, int], ...]] = [()]
        # Of the objective that was asked about last; not a number where that was not needed yet.
        self._costs: tuple[Mapping[int, float], np.ndarray] = {}, np.zeros(0)

    def __getitem__(self, number: int) -> tuple[tuple[int, int], ...]:
        return self._found[number]

    def number(self, changes: Iterable[Change]) -> int:
        """The number of what ``changes`` sum up to."""
        counts: Counter[int] = Counter()
        for change in changes:
            counts[change.signature] += change.sign
        return self.number_of(counts)

    def number_of(self, counts: Mapping[int, int]) -> int:
        """The number of changes of the number of layers by signature number."""
        return self._number(tuple(sorted((n, count) for n, count in counts.items() if count)))

    def opposite(self, number: int) -> int:
        """The number of what undoes that of ``number``."""
        return self._number(tuple((n, -count) for n, count in self._found[number]))

    def _number(self, delta: tuple[tuple[int, int], ...]) -> int:
        number = self._numbers.setdefault(delta, len(self._found))
        if number == len(self._found):
            self._found.append(delta)
        return number

    def costs(self, objective: Objective, numbers: np.ndarray) -> np.ndarray:
        """What those of ``numbers`` cost, in the same shape."""
        of, known = self._costs
        if of is not objective.costs:
            known = np.zeros(0)
        if len(known) < len(self._found):
            known = np.concatenate([known, np.full(len(self._found) - len(known), np.nan)])
        self._costs = objective.costs, known
        values = known[numbers]
        missing = np.isnan(values)
        if missing.any():
            for number in np.unique(numbers[missing]).tolist():
                known[number] = objective.of_counts(dict(self._found[number]))
            values = known[numbers]
        return np.asarray(values)
