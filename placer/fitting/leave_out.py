"""How far estimates are off for networks that took no part in the fit."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.errors import RunError
from placer.fitting.builds import Network
from placer.fitting.costs import fit_costs
from placer.fitting.estimates import estimate
from placer.fitting.networks import generated_kind
from placer.fitting.predicted import PredictedNetwork
from placer.fitting.processes import all_estimates_without
from placer.prediction.times.costs import CostTable, weights_mb
from placer.prediction.times.fitted import FitErrors
from placer.prediction.times.intervals import (
    COVERAGE,
    NetworkErrors,
    network_quantile,
    relative_error,
)

# Fewer networks, or builds of each, say too little of any other one.
LEAST_NETWORKS, LEAST_BUILDS = 5, 2
_FOLDS = 10


@dataclass(frozen=True)
class BuildPair:
    """Two builds of one network: the ratio of their times, measured and estimated.

    ``apart``: whether they differ by more than noise.
    """

    measured: float
    estimated: float
    apart: bool

    @property
    def error(self) -> float:
        """Relative error of the estimated ratio."""
        return relative_error(self.estimated, self.measured)

    @property
    def ordered(self) -> bool:
        """Whether the faster one is estimated to be."""
        return (self.estimated < 1) == (self.measured < 1)


@dataclass(frozen=True)
class LeftOut:
    """Estimates in microseconds by network and build, of fits without the network.

    ``table``: the costs of a fit to all.
    """

    table: CostTable
    estimates: Mapping[str, tuple[float, ...]]
    errors: FitErrors
    by_network: tuple[NetworkErrors, ...]


def leave_out(
    networks: Sequence[PredictedNetwork], tell: Callable[[str], None] = lambda _: None
) -> LeftOut:
    """Estimate each network by a fit without it and those that are left out with it.

    All generated networks of a kind are left out at once: they are more alike than any other
    network is to them. Of the others a tenth is, those beside each other, since each fit takes
    seconds and architectures that are alike lie beside each other. ``tell`` is told of each fit
    that is made, in a sentence.

    Raises RunError if there are too few for that to say anything.
    """
    _check_enough(networks)
    costs = [network.costs for network in networks]
    folds = _folds([one.name for one in costs])
    table = fit_costs(costs)
    tell(f"fit 1 of {len(folds) + 1}, to all {len(costs)} networks")
    estimates: dict[str, tuple[float, ...]] = {}
    for number, found in enumerate(all_estimates_without(costs, folds), start=2):
        estimates |= found
        tell(f"fit {number} of {len(folds) + 1}, without {_said(found)}")
    training = {network.name: estimate(table, network) for network in costs}
    by_network = tuple(network_errors(one, estimates[one.name]) for one in costs)
    return LeftOut(table, estimates, _errors(networks, estimates, training), by_network)


def _said(fold: Collection[str]) -> str:
    """The names in ``fold``, which are alike or beside each other."""
    first, *others = sorted(fold)
    return f"{first} and {len(others)} like it or beside it" if others else first


def _folds(names: Sequence[str]) -> list[set[str]]:
    """Names of networks that are left out at once.

    A kind that most networks are of is no fold: too little would be left to fit to.
    """
    by_kind: dict[str, set[str]] = defaultdict(set)
    for name in names:
        by_kind[generated_kind(name) or name].add(name)
    kinds = [own for own in by_kind.values() if 1 < len(own) <= len(names) / 2]
    others = [name for name in names if not any(name in own for own in kinds)]
    count = min(_FOLDS, len(others))
    tenths = (
        others[len(others) * f // count : len(others) * (f + 1) // count] for f in range(count)
    )
    return [*kinds, *map(set, tenths)]


def _check_enough(networks: Sequence[PredictedNetwork]) -> None:
    enough = [network for network in networks if len(network.costs.builds) >= LEAST_BUILDS]
    if len(enough) < LEAST_NETWORKS:
        raise RunError(
            f"{len(enough)} networks were measured with {LEAST_BUILDS} builds or more; "
            f"how far off a fit is for others takes {LEAST_NETWORKS}: measure more networks"
        )


def _errors(
    networks: Sequence[PredictedNetwork],
    estimates: Mapping[str, Sequence[float]],
    training: Mapping[str, Sequence[float]],
) -> FitErrors:
    """Errors of ``estimates``, and of ``training``: those by a fit to all networks."""
    by_network = [pairs_of(network, estimates[network.costs.name]) for network in networks]
    trained = [pairs_of(network, training[network.costs.name]) for network in networks]
    pairs = [pair for pairs_of_one in by_network for pair in pairs_of_one]
    apart = [pair for pair in pairs if pair.apart]
    latencies = [latency_errors(network, estimates[network.costs.name]) for network in networks]
    ratios = _ratio_errors(by_network)
    return FitErrors(
        networks=len(networks),
        builds=sum(len(network.costs.builds) for network in networks),
        pairs=len(pairs),
        latency=network_quantile(latencies, COVERAGE),
        ratio=network_quantile(ratios, COVERAGE),
        ratio_median=network_quantile(ratios, 0.5),
        ratio_95=network_quantile(ratios, 0.95),
        pairs_apart=len(apart),
        ordered=sum(pair.ordered for pair in apart) / len(apart) if apart else None,
        training_ratio=network_quantile(_ratio_errors(trained), COVERAGE),
    )


def _ratio_errors(by_network: Sequence[Sequence[BuildPair]]) -> list[list[float]]:
    return [[pair.error for pair in pairs_of_one] for pairs_of_one in by_network]


def latency_errors(network: PredictedNetwork, estimates: Sequence[float]) -> list[float]:
    """Relative errors of ``estimates``, microseconds of each build of ``network``."""
    builds = network.costs.builds
    return [relative_error(us, b.us) for us, b in zip(estimates, builds, strict=True)]


def network_errors(network: Network, estimates: Sequence[float]) -> NetworkErrors:
    """Errors of ``estimates``, microseconds of each build of ``network``."""
    float_mb = sum(map(weights_mb, network.builds[0].plan))
    return NetworkErrors.of(float_mb, [build.us for build in network.builds], estimates)


def pairs_of(network: PredictedNetwork, estimates: Sequence[float]) -> list[BuildPair]:
    """All pairs of builds of ``network``."""
    times = [build.us for build in network.costs.builds]
    seconds = network.record.seconds
    pairs = []
    for one, other in itertools.combinations(range(len(times)), 2):
        ratio = times[one] / times[other]
        apart = _apart(ratio, seconds[:, one] / seconds[:, other], network.noise)
        pairs.append(BuildPair(ratio, estimates[one] / estimates[other], apart))
    return pairs


def _apart(ratio: float, ratios: np.ndarray, noise: float) -> bool:
    """Whether ``ratio`` differs from 1 by more than the rounds' scatter and what copies differ by.

    ``ratios``: of each round. Their scatter is the standard error of a median, estimated from the
    quartiles (McGill, Tukey & Larsen 1978).
    """
    logs = np.log(ratios)
    low, high = np.quantile(logs, (0.25, 0.75))
    scatter = 1.25 * (high - low) / 1.349 / math.sqrt(len(logs))
    return bool(abs(math.log(ratio)) > max(3 * scatter, noise, 0.01))


def conformal_quantile(errors: Sequence[float], share: float) -> float:
    """What a new error stays within in ``share`` of cases, if it is like the others.

    The quantile of split conformal prediction (Lei et al. 2018): the ceil(share (n + 1))-th
    smallest, or the largest of fewer.
    """
    place = min(math.ceil(share * (len(errors) + 1)), len(errors))
    return sorted(errors)[place - 1]
