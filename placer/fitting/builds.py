"""Measured builds of a network in terms of their predicted layers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placer.prediction.times.layer_parts import CostKey, Part

WIDTH = 4  # Figures of a cost: fixed, per operation, per byte read and written.

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


@dataclass(frozen=True, eq=False)
class Network:
    """The builds of one network, the float build first. ``weight``: what it counts for.

    Each is one of its own: what fits share of it is kept by identity (``layer_matrix``).
    """

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
