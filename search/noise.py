"""What measured candidates say about the accuracy of others.

Quantization noise of sites adds up in power while it is small, so the noise of a candidate, as
error power over signal power of the outputs, is about the sum of its sites'
(``placer.search.linear``). Sites are measured lazily, in blocks that are halved where the noise is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placer.search.landscape import Landscape, State

# Relative standard deviations: of a site's noise before it is measured, whatever its layout; of
# each layout's own part; of a measured sum against the sum of its parts.
SITE, LAYOUT, ADDITIVE = 1.5, 0.5, 0.1
LEAST = 1e-9
# Noise of a site where nothing was measured.
UNKNOWN = 1e-4


@dataclass(frozen=True, eq=False)
class NoiseObservation:
    """A candidate's measured noise power, relative to the outputs'."""

    state: State
    noise: float


class NoiseModel:
    """The noise of each site's layouts after some observations.

    Before any, layouts are as noisy as they quantize edges. One normal distribution over all
    layouts of all sites is conditioned on the observations (as in ``placer.search.linear``, but in
    the space of observations, of which there are few).
    """

    def __init__(
        self,
        landscape: Landscape,
        observations: Sequence[NoiseObservation],
        rng: np.random.Generator | None = None,
    ) -> None:
        """With ``rng``, noises are drawn from what is possible instead of expected."""
        self._layouts = [len(names) for names in landscape.names]
        self._shares = _shares(landscape)
        values = np.array([min(o.noise, 1e3) for o in observations])
        chosen = [self._chosen(observation.state) for observation in observations]
        spread = np.array([self._shares[index].sum() for index in chosen])
        noisy = [v / s for v, s in zip(values, spread, strict=True) if s > 0]
        prior = max(float(np.median(noisy)) if noisy else UNKNOWN, LEAST) * self._shares
        mean, variance = _posterior(prior, chosen, values)
        if rng is not None:
            mean = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
        # Noise is never negative; what the regression says below that is nothing.
        self._noise: np.ndarray = np.maximum(mean, 0.0)

    def predict(self, state: State) -> float:
        """Expected noise power of ``state``."""
        return float(self._noise[self._chosen(state)].sum())

    def extras(self) -> list[np.ndarray]:
        """Noise power by site and layout."""
        return [own[:count] for own, count in zip(self._noise, self._layouts, strict=True)]

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


def _posterior(
    prior: np.ndarray, chosen: Sequence[tuple[np.ndarray, np.ndarray]], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the noise by site and layout.

    ``prior``: mean before ``values``, each the sum over the layouts of one entry of ``chosen``.
    """
    variance = (SITE**2 + LAYOUT**2) * prior**2
    if not len(values):
        return prior, variance
    # Covariance of each sum with each layout, then of the sums with each other.
    cross = []
    for index in chosen:
        own = np.zeros_like(prior)
        own[index] = prior[index]
        cross.append(prior * (SITE**2 * own.sum(axis=1, keepdims=True) + LAYOUT**2 * own))
    inner = np.array([[row[index].sum() for index in chosen] for row in cross])
    inner += np.diag((ADDITIVE * values + LEAST) ** 2)
    expected = np.array([prior[index].sum() for index in chosen])
    joint = np.array(cross)
    gain = np.linalg.solve(inner, joint.reshape(len(values), -1)).reshape(joint.shape)
    mean = prior + np.tensordot(values - expected, gain, axes=1)
    return mean, np.maximum(variance - (joint * gain).sum(axis=0), 0.0)


def learn_limit(outcomes: Sequence[tuple[float, bool]]) -> float:
    """The noise power up to which gates are expected to hold; infinite while none was missed.

    ``outcomes``: noise and whether all gates held. Where the two overlap, the limit that tells
    most outcomes right; the largest of equals.
    """
    held = sorted(noise for noise, is_held in outcomes if is_held)
    missed = sorted(noise for noise, is_held in outcomes if not is_held)
    if not missed:
        return math.inf
    most = held[-1] if held else 0.0
    if most < missed[0]:
        return max(math.sqrt(most * missed[0]), missed[0] / 3)

    def mistakes(limit: float) -> int:
        return sum(noise > limit for noise in held) + sum(noise <= limit for noise in missed)

    return min(held, key=lambda limit: (mistakes(limit), -limit))
