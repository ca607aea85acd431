"""The errors that estimates of a network stay within, told from the networks most like it in size.

Errors are those of networks that were left out. Networks with many weights are estimated worse than
small ones, so that one interval for all would hold for few of the large ones: those with as many
weights tell the errors of another (a local conformal prediction; Lei et al. 2018, section 5.2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

COVERAGE = 0.8
NEAREST = 20  # Networks of the nearest sizes: enough for a share of 80%, and few of another size.
_LEAST_MB = 0.1  # Networks with fewer weights are of one size.


@dataclass(frozen=True)
class NetworkErrors:
    """What a network's estimates were off by where it was left out.

    ``weights_mb``: 10**6 bytes of weights in float. ``latencies``, ``ratios``: relative errors of
    its builds and of the ratios of two of them.
    """

    weights_mb: float
    latencies: tuple[float, ...]
    ratios: tuple[float, ...]

    @staticmethod
    def of(
        weights_mb: float, measured: Sequence[float], estimated: Sequence[float]
    ) -> NetworkErrors:
        """``measured`` and ``estimated``: times of its builds."""
        both = list(zip(estimated, measured, strict=True))
        ratios = (
            relative_error(one[0] / other[0], one[1] / other[1])
            for one, other in itertools.combinations(both, 2)
        )
        return NetworkErrors(weights_mb, tuple(relative_error(*one) for one in both), tuple(ratios))


def relative_error(estimated: float, measured: float) -> float:
    """The factor that ``estimated`` is off by, in either direction, less 1."""
    return math.exp(abs(math.log(estimated / measured))) - 1


def errors_of_size(known: Sequence[NetworkErrors], weights_mb: float) -> tuple[float, float]:
    """Errors that 80% of latencies, and of ratios, of a network of that size stay within."""
    size = math.log(max(weights_mb, _LEAST_MB))
    near = sorted(known, key=lambda one: abs(math.log(max(one.weights_mb, _LEAST_MB)) - size))
    latencies = [one.latencies for one in near[:NEAREST]]
    ratios = [one.ratios for one in near if one.ratios][:NEAREST]
    return network_quantile(latencies, COVERAGE), network_quantile(ratios, COVERAGE)


def network_quantile(errors: Sequence[Sequence[float]], share: float) -> float:
    """What an error of a new network stays within in ``share`` of cases; ``errors``: by network.

    Errors of one network are alike, so what is new is the network: each counts the same, and a
    further one, of errors without bound, with them (Lee, Barber & Willett 2023, hierarchical
    conformal prediction). The largest error where too few networks are known for ``share``.
    """
    known = [errors_of_one for errors_of_one in errors if errors_of_one]
    weighed = sorted(
        (error, 1 / len(errors_of_one)) for errors_of_one in known for error in errors_of_one
    )
    values, weights = (np.array(column) for column in zip(*weighed, strict=True))
    reached = np.cumsum(weights) >= share * (len(known) + 1) - 1e-9
    return float(values[np.argmax(reached)] if reached.any() else values[-1])
