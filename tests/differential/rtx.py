"""NVIDIA's builder, TensorRT-RTX, which builds for a GPU that is not there."""

from __future__ import annotations

from random import Random

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.plan import Plan
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.differential.case import Case, Refused, loaded
from tests.differential.graphs import random_model
from tests.differential.placements import random_placement

GPU, TARGET = "sm89", Target(compute_capability="8.9", typing="strong")


class RtxEngine:
    """Float tensors are FP16, inputs and outputs of the graph stay FP32; ranges are calibrated.

    Ranges that are all alike would let the builder take copies for one that are not.
    """

    name = "tensorrt-rtx"

    def __init__(self) -> None:
        self._library = import_builder()
        self._pack = load_pack("tensorrt-rtx")
        # Of the pack that says most about INT8: a rule that keeps a node float is not taken on
        # trust.
        self._sites = load_pack("tensorrt")

    def case(self, random: Random) -> Case:
        """A random model and placement."""
        model = loaded(random_model(random, self._sites.rules))
        return Case(model, random_placement(model, self._sites, TARGET, random))

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        """What is predicted and what NVIDIA's builder makes."""
        predictor = make_predictor(case.model.graph, self._pack, TARGET, "float16")
        predicted = predictor.predict(case.placement).plan
        scheme = self._pack.manifest.scheme
        tensors = {e.tensor for e in case.placement.edges} - case.model.graph.initializers.keys()
        statistics = calibrate(case.model, tensors, synthetic_dataset(case.model, 1, 0))
        ranges = statistics.ranges("minmax", scheme)
        inserter = Inserter(case.model, scheme)
        mixed = MixedPrecision.of(inserter, "float16", "keep", ranges, case.placement.edges)
        report = check_model(self._library, mixed.insert(case.placement), GPU)
        if not report.accepted:
            raise Refused(report.refusals[0] if report.refusals else "refused without a reason")
        return predicted, Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)
