"""The plans of a case: what a pack predicts, and what NVIDIA's builder makes of it."""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.errors import RunError
from placer.learning.case import Case, Refused
from placer.plan import Plan
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.bases import Base
from placer.qdq.mixed_precision import MixedPrecision
from placer.rules.pack import Pack
from placer.rules.target import Target

BASE: Base = "float16"


class BuilderPlans:
    """Float tensors are FP16, inputs and outputs of the graph stay FP32; ranges are calibrated.

    Ranges that are all alike would let the builder take copies for one that are not.

    ``build``: the layers that the builder logs of a model; RunError where it refuses the model.
    """

    def __init__(self, pack: Pack, target: Target, build: Callable[[ModelProto], Plan]) -> None:
        self.pack, self._target, self._build = pack, target, build
        self._built: dict[str, Plan] = {}

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        """What is predicted and what is built. Raises Refused if the builder refuses the case."""
        return self.predicted(case, self.pack), self.built(case)

    def predicted(self, case: Case, pack: Pack) -> Plan:
        """The plan that ``pack`` predicts."""
        predictor = make_predictor(case.model.graph, pack, self._target, BASE)
        return predictor.predict(case.placement).plan

    def built(self, case: Case) -> Plan:
        """What the builder makes, asked once. Raises Refused."""
        known = self._built.get(case.id)
        if known is None:
            try:
                plan = self._build(self._candidate(case))
            except RunError as error:
                raise Refused(str(error)) from error
            known = Plan(tuple(typed_layers(plan.layers)), plan.source)
            self._built[case.id] = known
        return known

    def _candidate(self, case: Case) -> ModelProto:
        scheme = self.pack.manifest.scheme
        tensors = {e.tensor for e in case.placement.edges} - case.model.graph.initializers.keys()
        statistics = calibrate(case.model, tensors, synthetic_dataset(case.model, 1, 0))
        ranges = statistics.ranges("minmax", scheme)
        inserter = Inserter(case.model, scheme)
        mixed = MixedPrecision.of(inserter, BASE, "keep", ranges, case.placement.edges)
        return mixed.insert(case.placement)
