"""Measured builds beside what the rules predict of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.common.statistics import Ratio, paired_ratio
from placer.engines.onnxruntime.providers import parse_provider
from placer.fitting.builds import Build, Network, ProfiledLayer
from placer.fitting.records import BuildRecord, NetworkRecord
from placer.fitting.round_times import RoundTimes, build_seconds, copies_differ, steadier
from placer.graph import Graph
from placer.plan import Plan
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.select import AnyPredictor
from placer.prediction.times.layer_parts import Part
from placer.prediction.times.plan_parts import plan_parts
from placer.rules.pack import Pack
from placer.search.models.attribution import joined, measured_times, owners


@dataclass(frozen=True, eq=False)
class PredictedBuild:
    """A measured build, its predicted layers and, empty if the engine tells none, its own."""

    record: BuildRecord
    layers: tuple[PredictedLayer, ...]
    built: Plan


@dataclass(frozen=True, eq=False)
class PredictedNetwork:
    """The builds of one network. ``costs``: what a fit reads of them, ``timed`` by this rule."""

    record: NetworkRecord
    builds: tuple[PredictedBuild, ...]
    costs: Network
    timed: RoundTimes = "best round"

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Of each build to the float build."""
        seconds = self.record.seconds
        return tuple(paired_ratio(column, seconds[:, 0]) for column in seconds.T)

    @property
    def noise(self) -> float:
        """How far the ratio of the float model to a copy of itself is from 1."""
        return copies_differ(self.record, self.timed)


def in_steadier_times(networks: Sequence[PredictedNetwork]) -> list[PredictedNetwork]:
    """``networks`` with times by the rule under which their copies agree best."""
    how = steadier(network.record for network in networks)
    return [_timed(network, how) for network in networks]


def _timed(network: PredictedNetwork, how: RoundTimes) -> PredictedNetwork:
    times = _microseconds(network.record, how)
    both = zip(network.costs.builds, times, strict=True)
    builds = tuple(replace(build, us=us) for build, us in both)
    return replace(network, costs=replace(network.costs, builds=builds), timed=how)


def _microseconds(record: NetworkRecord, how: RoundTimes) -> list[float]:
    microseconds: list[float] = (1e6 * build_seconds(record.seconds, how)).tolist()
    return microseconds


def counts_moves(pack: Pack, engine_options: Mapping[str, str]) -> bool:
    """Whether costs count what is moved between memory layouts; see ``plan_parts``.

    ONNX Runtime's optimizers move tensors for its CPU provider's kernels alone, and other
    providers share its ``pack``.
    """
    if not pack.follows_memory_layouts:
        return False
    return parse_provider(engine_options.get("provider", "CPU")) is None


def predict(
    record: NetworkRecord, graph: Graph, predictor: AnyPredictor, moves: bool, weight: float = 1.0
) -> PredictedNetwork:
    """What ``predictor`` says of the builds of ``record``, whose network is ``graph``.

    Each takes what its best round took; see ``in_steadier_times``.

    ``moves``: see ``plan_parts`` and ``counts_moves``. ``weight``: what it counts for in a fit.
    """
    builds, parts = [], []
    for build in record.builds:
        prediction = predictor.predict(build.placement)
        builds.append(PredictedBuild(build, prediction.layers, build.plan))
        parts.append(plan_parts(prediction, graph, moves))
    times = _microseconds(record, "best round")
    costs = Network(
        record.network,
        tuple(map(_costs, builds, times, parts)),
        weight,
    )
    return PredictedNetwork(record, tuple(builds), costs)


def _costs(build: PredictedBuild, us: float, parts: Sequence[tuple[Part, ...]]) -> Build:
    return Build(build.record.label, us, tuple(parts), tuple(_profiled(build, parts)))


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
        joint = tuple(part for index in together for part in parts[index])
        count = sum(built[index] for index in together)
        if joint and count:
            yield ProfiledLayer(joint, sum(times[index] for index in together), count)
