"""What measured builds say of the costs of parts of layers, as linear equations.

A build's time is a sum over its predicted layers' parts, so each build is an equation that is
linear in the costs, and so is the ratio of any two builds of one network. Layers that the engine
profiles are equations of their own, without what the profiler adds to each: they tell parts from
each other that always come together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.stats import theilslopes

from placer.fitting.builds import WIDTH, Network
from placer.fitting.layer_matrix import LayerMatrix, ProfiledBuild, layer_matrix
from placer.prediction.times.layer_parts import CostKey

# How much equations weigh: of all ratios of a network's builds, of all its builds, and of a layer,
# whose time tells what it takes in any network. Errors are shares of the build's time.
_RATIO, _TOTAL, _LAYER = 1.0, 1.0, 16.0
# What a profiler adds to a layer, in microseconds, for which layers weigh half: what changes times
# so much tells less of them. ONNX Runtime's adds 2 to 5, OpenVINO's nothing.
_HALF_US = 1.0
# Times of layers scatter in proportion to them: a layer of this share of the build counts with
# ``_LAYER``. Layers much shorter than ``_LEAST_SHARE``, or than ``_LEAST_US`` microseconds, are
# known no better: profilers count microseconds, and of short ones more is what they begin with.
_LAYER_SHARE, _LEAST_SHARE, _LEAST_US = 0.05, 0.02, 50.0
_LEAST_LEFT = 0.1  # Share of a layer's time that is left at least without the profiler's own.
# Scatter of sums over layers, as a share of the builds' times, up to which they weigh in full.
_LIKE_BUILDS = 0.05
# Share of the builds' time below which a kind is rare. What one takes is told by its layers, which
# weigh up to what they do where a profiler adds no time: else the few builds that have the kind are
# made to fit by its cost, whatever else they are off by.
_RARE = 0.03
_LEAST_BUILDS = 10  # From which the profiler's own time can be told.
# Networks whose equations are kept, of fits with and without many weights: leaving out one after
# the other, each fit needs nearly all.
_KEPT_NETWORKS = 1024


class Profiler(NamedTuple):
    """Microseconds that it adds to each built layer, and how much what it says of one weighs."""

    added_us: float
    weight: float


@dataclass(frozen=True, eq=False)
class Equations:
    """Those of one network: ``rows`` times the costs of ``keys`` are ``values``.

    All are shares of a build's time. ``rows``: shape (equations, WIDTH x keys); the first ones are
    the builds. ``weights``: of each. ``scatters``: how far off each is where it fits, as a multiple
    of what whole builds are. ``kinds``: of layers the first; None of builds and their ratios.
    """

    keys: tuple[CostKey, ...]
    rows: coo_array
    values: np.ndarray
    weights: np.ndarray
    scatters: np.ndarray
    kinds: tuple[CostKey | None, ...]


@dataclass(frozen=True)
class System:
    """Equations of all networks: ``columns`` has ``WIDTH`` for each of ``keys``, most of them 0.

    ``scatters``: see ``Equations``. ``builds``: which equations are the builds of each network.
    """

    keys: tuple[CostKey, ...]
    columns: csr_array
    values: np.ndarray
    weights: np.ndarray
    scatters: np.ndarray
    builds: tuple[slice, ...]

    @staticmethod
    def of(networks: Sequence[Network], many_weights_mb: float | None) -> System:
        """``many_weights_mb``: from how many 10**6 bytes of weights on layers take more."""
        profiler = _profiler(networks)
        blocks = [_of_network(network, profiler, many_weights_mb) for network in networks]
        keys = tuple(sorted({key for block in blocks for key in block.keys}))
        place = {key: WIDTH * index for index, key in enumerate(keys)}
        starts = np.cumsum([0, *(len(block.values) for block in blocks)])
        rows, columns, data = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        for block, start in zip(blocks, starts.tolist(), strict=False):
            own = np.array([place[key] for key in block.keys], dtype=int)
            to = np.add.outer(own, np.arange(WIDTH)).ravel()
            rows.append(block.rows.row + start)
            columns.append(to[block.rows.col])
            data.append(block.rows.data)
        where = (np.concatenate(rows), np.concatenate(columns))
        shape = (int(starts[-1]), WIDTH * len(keys))
        both = zip(networks, starts.tolist(), strict=False)
        return System(
            keys,
            coo_array((np.concatenate(data), where), shape=shape).tocsr(),
            np.concatenate([np.zeros(0), *(block.values for block in blocks)]),
            np.concatenate([np.zeros(0), *_weights(blocks, _rarities(networks, profiler))]),
            np.concatenate([np.zeros(0), *(block.scatters for block in blocks)]),
            tuple(slice(start, start + len(network.builds)) for network, start in both),
        )

    def joined(self, level: Mapping[CostKey, CostKey], kinds: Sequence[CostKey]) -> csr_array:
        """The columns of ``kinds``, each the sum of those that it stands for."""
        place = {kind: WIDTH * index for index, kind in enumerate(kinds)}
        starts = np.array([place[level[key]] for key in self.keys], dtype=int)
        to = np.add.outer(starts, np.arange(WIDTH)).ravel()
        ones = (np.ones(len(to)), (np.arange(len(to)), to))
        columns: csr_array = self.columns @ csr_array(ones, shape=(len(to), WIDTH * len(kinds)))
        return columns


def _rarities(networks: Sequence[Network], profiler: Profiler) -> dict[CostKey, float]:
    """How many times as much as others the layers of each rare kind weigh."""
    shares: dict[CostKey, float] = defaultdict(float)
    for network in networks:
        for kind, share in _shares(network).items():
            shares[kind] += network.weight * share
    whole = sum(shares.values())
    most = 1 + profiler.added_us / _HALF_US
    rarities = {kind: (_RARE * whole / share) ** 0.5 for kind, share in shares.items() if share}
    return {kind: min(rarity, most) for kind, rarity in rarities.items() if rarity > 1}


@lru_cache(maxsize=_KEPT_NETWORKS)
def _shares(network: Network) -> dict[CostKey, float]:
    """Of each kind the mean share of the builds that profiled layers take which begin with it."""
    matrix = layer_matrix(network)
    shares: dict[CostKey, float] = defaultdict(float)
    for build, us in zip(matrix.profiled, matrix.us.tolist(), strict=True):
        for row, own_us in zip(build.rows.tolist(), build.us.tolist(), strict=True):
            shares[matrix.layers[row][0].key] += own_us / us / len(matrix.us)
    return shares


def _weights(
    blocks: Iterable[Equations], rarities: Mapping[CostKey, float]
) -> Iterator[np.ndarray]:
    for block in blocks:
        more = [1.0 if kind is None else rarities.get(kind, 1.0) for kind in block.kinds]
        yield block.weights * more


@lru_cache(maxsize=2 * _KEPT_NETWORKS)
def _of_network(network: Network, profiler: Profiler, many_weights_mb: float | None) -> Equations:
    matrix = layer_matrix(network)
    beyond = matrix.beyond(many_weights_mb)
    count = len(network.builds)
    share = (network.weight / count) ** 0.5
    ratio_share = share * (2 / max(count - 1, 1)) ** 0.5
    sums = matrix.counts @ matrix.amounts + beyond[:, None] * (matrix.counts @ matrix.besides)
    sums = sums / matrix.us[:, None]
    one, other = np.triu_indices(count, 1)
    pairs = len(one)
    layers = _of_layers(matrix, profiler, network.weight, beyond)
    rows = np.concatenate([sums, sums[one] - sums[other], layers.rows])
    known = len(matrix.keys) if beyond.any() else len(matrix.keys) - len(matrix.excess_keys)
    return Equations(
        matrix.keys[:known],
        coo_array(rows[:, : WIDTH * known]),
        np.concatenate([np.ones(count), np.zeros(pairs), layers.values]),
        np.concatenate(
            [np.full(count, _TOTAL * share), np.full(pairs, _RATIO * ratio_share), layers.weights]
        ),
        np.concatenate([np.ones(count + pairs), layers.scatters]),
        (*(None,) * (count + pairs), *layers.kinds),
    )


class _Layers(NamedTuple):
    """Equations of layers; ``rows``: shape (equations, WIDTH x keys)."""

    rows: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    scatters: np.ndarray
    kinds: tuple[CostKey, ...]


def _of_layers(
    matrix: LayerMatrix, profiler: Profiler, weight: float, beyond: np.ndarray
) -> _Layers:
    """Layers as the profiler tells them, without its own time; equal ones are one."""
    base_us = float(matrix.us[0])
    each = [
        _profiled(build, us, profiler.added_us) / base_us
        for build, us in zip(matrix.profiled, matrix.us.tolist(), strict=True)
    ]
    layers = np.concatenate([build.rows for build in matrix.profiled])
    times = np.concatenate(each)
    excesses = np.repeat(beyond, [len(build.rows) for build in matrix.profiled])
    # A profile of zeros alone, as of layers below a profiler's resolution, tells nothing.
    told = np.concatenate([np.full(len(us), us.any()) for us in each])
    layers, times, excesses = layers[told], times[told], excesses[told]
    order = np.lexsort((times, excesses, layers))
    layers, excesses, times = layers[order], excesses[order], times[order]
    new = np.ones(len(layers), bool)
    new[1:] = (layers[1:] != layers[:-1]) | (excesses[1:] != excesses[:-1])
    starts = np.flatnonzero(new)
    often = np.diff([*starts.tolist(), len(layers)])
    middle = (times[starts + (often - 1) // 2] + times[starts + often // 2]) / 2
    layers, excesses = layers[starts], excesses[starts]
    rows = (matrix.amounts[layers] + excesses[:, None] * matrix.besides[layers]) / base_us
    scatters = (middle + _LEAST_SHARE + _LEAST_US / base_us) / _LAYER_SHARE
    count = weight * often / len(matrix.us)
    weights = profiler.weight / scatters * count**0.5
    kinds = tuple(matrix.layers[layer][0].key for layer in layers.tolist())
    return _Layers(rows, middle, weights, scatters, kinds)


def _profiled(build: ProfiledBuild, build_us: float, added_us: float) -> np.ndarray:
    """Microseconds of the layers without the profiler's own each, scaled to the build's own time.

    That is what they take longer together than the build does unprofiled, shared evenly, up to
    twice ``added_us``: beyond that, and where they take less, the machine was busier or less so.
    """
    longer = build.us.sum() - build_us
    own_us = min(max(longer / max(build.built.sum(), 1), 0.0), 2 * added_us)
    layers = np.maximum(build.us - build.built * own_us, _LEAST_LEFT * build.us)
    total = layers.sum()
    scaled: np.ndarray = layers / total * build_us if total else layers
    return scaled


def _profiler(networks: Sequence[Network]) -> Profiler:
    """What the profiler is like, told by how its sums compare with unprofiled builds.

    What layers take longer together than the build does unprofiled is a share of its time, as on a
    machine that is busier by then, and the same for each layer: the slope over the number of
    layers for each microsecond (Theil 1950, Sen 1968).
    """
    matrices = map(layer_matrix, networks)
    builds = [
        (build.built.sum() / us, build.us.sum() / us)
        for matrix in matrices
        for build, us in zip(matrix.profiled, matrix.us.tolist(), strict=True)
        if len(build.rows)
    ]
    layers, sums = np.array(builds).reshape(-1, 2).T
    if len(set(layers)) < _LEAST_BUILDS:
        return Profiler(0.0, _LAYER)
    slope = max(0.0, float(theilslopes(sums, layers).slope))
    left = sums - slope * layers
    middle = max(float(np.median(left)), 1e-9)
    scatter = max(float(np.median(np.abs(left / middle - 1))), 1e-9)
    trust = min(1.0, _LIKE_BUILDS / scatter) ** 0.5
    # Rounded, so that equations are the same with a network more or less.
    added_us = round(slope, 1)
    share = _HALF_US / (_HALF_US + added_us)
    return Profiler(added_us, max(round(trust, 1), 0.1) * share * _LAYER)
