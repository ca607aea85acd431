"""Models quantized at run time, as old and new versions of ONNX Runtime's quantizer write them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import Model, load_model
from tests.reference_outputs import sqnr

Save = Callable[..., Path]

HEAD = '<ir_version: 7, opset_import: ["": 12, "com.microsoft": 1]>'
INTEGERS = ", ".join(str(value % 255) for value in range(0, 36 * 7, 7))
CONSTANTS = f"""
 uint8[4,1,3,3] wq = {{{INTEGERS}}}, float ws = {{0.01}}, uint8 wz = {{120}},
 float[4] bias = {{0.5, -1.5, 2.5, 0.25}}, int64[4] row = {{1, -1, 1, 1}}, float other = {{0.02}}
"""
# Versions before 1.7 write the bias like this, with these names.
BODY = """
  xq, xs, xz = DynamicQuantizeLinear(x)
  bs = Mul(xs, {divisor})
  [bias_tmp_qaunt] bd = Div(bias, bs)
  [bias_quant_rounded] bf = Floor(bd)
  [bias_quantized_node] bi = Cast<to = 6>(bf)
  [conv_quant] c = ConvInteger<pads = [1, 1, 1, 1]>(xq, wq, xz, wz)
  br = Reshape(bi, row)
  [bias_quantizedbias_add] ci = Add(c, br)
  cf = Cast<to = 1>(ci)
  s = Mul(xs, ws)
  y = Mul(cf, s)
"""


def old_style(save: Save, body: str) -> tuple[Path, Model]:
    io = "(float[1,1,8,8] x) => (float[1,4,8,8] y)"
    path = save(f"{HEAD} g {io} <{CONSTANTS}> {{ {body} }}")
    return path, load_model(path)


def outputs(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes where no sum of products of integers saturates."""
    return list(HalfPrecisionModel(proto, Path(), threads=1).run(inputs).values())


def test_a_bias_that_is_quantized_at_run_time_becomes_the_convs(save: Save):
    path, model = old_style(save, BODY.format(divisor="ws"))
    (conv,) = model.graph.nodes
    assert (conv.name, conv.op) == ("conv", "Conv")
    assert model.array(conv.inputs[2]).tolist() == [0.5, -1.5, 2.5, 0.25]
    assert sorted(map(str, model.imported.placement.edges)) == [
        "wq/float -> conv[1]",
        "x -> conv[0]",
    ]
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype(np.float32)
    (expected,) = outputs(onnx.load(path), x=x)
    (found,) = outputs(model.proto, x=x)
    assert sqnr(expected, found) > 35


# As onnx-quantize 0.2 writes a Gemm: DequantizeLinear is what scales the integers.
GEMM = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,3] x) => (float[2,2] y) <
 int8[3,2] w = {10, -20, 30, 40, -50, 60}, float[2] ws = {0.01, 0.02}, int8 z = {0},
 float xs = {0.03}, float[2] s = {0.0003, 0.0006}, int32[2] bi = {1000, -2000},
 float[2] b = {0.3, -1.2}, int32 low = {-2147483648}, int32 high = {2147483647}
> {"""
STATIC = """xq = QuantizeLinear(x, xs, z) [gemm] p = MatMulInteger(xq, w, z, z)
 q = Add(p, bi) y = DequantizeLinear(q, s) }"""
DYNAMIC = """xq, rs, xz = DynamicQuantizeLinear(x) [gemm] p = MatMulInteger(xq, w, xz, z)
 t = Mul(rs, ws) bd = Div(b, t) bc = Cast<to = 6>(bd) bq = Clip(bc, low, high)
 q = Add(p, bq) y = DequantizeLinear(q, t) }"""


@pytest.mark.parametrize("body", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_a_product_of_integers_that_is_dequantized_is_a_float_one(save: Save, body: str):
    path = save(GEMM + body)
    model = load_model(path)
    product, added = model.graph.nodes
    assert (product.op, added.op) == ("MatMul", "Add")
    assert model.array(added.inputs[1]).tolist() == pytest.approx([0.3, -1.2])
    assert sorted(map(str, model.imported.placement.edges)) == [
        "w/float -> gemm[1]",
        "x -> gemm[0]",
    ]
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert sqnr(expected, found) > 30


# A bias that is limited before it is cast: bounds of float.
LIMITED = """xq, rs, xz = DynamicQuantizeLinear(x) [gemm] p = MatMulInteger(xq, w, xz, z)
 t = Mul(rs, ws) bd = Div(b, t) br = Round(bd) [limit] bc = Clip(br, lowest, highest)
 bq = Cast<to = 6>(bc) q = Add(p, bq) y = DequantizeLinear(q, t) }"""


def with_bounds(save: Save, bounds: list[float]) -> Path:
    text = GEMM.replace("int32 low", "float lowest = {0}, float highest = {0}, int32 low")
    path = save(text + LIMITED)
    proto = onnx.load(path)
    held = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, sign in (("lowest", -1), ("highest", 1)):
        values = np.array([sign * bound for bound in bounds], np.float32)
        values = values.reshape(()) if values.size == 1 else values
        held[name].CopyFrom(onnx.numpy_helper.from_array(values, name))
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("bound", [np.inf, 2.0**31])
def test_a_bias_may_be_limited_to_what_int32_holds(save: Save, bound: float):
    product, added = load_model(with_bounds(save, [bound])).graph.nodes
    assert (product.op, added.op) == ("MatMul", "Add")


@pytest.mark.parametrize("bounds", [[127.0], [np.inf, np.inf]])
def test_other_limits_of_a_bias_are_refused(save: Save, bounds: list[float]):
    with pytest.raises(InputError, match=r"'limit' \(Clip\) reads a tensor divided by a scale"):
        load_model(with_bounds(save, bounds))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("DequantizeLinear<axis = 0>(q, s)", "scales along another axis than the product's"),
        ("DequantizeLinear(q, s, bi)", "has a zero point for a product of integers"),
    ],
)
def test_another_dequantization_of_a_product_is_refused(save: Save, written: str, why: str):
    with pytest.raises(InputError, match=why):
        load_model(save(GEMM + STATIC.replace("DequantizeLinear(q, s)", written)))


def test_a_constant_bias_in_steps_that_are_known_at_run_time_is_refused(save: Save):
    with pytest.raises(InputError, match="scales 'bi', a constant of integers, by what is only"):
        load_model(save(GEMM + DYNAMIC.replace("Add(p, bq)", "Add(p, bi)")))


def test_a_product_that_takes_another_zero_point_off_is_refused(save: Save):
    text = GEMM + STATIC.replace("(x, xs, z)", "(x, xs, other)")
    with pytest.raises(InputError, match="takes another zero point off 'xq' than it is quantized"):
        load_model(save(text.replace("int8 z = {0}", "int8 z = {0}, int8 other = {5}")))


def test_a_bias_of_another_scale_is_refused(save: Save):
    with pytest.raises(InputError, match="does not multiply with the scale that the bias is"):
        old_style(save, BODY.format(divisor="other"))


def test_a_quotient_by_a_scale_that_is_no_bias_is_refused(save: Save):
    body = "xq, xs, xz = DynamicQuantizeLinear(x) [d] q = Div(x, xs) [n] a = Abs(q)"
    body += " y = Concat<axis = 1>(a, a, a, a)"
    with pytest.raises(InputError, match=r"node 'n' \(Abs\) reads a tensor divided by a scale"):
        old_style(save, body)


LSTM = """<ir_version: 8, opset_import: ["": 14]>
g (float[6,1,5] x) => (float[6,2,1,8] y)
<float[2,32,5] w = {0}, float[2,32,8] r = {0}, float[2,64] b = {0}> {
  [lstm] y = LSTM<hidden_size = 8, direction = "bidirectional">(x, w, r, b)
}"""


@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_quantized_lstm_becomes_a_float_one(
    tmp_path: Path, weights: QuantType, per_channel: bool
):
    rng = np.random.default_rng(1)
    shapes = {"w": (2, 32, 5), "r": (2, 32, 8), "b": (2, 64)}
    arrays = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    proto = parse_model(LSTM)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    onnx.save(proto, tmp_path / "float.onnx")
    path = tmp_path / "quantized.onnx"
    quantize_dynamic(tmp_path / "float.onnx", path, weight_type=weights, per_channel=per_channel)
    assert {node.op_type for node in onnx.load(path).graph.node} == {"DynamicQuantizeLSTM"}
    model = load_model(path)
    (node,) = model.graph.nodes
    assert (node.name, node.op) == ("lstm", "LSTM")
    for name, index in (("w", 1), ("r", 2)):
        assert sqnr(arrays[name], model.array(node.inputs[index])) > 35
    assert model.imported.notes == ("weights of LSTM 'lstm' are float; their scales are not kept",)
    x = rng.standard_normal((6, 1, 5)).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert sqnr(expected, found) > 25


@pytest.mark.parametrize("per_channel", [False, True])
def test_rows_of_a_quantized_embedding_are_multiplied_as_they_are(
    tmp_path: Path, per_channel: bool
):
    """TensorRT issue 4698: a transformer's table is read by products, with no DQ in between."""
    rng = np.random.default_rng(2)
    text = """
      <ir_version: 8, opset_import: ["": 17]>
      g (int64[1,6] ids) => (float[1,6,8] y)
      <float[50,16] table = {0}, float[16,8] q = {0}, float[16,8] k = {0}> {
        [embed] rows = Gather(table, ids)
        [left] l = MatMul(rows, q)
        [right] r = MatMul(rows, k)
        [sum] y = Add(l, r)
      }"""
    proto = parse_model(text)
    for tensor in proto.graph.initializer:
        values = rng.standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, tmp_path / "float.onnx")
    path = tmp_path / "quantized.onnx"
    quantize_dynamic(tmp_path / "float.onnx", path, per_channel=per_channel)
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Gather", "MatMul", "MatMul", "Add"]
    assert list(model.imported.activations) == ["rows"]
    ids = rng.integers(0, 50, (1, 6))
    (expected,), (found,) = outputs(onnx.load(path), ids=ids), outputs(model.proto, ids=ids)
    assert sqnr(expected, found) > 60


@pytest.mark.parametrize("zero_point", [0, 7])
def test_a_quantized_constant_may_be_the_left_operand_of_a_product(save: Save, zero_point: int):
    path = save(
        f"""
        {HEAD} g (float[4,6] x) => (float[3,6] y)
        <uint8[3,4] w_quantized = {{1, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 255}},
         uint8 wz = {{{zero_point}}}, float w_scale = {{0.02}}> {{
          q, s, z = DynamicQuantizeLinear(x)
          [mm] r = MatMulInteger(w_quantized, q, wz, z)
          f = Cast<to = 1>(r)
          e = Mul(w_scale, s)
          y = Mul(f, e)
        }}"""
    )
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["MatMul"]
    x = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert sqnr(expected, found) > 35


@pytest.mark.parametrize("zero_point", [0, 128])
def test_a_product_may_read_the_integers_of_an_input(save: Save, zero_point: int):
    """As an image of uint8: nothing in the file says which scale the input alone has."""
    weights = ", ".join(str(value % 200 - 100) for value in range(0, 240, 10))
    path = save(
        f"""
        {HEAD} g (uint8[2,4] x) => (float[2,6] y)
        <uint8 z = {{{zero_point}}}, int8[4,6] w = {{{weights}}}, float s = {{0.001}}> {{
          [mm] r = MatMulInteger(x, w, z)
          f = Cast<to = 1>(r)
          y = Mul(f, s)
        }}"""
    )
    model = load_model(path)
    shift = ["Sub"] if zero_point else []
    assert [node.op for node in model.graph.nodes] == ["Cast", *shift, "MatMul"]
    x = np.random.default_rng(4).integers(0, 256, (2, 4)).astype(np.uint8)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_zero_point_that_is_an_input_is_refused(save: Save):
    path = save(
        f"""
        {HEAD} g (uint8[1,2] x, uint8 z) => (float[1,1] y)
        <int8[2,1] w = {{1, 2}}, float s = {{1}}> {{
          [mm] r = MatMulInteger(x, w, z)
          f = Cast<to = 1>(r)
          y = Mul(f, s)
        }}"""
    )
    with pytest.raises(
        InputError, match=r"'mm' \(MatMulInteger\) has a zero point that is no single"
    ):
        load_model(path)
