"""Products between pairs that ONNX Runtime computes in float, held against its sessions."""

from pathlib import Path

import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.explaining.api import explain
from placer.graph.text import parse_model
from placer.plan import Plan
from tests.prediction.test_onnxruntime_plans import varied
from tests.prediction.test_openvino_plans import layers

GEMM = """
<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x) => (float[4,16] y)
<float s = {0.05}, float t = {0.1}, uint8 z = {128}, int8[8,16] w = {VALUES}, float ws = {0.01},
 int8 wz = {0}, float[16] b = {1}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, WEIGHT)
  PRODUCT
  o = QuantizeLinear(m, t, z)
  y = DequantizeLinear(o, t, z)
}
""".replace("VALUES", ", ".join(["3"] * 128))
WITH_BIAS = "[fc] m = Gemm(d, v, b)"
ADDED = "[fc] p = MatMul(d, v) [add] m = Add(p, b)"
BARE = "[fc] m = MatMul(d, v)"

CONV = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float s = {0.05}, uint8 z = {128}, int8[4,4,1,1] w = {VALUES}, float ws = {0.01}, int8 wz = {0},
 int32[4] b = {7, 7, 7, 7}, float bs = {BIAS}, int32 bz = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  a = DequantizeLinear(b, bs, bz)
  [conv] c = Conv(d, v, a)
  o = QuantizeLinear(c, s, z)
  y = DequantizeLinear(o, s, z)
}
""".replace("VALUES", ", ".join(["3"] * 16))


def built_and_predicted(text: str, tmp_path: Path) -> tuple[Plan, Plan, str]:
    """The plan of a session, the predicted one, and what is said of products in float."""
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(text)), path)
    explained = explain(path, pack="onnxruntime")
    said = " ".join(note for note in explained.notes if " in float, because " in note)
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    return built, explained.explanation.plan, said


@pytest.mark.parametrize(
    ("product", "weight", "is_told"),
    [
        (WITH_BIAS, "ws, wz", False),
        (WITH_BIAS, "ws", True),
        (ADDED, "ws", True),
        (BARE, "ws", False),
    ],
    ids=["zero points", "Gemm without one", "MatMul and a bias without one", "MatMul without one"],
)
def test_a_gemm_without_zero_points_computes_in_float(
    product: str, weight: str, is_told: bool, tmp_path: Path
):
    """onnxsim pull request 1421."""
    text = GEMM.replace("PRODUCT", product).replace("WEIGHT", weight)
    built, predicted, said = built_and_predicted(text, tmp_path)
    assert layers(predicted) == layers(built)
    told = "'fc' computes in float, because a pair before has no zero point"
    assert said.startswith(told) if is_told else not said


@pytest.mark.parametrize(
    ("product", "bias", "told"),
    [
        ("Gemm<alpha = 2.0>(d, v, b)", "[16]", "alpha or beta is not 1"),
        ("Gemm<beta = 0.5>(d, v, b)", "[16]", "alpha or beta is not 1"),
        ("Gemm(d, v, b)", "[4,1]", "the float bias does not have exactly one dimension"),
        ("Gemm(d, v, b)", "[1,16]", "the float bias does not have exactly one dimension"),
        ("Gemm(d, v, b)", "[1]", ""),
        ("Gemm(d, v, b)", "", "the float bias does not have exactly one dimension"),
        ("Gemm<alpha = 2.0, beta = 0.5>(d, v)", "[16]", ""),
        ("Add(p, b)", "[1,16]", "the float bias does not have exactly one dimension"),
    ],
)
def test_a_gemm_whose_bias_qgemm_does_not_add_computes_in_float(
    product: str, bias: str, told: str, tmp_path: Path
):
    """ONNX Runtime issues 28130 and 24815."""
    is_gemm = product.startswith("Gemm")
    nodes = f"[fc] m = {product}" if is_gemm else f"[fc] p = MatMul(d, v) [add] m = {product}"
    text = GEMM.replace("PRODUCT", nodes).replace("WEIGHT", "ws, wz")
    built, predicted, said = built_and_predicted(text.replace("[16] b", f"{bias} b"), tmp_path)
    assert layers(predicted) == layers(built)
    counts = [len(tuple(plan.of_kind("dequantize"))) for plan in (predicted, built)]
    assert counts[0] == counts[1]
    assert said.startswith(f"'fc' computes in float, because {told}") if told else not said


INT32 = f"int32[16] b = {{{', '.join(['5'] * 16)}}}, float bs = {{0.0005}}, int32 bz = {{0}}"
INT32_ROW = INT32.replace("[16]", "[1,16]")
UINT8 = INT32.replace("int32", "uint8")
ADD = "[fc] p = MatMul(d, v) [add] m = Add(p, e)"
ADD_APART = """[fc] p = MatMul(d, v) i = QuantizeLinear(p, t, z) a = DequantizeLinear(i, t, z)
  [add] m = Add(a, e)"""


@pytest.mark.parametrize(
    ("product", "bias", "in_integers"),
    [
        ("[fc] m = Gemm(d, v, e)", INT32, ["QGemm"]),
        ("[fc] m = Gemm(d, v, e)", INT32_ROW, ["QGemm"]),
        ("[fc] m = Gemm<transA = 1>(d, v, e)", INT32, ["QGemm"]),
        ("[fc] m = Gemm<alpha = 0.5>(d, v, e)", INT32, []),
        ("[fc] m = Gemm(d, v, e)", UINT8, []),
        (ADD, INT32, ["QGemm"]),
        (ADD, UINT8, []),
        (ADD_APART, INT32, ["QLinearMatMul"]),
        (ADD_APART, UINT8, ["QLinearAdd", "QLinearMatMul"]),
    ],
)
def test_products_add_biases_of_int32_and_sums_by_themselves_of_uint8(
    product: str, bias: str, in_integers: list[str], tmp_path: Path
):
    """Biases behind a DequantizeLinear, as quantize_static writes them."""
    text = GEMM.replace("PRODUCT", f"e = DequantizeLinear(b, bs, bz) {product}")
    text = text.replace("float[16] b = {1}", bias).replace("WEIGHT", "ws, wz")
    text = text.replace("[4,8] x", "[8,4] x") if "transA" in product else text
    built, predicted, _ = built_and_predicted(text, tmp_path)
    assert layers(predicted) == layers(built)
    computing = [layer.op for layer in built.of_kind("compute") if layer.op.startswith("Q")]
    assert sorted(computing) == in_integers
    counts = [len(tuple(plan.of_kind("dequantize"))) for plan in (predicted, built)]
    assert counts[0] == counts[1]


def test_a_gemm_with_a_float_bias_and_no_pair_behind_computes_in_float(tmp_path: Path):
    text = GEMM.replace("PRODUCT", WITH_BIAS).replace("WEIGHT", "ws, wz")
    pair = text.partition(WITH_BIAS)[2].partition("}")[0]
    built, predicted, said = built_and_predicted(
        text.replace(pair, " [act] y = Relu(m) "), tmp_path
    )
    assert layers(predicted) == layers(built)
    assert said.startswith("'fc' computes in float, because no pair is behind and the bias is")


def test_a_gemm_of_a_type_that_no_kernel_reads_is_not_told_to_have_another_bias(tmp_path: Path):
    """ONNX Runtime issue 22269: FP8 on a CPU."""
    text = """
    <ir_version: 9, opset_import: ["": 19]> g (float[4,16] x) => (float[4,8] y)
    <float[16,8] w = {0.1}, float[8] b = {1}, float s = {0.05}, float8e4m3fn z = {0}> {
      q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
      v = QuantizeLinear(w, s, z) u = DequantizeLinear(v, s, z) [fc] y = Gemm(d, u, b)
    }"""
    onnx.save(parse_model(text), tmp_path / "net.onnx")
    said = explain(tmp_path / "net.onnx", pack="onnxruntime").notes
    assert [text.partition(",")[0] for text in said] == ["pairs on 'x' have FP8 values"]


LEFT = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8] x) => (float[1,4,8] y)
<float s = {0.05}, uint8 z = {128}, float[4,4] w = {1}, float ws = {0.01}, TYPE wz = {ZERO}> {
  q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
  i = QuantizeLinear(w, ws, wz) v = DequantizeLinear(i, ws, wz) [product] y = MatMul(v, d)
}
"""


@pytest.mark.parametrize(("dtype", "zero"), [("int8", "0"), ("uint8", "128")])
def test_a_weight_on_the_left_is_to_be_of_uint8(dtype: str, zero: str, tmp_path: Path):
    path = tmp_path / "model.onnx"
    text = LEFT.replace("TYPE", dtype).replace("ZERO", zero)
    onnx.save(varied(parse_model(text)), path)
    told = [note for note in explain(path, pack="onnxruntime").notes if "'product'" in note]
    assert [note.rpartition("; ")[2] for note in told] == [
        "quantize this weight to uint8 with zero point 128"
    ] * (dtype == "int8")
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    (layer,) = (one for one in built.of_kind("compute") if "product" in one.nodes)
    assert (layer.input_types[0] == "float") == (dtype == "int8")


@pytest.mark.parametrize(("scale", "is_told"), [("0.0005", False), ("0.001", True)])
def test_a_conv_whose_bias_has_another_scale_computes_in_float(
    scale: str, is_told: bool, tmp_path: Path
):
    """As Brevitas writes biases (issue 515)."""
    built, predicted, said = built_and_predicted(CONV.replace("BIAS", scale), tmp_path)
    assert layers(predicted) == layers(built)
    told = "'conv' computes in float, because the scale of the bias is not the input's"
    assert said.startswith(told) if is_told else not said


MOVED = """
<ir_version: 8, opset_import: ["": 17]> g (float[8,4] x) => (float[8,4] y)
<float s = {0.05}, uint8 z = {128}, int8[SHAPE] w = {VALUES}, float ws = {0.01}, int8 wz = {0},
 int64[2] flat = {4, 4}, int64[1] first = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, WEIGHT)
  [move] t = MOVE
  [fc] m = MatMul(d, t)
  o = QuantizeLinear(m, s, z)
  y = DequantizeLinear(o, s, z)
}
""".replace("VALUES", ", ".join(["3"] * 16))


@pytest.mark.parametrize(
    ("shape", "weight", "move", "reads"),
    [
        ("4,4", "ws, wz", "Transpose<perm = [1, 0]>(v)", "uint8"),
        ("4,4", "ws", "Transpose<perm = [1, 0]>(v)", "float"),
        ("2,2,4", "ws, wz", "Reshape(v, flat)", "float"),
        ("1,4,4", "ws, wz", "Squeeze(v, first)", "float"),
    ],
)
def test_weights_that_others_than_a_transpose_move_are_read_in_float(
    shape: str, weight: str, move: str, reads: str, tmp_path: Path
):
    """onnxruntime issue 27845."""
    text = MOVED.replace("SHAPE", shape).replace("WEIGHT", weight).replace("MOVE", move)
    for plan in built_and_predicted(text, tmp_path)[:2]:
        (product,) = [layer for layer in plan.layers if "fc" in layer.nodes]
        assert product.input_types[0] == reads
