"""Products with pairs that an engine computes in float, held against what it builds."""

from pathlib import Path

import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.explaining.api import explain
from placer.graph.text import parse_model

TRANSPOSED = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,8] x) => (float[1,8,16,16] y)
<float s = {0.05}, uint8 z = {ZERO}, int8[8,8,2,2] w = {VALUES}, float ws = {0.01}, int8 wz = {0}> {
  [first] r = FIRST(x)
  q = QuantizeLinear(r, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [up] y = ConvTranspose <strides = [2, 2], kernel_shape = [2, 2]> (d, v)
}
""".replace("VALUES", ", ".join(["3"] * 256))
TOLD = "'up' (ConvTranspose) computes in float though its operands have pairs"


@pytest.mark.parametrize(
    ("engine", "first", "zero", "is_float"),
    [
        ("onnxruntime", "Relu", "0", True),
        ("openvino", "Sin", "128", True),
        ("openvino", "Relu", "0", False),
        ("openvino", "Sin", "0", False),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_transposed_conv_in_float_is_told(engine, first, zero, dtype, is_float, tmp_path: Path):
    path = tmp_path / "model.onnx"
    zero = "3" if (dtype, zero) == ("int8", "128") else zero
    text = TRANSPOSED.replace("uint8 z", f"{dtype} z").replace("ZERO", zero)
    proto = parse_model(text.replace("FIRST", first))
    onnx.save(proto, path)
    found = explain(path, pack=engine)
    assert (TOLD in " ".join(found.notes)) == is_float
    (layer,) = (one for one in found.explanation.plan.of_kind("compute") if "up" in one.nodes)
    assert (layer.input_types[0] == "float") == is_float
    runner = OpenVinoEngine() if engine == "openvino" else OnnxRuntimeEngine()
    built = runner.compile(proto, tmp_path).plan()
    (layer,) = (one for one in built.of_kind("compute") if "up" in one.nodes)
    assert (layer.input_types[0] == "float") == is_float


@pytest.mark.parametrize("first", ["Relu", "Sin"])
@pytest.mark.parametrize("other", ["Sigmoid(r)", "Sigmoid(d)", "MaxPool<kernel_shape = [2, 2]>(d)"])
def test_a_transposed_conv_reads_integers_whatever_else_reads_the_tensor(
    first: str, other: str, tmp_path: Path
):
    text = TRANSPOSED.replace("ZERO", "0").replace("FIRST", first)
    text = text.replace("=> (", "=> (float[N,C,H,W] o, ").replace("q =", f"o = {other} q =", 1)
    if "(d)" in other:
        text = text.replace(f"o = {other} ", "").replace("[up]", f"o = {other} [up]")
    path, proto = tmp_path / "model.onnx", parse_model(text)
    onnx.save(proto, path)
    for plan in (
        explain(path, pack="openvino").explanation.plan,
        OpenVinoEngine().compile(proto, tmp_path).plan(),
    ):
        (layer,) = (one for one in plan.of_kind("compute") if "up" in one.nodes)
        assert layer.input_types[0] == "uint8"


MIXED = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8] x) => (float[1,N,8] y)
<float s = {0.05}, uint8 u = {128}, TYPE[1,4,8] c = {VALUES}, TYPE z = {ZERO}> {
  q = QuantizeLinear(x, s, u) d = DequantizeLinear(q, s, u)
  e = DequantizeLinear(c, s, z)
  [mixed] r = OPERATOR(d, e)
  p = QuantizeLinear(r, s, u) y = DequantizeLinear(p, s, u)
}
""".replace("VALUES", ", ".join(["3"] * 32))


@pytest.mark.parametrize("operator", ["Add", "Mul", "Concat<axis = 1>"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_constant_of_another_type_keeps_an_operator_in_float(
    operator: str, dtype: str, tmp_path: Path
):
    """ONNX Runtime issue 12487: a bias of int8 is added to uint8."""
    text = MIXED.replace("OPERATOR", operator).replace("TYPE", dtype)
    proto = parse_model(text.replace("ZERO", "0" if dtype == "int8" else "128"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    notes = explain(path, pack="onnxruntime").notes
    told = "has pairs, because they are of int8 and uint8: quantize 'c' to uint8, too"
    assert any(note.endswith(told) for note in notes) == (dtype == "int8")
    built = OnnxRuntimeEngine().compile(proto, tmp_path).plan()
    (layer,) = (one for one in built.of_kind("compute") if "mixed" in one.nodes)
    assert (layer.input_types[0] == "float") == (dtype == "int8")


BETWEEN = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,8] x) => (float[1,8,4,4] y)
<float s = {0.05}, int8 z = {0}, int8[8,8,1,1] w = {VALUES}, float ws = {0.01}> {
  q = QuantizeLinear(x, s, z)
  [pool] m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (q)
  d = DequantizeLinear(m, s, z)
  v = DequantizeLinear(w, ws, z)
  [conv] y = Conv(d, v)
}
""".replace("VALUES", ", ".join(["3"] * 64))


def test_what_is_between_a_q_and_its_dq_moves_integers(tmp_path: Path):
    """As in conversions of TFLite by tf2onnx, issue 2121; NVIDIA's builder has the same layers."""
    path = tmp_path / "model.onnx"
    onnx.save(parse_model(BETWEEN), path)
    for pack in ("tensorrt", "tensorrt-rtx"):
        found = explain(path, pack=pack)
        layers = {node: one for one in found.explanation.plan.layers for node in one.nodes}
        assert layers["pool"].output_types == layers["conv"].input_types == ("int8",)
        assert "computes in float" not in " ".join(found.notes)


def test_what_is_quantized_behind_a_plugin_is_float(tmp_path: Path):
    path = tmp_path / "model.onnx"
    moved = BETWEEN.replace("q = Q", "n = Relu(x) p = Identity(n) q = Q")
    proto = parse_model(moved.replace("Linear(x", "Linear(p"))
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "Norm", "own"
    proto.opset_import.add(domain="own", version=1)
    onnx.save(proto, path)
    layers = explain(path).explanation.plan.layers
    assert [(one.name, one.input_types) for one in layers if one.kind == "quantize"] == [
        ("quantize n", ("float",))
    ]
    assert next(one for one in layers if "conv" in one.nodes).input_types == ("int8",)


SHIFTED = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,8] x) => (float[1,8,8,8] y)
<float s = {0.05}, uint8 z = {128},
 int8[8,8,1,1] w = {VALUES}, float ws = {0.01}, int8 wz = {ZERO}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [conv] y = Conv(d, v)
}
""".replace("VALUES", ", ".join(["3"] * 64))


@pytest.mark.parametrize("zero", ["0", "12"])
def test_weights_with_zero_points_are_multiplied_in_float_by_openvino(zero: str, tmp_path: Path):
    path, proto = tmp_path / "model.onnx", parse_model(SHIFTED.replace("ZERO", zero))
    onnx.save(proto, path)
    found = explain(path, pack="openvino")
    told = "'conv' computes in float, as its weights are of uint8 or have another zero point than 0"
    assert (told in " ".join(found.notes)) == (zero != "0")
    for plan in (found.explanation.plan, OpenVinoEngine().compile(proto, tmp_path).plan()):
        (layer,) = (one for one in plan.of_kind("compute") if "conv" in one.nodes)
        assert (layer.input_types[0] == "float") == (zero != "0")


BY_CHANNEL = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,8] x) => (float[1,8,8,8] y)
<float[8] s = {0.05, 0.06, 0.07, 0.08, 0.05, 0.06, 0.07, 0.08},
 uint8[8] z = {128, 128, 128, 128, 128, 128, 128, 128},
 int8[8,IN,1,1] w = {VALUES}, float ws = {0.01}, int8 wz = {0}> {
  q = QuantizeLinear<axis = 1>(x, s, z)
  d = DequantizeLinear<axis = 1>(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [conv] y = Conv<group = GROUP>(d, v)
}
"""


@pytest.mark.parametrize("group", [1, 2, 8])
def test_channels_of_several_scales_are_summed_in_float_by_openvino(group: int, tmp_path: Path):
    """NNCF issue 123; a depthwise Conv sums no channels."""
    text = BY_CHANNEL.replace("IN", str(8 // group)).replace("GROUP", str(group))
    path = tmp_path / "model.onnx"
    proto = parse_model(text.replace("VALUES", ", ".join(["3"] * (64 // group))))
    onnx.save(proto, path)
    found = explain(path, pack="openvino")
    told = "'conv' computes in float, as 'x' has a scale for each channel that is summed"
    assert (told in " ".join(found.notes)) == (group < 8)
    for plan in (found.explanation.plan, OpenVinoEngine().compile(proto, tmp_path).plan()):
        (layer,) = (one for one in plan.of_kind("compute") if "conv" in one.nodes)
        assert (layer.input_types[0] == "float") == (group < 8)


BY_ROW = """
<ir_version: 8, opset_import: ["": 17]> g (float[DIMS] x) => (float[OUT] y)
<float[8] s = {0.05, 0.06, 0.07, 0.08, 0.05, 0.06, 0.07, 0.08},
 uint8[8] z = {128, 128, 128, 128, 128, 128, 128, 128},
 int8[8,8] w = {VALUES}, float ws = {0.01}, int8 wz = {0}> {
  q = QuantizeLinear<axis = 0>(x, s, z)
  d = DequantizeLinear<axis = 0>(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [fc] y = PRODUCT(d, v)
}
""".replace("VALUES", ", ".join(["3"] * 64))


@pytest.mark.parametrize(
    ("product", "dims", "out"), [("MatMul", "8", "M"), ("Gemm<transA = 1>", "8,2", "M,N")]
)
def test_several_scales_along_what_a_product_sums_make_it_one_of_floats_in_openvino(
    product: str, dims: str, out: str, tmp_path: Path
):
    text = BY_ROW.replace("DIMS", dims).replace("OUT", out).replace("PRODUCT", product)
    path, proto = tmp_path / "model.onnx", parse_model(text)
    onnx.save(proto, path)
    found = explain(path, pack="openvino")
    assert "'fc' computes in float, as 'x' has" in " ".join(found.notes)
    for plan in (found.explanation.plan, OpenVinoEngine().compile(proto, tmp_path).plan()):
        (layer,) = (one for one in plan.of_kind("compute") if "fc" in one.nodes)
        assert layer.input_types[0] == "float"


def test_why_openvino_multiplies_int8_with_zero_points_in_float_is_told(tmp_path: Path):
    text = SHIFTED.replace("ZERO", "0").replace("uint8 z = {128}", "int8 z = {3}")
    path = tmp_path / "model.onnx"
    onnx.save(parse_model(text), path)
    told = "'conv' (Conv) computes in float though its operands have pairs"
    notes = explain(path, pack="openvino", processor="amx").notes
    (note,) = (note for note in notes if note.startswith(told))
    assert note.endswith("quantize activations to uint8, which may have any")


LEFT = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,16] x) => (float[1,8,16] y)
<float s = {0.05}, uint8 z = {128}, int8[1,8,8] w = {VALUES}, float ws = {0.01}, int8 wz = {12}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  [product] y = MatMul(v, d)
}
""".replace("VALUES", ", ".join(["3"] * 64))


def test_weights_with_zero_points_on_the_left_are_multiplied_in_float_too(tmp_path: Path):
    path, proto = tmp_path / "model.onnx", parse_model(LEFT)
    onnx.save(proto, path)
    for plan in (
        explain(path, pack="openvino").explanation.plan,
        OpenVinoEngine().compile(proto, tmp_path).plan(),
    ):
        (layer,) = (one for one in plan.of_kind("compute") if "product" in one.nodes)
        assert layer.input_types[0] == "float"


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_fp8_is_read_by_no_kernel_of_a_cpu(engine: str, tmp_path: Path):
    path, proto = tmp_path / "model.onnx", parse_model(SHIFTED.replace("ZERO", "0"))
    proto.opset_import[0].version = 19
    kind = onnx.TensorProto.FLOAT8E4M3FN
    for tensor in list(proto.graph.initializer):
        if tensor.name in ("z", "w", "wz"):
            count = 64 if tensor.dims else 1
            made = onnx.helper.make_tensor(tensor.name, kind, tensor.dims, [0.0] * count)
            tensor.CopyFrom(made)
    onnx.save(proto, path)
    found = explain(path, pack=engine)
    assert "pairs on 'x' have FP8 values, which no kernel reads" in " ".join(found.notes)
    runner = OpenVinoEngine() if engine == "openvino" else OnnxRuntimeEngine()
    for plan in (found.explanation.plan, runner.compile(proto, tmp_path).plan()):
        (layer,) = (one for one in plan.of_kind("compute") if "conv" in one.nodes)
        assert layer.input_types[0] == "float"


BARE = """
<ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,8] x) => (float[1,8,8,8] y)
<float s = {0.05}, KIND z = {0}, int8[8,8,1,1] w = {VALUES}, float ws = {0.01}, int8 wz = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  v = DequantizeLinear(w, ws, wz)
  n = Sin(d)
  BODY
}
""".replace("VALUES", ", ".join(["3"] * 64))
BEHIND = "p = QuantizeLinear(c, s, z) e = DequantizeLinear(p, s, z) y = Add(e, n)"


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("uint8", f"[conv] c = Conv(d, v) {BEHIND}", ""),
        ("uint8", "[conv] y = Conv(d, v)", "a Conv of integers writes integers"),
        ("uint8", f"[conv] c = ConvTranspose(d, v) {BEHIND}", "has no ConvTranspose of integers"),
        # ONNX Runtime gives each reader a DQ, and leaves the int8 of a Q with several.
        ("int8", f"[conv] c = Conv(d, v) {BEHIND}", "has kernels of uint8 alone"),
    ],
)
def test_why_onnxruntime_computes_a_product_in_float(
    kind: str, body: str, told: str, tmp_path: Path
):
    path = tmp_path / "model.onnx"
    proto = parse_model(BARE.replace("KIND", kind).replace("BODY", body))
    onnx.save(proto, path)
    built = OnnxRuntimeEngine().compile(proto, tmp_path).plan()
    (layer,) = (one for one in built.of_kind("compute") if "conv" in one.nodes)
    assert (layer.input_types[0] == "float") == bool(told)
    found = [note for note in explain(path, pack="onnxruntime").notes if "in float" in note]
    assert len(found) == bool(told)
    assert not told or told in found[0]
