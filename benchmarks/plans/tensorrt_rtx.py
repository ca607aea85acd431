"""How well the tensorrt-rtx pack predicts the layers that TensorRT-RTX's builder makes.

Each network in FP16, with the default placement of the tensorrt pack, which says most about INT8,
and with random layouts at every group of its sites. Every candidate is built by NVIDIA's builder,
which needs no GPU; see fidelity.py. Every layer on both sides counts. Strict: the same nodes and
the same output types.

    python -m benchmarks.plans.tensorrt_rtx --json rtx.json --keep built/
    python -m benchmarks.plans.tensorrt_rtx --networks unseen     # four of other families
    python -m benchmarks.plans.tensorrt_rtx --model network.onnx  # one of your own
    python -m benchmarks.plans.tensorrt_rtx --networks held-out   # of further families
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.networks.sets import fixed
from benchmarks.plans.fidelity import Candidate, Counts, main
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.errors import RunError
from placer.graph import Graph
from placer.model import Model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import EMPTY, Placement, Scheme
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from placer.search.space import build_space

GPU, TARGET = "sm89", Target(compute_capability="8.9", typing="strong")


class CalibratedNetwork:
    """A model with ranges of all tensors, calibrated on random data.

    As in real models, no two ranges are alike by chance.
    """

    def __init__(self, model: Model, scheme: Scheme) -> None:
        tensors = {e.tensor for edges in model.graph.consumers.values() for e in edges}
        tensors -= model.graph.initializers.keys()
        floats = {tensor for tensor in tensors if model.graph.type_of(tensor).is_float}
        samples = synthetic_dataset(model, 1, 0)
        self._ranges = calibrate(model, floats, samples).ranges("minmax", scheme)
        self._inserter = Inserter(model, scheme)

    def build(self, placement: Placement) -> Plan:
        """The builder's layers. Raises RunError if it refuses."""
        mixed = MixedPrecision.of(self._inserter, "float16", "keep", self._ranges, placement.edges)
        report = check_model(import_builder(), mixed.insert(placement), GPU)
        if not report.accepted:
            raise RunError(str(report.refusals[0]))
        return report.plan


class RtxEngine:
    """NVIDIA's builder for a named GPU."""

    default_pack = "tensorrt-rtx"
    title = "the layers of TensorRT-RTX's builder"
    default_set = "fitted"
    default_placements = 9
    enters_bodies = False

    def version(self) -> str:
        """The builder's."""
        return import_builder().title

    def understood(self, plan: Plan) -> Plan:
        """The plan with the types of its layers."""
        return replace(plan, layers=tuple(typed_layers(plan.layers)))

    def candidates(self, model: Model, options: argparse.Namespace) -> Iterator[Candidate]:
        """FP16, the tensorrt pack's default, and random ones."""
        model = fixed(model)
        network = CalibratedNetwork(model, load_pack("tensorrt").manifest.scheme)
        predictor = make_predictor(model.graph, load_pack(options.pack), TARGET, "float16")

        def predicted(placement: Placement) -> Plan:
            return predictor.predict(placement).plan

        for what, placement in _placements(model, options.placements, options.seed):
            kind = "INT8" if placement.edges else "FP16"
            yield Candidate(what, placement, predicted, network.build, kind)

    def count(self, _graph: Graph, predicted: Plan, actual: Plan) -> Counts:
        """Compare two plans; copies count as conversions."""
        diff = diff_plans(predicted, actual)
        return Counts(
            plans=1,
            predicted=diff.exact.predicted,
            actual=diff.exact.actual,
            by_nodes=diff.by_nodes.matched,
            exact=diff.exact.matched,
            predicted_conversions=sum(entry.predicted for entry in diff.conversions),
            actual_conversions=sum(entry.actual for entry in diff.conversions),
            false_conversions=diff.false_conversions,
            missed_conversions=diff.missed_conversions,
        )


def _placements(model: Model, count: int, seed: int) -> Iterator[tuple[str, Placement]]:
    sites = find_sites(model.graph, load_pack("tensorrt").rules, TARGET)
    yield "fp16", EMPTY
    yield "default", place(sites, {})
    space, rng = build_space(model.graph, sites), np.random.default_rng(seed)
    for number in range(count):
        choices = {g.name: g.layouts[int(rng.integers(len(g.layouts)))] for g in space.groups}
        yield f"random {number}", space.placement(choices)


if __name__ == "__main__":
    main(RtxEngine(), __doc__)
