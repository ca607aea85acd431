"""Quantized TFLite models as tf2onnx writes them: channels last around each Conv."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.model import load_model
from tests.reference_outputs import outputs, sqnr

Save = Callable[..., Path]

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def integers(count: int, step: int) -> str:
    return "{" + ", ".join(str((i * step) % 255 - 127) for i in range(count)) + "}"


# Weights of TFLite's layouts, (out, height, width, in) and (1, height, width, out).
NETWORK = f"""{HEAD}
g (uint8[1,8,8,3] x) => (uint8[1,4] y)
<float xs = {{0.02}}, uint8 xz = {{128}},
 int8[4,3,3,3] w = {integers(108, 37)}, float[4] ws = {{0.001, 0.002, 0.003, 0.004}},
 int8[4] wz = {{0, 0, 0, 0}},
 int32[4] b = {{100, 200, 300, 400}}, float[4] bs = {{0.00002, 0.00004, 0.00006, 0.00008}},
 int32[4] bz = {{0, 0, 0, 0}}, float cs = {{0.0235}}, uint8 cz = {{0}},
 int8[1,3,3,4] d = {integers(36, 53)}, float[4] ds = {{0.001, 0.001, 0.002, 0.002}},
 int64[4] depthwise = {{4, 1, 3, 3}},
 float es = {{0.05}}, int8 ez = {{-10}}, float ss = {{0.00390625}}, uint8 sz = {{0}}> {{
  xf = DequantizeLinear(x, xs, xz)
  wf = DequantizeLinear<axis = 0>(w, ws, wz)
  bf = DequantizeLinear<axis = 0>(b, bs, bz)
  xt = Transpose<perm = [0, 3, 1, 2]>(xf)
  wt = Transpose<perm = [0, 3, 1, 2]>(wf)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(xt, wt, bf)
  cl = Transpose<perm = [0, 2, 3, 1]>(c)
  cq = QuantizeLinear(cl, cs, cz)
  cf = DequantizeLinear(cq, cs, cz)
  df = DequantizeLinear<axis = 3>(d, ds, wz)
  dt = Transpose<perm = [3, 0, 1, 2]>(df)
  dr = Reshape(dt, depthwise)
  ct = Transpose<perm = [0, 3, 1, 2]>(cf)
  [depthwise_conv] e = Conv<pads = [1, 1, 1, 1], group = 4>(ct, dr)
  el = Transpose<perm = [0, 2, 3, 1]>(e)
  eq = QuantizeLinear(el, es, ez)
  ef = DequantizeLinear(eq, es, ez)
  m = ReduceMean<axes = [1, 2], keepdims = 0>(ef)
  mq = QuantizeLinear(m, es, ez)
  mf = DequantizeLinear(mq, es, ez)
  s = Softmax<axis = -1>(mf)
  y = QuantizeLinear(s, ss, sz)
}}
"""


def test_a_network_with_integers_in_and_out(save: Save):
    path = save(NETWORK)
    model = load_model(path)
    conv, depthwise = model.graph.by_name["conv"], model.graph.by_name["depthwise_conv"]
    for node, scales in ((conv, [1, 2, 3, 4]), (depthwise, [1, 1, 2, 2])):
        kept = model.imported.weight_scale(node.inputs[1], 0, (4, 1, 1, 1))
        assert kept == pytest.approx(np.array(scales) / 1000)
    assert "Relu put behind 'cl/linear'" in " ".join(model.imported.notes)
    x = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert found.dtype == np.uint8
    assert sqnr(expected, found) > 35


def test_a_fully_connected_layer_whose_input_is_quantized_at_run_time(save: Save):
    """TFLite's hybrid models: ``asymmetric_quantize_inputs`` becomes DynamicQuantizeLinear."""
    path = save(f"""{HEAD}
        g (float[2,6] x) => (float[2,4] y)
        <int8[4,6] w = {integers(24, 41)}, float ws = {{0.01}}, int8 wz = {{0}},
         float[4] b = {{1, 2, 3, 4}}> {{
          xq, xs, xz = DynamicQuantizeLinear(x)
          xf = DequantizeLinear(xq, xs, xz)
          wf = DequantizeLinear(w, ws, wz)
          wt = Transpose<perm = [1, 0]>(wf)
          [dense] m = MatMul(xf, wt)
          [add] y = Add(m, b)
        }}""")
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["MatMul", "Add"]
    assert {str(e) for e in model.imported.placement.edges} == {"x -> dense[0]", "wt -> dense[1]"}
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert sqnr(expected, found) > 35


def test_biases_of_int64_that_int16_activations_have_are_float(save: Save):
    """ONNX knows no DequantizeLinear of int64, but tf2onnx writes it."""
    path = save(f"""{HEAD}
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float s = {{0.5}}, int8 z = {{0}}, int8[2,2,1,1] w = {{1, 2, 3, 4}}, int32[2] b = {{8, 12}},
     float[2] s2 = {{0.5, 0.25}}> {{
      v = DequantizeLinear(w, s, z) c = DequantizeLinear<axis = 0>(b, s2) [conv] y = Conv(x, v, c)
    }}""")
    proto = onnx.load(path)
    bias = next(tensor for tensor in proto.graph.initializer if tensor.name == "b")
    bias.CopyFrom(onnx.numpy_helper.from_array(np.array([8, 12], np.int64), "b"))
    onnx.save(proto, path)
    model = load_model(path)
    (conv,) = model.graph.nodes
    assert model.array(conv.inputs[2]).tolist() == [4, 3]
    assert model.imported.source == "QDQ, int8 per-tensor weights, int64 biases"
