"""Shapes that the model leaves open: ONNX Runtime computes with them in every run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.model import load_model
from placer.plan.diff import diff_plans
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import Placement, Range
from placer.quantization.placement import ScaleGroup
from placer.rules.packaging.load import load_pack

Save = Callable[..., Path]

# Keras's Dense on rows of tokens: the shape of what it reads is computed besides.
DENSE = """<ir_version: 9, opset_import: ["": 17]>
g (float[{batch},8,16] x, float[{batch},8,16] y) => (float[{batch},8,4] out)
<float[16,4] w = {{1}}, int64[2] rows = {{-1, 16}}, int64[1] four = {{4}}, int64[1] zero = {{0}},
 int64[1] two = {{2}}> {{
  [add] s = Add(x, y)
  [shape] d = Shape(s)
  [sizes] e = Slice(d, zero, two)
  [all] f = Concat<axis = 0>(e, four)
  [rows] r = Reshape(s, rows)
  [product] p = MatMul(r, w)
  [apart] out = Reshape(p, f)
}}"""


@pytest.mark.parametrize(("batch", "op"), [("N", "Add"), ("2", "QLinearAdd")])
def test_a_reader_of_an_open_shape_keeps_its_writer_in_float(
    save: Save, batch: str, op: str
) -> None:
    model = load_model(save(DENSE.format(batch=batch)), {"x": (2, 8, 16), "y": (2, 8, 16)})
    pack = load_pack("onnxruntime")
    engine = OnnxRuntimeEngine()
    graph = model.graph
    groups = [
        [edge for edge in graph.edges_of(tensor) if edge.node != "shape"]
        for tensor in ("x", "y", "s", "r", "w", "p")
    ]
    groups[2] += groups.pop(3)
    placement = Placement(frozenset(ScaleGroup(frozenset(group)) for group in groups))
    ranges = {tensor: Range(-1.0, 1.0) for tensor in ("x", "y", "s", "r", "p")}
    actual = engine.compile(
        Inserter(model, pack.manifest.scheme).insert(placement, ranges), model.base_dir
    ).plan()
    predictor = make_predictor(graph, pack, engine.target, "float", ranges=ranges)
    predicted = predictor.predict(placement).plan
    assert [layer.op for layer in actual.layers if "add" in layer.nodes] == [op]
    assert diff_plans(predicted, actual).exact.f1 == 1.0


# Views that the batch, which is open, runs through stay apart.
VIEWS = """<ir_version: 9, opset_import: ["": 17]>
g (float[{batch},24,16] x) => (float[{batch},24,4,2,2] out)
<int64[4] heads = {{0, 24, 4, 4}}, int64[5] parts = {{0, 24, 4, 2, 2}}> {{
  [heads1] h = Reshape(x, heads)
  [parts1] p = Reshape(h, parts)
  [tanh1] out = Tanh(p)
}}"""


@pytest.mark.parametrize(("batch", "layers"), [("N", 3), ("2", 2)])
def test_views_are_one_where_the_model_fixes_what_they_make(
    save: Save, batch: str, layers: int
) -> None:
    model = load_model(save(VIEWS.format(batch=batch)), {"x": (2, 24, 16)})
    engine = OnnxRuntimeEngine()
    actual = engine.compile(model.proto, model.base_dir).plan()
    predictor = make_predictor(model.graph, load_pack("onnxruntime"), engine.target, "float")
    predicted = predictor.predict(Placement(frozenset())).plan
    assert len(actual.layers) == len(predicted.layers) == layers
    assert diff_plans(predicted, actual).exact.f1 == 1.0


# A bias before a Gelu, whose product is one with it only if the model fixes its shape.
BIASED_GELU = """<ir_version: 9, opset_import: ["": 17]>
g (float[{batch},8,16] x) => (float[{batch},8,16] out)
<float[16,16] w = {{1}}, float[16] b = {{1}}, float root = {{1.4142135}}, float one = {{1}},
 float half = {{0.5}}> {{
  [product] m = MatMul(x, w)
  [bias] a = Add(m, b)
  [div] d = Div(a, root)
  [erf] e = Erf(d)
  [add] f = Add(e, one)
  [mul] g = Mul(a, f)
  [halve] h = Mul(g, half)
  [last] out = Softmax(h)
}}"""


@pytest.mark.parametrize(("batch", "op"), [("N", "BiasGelu"), ("2", "Gemm")])
def test_a_gelu_takes_the_bias_of_a_product_of_an_open_shape(
    save: Save, batch: str, op: str
) -> None:
    model = load_model(save(BIASED_GELU.format(batch=batch)), {"x": (2, 8, 16)})
    engine = OnnxRuntimeEngine()
    actual = engine.compile(model.proto, model.base_dir).plan()
    pack = load_pack("onnxruntime")
    predictor = make_predictor(model.graph, pack, engine.target, "float")
    predicted = predictor.predict(Placement(frozenset())).plan
    assert [layer.op for layer in actual.layers if "bias" in layer.nodes] == [op]
    assert diff_plans(predicted, actual).exact.f1 == 1.0
