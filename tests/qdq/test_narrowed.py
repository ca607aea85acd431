"""Files of Brevitas, which clip between Q and DQ: explained as engines build them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

from placer.engines.openvino.engine import OpenVinoEngine
from placer.engines.tensorrt.offline_builder import check_model
from placer.explaining.api import explain
from placer.graph.text import parse_model
from placer.plan import Plan
from placer.prediction.rule_tests import layer_line
from placer.qdq.narrowed import without_narrowing

Save = Callable[..., Path]


def clipped(low: int, high: int) -> str:
    """Two Convs whose inputs and weights have integers from ``low`` to ``high`` alone."""
    conv = """
      [{q}] {q} = QuantizeLinear({x}, s, z)
      [{q}_clip] {q}c = Clip({q}, low, high)
      [{q}_dq] {q}d = DequantizeLinear({q}c, s, z)
      [{w}_q] {w}q = QuantizeLinear<axis = 0>({w}, ws, wz)
      [{w}_clip] {w}c = Clip({w}q, low, high)
      [{w}_dq] {w}d = DequantizeLinear<axis = 0>({w}c, ws, wz)
      [{conv}] {y} = Conv<pads = [1, 1, 1, 1]>({q}d, {w}d)"""
    scales, zeros = ", ".join(["0.01"] * 16), ", ".join(["0"] * 16)
    return f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,16,32,32] x) => (float[1,16,32,32] out)
    <float[16,16,3,3] w1 = {{0.1}}, float[16,16,3,3] w2 = {{0.1}}, float s = {{0.05}},
     int8 z = {{0}}, float[16] ws = {{{scales}}}, int8[16] wz = {{{zeros}}},
     int8 low = {{{low}}}, int8 high = {{{high}}}> {{
      {conv.format(q="q1", x="x", w="w1", conv="conv1", y="c")}
      [relu1] r = Relu(c)
      {conv.format(q="q2", x="r", w="w2", conv="conv2", y="out")}
    }}"""


def lines(plan: Plan) -> list[str]:
    return [layer_line(layer) for layer in plan.layers]


def test_a_clip_between_q_and_dq_is_part_of_the_pair(save: Save):
    found = explain(save(clipped(-127, 127)), gpu="a100").explanation
    assert lines(found.plan) == [
        "quantize x: float -> int8",
        "conv1+relu1: int8 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]


def test_onnx_runtime_computes_in_integers_behind_clips_of_stored_weights_and_activations(
    save: Save, tmp_path: Path
):
    path = save("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,8,8] x) => (float[1,1,8,8] y)
    <int8[1,1,1,1] w = {5}, float s = {0.05}, uint8 u = {128}, int8 z = {0}, int8 low = {-127},
     int8 high = {127}> {
      q = QuantizeLinear(x, s, u) d = DequantizeLinear(q, s, u)
      n = Clip(w, low, high) v = DequantizeLinear(n, s, z)
      [conv] c = Conv(d, v)
      r = QuantizeLinear(c, s, u) y = DequantizeLinear(r, s, u)
    }""")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(path, options)
    built = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert "QLinearConv" in built
    found = explain(path, pack="onnxruntime").explanation
    assert lines(found.plan) == [
        "quantize x: float -> uint8",
        "conv: uint8 -> uint8",
        "dequantize y: uint8 -> float",
    ]


@pytest.mark.parametrize(
    ("clips", "activation", "weight", "dtype"),
    [
        ("a = Clip(q, zero, most)", "a", "w", "uint8"),
        ("n = Clip(w, low, high)", "q", "n", "float"),
        ("m = QuantizeLinear(f, s, z) n = Clip(m, low, high)", "q", "n", "float"),
    ],
    ids=["an activation", "a stored weight", "a float weight"],
)
def test_openvino_computes_in_integers_behind_clips_of_activations_alone(
    save: Save, clips: str, activation: str, weight: str, dtype: str
):
    path = save(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <int8[4,4,1,1] w = {{{", ".join("5" * 16)}}}, float[4,4,1,1] f = {{0.3}}, float s = {{0.05}},
     uint8 u = {{128}}, int8 z = {{0}}, uint8 zero = {{1}}, uint8 most = {{255}},
     int8 low = {{-127}}, int8 high = {{127}}> {{
      q = QuantizeLinear(x, s, u) {clips}
      d = DequantizeLinear({activation}, s, u) v = DequantizeLinear({weight}, s, z)
      [conv] c = Conv(d, v)
      r = QuantizeLinear(c, s, u) y = DequantizeLinear(r, s, u)
    }}""")
    built = OpenVinoEngine(base="float").compile(onnx.load(path), path.parent).plan()
    predicted = explain(path, pack="openvino").explanation.plan
    for plan in (built, predicted):
        (conv,) = (layer for layer in plan.layers if "conv" in layer.nodes)
        assert conv.input_types[0] == dtype


def test_a_clip_stays_that_a_body_reads():
    proto = parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, bool c) => (float[4] y)
        <float s = {0.1}, int8 z = {0}, int8 low = {-127}, int8 high = {127}> {
          q = QuantizeLinear(x, s, z)
          n = Clip(q, low, high)
          y = If (c) <
            then_branch = a () => (float[4] t) { t = DequantizeLinear(n, s, z) },
            else_branch = b () => (float[4] e) { e = Identity(x) }
          >
        }""")
    without_narrowing(proto.graph)
    assert [node.op_type for node in proto.graph.node] == ["QuantizeLinear", "Clip", "If"]


def test_and_so_the_builder_makes_of_four_bits(save: Save, builder: Any):
    report = check_model(builder, onnx.load(save(clipped(-7, 7))), "sm89")
    convs = [one for one in report.plan.layers if {"conv1", "conv2"} & set(one.nodes)]
    assert report.accepted
    built = [layer.input_types for layer in convs if layer.op == "correlation"]
    predicted = explain(save(clipped(-7, 7)), gpu="a100").explanation.plan.layers
    assert built == [one.input_types for one in predicted if {"conv1", "conv2"} & set(one.nodes)]
    assert built == [("int8",), ("int8",)]
