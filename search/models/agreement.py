"""How noise measured on a few samples relates to the noise that trials measure on all.

Trials are judged on all evaluation samples, and of those that a network is noisy on a few may have
more or less than their share. Which it is, is about the same for all placements, and is told by
trials whose noise was measured on the few as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placer.search.models.noise_model import ADDITIVE, LEAST

# So many trials are compared, those whose noise is the nearest to what gates allow: noise that
# destroys outputs tells little of noise that does not.
COMPARED = 16
# Standard deviation of the logarithm of the factor before any trial, and the weight of its being no
# less exact than sums, in trials.
FACTOR, EXACT = 0.5, 2.0
# A placement is tried if its noise is at most so many standard deviations above what gates allow.
WORTH_TRYING = 0.5


@dataclass(frozen=True)
class Agreement:
    """``factor``: noise of trials as a multiple of that on the few samples, about.

    ``deviation``: standard deviation of its logarithm from placement to placement.
    """

    factor: float = 1.0
    deviation: float = ADDITIVE

    @property
    def tolerance(self) -> float:
        """What is so many times as noisy as gates allow, by the few samples, may be tried."""
        return math.exp(WORTH_TRYING * self.deviation)

    @staticmethod
    def of(pairs: Sequence[tuple[float, float]]) -> Agreement:
        """``pairs``: noise on the few samples and that of the trial, of one placement each.

        The logarithm of their ratio is normal with a common mean, which is normal itself with mean
        0 and standard deviation ``FACTOR``; its expectation given the pairs is the factor's.
        """
        logs = [math.log(noise / few) for few, noise in pairs if few > LEAST and noise > LEAST]
        if not logs:
            return Agreement()
        mean = math.fsum(logs) / len(logs)
        squares = math.fsum((one - mean) ** 2 for one in logs)
        variance = (EXACT * ADDITIVE**2 + squares) / (EXACT + len(logs) - 1)
        shrunk = mean * len(logs) / (len(logs) + variance / FACTOR**2)
        return Agreement(math.exp(shrunk), math.sqrt(variance))
