"""What memory takes to bring weights that no cache keeps, told from builds and costs of layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.fitting.equations import Build, Network
from placer.prediction.times.costs import FAST_MEMORY, CostTable, Memory, share_missing, weights_mb

# What may be found: caches from the second level of a CPU to the last one of a server, and memory
# of 1 GB/s to 10 TB/s, in steps of a fifth.
_KEPT_MB, _US_PER_MB = np.geomspace(1, 256, 33), np.geomspace(0.1, 1000, 51)


def lightest(networks: Sequence[Network]) -> list[Network]:
    """The half of ``networks`` with the fewest weights, in their order."""
    sizes = [max(map(megabytes, network.builds), default=0.0) for network in networks]
    middle = float(np.median(sizes)) if sizes else 0.0
    return [one for one, size in zip(networks, sizes, strict=True) if size <= middle]


def megabytes(build: Build) -> float:
    """10**6 bytes of weights that ``build`` reads."""
    return sum(map(weights_mb, build.plan))


def fitted_memory(networks: Sequence[Network], table: CostTable) -> Memory:
    """What explains the times and ratios of ``networks`` best, by costs that are known.

    Errors are logarithms, and their absolute values are added up: all builds of a network count as
    much as all ratios between them. ``FAST_MEMORY`` where no candidate explains more.
    """
    off = np.zeros((1 + len(_KEPT_MB), len(_US_PER_MB)))
    for network in networks:
        if any(megabytes(build) > _KEPT_MB[0] for build in network.builds):
            off += network.weight * _off(network, table)
    kept, us = np.unravel_index(np.argmin(off), off.shape)
    if kept == 0:
        return FAST_MEMORY
    return Memory(kept_mb=float(_KEPT_MB[kept - 1]), us_per_mb=float(_US_PER_MB[us]))


def _off(network: Network, table: CostTable) -> np.ndarray:
    """The error of ``network`` by each candidate, shape (1 + kept, us per MB).

    The first row is where all is kept.
    """
    errors = np.stack([_errors(build, table) for build in network.builds])
    off: np.ndarray = np.abs(errors).mean(axis=0)
    one, other = np.triu_indices(len(errors), 1)
    if one.size:
        off = off + np.abs(errors[one] - errors[other]).mean(axis=0)
    return off


def _errors(build: Build, table: CostTable) -> np.ndarray:
    us = np.array([table.layer_us(parts) for parts in build.plan])
    weights = np.array([weights_mb(parts) for parts in build.plan])
    waits = (np.hypot(us, np.outer(_US_PER_MB, weights)) - us).sum(axis=1)
    missing = np.array([0.0, *(share_missing(weights.sum(), kept) for kept in _KEPT_MB)])
    estimates = us.sum() + np.outer(missing, waits)
    errors: np.ndarray = np.log(np.maximum(estimates, 1e-3) / build.us)
    return errors
