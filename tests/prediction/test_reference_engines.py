"""Predicted plans against real TensorRT engines of ResNet18 on an A100.

The engines are no part of this repository; see benchmarks/reference_engines.py.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from placer.graph import Graph
from placer.plan import Kind
from placer.plan.diff import diff_plans
from placer.prediction.gpus import load_gpu
from placer.prediction.roofline import Roofline, load_layer_classes

ROOT = Path(__file__).parents[2]
VARIABLE = "PLACER_REFERENCE_ENGINES"
FOLDER = Path(
    os.environ.get(VARIABLE) or ROOT.parent / "shared" / "reference-engines" / "resnet18-a100"
)
VARIANTS = ("fp16", "qat", "qat-residual", "qat-residual-qgap")
CONVERSIONS: tuple[Kind, ...] = ("quantize", "dequantize", "requantize", "reformat")

pytestmark = pytest.mark.skipif(
    not (FOLDER / "qat" / "graph.json").is_file(),
    reason=f"the reference engines are not here; set {VARIABLE} to their folder",
)


@pytest.fixture(scope="module")
def engines() -> ModuleType:
    """benchmarks/reference_engines.py, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(FOLDER))
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("reference_engines")
    for name in ("reference_engines", "topologies"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def graph(engines: ModuleType) -> Graph:
    return engines.float_graph()


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_types_and_conversions_are_those_of_the_engine(
    engines: ModuleType, graph: Graph, variant: str
):
    placement = engines.placement(graph, variant)
    predicted = engines.predictor(graph, variant).predict(placement).plan
    actual = engines.actual_plan(graph, variant)
    found = diff_plans(predicted, actual)
    assert found.splits == found.fusions == ()
    assert found.exact.f1 == found.by_class.f1 == found.by_nodes.f1 == 1.0
    assert found.exact.actual >= 20
    wrong = [abs(len(predicted.of_kind(k)) - len(actual.of_kind(k))) for k in CONVERSIONS]
    assert sum(wrong) <= 2


def test_the_estimates_order_the_placements_as_the_engines_do(engines: ModuleType, graph: Graph):
    roofline = Roofline(graph, load_gpu(engines.GPU), load_layer_classes())

    def estimate(variant: str) -> float:
        prediction = engines.predictor(graph, variant).predict(engines.placement(graph, variant))
        return sum(layer.time_us for layer in roofline.estimate(prediction).layers)

    expected = sorted(VARIANTS, key=engines.measured_ms)
    assert expected == ["qat-residual-qgap", "qat-residual", "fp16", "qat"]
    assert sorted(VARIANTS, key=estimate) == expected
