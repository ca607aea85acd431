"""Which float Convs take a residual Add along on ONNX Runtime: predicted as it is built."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph.text import parse_model
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,C,8,8] x) => (float[1,C,8,8] out)
<float[C,C,1,1] w = {0.1}, float[C] b = {0.5}, float[C,C,1,1] v = {0.2}, float[C,H,1,1] u = {0.3},
 float[H,C,1,1] k = {0.3}> {
  [conv0] c0 = Conv(x, w, b)
  [act0] a0 = Relu(c0)
  BODY
  [conv1] c1 = Conv(r, v, b)
  [add] s = Add(c1, r)
  [act] out = Relu(s)
}
"""
SUMS = "[conv2] c2 = Conv(a0, w, b) [add2] s2 = Add(c2, a0) [act2] r = Relu(s2)"
GELU = "[erf] e = Erf(a0) [mul] m = Mul(a0, e) [conv2] c2 = Conv(m, w, b) [add2] r = Add(c2, m)"
JOINED = "[half] h1 = Conv(a0, k) [more] h2 = Conv(c0, k) [cat] r = Concat<axis = 1>(h1, h2)"
GATED = (
    "[pool] p = GlobalAveragePool(a0) [squeeze] q = Conv(p, w, b) [gate] g2 = Sigmoid(q) "
    "[mul] r = Mul(a0, g2)"
)


def computed(plan: Plan) -> Counter[frozenset[str]]:
    return Counter(frozenset(layer.nodes) for layer in plan.of_kind("compute"))


@pytest.mark.parametrize("channels", [32, 24, 22])
@pytest.mark.parametrize(
    "body", [SUMS, GELU, JOINED, GATED], ids=["sums", "a Gelu", "a Concat", "a gate"]
)
def test_residual_adds_are_predicted_as_they_are_built(tmp_path: Path, body: str, channels: int):
    text = TEXT.replace("BODY", body).replace("C,", f"{channels},").replace("[C]", f"[{channels}]")
    text = text.replace("H", str(channels // 2))
    path = tmp_path / "net.onnx"
    onnx.save(parse_model(text), path)
    model = load_model(path)
    predictor = make_predictor(model.graph, load_pack("onnxruntime"), Target(), "float")
    built = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    assert computed(predictor.predict(EMPTY).plan) == computed(built)
