"""How far whole latencies are off the sum of their layers' costs.

Layers slow each other down, engines fuse and reformat what no rule predicts: then no costs of
layers explain all latencies. What is left over is taken as a Gaussian process over placements
(Rasmussen & Williams, Gaussian Processes (2006), 2.7 and 5.4.1): placements that differ in few
groups are off alike. How far they are off, and in how many groups they may differ, is what makes
the measured latencies most probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placer.search.landscape.landscape import Landscape, State
from placer.search.models.bayesian_linear import Summed

# What is chosen from: standard deviations, in units of the float model's latency, and numbers of
# groups over which the likeness of errors falls by e.
LEVELS, REACHES = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), (2.0, 6.0, 20.0)
# By how much the logarithm of the evidence must be better than without any misfit.
EVIDENT = 2.0


class Distances:
    """In how many groups placements differ; a group of which some sites differ counts in part."""

    def __init__(self, landscape: Landscape, states: Sequence[State]) -> None:
        """``states``: those measured."""
        weights = np.zeros(len(landscape.sites))
        for members in landscape.members:
            weights[list(members)] = 1 / len(members)
        self._weights = weights
        self._states = np.array(states, dtype=int).reshape(len(states), len(weights))

    @cached_property
    def among(self) -> np.ndarray:
        """Of the measured ones to each other, shape (m, m)."""
        return np.array([self.to(state) for state in self._states])

    def to(self, state: State | np.ndarray) -> np.ndarray:
        """Of ``state`` to each of the measured ones, shape (m,)."""
        return np.asarray((self._states != np.array(state)) @ self._weights)


@dataclass(frozen=True, eq=False)
class Misfit:
    """Errors of predicted latencies.

    ``level``: their standard deviation, 0 where none is evident. ``reach``: over how many groups
    their likeness falls by e.
    """

    distances: Distances
    level: float = 0.0
    reach: float = 1.0

    def among(self) -> np.ndarray:
        """Covariance of the errors of the measured placements, shape (m, m)."""
        return self._covariance(self.distances.among)

    def with_(self, state: State) -> np.ndarray:
        """Covariance of the error of ``state`` with those of the measured ones, shape (m,)."""
        return self._covariance(self.distances.to(state))

    def draw(self, seed: Sequence[int]) -> np.ndarray | float:
        """Errors of the measured placements as they may be before any is measured."""
        if not self.level:
            return 0.0
        covariance = self.among()
        covariance += 1e-9 * np.eye(len(covariance))
        rng = np.random.default_rng([*seed, 1])
        return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal(len(covariance)))

    def _covariance(self, distances: np.ndarray) -> np.ndarray:
        return np.asarray(self.level**2 * np.exp(-distances / self.reach))


def learn_misfit(exact: Summed, distances: Distances) -> Misfit:
    """The misfit under which what was measured is most probable; none unless that is evident.

    ``exact``: latencies as sums of costs, with errors of measurement alone.
    """
    best, most = Misfit(distances), exact.log_evidence() + EVIDENT
    for level in LEVELS:
        for reach in REACHES:
            misfit = Misfit(distances, level, reach)
            evidence = replace(exact, errors=exact.errors + misfit.among()).log_evidence()
            if evidence > most:
                best, most = misfit, evidence
    return best
