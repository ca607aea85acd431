"""Bayesian linear regression: what is measured of unknown amounts and sums says of the others.

Source: Rasmussen & Williams, Gaussian Processes (2006), 2.1. Draws are corrected by what was
measured instead of drawn anew (Matheron's rule: Wilson et al. 2020, Efficiently Sampling Functions
from Gaussian Process Posteriors), with measurements taken as exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution over n unknowns.

    ``mean``: shape (n,). The covariance is ``factors @ factors.T + diag(own)``: what few causes,
    of shape (n, causes), have in common, and the variance that each unknown has of its own. So no
    matrix of all unknowns by all unknowns is made.
    """

    mean: np.ndarray
    factors: np.ndarray
    own: np.ndarray

    def cross(self, counts: np.ndarray) -> np.ndarray:
        """Covariance of the unknowns with ``counts @ unknowns``, shape (n, m)."""
        common = self.factors @ (counts @ self.factors).T
        return np.asarray(common + self.own[:, None] * counts.T)


@dataclass(frozen=True, eq=False)
class Measured:
    """``prior`` conditioned on single unknowns.

    ``index``: which, shape (m,), each once. ``values`` and the standard deviations of their errors,
    ``deviations``, have shape (m,).
    """

    prior: Gaussian
    index: np.ndarray
    values: np.ndarray
    deviations: np.ndarray

    @cached_property
    def posterior(self) -> Gaussian:
        """The distribution of the unknowns now."""
        variance, factors = self.prior.own.copy(), self.prior.factors.copy()
        left = self.deviations**2 * self._precision  # Of what is not common, the part still open.
        variance[self.index] *= left
        factors[self.index] *= left[:, None]
        return Gaussian(
            self.corrected(self.prior.mean), factors @ np.linalg.cholesky(self._causes), variance
        )

    def corrected(self, drawn: np.ndarray) -> np.ndarray:
        """What was drawn from ``prior``, corrected by what was measured."""
        factors = self.prior.factors[self.index]
        missing = self._precision * (self.values - drawn[self.index])
        weights = missing - self._precision * (factors @ (self._causes @ (factors.T @ missing)))
        after = drawn + self.prior.factors @ (factors.T @ weights)
        after[self.index] += self.prior.own[self.index] * weights
        return np.asarray(after)

    @cached_property
    def _precision(self) -> np.ndarray:
        return np.asarray(1 / (self.prior.own[self.index] + self.deviations**2))

    @cached_property
    def _causes(self) -> np.ndarray:
        """Covariance of the causes now, by the matrix inversion lemma."""
        factors = self.prior.factors[self.index]
        precision = np.eye(factors.shape[1]) + (factors.T * self._precision) @ factors
        return np.asarray(np.linalg.inv(precision))


@dataclass(frozen=True, eq=False)
class Sums:
    """``counts @ unknowns`` before anything of them is measured; ``counts`` has shape (m, n)."""

    prior: Gaussian
    counts: np.ndarray

    @cached_property
    def cross(self) -> np.ndarray:
        """Covariance with the unknowns, shape (n, m)."""
        return self.prior.cross(self.counts)

    @cached_property
    def among(self) -> np.ndarray:
        """Covariance with each other, shape (m, m)."""
        return np.asarray(self.counts @ self.cross)


@dataclass(frozen=True, eq=False)
class Summed:
    """Unknowns conditioned on ``values = sums + errors``.

    ``values``: shape (m,). ``errors``: covariance of the errors, shape (m, m).
    """

    sums: Sums
    values: np.ndarray
    errors: np.ndarray

    @cached_property
    def mean(self) -> np.ndarray:
        """Expected unknowns, shape (n,)."""
        return self.corrected(self.sums.prior.mean)

    def corrected(self, drawn: np.ndarray, errors: np.ndarray | float = 0.0) -> np.ndarray:
        """What was drawn from the prior, corrected by what was measured.

        ``errors``: those that were drawn with it, shape (m,).
        """
        missing = self.values - self.sums.counts @ drawn - errors
        return np.asarray(drawn + self.sums.cross @ np.linalg.solve(self._inner, missing))

    def error(self, covariance: np.ndarray) -> float:
        """The expected error of another sum; ``covariance``: its covariance with the errors."""
        return float(covariance @ self._weights)

    def further_errors(self, covariance: np.ndarray) -> np.ndarray:
        """The same of several sums; ``covariance`` has shape (sums, m)."""
        return np.asarray(covariance @ self._weights)

    def deviation(
        self, counts: np.ndarray, covariance: np.ndarray | float = 0.0, error: float = 0.0
    ) -> float:
        """Standard deviation of ``counts @ unknowns + error``; ``counts`` has shape (n,).

        ``covariance``: covariance of its error with those of the measured sums, shape (m,).
        ``error``: variance of its error.
        """
        before = counts @ self.sums.prior.cross(counts[None])[:, 0] + error
        known = counts @ self.sums.cross + covariance
        return float(np.sqrt(max(0.0, before - known @ np.linalg.solve(self._inner, known))))

    def log_evidence(self) -> float:
        """Log density of ``values``, up to a constant."""
        missing = self.values - self.sums.counts @ self.sums.prior.mean
        _, log_determinant = np.linalg.slogdet(self._inner)
        return -0.5 * float(missing @ self._weights + log_determinant)

    def log_evidences(self, further: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """The same with ``further`` times each of ``variances`` added to ``errors``.

        Shape (variances,). One decomposition tells all of them: in the space where the covariance
        is the identity, ``further`` is made diagonal.
        """
        root, whiten = self._whitening
        values, vectors = np.linalg.eigh(whiten @ further @ whiten.T)
        grown = 1 + np.outer(variances, np.maximum(values, 0.0))
        missing = vectors.T @ (whiten @ (self.values - self.sums.counts @ self.sums.prior.mean))
        terms = missing**2 / grown + np.log(grown)
        return np.asarray(-0.5 * terms.sum(axis=1) - np.log(np.diag(root)).sum())

    @cached_property
    def _whitening(self) -> tuple[np.ndarray, np.ndarray]:
        """The Cholesky factor of the covariance of ``values``, and its inverse."""
        root = np.linalg.cholesky(self._inner)
        return root, np.linalg.inv(root)

    @cached_property
    def _inner(self) -> np.ndarray:
        return np.asarray(self.sums.among + self.errors)

    @cached_property
    def _weights(self) -> np.ndarray:
        missing = self.values - self.sums.counts @ self.sums.prior.mean
        return np.asarray(np.linalg.solve(self._inner, missing))
