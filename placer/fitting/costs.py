"""The costs of parts of layers that explain measured builds best.

A build's time is a sum over its predicted layers' parts, so each build is an equation that is
linear in the costs, and so is the ratio of any two builds of one network. Layers that the engine
profiles are equations of their own, without what the profiler adds to each: they tell parts from
each other that always come together.

Costs are not negative (Lawson & Hanson 1974). A kind of part that few builds have, or that makes
little of them, is drawn towards the kind that it resembles (ridge), and equations that fit badly
count less (Huber 1964).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.stats import theilslopes

from placer.common.blas import one_blas_thread
from placer.prediction.times.fitted import Cost
from placer.prediction.times.layer_parts import EVERY_KIND, CostKey, Part, ancestors

WIDTH = 4  # Figures of a cost: fixed, per operation, per byte read and written.
# How much equations weigh: of all ratios of a network's builds, of all its builds, and of a layer.
# Errors are shares of the build's time.
_RATIO, _TOTAL, _LAYER = 1.0, 1.0, 1.0
_RIDGE = 0.3  # Equations that being like its ancestor counts for.
# Share of a build's time that a kind would be off for taking twice what its ancestor would.
# Without it, a kind with little work is fitted to the noise of large builds, and off by orders of
# magnitude in a network that has much of it.
_TWICE = 0.03
# Times of layers scatter in proportion to them: a layer of this share of the build counts with
# ``_LAYER``. Layers much shorter than ``_LEAST_SHARE`` are known no better, for profilers count
# microseconds.
_LAYER_SHARE, _LEAST_SHARE = 0.05, 0.02
_LEAST_LEFT = 0.1  # Share of a layer's time that is left at least without the profiler's own.
# Scatter of sums over layers, as a share of the builds' times, up to which they weigh in full.
_LIKE_BUILDS = 0.05
_LEAST_BUILDS = 10  # From which the profiler's own time can be told.
_OUTLIER = 0.06  # Error from which an equation counts less, as a share of the build's time.
_ROUNDS = 3
# Networks whose equations are kept: leaving out one after the other, each fit needs nearly all.
_KEPT_NETWORKS = 512

# By kind, shape (WIDTH,): number of parts, million operations, megabytes read and written.
Features = Mapping[CostKey, np.ndarray]


class ProfiledLayer(NamedTuple):
    """A predicted layer: its parts, what the engine's profiler says of it, in microseconds.

    ``built``: how many layers the engine built for it.
    """

    parts: tuple[Part, ...]
    us: float
    built: int = 1


@dataclass(frozen=True)
class Build:
    """A measured build in terms of its predicted layers.

    ``us``: median latency in microseconds. ``layers``: those that the engine's profiler has a time
    for.
    """

    label: str
    us: float
    parts: tuple[Part, ...]
    layers: tuple[ProfiledLayer, ...] = ()


@dataclass(frozen=True)
class Network:
    """The builds of one network, the float build first. ``weight``: what it counts for."""

    name: str
    builds: tuple[Build, ...]
    weight: float = 1.0


def features(parts: Iterable[Part]) -> Features:
    """How much there is of each kind of part."""
    values_of: dict[CostKey, np.ndarray] = {}
    for part in parts:
        values = np.array([part.times, part.mops, part.read_mb, part.written_mb])
        values_of[part.key] = values_of[part.key] + values if part.key in values_of else values
    return values_of


@one_blas_thread()
def fit_costs(networks: Sequence[Network]) -> tuple[Cost, ...]:
    """The costs of all kinds of parts in ``networks``, and of the kinds that these resemble."""
    system = _System.of(networks)
    solved: dict[CostKey, np.ndarray] = {}
    for level in _levels(system.keys):
        _solve(level, system, solved)
    counts = Counter(
        key for network in networks for build in network.builds for key in _with_ancestors(build)
    )
    scale = _scale(networks, solved)
    return tuple(
        _cost(key, scale * figures, counts[key]) for key, figures in sorted(solved.items())
    )


def _scale(networks: Sequence[Network], solved: Mapping[CostKey, np.ndarray]) -> float:
    """What estimates are multiplied by to fit the builds of the median network.

    Ratios say nothing of it, and layers and outliers leave sums a little too small.
    """
    ratios = []
    for network in networks:
        estimates = [
            sum(float(values @ solved[key]) for key, values in features(build.parts).items())
            for build in network.builds
        ]
        both = zip(network.builds, estimates, strict=True)
        ratios.append(np.median([build.us / us for build, us in both if us > 0] or [1.0]))
    return float(np.median(ratios)) if ratios else 1.0


def _with_ancestors(build: Build) -> Iterable[CostKey]:
    kinds = {part.key for part in build.parts}
    return kinds.union(*map(ancestors, kinds), {EVERY_KIND} if kinds else ())


def _levels(keys: Sequence[CostKey]) -> list[dict[CostKey, CostKey]]:
    """From all kinds together to the kinds themselves: by kind, the one that stands for it."""
    chains = {key: (key, *ancestors(key)) for key in keys}
    longest = max(map(len, chains.values()), default=0)
    return [
        dict.fromkeys(keys, EVERY_KIND),
        *(
            {key: chain[min(depth, len(chain) - 1)] for key, chain in chains.items()}
            for depth in reversed(range(longest))
        ),
    ]


# --- equations ------------------------------------------------------------------------------


class _Profiler(NamedTuple):
    """Microseconds that it adds to each built layer, and how much what it says of one weighs."""

    added_us: float
    weight: float


class _Equation(NamedTuple):
    """``features`` times the costs are ``value``, both as shares of the build's time."""

    features: Features
    value: float
    weight: float


@dataclass(frozen=True)
class _System:
    """Equations of all networks: ``columns`` has ``WIDTH`` for each of ``keys``."""

    keys: tuple[CostKey, ...]
    columns: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    @staticmethod
    def of(networks: Sequence[Network]) -> _System:
        profiler = _profiler(networks)
        equations = [one for network in networks for one in _equations(network, profiler)]
        keys = tuple(sorted({key for equation in equations for key in equation.features}))
        place = {key: WIDTH * index for index, key in enumerate(keys)}
        columns = np.zeros((len(equations), WIDTH * len(keys)))
        for row, equation in enumerate(equations):
            for key, values in equation.features.items():
                columns[row, place[key] : place[key] + WIDTH] = values
        values = np.array([equation.value for equation in equations])
        return _System(keys, columns, values, np.array([e.weight for e in equations]))

    def joined(self, level: Mapping[CostKey, CostKey], kinds: Sequence[CostKey]) -> np.ndarray:
        """The columns of ``kinds``, each the sum of those that it stands for."""
        place = {kind: WIDTH * index for index, kind in enumerate(kinds)}
        columns = np.zeros((len(self.values), WIDTH * len(kinds)))
        for index, key in enumerate(self.keys):
            start, column = place[level[key]], WIDTH * index
            columns[:, start : start + WIDTH] += self.columns[:, column : column + WIDTH]
        return columns


@lru_cache(maxsize=_KEPT_NETWORKS)
def _equations(network: Network, profiler: _Profiler) -> tuple[_Equation, ...]:
    count = len(network.builds)
    share = (network.weight / count) ** 0.5
    ratio_share = share * (2 / max(count - 1, 1)) ** 0.5
    shares_of = [_scaled(features(build.parts), 1 / build.us) for build in network.builds]
    builds = (_Equation(own, 1.0, _TOTAL * share) for own in shares_of)
    ratios = (
        _Equation(_difference(one, other), 0.0, _RATIO * ratio_share)
        for one, other in itertools.combinations(shares_of, 2)
    )
    return (*builds, *ratios, *_layer_equations(network, profiler))


def _layer_equations(network: Network, profiler: _Profiler) -> Iterator[_Equation]:
    """Layers as the profiler tells them, without its own time; equal ones are one."""
    base_us = network.builds[0].us
    times_of: dict[tuple[Part, ...], list[float]] = defaultdict(list)
    for build in network.builds:
        for parts, us in _profiled(build, profiler.added_us):
            times_of[parts].append(us / base_us)
    for parts, shares in times_of.items():
        value = float(np.median(shares))
        scatter = (value + _LEAST_SHARE) / _LAYER_SHARE
        often = network.weight * len(shares) / len(network.builds)
        weight = profiler.weight / scatter * often**0.5
        yield _Equation(_scaled(features(parts), 1 / base_us), value, weight)


def _profiled(build: Build, added_us: float) -> list[tuple[tuple[Part, ...], float]]:
    """The layers without ``added_us`` each, scaled to the build's own time."""
    layers = [
        (layer.parts, max(layer.us - layer.built * added_us, _LEAST_LEFT * layer.us))
        for layer in build.layers
    ]
    total = sum(us for _, us in layers)
    return [(parts, us / total * build.us) for parts, us in layers] if total else []


def _profiler(networks: Sequence[Network]) -> _Profiler:
    """What the profiler is like, told by how its sums compare with unprofiled builds.

    What layers take longer together than the build does unprofiled is a share of its time, as on a
    machine that is busier by then, and the same for each layer: the slope over the number of
    layers for each microsecond (Theil 1950, Sen 1968).
    """
    builds = [build for network in networks for build in network.builds if build.layers]
    layers = np.array([sum(layer.built for layer in b.layers) / b.us for b in builds])
    sums = np.array([sum(layer.us for layer in b.layers) / b.us for b in builds])
    if len(set(layers)) < _LEAST_BUILDS:
        return _Profiler(0.0, _LAYER)
    slope = max(0.0, float(theilslopes(sums, layers).slope))
    left = sums - slope * layers
    middle = max(float(np.median(left)), 1e-9)
    scatter = max(float(np.median(np.abs(left / middle - 1))), 1e-9)
    trust = min(1.0, _LIKE_BUILDS / scatter) ** 0.5
    # Rounded, so that equations are the same with a network more or less.
    return _Profiler(round(slope, 1), max(round(trust, 1), 0.1) * _LAYER)


def _scaled(by_kind: Features, factor: float) -> Features:
    return {key: values * factor for key, values in by_kind.items()}


def _difference(one: Features, other: Features) -> Features:
    zero = np.zeros(WIDTH)
    return {key: one.get(key, zero) - other.get(key, zero) for key in {**one, **other}}


# --- their solution -------------------------------------------------------------------------


def _solve(
    level: Mapping[CostKey, CostKey], system: _System, solved: dict[CostKey, np.ndarray]
) -> None:
    """Solve for the kinds of ``level``, each drawn towards its ancestor in ``solved``."""
    kinds = sorted(set(level.values()))
    columns = system.joined(level, kinds)
    before = np.concatenate([_prior(kind, solved) for kind in kinds])
    pull = _pull(columns, before)
    solution, trust = before, np.ones(len(columns))
    for _ in range(_ROUNDS):
        weights = (system.weights * trust) ** 2
        products = columns.T @ (columns * weights[:, None]) + np.diag(pull)
        sums = columns.T @ (weights * system.values) + pull * before
        solution = _non_negative(products, sums)
        off = np.abs(columns @ solution - system.values)
        trust = np.sqrt(np.minimum(1.0, _OUTLIER / np.maximum(off, 1e-9)))
    for index, kind in enumerate(kinds):
        solved[kind] = solution[WIDTH * index : WIDTH * (index + 1)]


def _pull(columns: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Of each figure how much its squared distance from ``before`` counts, that of the ancestor."""
    # What a figure of 1 makes of a build's time on average, where there is some of the kind.
    share = np.abs(columns).sum(axis=0) / np.maximum((columns != 0).sum(axis=0), 1)
    share = np.maximum(share, 1e-9)
    by_ancestor = np.repeat((share * before).reshape(-1, WIDTH).sum(axis=1), WIDTH)
    relative = np.divide(share, by_ancestor, out=np.zeros_like(share), where=by_ancestor > 0)
    # Of a kind that its ancestor says takes no time, any time is as likely.
    relative = np.minimum(relative, share / 1e-5)
    pull: np.ndarray = (_RIDGE * share) ** 2 + (_TWICE * relative) ** 2
    return pull


def _prior(kind: CostKey, solved: Mapping[CostKey, np.ndarray]) -> np.ndarray:
    near = (solved[other] for other in (kind, *ancestors(kind), EVERY_KIND) if other in solved)
    return next(near, np.zeros(WIDTH))


def _non_negative(products: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The solution without negative parts of the normal equations ``products x = sums``."""
    scale = np.sqrt(np.diag(products))
    root = np.linalg.cholesky(products / np.outer(scale, scale)).T
    solution: np.ndarray = nnls(root, np.linalg.solve(root.T, sums / scale))[0]
    return solution / scale


def _cost(key: CostKey, figures: np.ndarray, builds: int) -> Cost:
    fixed, op, read, written = (float(f"{x:.6g}") for x in figures)
    return Cost(
        name=key.name,
        dtype=key.dtype,
        fixed_us=fixed,
        us_per_mop=op,
        us_per_mb_read=read,
        us_per_mb_written=written,
        builds=builds,
    )
