"""From how many weights on layers of a network take more, told from builds and costs of layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from placer.fitting.equations import Build, Network
from placer.prediction.times.costs import CostTable, excess_part, plan_excess, weights_mb

# What may be found. Networks with fewer tell what layers take without: half of those of ``placer
# fit`` have no more than 0.39.
_SIZES_MB = np.geomspace(1, 256, 33).tolist()
# What errors shrink to at least where layers are said to take more.
_LEAST_GAIN = 0.95


def lightest(networks: Sequence[Network]) -> list[Network]:
    """The half of ``networks`` with the fewest weights, in their order."""
    sizes = [max(map(megabytes, network.builds), default=0.0) for network in networks]
    middle = float(np.median(sizes)) if sizes else 0.0
    return [one for one, size in zip(networks, sizes, strict=True) if size <= middle]


def megabytes(build: Build) -> float:
    """10**6 bytes of weights that ``build`` reads."""
    return sum(map(weights_mb, build.plan))


def fitted_many_weights_mb(networks: Sequence[Network], table: CostTable) -> float | None:
    """From how many 10**6 bytes of weights on layers take more; None: none do.

    What explains the times and ratios of ``networks`` best by costs that are known, with what
    layers take besides where there are more. All builds of a network count as much as all
    ratios between them, and errors are absolute values of shares of a build's time.
    """
    heavy = [n for n in networks if max(map(megabytes, n.builds), default=0.0) > _SIZES_MB[0]]
    if not heavy:
        return None
    weights = np.concatenate([_weights(network) for network in heavy])
    values = np.concatenate([_with_ratios(_left(network, table)) for network in heavy])
    best, least = None, _LEAST_GAIN * float(weights @ np.abs(values))
    types = sorted({p[0].key.dtype for n in heavy for b in n.builds for p in b.plan if p})
    for size in _SIZES_MB:
        columns = np.concatenate([_with_ratios(_besides(n, size, types)) for n in heavy])
        root = np.sqrt(weights)
        solution = nnls(columns * root[:, None], values * root)[0]
        off = float(weights @ np.abs(columns @ solution - values))
        if off < least:
            best, least = size, off
    return best


def _weights(network: Network) -> np.ndarray:
    count = len(network.builds)
    pairs = count * (count - 1) // 2
    each = np.repeat([1 / count, 1 / max(pairs, 1)], [count, pairs])
    weights: np.ndarray = network.weight * each
    return weights


def _with_ratios(rows: np.ndarray) -> np.ndarray:
    """The rows of a network's builds, and below the differences of any two."""
    one, other = np.triu_indices(len(rows), 1)
    return np.concatenate([rows, rows[one] - rows[other]])


def _left(network: Network, table: CostTable) -> np.ndarray:
    """What ``table`` leaves of each build's time, as a share of it."""
    return np.array([1 - sum(table.plan_us(build.plan)) / build.us for build in network.builds])


def _besides(network: Network, size: float, types: Sequence[str]) -> np.ndarray:
    """Layers and 10**6 bytes of weights beyond ``size``, of each type, by a build's time."""
    rows = np.zeros((len(network.builds), 2 * len(types)))
    for row, build in zip(rows, network.builds, strict=True):
        beyond = plan_excess(build.plan, size)
        for part in (part for parts in build.plan for part in excess_part(parts, beyond)):
            column = 2 * types.index(part.key.dtype)
            row[column : column + 2] += np.array([part.times, part.read_mb]) / build.us
    return rows
