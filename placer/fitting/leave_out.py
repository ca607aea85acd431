"""How far estimates are off for networks that took no part in the fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.errors import RunError
from placer.fitting.costs import Build, Network, fit_costs
from placer.fitting.predicted import PredictedNetwork
from placer.prediction.fitted import CostTable, FitErrors

COVERAGE = 0.8
# Fewer networks, or builds of each, say too little of any other one.
LEAST_NETWORKS, LEAST_BUILDS = 5, 2


@dataclass(frozen=True)
class Pair:
    """Two builds of one network: the ratio of their times, measured and estimated.

    ``apart``: whether they differ by more than noise.
    """

    measured: float
    estimated: float
    apart: bool

    @property
    def error(self) -> float:
        """Relative error of the estimated ratio: the factor that it is off by, less 1."""
        return math.exp(abs(math.log(self.estimated / self.measured))) - 1

    @property
    def ordered(self) -> bool:
        """Whether the faster one is estimated to be."""
        return (self.estimated < 1) == (self.measured < 1)


@dataclass(frozen=True)
class LeftOut:
    """Estimates in microseconds by network and build, of fits without the network."""

    estimates: Mapping[str, tuple[float, ...]]
    errors: FitErrors


def leave_out(networks: Sequence[PredictedNetwork]) -> LeftOut:
    """Estimate each network by a fit to all others.

    Raises RunError if there are too few for that to say anything.
    """
    counts = [len(network.costs.builds) for network in networks]
    enough = [count for count in counts if count >= LEAST_BUILDS]
    if len(enough) < LEAST_NETWORKS:
        raise RunError(
            f"{len(enough)} networks were measured with {LEAST_BUILDS} builds or more; "
            f"how far off a fit is for others takes {LEAST_NETWORKS}: measure more networks"
        )
    costs = [network.costs for network in networks]
    estimates = {}
    for network in networks:
        table = CostTable(fit_costs([other for other in costs if other is not network.costs]))
        estimates[network.costs.name] = estimate(table, network.costs)
    table = CostTable(fit_costs(costs))
    trained = {network.name: estimate(table, network) for network in costs}
    pairs = [p for network in networks for p in pairs_of(network, estimates[network.costs.name])]
    training = [p for network in networks for p in pairs_of(network, trained[network.costs.name])]
    apart = [pair for pair in pairs if pair.apart]
    latencies = [
        math.exp(abs(math.log(us / build.us))) - 1
        for network in costs
        for us, build in zip(estimates[network.name], network.builds, strict=True)
    ]
    found = [pair.error for pair in pairs]
    errors = FitErrors(
        networks=len(networks),
        builds=sum(counts),
        pairs=len(pairs),
        latency=within(latencies, COVERAGE),
        ratio=within(found, COVERAGE),
        ratio_median=within(found, 0.5),
        ratio_95=within(found, 0.95),
        pairs_apart=len(apart),
        ordered=sum(pair.ordered for pair in apart) / len(apart) if apart else None,
        training_ratio=within([pair.error for pair in training], COVERAGE),
    )
    return LeftOut(estimates, errors)


def estimate(table: CostTable, network: Network) -> tuple[float, ...]:
    """Estimated microseconds of each build."""
    return tuple(_build_us(table, build) for build in network.builds)


def _build_us(table: CostTable, build: Build) -> float:
    return max(table.layer_us(build.parts), 1e-3)  # A network of no-ops takes some time, too.


def pairs_of(network: PredictedNetwork, estimates: Sequence[float]) -> list[Pair]:
    """All pairs of builds of ``network``."""
    times = [build.us for build in network.costs.builds]
    seconds = network.record.seconds
    found = []
    for one, other in itertools.combinations(range(len(times)), 2):
        apart = _apart(seconds[:, one] / seconds[:, other], network.noise)
        ratio = times[one] / times[other]
        found.append(Pair(ratio, estimates[one] / estimates[other], apart))
    return found


def _apart(ratios: np.ndarray, noise: float) -> bool:
    """Whether the median differs from 1 by more than its scatter and what copies differ by.

    The scatter is 1.25 standard errors of the mean for a median; three times the larger of both.
    """
    logs = np.log(ratios)
    low, high = np.quantile(logs, (0.25, 0.75))
    scatter = 1.25 * (high - low) / 1.349 / math.sqrt(len(logs))
    return bool(abs(np.median(logs)) > max(3 * scatter, noise, 0.01))


def within(errors: Sequence[float], share: float) -> float:
    """What a new error stays within in ``share`` of cases, if it is like the others.

    The quantile of split conformal prediction (Lei et al. 2018): the ceil(share (n + 1))-th
    smallest.
    """
    place = min(math.ceil(share * (len(errors) + 1)), len(errors))
    return sorted(errors)[place - 1]
