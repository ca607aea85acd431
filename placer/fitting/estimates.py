"""What costs say of the builds of networks, also of some that took no part in a fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from placer.fitting.builds import Network
from placer.fitting.costs import fit_costs
from placer.fitting.layer_matrix import layer_matrix
from placer.prediction.times.costs import CostTable

# Microseconds of each build, by the name of the network.
Estimates = dict[str, tuple[float, ...]]


def estimate(table: CostTable, network: Network) -> tuple[float, ...]:
    """Estimated microseconds of each build; a network of no-ops takes some time, too."""
    estimates = np.maximum(layer_matrix(network).estimates(table), 1e-3)
    return tuple(estimates.tolist())


def estimates_without(networks: Sequence[Network], names: Collection[str]) -> Estimates:
    """Those of the networks called ``names``, by a fit to the others."""
    without = fit_costs([one for one in networks if one.name not in names])
    return {one.name: estimate(without, one) for one in networks if one.name in names}
