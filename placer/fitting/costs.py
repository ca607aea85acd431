"""The costs of parts of layers that explain measured builds best.

Costs are not negative (Lawson & Hanson 1974). A kind of part that few builds have, or that makes
little of them, is drawn towards the kind that it resembles (ridge), and equations that fit badly
count less (Huber 1964). From how many weights on layers take more is what explains the builds best
by costs of the networks with the fewest weights; then costs are fitted to all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_array

from placer.common.blas import one_blas_thread
from placer.fitting.builds import WIDTH, Network
from placer.fitting.equations import System
from placer.fitting.layer_matrix import LayerMatrix, layer_matrix
from placer.fitting.many_weights import fitted_many_weights_mb, lightest
from placer.prediction.times.costs import Cost, CostTable
from placer.prediction.times.layer_parts import (
    EVERY_KIND,
    MANY_WEIGHTS,
    CostKey,
    ancestors,
)

_RIDGE = 0.3  # Equations that being like its ancestor counts for.
# Share of a build's time that a kind would be off for taking twice what its ancestor would.
# Without it, a kind with little work is fitted to the noise of large builds, and off by orders of
# magnitude in a network that has much of it.
_TWICE = 0.03
_OUTLIER = 0.12  # Error from which an equation counts less, as a share of the build's time.
_ROUNDS = 3


@one_blas_thread()
def fit_costs(networks: Sequence[Network]) -> CostTable:
    """The costs of all kinds of parts in ``networks``, and of the kinds that these resemble."""
    light = _fitted(lightest(networks), None)
    return _fitted(networks, fitted_many_weights_mb(networks, light))


def _fitted(networks: Sequence[Network], many_weights_mb: float | None) -> CostTable:
    """``many_weights_mb``: from how many 10**6 bytes of weights on layers take more."""
    system = System.of(networks, many_weights_mb)
    solved: dict[CostKey, np.ndarray] = {}
    for level in _levels(system.keys):
        _solve(level, system, solved)
    counts = Counter(
        key
        for network in networks
        for kinds in _kinds_of_builds(layer_matrix(network), many_weights_mb)
        for key in _with_ancestors(kinds)
    )
    scale = _scale(system, solved)
    most = _most(networks)
    costs = (
        _cost(key, scale * figures, counts[key], most.get(key))
        for key, figures in sorted(solved.items())
    )
    return CostTable(costs, many_weights_mb)


def _most(networks: Sequence[Network]) -> dict[CostKey, tuple[float, float, float]]:
    """The most operations, megabytes read and written of parts of each kind and its ancestors."""
    most: dict[CostKey, tuple[float, float, float]] = {}
    for network in networks:
        for key, own in layer_matrix(network).most.items():
            for kind in (key, *ancestors(key), EVERY_KIND):
                mops, read_mb, written_mb = map(max, own, most.get(kind, own))
                most[kind] = mops, read_mb, written_mb
    return most


def _scale(system: System, solved: Mapping[CostKey, np.ndarray]) -> float:
    """What estimates are multiplied by to fit the builds of the median network.

    Ratios say nothing of it, and layers and outliers leave sums a little too small.
    """
    shares = system.columns @ np.concatenate([np.zeros(0), *(solved[key] for key in system.keys)])
    ratios = []
    for builds in system.builds:
        own = shares[builds]
        ratios.append(np.median(1 / own[own > 0]) if (own > 0).any() else 1.0)
    return float(np.median(ratios)) if ratios else 1.0


def _kinds_of_builds(
    matrix: LayerMatrix, many_weights_mb: float | None
) -> Iterator[frozenset[CostKey]]:
    """Of each build the kinds that it has parts of."""
    beyond = matrix.beyond(many_weights_mb)
    for kinds, excess, own in zip(matrix.kinds, matrix.excess_kinds, beyond, strict=True):
        yield kinds | excess if own else kinds


def _with_ancestors(kinds: frozenset[CostKey]) -> frozenset[CostKey]:
    return kinds.union(*map(ancestors, kinds), map(_first, kinds))


def _first(key: CostKey) -> CostKey:
    """What ``key`` is solved for together with at first."""
    return CostKey(MANY_WEIGHTS, "") if key.name == MANY_WEIGHTS else EVERY_KIND


def _levels(keys: Sequence[CostKey]) -> list[dict[CostKey, CostKey]]:
    """From all kinds together to the kinds themselves: by kind, the one that stands for it.

    What layers take in networks with many weights is apart from the first.
    """
    chains = {key: (key, *ancestors(key)) for key in keys}
    longest = max(map(len, chains.values()), default=0)
    return [
        {key: _first(key) for key in keys},
        *(
            {key: chain[min(depth, len(chain) - 1)] for key, chain in chains.items()}
            for depth in reversed(range(longest))
        ),
    ]


def _solve(
    level: Mapping[CostKey, CostKey], system: System, solved: dict[CostKey, np.ndarray]
) -> None:
    """Solve for the kinds of ``level``, each drawn towards its ancestor in ``solved``."""
    kinds = sorted(set(level.values()))
    columns = system.joined(level, kinds)
    before = np.concatenate([_prior(kind, solved) for kind in kinds])
    pull = _pull(columns, before)
    solution, trust = before, np.ones(columns.shape[0])
    for _ in range(_ROUNDS):
        weights = (system.weights * trust) ** 2
        weighted = columns.multiply(weights[:, None]).tocsr()
        products = (columns.T @ weighted).toarray() + np.diag(pull)
        sums = columns.T @ (weights * system.values) + pull * before
        solution = _non_negative(products, sums)
        off = np.abs(columns @ solution - system.values) / system.scatters
        trust = np.sqrt(np.minimum(1.0, _OUTLIER / np.maximum(off, 1e-9)))
    unseen = columns.count_nonzero(axis=0) == 0  # Nothing was found of what no equation has.
    solution = np.where(unseen, before, solution)
    for index, kind in enumerate(kinds):
        solved[kind] = solution[WIDTH * index : WIDTH * (index + 1)]


def _pull(columns: csr_array, before: np.ndarray) -> np.ndarray:
    """Of each figure how much its squared distance from ``before`` counts, that of the ancestor."""
    # What a figure of 1 makes of a build's time on average, where there is some of the kind.
    share = np.abs(columns).sum(axis=0) / np.maximum(columns.count_nonzero(axis=0), 1)
    share = np.maximum(share, 1e-9)
    by_ancestor = np.repeat((share * before).reshape(-1, WIDTH).sum(axis=1), WIDTH)
    relative = np.divide(share, by_ancestor, out=np.zeros_like(share), where=by_ancestor > 0)
    # Of a kind that its ancestor says takes no time, any time is as likely.
    relative = np.minimum(relative, share / 1e-5)
    pull: np.ndarray = (_RIDGE * share) ** 2 + (_TWICE * relative) ** 2
    return pull


def _prior(kind: CostKey, solved: Mapping[CostKey, np.ndarray]) -> np.ndarray:
    near = (solved[other] for other in (kind, *ancestors(kind), _first(kind)) if other in solved)
    return next(near, np.zeros(WIDTH))


def _non_negative(products: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The solution without negative parts of the normal equations ``products x = sums``."""
    scale = np.sqrt(np.diag(products))
    root = np.linalg.cholesky(products / np.outer(scale, scale)).T
    solution: np.ndarray = nnls(root, np.linalg.solve(root.T, sums / scale))[0]
    return solution / scale


def _cost(
    key: CostKey,
    figures: np.ndarray,
    builds: int = 0,
    most: tuple[float, float, float] | None = None,
) -> Cost:
    fixed, op, read, written = (float(f"{x:.6g}") for x in figures)
    return Cost(
        name=key.name,
        dtype=key.dtype,
        fixed_us=fixed,
        us_per_mop=op,
        us_per_mb_read=read,
        us_per_mb_written=written,
        builds=builds,
        most=most,
    )
