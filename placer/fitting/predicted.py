"""Measured builds beside what the rules predict of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.common.statistics import Ratio, paired_ratio
from placer.engines.onnxruntime_providers import parse_provider
from placer.fitting.costs import Build, Network, ProfiledLayer
from placer.fitting.records import BuildRecord, NetworkRecord
from placer.graph import Graph
from placer.plan import Plan
from placer.prediction.conversions import PredictedLayer
from placer.prediction.layer_parts import Part
from placer.prediction.plan_parts import moves_tensors, plan_parts
from placer.prediction.select import AnyPredictor
from placer.rules.pack import Pack
from placer.search.attribution import joined, measured_times, owners


@dataclass(frozen=True, eq=False)
class PredictedBuild:
    """A measured build, its predicted layers and, empty if the engine tells none, its own."""

    record: BuildRecord
    layers: tuple[PredictedLayer, ...]
    built: Plan


@dataclass(frozen=True, eq=False)
class PredictedNetwork:
    """The builds of one network. ``costs``: what a fit reads of them."""

    record: NetworkRecord
    builds: tuple[PredictedBuild, ...]
    costs: Network

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Of each build to the float build."""
        seconds = self.record.seconds
        return tuple(paired_ratio(column, seconds[:, 0]) for column in seconds.T)

    @property
    def noise(self) -> float:
        """How far the ratio of the float model to a copy of itself is from 1."""
        both = np.column_stack([self.record.copy_seconds, self.record.seconds[:, 0]])
        copy, base = _uninterrupted(both)
        return abs(float(np.log(copy / base)))


def _uninterrupted(seconds: np.ndarray) -> np.ndarray:
    """What each column takes in the best of its rounds.

    What else a machine does only adds, in CPU time, too, by what it leaves of the caches: two
    copies of a model differed by 0.6 and 0.7% (medians) where each one's best round counted, on
    busy cores with ONNX Runtime and OpenVINO, and by 1.5 and 2.2% by medians of paired ratios.
    """
    best: np.ndarray = seconds.min(axis=0)
    return best


def counts_moves(pack: Pack, engine_options: Mapping[str, str]) -> bool:
    """Whether costs count what is moved between memory layouts; see ``plan_parts``.

    ONNX Runtime's optimizers move tensors for its CPU provider's kernels alone, and other
    providers share its ``pack``.
    """
    if not moves_tensors(pack):
        return False
    return parse_provider(engine_options.get("provider", "CPU")) is None


def predict(
    record: NetworkRecord, graph: Graph, predictor: AnyPredictor, moves: bool, weight: float = 1.0
) -> PredictedNetwork:
    """What ``predictor`` says of the builds of ``record``, whose network is ``graph``.

    ``moves``: see ``plan_parts`` and ``counts_moves``. ``weight``: what it counts for in a fit.
    """
    builds = []
    for build in record.builds:
        layers = predictor.predict(build.placement).layers
        builds.append(PredictedBuild(build, layers, build.plan))
    us = 1e6 * _uninterrupted(record.seconds)
    costs = Network(
        record.network,
        tuple(
            _costs(build, time, graph, moves)
            for build, time in zip(builds, us.tolist(), strict=True)
        ),
        weight,
    )
    return PredictedNetwork(record, tuple(builds), costs)


def _costs(build: PredictedBuild, us: float, graph: Graph, moves: bool) -> Build:
    parts = plan_parts(build.layers, graph, moves)
    everything = tuple(part for own in parts for part in own)
    return Build(build.record.label, us, everything, tuple(_profiled(build, parts)))


def _profiled(build: PredictedBuild, parts: Sequence[tuple[Part, ...]]) -> Iterator[ProfiledLayer]:
    """The predicted layers with the times of the built ones that stand for them.

    Those that the engine built as one are one, for nothing tells how they share its time: ONNX
    Runtime sums residuals in a float Conv. One that it does without has no time, which whole builds
    tell better.
    """
    times = measured_times(build.layers, build.built) if build.built.layers else []
    if not times:
        return
    built = Counter(owners(build.layers, build.built))
    for together in joined(build.layers, build.built):
        own = tuple(part for index in together for part in parts[index])
        count = sum(built[index] for index in together)
        if own and count:
            yield ProfiledLayer(own, sum(times[index] for index in together), count)
