"""What measured builds say of the costs of parts of layers, as linear equations.

A build's time is a sum over its predicted layers' parts, so each build is an equation that is
linear in the costs, and so is the ratio of any two builds of one network. Layers that the engine
profiles are equations of their own, without what the profiler adds to each: they tell parts from
each other that always come together.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import theilslopes

from placer.prediction.times.costs import excess_part, plan_excess
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part

WIDTH = 4  # Figures of a cost: fixed, per operation, per byte read and written.
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
_LEAST_BUILDS = 10  # From which the profiler's own time can be told.
# Networks whose equations are kept: leaving out one after the other, each fit needs nearly all.
_KEPT_NETWORKS = 1024

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

    ``us``: median latency in microseconds. ``plan``: the parts of each layer. ``layers``: those
    that the engine's profiler has a time for.
    """

    label: str
    us: float
    plan: tuple[tuple[Part, ...], ...]
    layers: tuple[ProfiledLayer, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of all layers."""
        return tuple(itertools.chain.from_iterable(self.plan))


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


class Profiler(NamedTuple):
    """Microseconds that it adds to each built layer, and how much what it says of one weighs."""

    added_us: float
    weight: float


class Equation(NamedTuple):
    """``features`` times the costs are ``value``, both as shares of the build's time.

    ``scatter``: how far off it is where it fits, as a multiple of what whole builds are.
    """

    features: Features
    value: float
    weight: float
    scatter: float = 1.0


@dataclass(frozen=True)
class System:
    """Equations of all networks: ``columns`` has ``WIDTH`` for each of ``keys``, most of them 0."""

    keys: tuple[CostKey, ...]
    columns: csr_array
    values: np.ndarray
    weights: np.ndarray
    scatters: np.ndarray

    @staticmethod
    def of(networks: Sequence[Network], many_weights_mb: float | None) -> System:
        """``many_weights_mb``: from how many 10**6 bytes of weights on layers take more."""
        profiler = _profiler(networks)
        equations = [
            one for network in networks for one in _of_network(network, profiler, many_weights_mb)
        ]
        keys = tuple(sorted({key for equation in equations for key in equation.features}))
        place = {key: WIDTH * index for index, key in enumerate(keys)}
        figures = [figure for equation in equations for figure in equation.features.values()]
        starts = [place[key] for equation in equations for key in equation.features]
        ends = np.cumsum([0, *(WIDTH * len(equation.features) for equation in equations)])
        indices = np.add.outer(np.array(starts, dtype=int), np.arange(WIDTH)).ravel()
        data = np.concatenate([np.zeros(0), *figures])
        columns = csr_array((data, indices, ends), shape=(len(equations), WIDTH * len(keys)))
        columns.eliminate_zeros()
        each = ((equation.value, equation.weight, equation.scatter) for equation in equations)
        values, weights, scatters = np.array(list(each)).reshape(-1, 3).T
        return System(keys, columns, values, weights, scatters)

    def joined(self, level: Mapping[CostKey, CostKey], kinds: Sequence[CostKey]) -> csr_array:
        """The columns of ``kinds``, each the sum of those that it stands for."""
        place = {kind: WIDTH * index for index, kind in enumerate(kinds)}
        starts = np.array([place[level[key]] for key in self.keys], dtype=int)
        to = np.add.outer(starts, np.arange(WIDTH)).ravel()
        ones = (np.ones(len(to)), (np.arange(len(to)), to))
        columns: csr_array = self.columns @ csr_array(ones, shape=(len(to), WIDTH * len(kinds)))
        return columns


def _features_of(layers: Iterable[tuple[Part, ...]], beyond: float) -> Features:
    """What layers do where their plan's excess of weights is ``beyond``."""
    each = (part for parts in layers for part in (*parts, *excess_part(parts, beyond)))
    return features(part for part in each if part.key != WEIGHTS)


@lru_cache(maxsize=_KEPT_NETWORKS)
def _of_network(
    network: Network, profiler: Profiler, many_weights_mb: float | None
) -> tuple[Equation, ...]:
    return tuple(_equations(network, profiler, many_weights_mb))


def _equations(
    network: Network, profiler: Profiler, many_weights_mb: float | None
) -> Iterator[Equation]:
    count = len(network.builds)
    share = (network.weight / count) ** 0.5
    ratio_share = share * (2 / max(count - 1, 1)) ** 0.5
    excesses = [plan_excess(build.plan, many_weights_mb) for build in network.builds]
    sums = [
        _scaled(_features_of(build.plan, beyond), 1 / build.us)
        for build, beyond in zip(network.builds, excesses, strict=True)
    ]
    for own in sums:
        yield Equation(own, 1.0, _TOTAL * share)
    for one, other in itertools.combinations(sums, 2):
        yield Equation(_difference(one, other), 0.0, _RATIO * ratio_share)
    yield from _layer_equations(network, profiler, excesses)


def _layer_equations(
    network: Network, profiler: Profiler, excesses: Sequence[float]
) -> Iterator[Equation]:
    """Layers as the profiler tells them, without its own time; equal ones are one."""
    base_us = network.builds[0].us
    times_of: dict[tuple[tuple[Part, ...], float], list[float]] = defaultdict(list)
    for build, beyond in zip(network.builds, excesses, strict=True):
        for parts, us in _profiled(build, profiler.added_us):
            times_of[parts, beyond].append(us / base_us)
    for (parts, beyond), times in times_of.items():
        own = _scaled(_features_of([parts], beyond), 1 / base_us)
        time = float(np.median(times))
        scatter = (time + _LEAST_SHARE + _LEAST_US / base_us) / _LAYER_SHARE
        often = network.weight * len(times) / len(network.builds)
        weight = profiler.weight / scatter * often**0.5
        yield Equation(own, time, weight, scatter)


def _profiled(build: Build, added_us: float) -> list[tuple[tuple[Part, ...], float]]:
    """The layers without the profiler's own time each, scaled to the build's own time.

    That is what they take longer together than the build does unprofiled, shared evenly, up to
    twice ``added_us``: beyond that, and where they take less, the machine was busier or less so.
    """
    count = sum(layer.built for layer in build.layers)
    longer = sum(layer.us for layer in build.layers) - build.us
    own_us = min(max(longer / max(count, 1), 0.0), 2 * added_us)
    layers = [
        (layer.parts, max(layer.us - layer.built * own_us, _LEAST_LEFT * layer.us))
        for layer in build.layers
    ]
    total = sum(us for _, us in layers)
    return [(parts, us / total * build.us) for parts, us in layers] if total else []


def _profiler(networks: Sequence[Network]) -> Profiler:
    """What the profiler is like, told by how its sums compare with unprofiled builds.

    What layers take longer together than the build does unprofiled is a share of its time, as on a
    machine that is busier by then, and the same for each layer: the slope over the number of
    layers for each microsecond (Theil 1950, Sen 1968).
    """
    builds = [build for network in networks for build in network.builds if build.layers]
    layers = np.array([sum(layer.built for layer in b.layers) / b.us for b in builds])
    sums = np.array([sum(layer.us for layer in b.layers) / b.us for b in builds])
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


def _scaled(own: Features, factor: float) -> Features:
    return {key: values * factor for key, values in own.items()}


def _difference(one: Features, other: Features) -> Features:
    zero = np.zeros(WIDTH)
    return {key: one.get(key, zero) - other.get(key, zero) for key in {**one, **other}}
