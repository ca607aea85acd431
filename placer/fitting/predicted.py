"""Measured builds beside what the rules predict of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placer.common.statistics import Ratio, paired_ratio
from placer.engines.onnxruntime_providers import parse_provider
from placer.fitting.costs import Build, Network
from placer.fitting.records import BuildRecord, NetworkRecord
from placer.graph import Graph
from placer.plan import Plan
from placer.prediction.conversions import PredictedLayer
from placer.prediction.layer_parts import Part
from placer.prediction.plan_parts import moves_tensors, plan_parts
from placer.prediction.select import AnyPredictor
from placer.rules.pack import Pack
from placer.search.layer_signatures import measured_times


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
        """How far the median ratio of the float model to a copy of itself is from 1."""
        copy = np.array(self.record.copy_seconds)
        return abs(float(np.log(np.median(copy / self.record.seconds[:, 0]))))


def counts_moves(pack: Pack, engine_options: Mapping[str, str]) -> bool:
    """Whether costs count what is moved between memory layouts; see ``plan_parts``.

    ONNX Runtime's optimizers move tensors for its CPU provider's kernels alone, and other
    providers share its ``pack``.
    """
    if not moves_tensors(pack):
        return False
    return parse_provider(engine_options.get("provider", "CPU")) is None


def predict(
    record: NetworkRecord, graph: Graph, predictor: AnyPredictor, moves: bool
) -> PredictedNetwork:
    """What ``predictor`` says of the builds of ``record``, whose network is ``graph``.

    ``moves``: see ``plan_parts`` and ``counts_moves``.
    """
    builds = []
    for build in record.builds:
        layers = predictor.predict(build.placement).layers
        builds.append(PredictedBuild(build, layers, build.plan))
    base_us = 1e6 * float(np.median(record.builds[0].seconds))
    seconds = record.seconds
    # Builds of one round ran back to back, so ratios say more than medians of each.
    us = [base_us * float(np.median(column / seconds[:, 0])) for column in seconds.T]
    costs = Network(
        record.network,
        tuple(_costs(build, time, graph, moves) for build, time in zip(builds, us, strict=True)),
    )
    return PredictedNetwork(record, tuple(builds), costs)


def _costs(build: PredictedBuild, us: float, graph: Graph, moves: bool) -> Build:
    parts = plan_parts(build.layers, graph, moves)
    times = measured_times(build.layers, build.built) if build.built.layers else []
    layers: tuple[tuple[tuple[Part, ...], float], ...] = ()
    if times:
        # A layer that the engine does without has no time, which whole builds tell better.
        layers = tuple((own, time) for own, time in zip(parts, times, strict=True) if own)
    everything = tuple(part for own in parts for part in own)
    return Build(build.record.label, us, everything, layers)
