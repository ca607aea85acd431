"""Bayesian linear regression: what sums of unknown amounts say about the amounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution over n unknowns: ``mean`` (n,), ``covariance`` (n, n)."""

    mean: np.ndarray
    covariance: np.ndarray

    def given(self, counts: np.ndarray, values: np.ndarray, deviations: np.ndarray) -> Gaussian:
        """Condition on ``values = counts @ unknowns + error``.

        ``counts``: shape (m, n). ``values``: shape (m,). ``deviations``: standard deviations of
        the errors, shape (m,). Source: Rasmussen & Williams, Gaussian Processes (2006), 2.1.
        """
        gain = self.gain(counts, deviations)
        mean = self.mean + gain @ (values - counts @ self.mean)
        covariance = self.covariance - gain @ counts @ self.covariance
        return Gaussian(mean, (covariance + covariance.T) / 2)

    def gain(self, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """How much each unknown follows from each observation, shape (n, m)."""
        cross = self.covariance @ counts.T
        inner = counts @ cross + np.diag(deviations**2)
        gain: np.ndarray = np.linalg.solve(inner, cross.T).T
        return gain

    def deviation(self, counts: np.ndarray) -> float:
        """Standard deviation of ``counts @ unknowns``; ``counts`` has shape (n,)."""
        return float(np.sqrt(max(0.0, counts @ self.covariance @ counts)))
