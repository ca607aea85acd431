"""The layers of a network's builds as matrices, which fits share.

A fit reads each layer of each build tens of times: for each size from which weights may be many,
and once for each network that is left out. Builds of one network have most layers in common, so
each different one is taken apart once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from placer.fitting.builds import WIDTH, Build, Network
from placer.prediction.times.costs import CostTable, excess, excess_part, weights_mb
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part

_KEPT_NETWORKS = 1024

Parts = tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class ProfiledBuild:
    """What the profiler tells of one build: rows of the matrix, microseconds, built layers."""

    rows: np.ndarray
    us: np.ndarray
    built: np.ndarray


@dataclass(frozen=True, eq=False)
class LayerMatrix:
    """The different layers of a network, as ``layers``: what each has of each kind of part.

    ``keys``: kinds, those of what many weights take besides (``excess_keys``) behind the others.
    ``amounts``: shape (layers, WIDTH x keys), and ``besides``: what is added to it where the
    excess of the plan's weights is 1. ``counts``: how often each build's plan has each layer, shape
    (builds, layers). ``us``: of the builds. ``weights_mb``: 10**6 bytes of weights of the builds.
    ``kinds``: of each build those that its plan has parts of, ``excess_kinds`` besides where it has
    many weights. ``most``: by kind the most operations, megabytes read and written of one part.
    """

    layers: tuple[Parts, ...]
    keys: tuple[CostKey, ...]
    excess_keys: tuple[CostKey, ...]
    amounts: np.ndarray
    besides: np.ndarray
    counts: np.ndarray
    us: np.ndarray
    weights_mb: np.ndarray
    profiled: tuple[ProfiledBuild, ...]
    kinds: tuple[frozenset[CostKey], ...]
    excess_kinds: tuple[frozenset[CostKey], ...]
    most: Mapping[CostKey, tuple[float, float, float]]

    def beyond(self, many_weights_mb: float | None) -> np.ndarray:
        """How far the weights of each build are beyond ``many_weights_mb``; see ``excess``."""
        return np.array([excess(mb, many_weights_mb) for mb in self.weights_mb.tolist()])

    def estimates(self, table: CostTable) -> np.ndarray:
        """Microseconds of each build by ``table``."""
        own = np.array([table.layer_us(parts) for parts in self.layers])
        more = np.array([table.layer_us(excess_part(parts, 1.0)) for parts in self.layers])
        beyond = self.beyond(table.many_weights_mb)
        estimates: np.ndarray = self.counts @ own + beyond * (self.counts @ more)
        return estimates


@lru_cache(maxsize=_KEPT_NETWORKS)
def layer_matrix(network: Network) -> LayerMatrix:
    """The layers of all builds of ``network``."""
    place: dict[Parts, int] = {}
    plans = [[place.setdefault(p, len(place)) for p in b.plan] for b in network.builds]
    profiled = tuple(_profiled(build, place) for build in network.builds)
    layers = tuple(place)
    more = [excess_part(parts, 1.0) for parts in layers]
    own_keys, excess_keys = _keys(layers), _keys(more)
    keys = (*sorted(own_keys), *sorted(excess_keys))
    counts = np.zeros((len(plans), len(layers)))
    for row, plan in zip(counts, plans, strict=True):
        np.add.at(row, plan, 1.0)
    weights = np.array([weights_mb(parts) for parts in layers])
    return LayerMatrix(
        layers=layers,
        keys=keys,
        excess_keys=tuple(sorted(excess_keys)),
        amounts=_amounts(layers, keys),
        besides=_amounts(more, keys),
        counts=counts,
        us=np.array([build.us for build in network.builds], dtype=float),
        weights_mb=counts @ weights if layers else np.zeros(len(plans)),
        profiled=profiled,
        kinds=tuple(_kinds(plan, layers) for plan in plans),
        excess_kinds=tuple(_kinds(plan, more) for plan in plans),
        most=_most(layers[row] for row in {row for plan in plans for row in plan}),
    )


def _profiled(build: Build, place: dict[Parts, int]) -> ProfiledBuild:
    """What the profiler tells of ``build``; new layers get rows in ``place``."""
    rows = [place.setdefault(layer.parts, len(place)) for layer in build.layers]
    return ProfiledBuild(
        np.array(rows, dtype=int),
        np.array([layer.us for layer in build.layers], dtype=float),
        np.array([layer.built for layer in build.layers], dtype=float),
    )


def _keys(layers: Iterable[Parts]) -> set[CostKey]:
    return {part.key for parts in layers for part in parts if part.key != WEIGHTS}


def _amounts(layers: Sequence[Parts], keys: Sequence[CostKey]) -> np.ndarray:
    """Times, million operations, megabytes read and written, of each layer and kind."""
    place = {key: WIDTH * index for index, key in enumerate(keys)}
    amounts = np.zeros((len(layers), WIDTH * len(keys)))
    for row, parts in zip(amounts, layers, strict=True):
        for part in parts:
            if part.key != WEIGHTS:
                start = place[part.key]
                row[start : start + WIDTH] += part[1:]
    return amounts


def _kinds(plan: Sequence[int], layers: Sequence[Parts]) -> frozenset[CostKey]:
    return frozenset(_keys(layers[row] for row in set(plan)))


def _most(layers: Iterable[Parts]) -> dict[CostKey, tuple[float, float, float]]:
    most: dict[CostKey, tuple[float, float, float]] = {}
    for part in {part for parts in layers for part in parts if part.key != WEIGHTS}:
        own = part.mops, part.read_mb, part.written_mb
        mops, read_mb, written_mb = map(max, own, most.get(part.key, own))
        most[part.key] = mops, read_mb, written_mb
    return most
