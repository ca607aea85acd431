"""What measured candidates say about the accuracy of others.

Quantization noise of sites adds up in power while it is small, so the noise of a candidate, as
error power over signal power of the outputs, is about the sum of its sites'
(``placer.search.models.bayesian_linear``). Sites are measured lazily, in blocks that are halved
where the noise is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.moves import layouts_of

# Relative standard deviations: of a site's noise before it is measured, whatever its layout; of
# each layout's own part; of a measured sum against the sum of its parts.
SITE, LAYOUT, ADDITIVE = 1.5, 0.5, 0.1
LEAST = 1e-9
# Noise of a site where nothing was measured.
UNKNOWN = 1e-4


@dataclass(frozen=True, eq=False)
class NoiseObservation:
    """A candidate's measured noise power, relative to the outputs'.

    ``deviation``: how far it may be off the sum of its parts, relative.
    """

    state: State
    noise: float
    deviation: float = ADDITIVE


class NoiseModel:
    """The noise of each site's layouts after some observations.

    Before any, layouts are as noisy as they quantize edges. One normal distribution over all
    layouts of all sites is conditioned on the observations (as in
    ``placer.search.models.bayesian_linear``, but in the space of observations, which are few).
    """

    def __init__(
        self,
        landscape: Landscape,
        observations: Sequence[NoiseObservation],
        rng: np.random.Generator | None = None,
        *,
        hope: float = 0.0,
    ) -> None:
        """With ``rng``, noises are drawn from what is possible instead of expected.

        ``hope``: by how many standard deviations they are quieter than that.
        """
        shares = landscape.edge_shares
        values = np.array([min(o.noise, 1e3) for o in observations])
        states = np.array([o.state for o in observations], dtype=int).reshape(-1, len(shares))
        spread = shares[np.arange(len(shares)), states].sum(axis=1)
        noisy = [v / s for v, s in zip(values, spread, strict=True) if s > 0]
        prior = max(float(np.median(noisy)) if noisy else UNKNOWN, LEAST) * shares
        deviations = np.array([observation.deviation for observation in observations])
        self._posterior = _Posterior(prior, states, values, deviations)
        mean = self._posterior.mean
        if rng is not None or hope:
            draw = -hope if rng is None else rng.standard_normal(mean.shape) - hope
            mean = mean + np.sqrt(self._posterior.variance) * draw
        # Noise is never negative; what the regression says below that is nothing.
        self._noise: np.ndarray = np.maximum(mean, 0.0)

    def predict(self, state: State) -> float:
        """Expected noise power of ``state``."""
        return float(self._noise[self._chosen(state)].sum())

    def variance_of(self, state: State, other: State) -> float:
        """Variance of the noise of the layouts of ``state`` that ``other`` does not have."""
        variance, pairs = self._posterior.variance, enumerate(zip(state, other, strict=True))
        return float(sum(variance[site, layout] for site, (layout, had) in pairs if layout != had))

    @property
    def extras(self) -> np.ndarray:
        """Noise power by site and layout, shape (sites, most layouts of any site)."""
        return self._noise

    def _chosen(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Index of the layout of each site."""
        return np.arange(len(state)), layouts_of(state)


class _Posterior:
    """Mean and variance of the noise by site and layout.

    ``prior``: mean before ``values``, each the sum over the layouts of a row of ``states``, shape
    (values, sites), but for the ``deviations``.
    """

    def __init__(
        self, prior: np.ndarray, states: np.ndarray, values: np.ndarray, deviations: np.ndarray
    ) -> None:
        self._prior = prior
        # What each sum has of each layout; of one site it has one, whichever that is.
        self._has = [own * (states == layout) for layout, own in enumerate(prior.T)]
        self._picked = np.sum(self._has, axis=0)
        # Covariance of the sums with each other.
        self._inner = SITE**2 * self._picked @ self._picked.T
        for has in self._has:
            self._inner += LAYOUT**2 * has @ has.T
        self._inner += np.diag((deviations * values + LEAST) ** 2)
        self._missing = values - self._picked.sum(axis=1)

    @property
    def mean(self) -> np.ndarray:
        """Expected noise."""
        weights = np.linalg.solve(self._inner, self._missing)
        common = SITE**2 * (weights @ self._picked)
        change = [common + LAYOUT**2 * (weights @ has) for has in self._has]
        return np.asarray(self._prior * (1 + np.array(change).T))

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of the noise."""
        inverse = np.linalg.inv(self._inner)
        # Covariance of each sum with each layout, of which the prior is a factor.
        joint = [SITE**2 * self._picked + LAYOUT**2 * has for has in self._has]
        known = np.array([(own * (inverse @ own)).sum(axis=0) for own in joint]).T
        before = SITE**2 + LAYOUT**2
        return np.asarray(self._prior**2 * np.maximum(before - known, 0.0))


def learn_limit(outcomes: Sequence[tuple[float, bool]]) -> float:
    """The noise power up to which gates are expected to hold; infinite while none was missed.

    ``outcomes``: noise and whether all gates held. Where the two overlap, the limit that tells
    most outcomes right; the largest of equals. It is more than 0: a gate that is missed without
    noise, as where a model has integer outputs only, says nothing of noise.
    """
    held = sorted(noise for noise, is_held in outcomes if is_held)
    missed = sorted(noise for noise, is_held in outcomes if not is_held and noise)
    if not missed:
        return math.inf
    most = held[-1] if held else 0.0
    if most < missed[0]:
        return max(math.sqrt(most * missed[0]), missed[0] / 3)

    def mistakes(limit: float) -> int:
        return sum(noise > limit for noise in held) + sum(noise <= limit for noise in missed)

    return min(held, key=lambda limit: (mistakes(limit), -limit)) or missed[0] / 3
