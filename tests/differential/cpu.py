"""ONNX Runtime and OpenVINO on this machine's CPU, whose plans are those of a real session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from onnx.shape_inference import InferenceError

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.errors import InputError, RunError
from placer.learning.case import Case, Refused, loaded
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.differential.graphs import random_model
from tests.differential.net import Misfit
from tests.differential.placements import random_placement

TARGET = Target()


class CpuEngine:
    """Compares in FP32; changes of the memory layout, which nobody predicts, are left out.

    Ranges are calibrated, and the predictor knows them, since engines look at zero points: a Relu
    vanishes into one that is 0.
    """

    def __init__(self, name: str, engine: Callable[[], Engine]) -> None:
        self.name = name
        self._engine = engine()
        self._pack = load_pack(name)

    def case(self, random: Random) -> Case:
        """A random model and placement."""
        try:
            model = loaded(random_model(random, self._pack.rules))
        except InferenceError as error:  # An output of integers, drawn from a rule's test.
            raise Misfit(str(error)) from error
        return Case(model, random_placement(model, self._pack, TARGET, random))

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        """What is predicted and what the engine makes."""
        model, scheme = case.model, self._pack.manifest.scheme
        tensors = {edge.tensor for edge in case.placement.edges} - model.graph.initializers.keys()
        try:
            statistics = calibrate(model, tensors, synthetic_dataset(model, 1, 0))
        except InputError as error:  # The root of something negative, say.
            raise Refused(str(error).partition(":")[0]) from error
        ranges = statistics.ranges("minmax", scheme)
        predictor = make_predictor(model.graph, self._pack, TARGET, "float", ranges=ranges)
        candidate = Inserter(model, scheme).insert(case.placement, ranges)
        try:
            actual = self._engine.compile(candidate, Path()).plan()
        except RunError as error:
            raise Refused(str(error).partition("\n")[0]) from error
        layers = (replace(x, kind="no-op") if x.kind == "reformat" else x for x in actual.layers)
        return predictor.predict(case.placement).plan, replace(actual, layers=tuple(layers))


def onnx_runtime() -> CpuEngine:
    """ONNX Runtime's CPU provider."""
    return CpuEngine("onnxruntime", OnnxRuntimeEngine)


def openvino() -> CpuEngine:
    """OpenVINO's CPU plugin, floats in FP32."""
    return CpuEngine("openvino", OpenVinoEngine)
