"""Means over the places of maps become poolings; others stay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from placer.model import load_model

Save = Callable[..., Path]

GRAPH = """<ir_version: 9, opset_import: ["": 18]>
g (float[1,4,6,5] x) => (float[{shape}] out)
<int64[2] axes = {{{axes}}}> {{
  [act] a = Relu(x)
  [mean] m = ReduceMean<keepdims = {keepdims}>(a, axes)
  [last] out = {last}
}}"""
CASES = {
    "places": (("2, 3", 1, "Sigmoid(m)", "1,4,1,1"), "GlobalAveragePool"),
    "places from the end": (("-1, -2", 1, "Sigmoid(m)", "1,4,1,1"), "GlobalAveragePool"),
    "channels": (("1, 2", 1, "Sigmoid(m)", "1,1,1,5"), "ReduceMean"),
    "fewer dimensions": (("2, 3", 0, "Sigmoid(m)", "1,4"), "ReduceMean"),
    "a norm": (("2, 3", 1, "Sub(a, m)", "1,4,6,5"), "ReduceMean"),
}


@pytest.mark.parametrize(("case", "op"), CASES.values(), ids=CASES.keys())
def test_a_mean_over_the_places_of_a_map_is_a_pooling(
    save: Save, case: tuple[str, int, str, str], op: str
) -> None:
    axes, keepdims, last, shape = case
    path = save(GRAPH.format(axes=axes, keepdims=keepdims, last=last, shape=shape))
    model = load_model(path)
    assert model.graph.by_name["mean"].op == op
    note = "wrote 1 ReduceMean nodes over the places of maps as GlobalAveragePool"
    assert (note in model.notes) == (op == "GlobalAveragePool")
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 5)).astype(np.float32)
    (found,) = ReferenceEvaluator(model.proto).run(None, {"x": x})
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
