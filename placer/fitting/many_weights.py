"""From how many weights on layers of a network take more, told from builds and costs of layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from placer.fitting.builds import WIDTH, Network
from placer.fitting.layer_matrix import LayerMatrix, layer_matrix
from placer.prediction.times.costs import CostTable
from placer.prediction.times.layer_parts import CostKey

# What may be found. Networks with fewer tell what layers take without: half of those of ``placer
# fit`` have no more than 0.39.
_SIZES_MB = np.geomspace(1, 256, 33).tolist()
# What errors shrink to at least where layers are said to take more.
_LEAST_GAIN = 0.95


def lightest(networks: Sequence[Network]) -> list[Network]:
    """The half of ``networks`` with the fewest weights, in their order."""
    sizes = [_most_mb(layer_matrix(network)) for network in networks]
    middle = float(np.median(sizes)) if sizes else 0.0
    return [one for one, size in zip(networks, sizes, strict=True) if size <= middle]


def _most_mb(matrix: LayerMatrix) -> float:
    """10**6 bytes of weights of the build with most of them."""
    return float(matrix.weights_mb.max(initial=0.0))


def fitted_many_weights_mb(networks: Sequence[Network], table: CostTable) -> float | None:
    """From how many 10**6 bytes of weights on layers take more; None: none do.

    What explains the times and ratios of ``networks`` best by costs that are known, with what
    layers take besides where there are more. All builds of a network count as much as all
    ratios between them, and errors are absolute values of shares of a build's time.
    """
    heavy = [n for n in networks if _most_mb(layer_matrix(n)) > _SIZES_MB[0]]
    if not heavy:
        return None
    matrices = [layer_matrix(network) for network in heavy]
    root = np.sqrt(np.concatenate([_weights(network) for network in heavy]))
    values = np.concatenate([_with_ratios(_left(matrix, table)) for matrix in matrices])
    best, least = None, _LEAST_GAIN * float(root**2 @ np.abs(values))
    keys = sorted({key for matrix in matrices for key in matrix.excess_keys})
    whole = [_besides(matrix, keys) for matrix in matrices]
    for size in _SIZES_MB:
        columns = np.concatenate(
            [
                _with_ratios(matrix.beyond(size)[:, None] * own)
                for matrix, own in zip(matrices, whole, strict=True)
            ]
        )
        solution = nnls(columns * root[:, None], values * root)[0]
        off = float(root**2 @ np.abs(columns @ solution - values))
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


def _left(matrix: LayerMatrix, table: CostTable) -> np.ndarray:
    """What ``table`` leaves of each build's time, as a share of it."""
    left: np.ndarray = 1 - matrix.estimates(table) / matrix.us
    return left


def _besides(matrix: LayerMatrix, keys: Sequence[CostKey]) -> np.ndarray:
    """Layers and 10**6 bytes of weights of each type, ``keys``, by a build's time."""
    rows = np.zeros((len(matrix.us), 2 * len(keys)))
    sums = matrix.counts @ matrix.besides / matrix.us[:, None]
    first = len(matrix.keys) - len(matrix.excess_keys)
    for place, key in enumerate(matrix.excess_keys, start=first):
        times, _, read_mb, _ = sums[:, WIDTH * place : WIDTH * (place + 1)].T
        column = 2 * keys.index(key)
        rows[:, column], rows[:, column + 1] = times, read_mb
    return rows
