"""Several pairs of one tensor, beside each other or in a row, held against ONNX Runtime."""

from pathlib import Path

import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.explaining.api import explain
from placer.graph.text import parse_model
from placer.plan import Plan
from tests.prediction.test_onnxruntime_plans import varied

HEAD = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float s = {0.05}, TYPE z = {ZERO}, float t = {SCALE}, TYPE u = {SECOND},
 int8[4,4,1,1] w = {VALUES},
 float ws = {0.01}, int8 wz = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [first] c = Conv(d, v)
""".replace("VALUES", ", ".join(["3"] * 16))
BESIDE = """
  o = QuantizeLinear(c, s, z)
  e = DequantizeLinear(o, s, z)
  p = QuantizeLinear(c, PAIR)
  f = DequantizeLinear(p, PAIR)
  [second] h = Conv(e, v)
  [add] y = Add(h, f)
}
"""
IN_A_ROW = """
  [relu] r = Relu(c)
  o = QuantizeLinear(r, s, z)
  e = DequantizeLinear(o, s, z)
  p = QuantizeLinear(e, t, u)
  f = DequantizeLinear(p, t, u)
  [second] y = Conv(f, v)
}
"""
MOVED = """
  o = QuantizeLinear(c, s, z)
  e = DequantizeLinear(o, s, z)
  [mover] p = MOVER
  [second] f = Conv(p, v)
  h = QuantizeLinear(f, t, u)
  k = DequantizeLinear(h, t, u)
  [other] y = Conv(e, v)
  [end] l = ReduceMax(k)
}
"""


def written(node: str, text: str, tmp_path: Path) -> tuple[str, str]:
    """What ``node`` writes, as built and as predicted."""
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(text)), path)
    predicted = explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    found = [one for plan in (built, predicted) for one in _writes(node, plan)]
    assert len(found) == 2
    return found[0], found[1]


def _writes(node: str, plan: Plan) -> list[str]:
    return [one.output_types[0] for one in plan.of_kind("compute") if node in one.nodes]


@pytest.mark.parametrize(
    ("dtype", "pair", "expected"),
    [
        ("uint8", "s, z", "uint8"),
        ("uint8", "t, z", "uint8"),
        ("uint8", "s, u", "float"),
        ("int8", "t, z", "float"),  # One Q of two readers stays int8, which this Conv can't write.
        ("int8", "s, u", "float"),
    ],
)
def test_equal_pairs_are_one_if_they_share_the_zero_point(dtype, pair, expected, tmp_path):
    text = (HEAD + BESIDE).replace("PAIR", pair).replace("TYPE", dtype).replace("SCALE", "0.05")
    text = text.replace("ZERO", "3").replace("SECOND", "3")
    assert written("first", text, tmp_path) == (expected, expected)


@pytest.mark.parametrize(
    ("zero", "second", "expected"),
    [("0", "10", "uint8"), ("128", "0", "uint8"), ("10", "128", "float")],
)
def test_pairs_in_a_row_are_one_of_what_both_represent(zero, second, expected, tmp_path):
    """So a Relu is part of the Conv where either of them starts at 0."""
    text = (HEAD + IN_A_ROW).replace("TYPE", "uint8").replace("SCALE", "0.02")
    text = text.replace("ZERO", zero).replace("SECOND", second)
    assert written("first", text, tmp_path) == (expected, expected)


@pytest.mark.parametrize(
    "mover", ["MaxPool <kernel_shape = [2, 2]> (e)", "Reshape <allowzero = 0> (e, shape)"]
)
def test_a_pair_of_int8_that_moved_past_a_pool_or_a_reshape_is_converted(mover, tmp_path):
    """One Q that two nodes read stays int8; the pair behind ``mover`` is new, and so uint8."""
    text = (HEAD + MOVED).replace("MOVER", mover).replace("TYPE", "int8").replace("SCALE", "0.02")
    text = text.replace("ZERO", "3").replace("SECOND", "3")
    text = text.replace("int8 wz = {0}>", "int8 wz = {0}, int64[4] shape = {1, 4, 16, 4}>")
    text = text.replace("[1,4,8,8] y)", "[1,4,8,8] y, float[1,1,1,1] l)")
    assert written("second", text, tmp_path) == ("uint8", "uint8")
    assert written("mover", text, tmp_path) == ("float", "float")
