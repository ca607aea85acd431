"""Files with int8 activations on ONNX Runtime, whose kernels on x86 read uint8 alone."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import placer
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.plan import Plan
from placer.plan.diff import diff_plans

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
g (TYPE[1,16,8,8] x) => (float[1,16,h,w] y)
<float s = {0.05}, int8 z = {ZERO}, float t = {0.01}, int8 v = {0}> {
  HEAD
  [weight] f = DequantizeLinear(w, t, v)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(d, f, bias)
  BODY
}
"""
HEAD = "[q] i = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(i, s, z)"
RELU = (
    "[relu] r = Relu(c) [q2] j = QuantizeLinear(r, s, z) [dq2] e = DequantizeLinear(j, s, z) "
    "[weight2] f2 = DequantizeLinear(w, t, v) [conv2] y = Conv<pads = [1, 1, 1, 1]>(e, f2, bias)"
)
SHARED = f"{RELU.replace(' y =', ' p =')} [add] y = Add(p, e)"
BIASED = (
    "[q2] j = QuantizeLinear(c, s, z) [dq2] e = DequantizeLinear(j, s, z) "
    "[dk] m = DequantizeLinear(k, s, v) [mul] g0 = Mul(e, m) "
    "[q3] l = QuantizeLinear(g0, s, z) [dq3] y = DequantizeLinear(l, s, z)"
)
CHANNELS = (
    "[q] i = QuantizeLinear<axis = 1>(x, steps, zeros) "
    "[dq] d = DequantizeLinear<axis = 1>(i, steps, zeros)"
)
TWICE = (
    f"{RELU.replace(' y =', ' p =')} [q3] l = QuantizeLinear(p, s, z) "
    "[dq3] m = DequantizeLinear(l, s, z) [add] a = Add(m, e) [tanh] n = Tanh(m) [sum] y = Add(a, n)"
)
DEDICATED = (
    "[relu] r = Relu(c) [q2] j = QuantizeLinear(r, s, z) [dq2] e = DequantizeLinear(j, s, z) "
    "[q3] k2 = QuantizeLinear(r, s, z) [dq3] e2 = DequantizeLinear(k2, s, z) "
    "[weight2] f2 = DequantizeLinear(w, t, v) [conv2] p = Conv<pads = [1, 1, 1, 1]>(e, f2, bias) "
    "[add] y = Add(p, e2)"
)
POOLED = (
    "[q2] j = QuantizeLinear(c, s, z) [dq2] e = DequantizeLinear(j, s, z) "
    "[pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(e) "
    "[q3] l = QuantizeLinear(p, s, z) [dq3] m = DequantizeLinear(l, s, z) "
    "[add] a = Add(m, e) [tanh] n = Tanh(m) [sum] y = Add(a, n)"
)
HALF = "[dq] d = DequantizeLinear(x, s, z)"


def saved(folder: Path, head: str, body: str, zero: int) -> Path:
    """The file, with random weights."""
    dtype = "int8" if head == HALF else "float"
    text = TEXT.replace("HEAD", head).replace("BODY", body).replace("TYPE", dtype)
    text = text.replace("ZERO", str(zero))
    rng, path = np.random.default_rng(0), folder / "signed.onnx"
    proto = onnx.parser.parse_model(text)
    for name, values in {
        "w": rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8),
        "k": rng.integers(-127, 128, (1, 16, 1, 1)).astype(np.int8),
        "bias": rng.normal(size=16).astype(np.float32),
        "narrow": rng.integers(-127, 128, 16).astype(np.int8),
        "steps": rng.uniform(0.01, 0.05, 16).astype(np.float32),
        "zeros": np.zeros(16, np.int8),
    }.items():
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(proto, path)
    return path


def computed(plan: Plan) -> Counter[tuple[frozenset[str], tuple[str, ...]]]:
    return Counter((frozenset(x.nodes), x.output_types) for x in plan.of_kind("compute"))


@pytest.mark.parametrize(
    ("head", "body", "zero"),
    [
        (HEAD, RELU, 0),
        (HEAD, RELU, -128),
        (HEAD, SHARED, -128),
        (HEAD, DEDICATED, -128),
        (HEAD, TWICE, -128),
        (HEAD, BIASED, 0),
        (HEAD, POOLED, 0),
        (HALF, RELU, 0),
        (CHANNELS, RELU, -128),
    ],
    ids=[
        "a Relu stays",
        "a Relu goes",
        "read twice",
        "a pair for each of two readers",
        "read and written for two",
        "a constant beside it",
        "a pool before and behind two readers",
        "it enters the graph",
        "a scale for each channel",
    ],
)
def test_layers_of_int8_are_predicted_as_they_are_built(
    tmp_path: Path, head: str, body: str, zero: int
):
    path = saved(tmp_path, head, body, zero)
    predicted = placer.explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    assert diff_plans(predicted, built).exact.f1 == 1
    assert len(predicted.of_kind("quantize")) == len(built.of_kind("quantize"))


def test_a_bias_of_int8_keeps_a_conv_in_float(tmp_path: Path):
    head = f"{HEAD} [narrowed] less = DequantizeLinear(narrow, t, v)"
    path = saved(
        tmp_path, head, "[q2] j = QuantizeLinear(c, s, z) [dq2] y = DequantizeLinear(j, s, z)", 0
    )
    proto = onnx.load(path)
    (conv,) = (node for node in proto.graph.node if node.op_type == "Conv")
    conv.input[2] = "less"
    onnx.save(proto, path)
    predicted = placer.explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(proto, tmp_path).plan()
    for plan in (predicted, built):
        (layer,) = plan.of_kind("compute")
        assert set(layer.input_types) == {"float"}


ROWS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,9,32] x) => (float[1,9,32] y)
<float s = {0.05}, int8 z = {0}, float t = {0.01}, int8 v = {0}> {
  [tanh] h = Tanh(x) [q] i = QuantizeLinear(h, s, z) [dq] d = DequantizeLinear(i, s, z)
  [weight1] w1 = DequantizeLinear(w, t, v) [matmul1] m1 = MatMul(d, w1) [add1] a1 = Add(m1, bias)
  [q1] j1 = QuantizeLinear(a1, s, z) [dq1] e1 = DequantizeLinear(j1, s, z)
  [weight2] w2 = DequantizeLinear(w, t, v) [matmul2] m2 = MatMul(d, w2) [add2] a2 = Add(m2, bias)
  [q2] j2 = QuantizeLinear(a2, s, z) [dq2] e2 = DequantizeLinear(j2, s, z)
  [mul] y = Mul(e1, e2)
}
"""


PAIRED = ROWS.replace(
    "[add1] a1 = Add(m1,",
    "[q3] j3 = QuantizeLinear(m1, s, z) [dq3] e3 = DequantizeLinear(j3, s, z) [add1] a1 = Add(e3,",
).replace(
    "[add2] a2 = Add(m2,",
    "[q4] j4 = QuantizeLinear(m2, s, z) [dq4] e4 = DequantizeLinear(j4, s, z) [add2] a2 = Add(e4,",
)


@pytest.mark.parametrize(
    ("text", "bias", "is_gemm"),
    [(ROWS, 32, True), (PAIRED, 32, False), (ROWS, 1, False)],
    ids=["a bias", "behind a pair", "a bias of one element"],
)
def test_products_with_a_bias_read_int8_of_several_readers(
    tmp_path: Path, text: str, bias: int, is_gemm: bool
):
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    weight = rng.integers(-127, 128, (32, 32)).astype(np.int8)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    values = rng.normal(size=bias).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(values, "bias"))
    path = tmp_path / "rows.onnx"
    onnx.save(proto, path)
    predicted = placer.explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(proto, tmp_path).plan()
    assert computed(predicted) == computed(built)
    assert ((frozenset({"matmul1", "add1"}), ("uint8",)) in computed(built)) == is_gemm
    # Not predicted: the pair that ONNX Runtime adds before the Reshape of each Gemm.
    missed = len(built.of_kind("quantize")) - len(predicted.of_kind("quantize"))
    assert missed == (2 if is_gemm else 0)


def test_no_layer_reads_fp8(tmp_path: Path):
    path = saved(tmp_path, HEAD, f"{RELU.replace('Relu', 'Transpose')}", 0)
    proto = onnx.load(path)
    proto.opset_import[0].version = 19
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8:
            eight, values = onnx.TensorProto.FLOAT8E4M3FN, numpy_helper.to_array(tensor)
            floats = values.astype(float).ravel()
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, eight, values.shape, floats))
    onnx.save(proto, path)
    predicted = placer.explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(proto, tmp_path).plan()
    assert computed(predicted) == computed(built)
    assert {layer.output_types for layer in built.of_kind("compute")} == {("float",)}


@pytest.mark.parametrize(
    ("body", "biases"),
    [("[relu] r = Relu(c) [pool] y = AveragePool<kernel_shape = [2, 2]>(r)", 0), (RELU, 1)],
    ids=["nothing is quantized behind", "a Relu and a Q follow"],
)
def test_a_bias_becomes_integers_where_a_quantize_follows(tmp_path: Path, body: str, biases: int):
    """Its Conv computes in float in both cases: int8 in front of it, a Relu that stays behind."""
    path = saved(tmp_path, HEAD, body, 0)
    predicted = placer.explain(path, pack="onnxruntime").explanation.plan
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    made = [x for x in predicted.of_kind("dequantize") if "bias" in x.name]
    assert len(made) == biases
    assert len(predicted.of_kind("dequantize")) == len(built.of_kind("dequantize"))
