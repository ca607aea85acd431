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
from placer.search.linear import Gaussian

# Relative standard deviations: of a site's noise before it is measured, of a measured sum against
# the sum of its parts.
UNMEASURED, ADDITIVE = 1.5, 0.15
LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class NoiseObservation:
    """A candidate's measured noise power, relative to the outputs'."""

    state: State
    noise: float


class NoiseModel:
    """The noise of each site's layouts after some observations."""

    def __init__(self, landscape: Landscape, observations: Sequence[NoiseObservation]) -> None:
        self._landscape = landscape
        self._floats = landscape.state(landscape.space.floats)
        rows = np.array([self._row(o.state) for o in observations])
        values = np.array([min(o.noise, 1e3) for o in observations])
        sites = max(1, len(landscape.sites))
        typical = float(np.median(values)) / sites if len(values) else 1e-3
        prior = np.full(len(landscape.sites), max(typical, LEAST))
        start = Gaussian(prior, np.diag((UNMEASURED * prior) ** 2))
        if len(values):
            start = start.given(rows, values, ADDITIVE * values + LEAST)
        # Noise is never negative; what the regression says below that is nothing.
        self.by_site: np.ndarray = np.maximum(start.mean, 0.0)
        self._gaussian = start

    def predict(self, state: State) -> float:
        """Expected noise power of ``state``."""
        return float(self._row(state) @ self.by_site)

    def extras(self) -> list[np.ndarray]:
        """Noise power by site and layout."""
        return [
            np.array([self._share(site, layout) * own for layout in range(len(names))])
            for site, (names, own) in enumerate(
                zip(self._landscape.names, self.by_site, strict=True)
            )
        ]

    def _row(self, state: State) -> np.ndarray:
        return np.array([self._share(site, layout) for site, layout in enumerate(state)])

    def _share(self, site: int, layout: int) -> float:
        """Edges that a layout quantizes beyond the float one, of those that the default does."""
        layouts = list(self._landscape.sites[site].layouts.values())
        default = self._landscape.sites[site].layouts[self._landscape.sites[site].default]
        base = len(layouts[self._floats[site]].quantize)
        span = max(1, len(default.quantize) - base)
        return (len(layouts[layout].quantize) - base) / span


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
