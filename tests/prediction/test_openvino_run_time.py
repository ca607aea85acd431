"""Layers of files that compute scales at run time, predicted as OpenVINO builds them."""

from pathlib import Path

import onnx
import pytest

import placer
from placer.engines.openvino.engine import OpenVinoEngine
from placer.graph.text import parse_model
from tests.prediction.test_openvino_plans import layers

MATRICES = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,24,4] x) => (float[1,24,2] y1, float[1,24,2] y2)
<int8[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, int8[4,2] v = {8, 7, 6, 5, 4, 3, 2, 1},
 float k1 = {0.5}, float k2 = {0.25}> {
  [tanh] t = Tanh(x)
  [quantize] q, s, z = DynamicQuantizeLinear(t)
  [scale1] f1 = Mul(s, k1)
  [scale2] f2 = Mul(s, k2)
  [product1] p1 = MatMulInteger(q, w, z)
  [product2] p2 = MatMulInteger(q, v, z)
  [cast1] c1 = Cast<to = 1>(p1)
  [cast2] c2 = Cast<to = 1>(p2)
  [mul1] m1 = Mul(c1, f1)
  [mul2] m2 = Mul(c2, f2)
  [tanh1] y1 = Tanh(m1)
  [sigmoid2] y2 = Sigmoid(m2)
}
"""
MAPS = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,8,8] x) => (float[1,2,8,8] y)
<int8[2,2,1,1] w = {1, 2, 3, 4}, float k = {0.5}> {
  [quantize] q, s, z = DynamicQuantizeLinear(x)
  [scale] f = Mul(s, k)
  [product] p = ConvInteger(q, w, z)
  [cast] c = Cast<to = 1>(p)
  [mul] m = Mul(c, f)
  [relu] y = Relu(m)
}
"""


@pytest.mark.parametrize(
    ("text", "quantizing", "products"),
    [
        (MATRICES, {"quantize", "scale2"}, ["product1", "product2"]),
        (MAPS, {"quantize", "scale"}, ["product"]),
    ],
)
def test_a_scale_is_part_of_what_quantizes_and_products_write_floats(
    text: str, quantizing: set[str], products: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(parse_model(text), path)
    predicted = placer.explain(path, pack="openvino").explanation.plan
    actual = OpenVinoEngine().compile(onnx.load(path), tmp_path).plan()
    assert {nodes for nodes, _ in layers(predicted)} == {nodes for nodes, _ in layers(actual)}
    assert frozenset(quantizing) in {nodes for nodes, _ in layers(actual)}
    for plan in (predicted, actual):
        written = {x.nodes: {port.dtype for port in x.outputs} for x in plan.layers}
        assert all(written[(name,)] == {"float"} for name in products)
