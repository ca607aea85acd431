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
        self._shares = _shares(landscape)
        values = np.array([min(o.noise, 1e3) for o in observations])
        chosen = [self._chosen(observation.state) for observation in observations]
        spread = np.array([self._shares[index].sum() for index in chosen])
        noisy = [v / s for v, s in zip(values, spread, strict=True) if s > 0]
        prior = max(float(np.median(noisy)) if noisy else UNKNOWN, LEAST) * self._shares
        deviations = np.array([observation.deviation for observation in observations])
        self._posterior = _Posterior(prior, chosen, values, deviations)
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
        return np.arange(len(state)), np.array(state, dtype=int)


def _shares(landscape: Landscape) -> np.ndarray:
    """Edges that each layout quantizes beyond the float one, of those that the default does.

    Shape (sites, most layouts of any site).
    """
    floats = landscape.state(landscape.space.floats)
    shares = np.zeros((len(landscape.sites), max(len(names) for names in landscape.names)))
    for index, (site, number) in enumerate(zip(landscape.sites, floats, strict=True)):
        edges = [len(layout.quantize) for layout in site.layouts.values()]
        span = max(1, len(site.layouts[site.default].quantize) - edges[number])
        shares[index, : len(edges)] = (np.array(edges) - edges[number]) / span
    return shares


class _Posterior:
    """Mean and variance of the noise by site and layout.

    ``prior``: mean before ``values``, each the sum over the layouts of one entry of ``chosen`` but
    for the ``deviations``.
    """

    def __init__(
        self,
        prior: np.ndarray,
        chosen: Sequence[tuple[np.ndarray, np.ndarray]],
        values: np.ndarray,
        deviations: np.ndarray,
    ) -> None:
        self._prior = prior
        # Covariance of each sum with each layout, then of the sums with each other.
        has = np.zeros((len(chosen), *prior.shape))
        for layouts, index in zip(has, chosen, strict=True):
            layouts[index] = 1
        picked = prior * has
        joint = prior * (SITE**2 * picked.sum(axis=2, keepdims=True) + LAYOUT**2 * picked)
        self._joint = joint.reshape(len(chosen), prior.size)
        self._inner = self._joint @ has.reshape(len(chosen), prior.size).T
        self._inner += np.diag((deviations * values + LEAST) ** 2)
        self._missing = values - picked.sum(axis=(1, 2))

    @property
    def mean(self) -> np.ndarray:
        """Expected noise."""
        change = np.linalg.solve(self._inner, self._missing) @ self._joint
        return np.asarray(self._prior + change.reshape(self._prior.shape))

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of the noise."""
        known = (self._joint * np.linalg.solve(self._inner, self._joint)).sum(axis=0)
        before = (SITE**2 + LAYOUT**2) * self._prior**2
        return np.asarray(np.maximum(before - known.reshape(self._prior.shape), 0.0))


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
