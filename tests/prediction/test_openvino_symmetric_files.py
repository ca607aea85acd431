"""Files with pairs without zero points, predicted as OpenVINO builds them."""

from pathlib import Path

import onnx
import pytest

import placer
from placer.engines.openvino.engine import OpenVinoEngine
from placer.graph.text import parse_model
from tests.prediction.test_openvino_plans import layers

RESIDUAL = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,24,4] x, float[1,24,4] z) => (float[1,24,4] out OTHER_OUTPUT)
<float s = {0.02}, int8 o = {0}, int8[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
 float[4] b = {1, 2, 3, 4}> {
  [tanh] a0 = Tanh(x)
  [q0] a1 = QuantizeLinear(a0, s, o)
  [dq0] a = DequantizeLinear(a1, s, o)
  [dq1] m = DequantizeLinear(w, s, o)
  [fc] g0 = MatMul(a, m)
  [q2] g1 = QuantizeLinear(g0, s, o)
  [dq2] g = DequantizeLinear(g1, s, o)
  [bias] c0 = Add(g, b)
  [q3] c1 = QuantizeLinear(c0, s, o)
  [dq3] c = DequantizeLinear(c1, s, o)
  [exp] r0 = Exp(z)
  [q4] r1 = QuantizeLinear(r0, s, o)
  [dq4] r = DequantizeLinear(r1, s, o)
  [sum] y = Add(OPERANDS)
  [last] out = Softmax(y)
  OTHER_READER
}
"""


@pytest.mark.parametrize(
    ("operands", "is_shared", "written"),
    [("r, c", False, "int8"), ("c, r", False, "float"), ("r, c", True, "float")],
)
def test_behind_a_pair_a_bias_is_added_to_integers_if_these_are_second_and_alone(
    operands: str, is_shared: bool, written: str, tmp_path: Path
) -> None:
    text = RESIDUAL.replace("OPERANDS", operands)
    text = text.replace("OTHER_OUTPUT", ", float[1,24,4] also" if is_shared else "")
    text = text.replace("OTHER_READER", "[other] also = Softmax(r)" if is_shared else "")
    path = tmp_path / "net.onnx"
    onnx.save(parse_model(text), path)
    predicted = placer.explain(path, pack="openvino").explanation.plan
    actual = OpenVinoEngine().compile(onnx.load(path), tmp_path).plan()
    for plan in (predicted, actual):
        (layer,) = (x for x in plan.layers if "fc" in x.nodes)
        assert set(layer.nodes) == {"fc", "bias"}
        assert [port.dtype for port in layer.outputs] == [written]
    assert {nodes for nodes, _ in layers(predicted)} == {nodes for nodes, _ in layers(actual)}
