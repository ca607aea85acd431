"""Files of ONNX Runtime's quantizer in types that its kernels do not read, explained as built."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.explaining.api import explain
from placer.explaining.integer_nodes import integer_nodes
from placer.graph.text import parse_model
from placer.model import load_model, load_quantized
from placer.plan import Plan
from placer.plan.diff import diff_plans
from tests.prediction.test_onnxruntime_plans import varied
from tests.prediction.test_openvino_plans import layers

TEXT = """
<ir_version: 9, opset_import: ["": OPSET]>
g (float[1,8,8,8] x) => (float[1,10] y)
<float[16,8,3,3] w = {1}, float[16] b = {1}, float[16,10] f = {1}, int64[2] flat = {1, 16}> {
  [conv] c = Conv(x, w, b)
  [sig] s = Sigmoid(c)
  [pool] p = GlobalAveragePool(s)
  [view] v = Reshape(p, flat)
  [fc] y = MatMul(v, f)
}
"""
WIDE = {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt8}
NARROW = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt4}
FINE = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt16}


class _Images(CalibrationDataReader):
    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self._left: Iterator[dict[str, np.ndarray]] = iter(
            [{"x": draw.normal(size=(1, 8, 8, 8)).astype(np.float32)}]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


@pytest.mark.parametrize(
    ("options", "opset", "integers"),
    [
        (WIDE, 17, {"uint16": {"view"}}),
        (WIDE, 21, {"uint16": {"view"}}),
        (NARROW, 21, {"uint8": {"sig", "pool", "view"}}),
        (FINE, 21, {"uint8": {"sig", "pool", "view"}}),
    ],
    ids=["ONNX Runtime's own pairs of 16 bits", "16 bits", "weights of 4 bits", "of 16 bits"],
)
def test_what_kernels_do_not_read_is_read_in_float(
    options: Mapping[str, QuantType], opset: int, integers: Mapping[str, set[str]], tmp_path: Path
):
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(TEXT.replace("OPSET", str(opset)))), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", path, _Images(), **options)
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    predicted = explain(path, pack="onnxruntime").explanation.plan
    assert layers(predicted) == layers(built)
    for dtype, nodes in integers.items():
        found = [x.nodes for x in predicted.of_kind("compute") if x.output_types == (dtype,)]
        assert {name for names in found for name in names} == nodes


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({**WIDE}, "have 16 bits, which no integer kernel reads"),
        (
            {"activation_type": QuantType.QInt8, "extra_options": {"ActivationSymmetric": True}},
            "are int8: kernels for x86 read uint8 and convert int8 first",
        ),
        ({"activation_type": QuantType.QUInt8}, None),
    ],
    ids=["16 bits", "int8", "uint8"],
)
def test_types_are_told_that_kernels_do_not_read(
    options: Mapping[str, Any], told: str | None, tmp_path: Path
):
    """onnxruntime issues 22821 and 6732."""
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(TEXT.replace("OPSET", "21"))), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", path, _Images(), **options)
    found = [note for note in explain(path, pack="onnxruntime").notes if "uint8" in note]
    assert len(found) == (told is not None)
    assert told is None or told in found[0]
    assert not any("x86" in note for note in explain(path, pack="openvino").notes)


def test_openvino_drops_pairs_of_16_bits(tmp_path: Path):
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(TEXT.replace("OPSET", "21"))), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", path, _Images(), **WIDE)
    explained = explain(path, pack="openvino")
    built = OpenVinoEngine().compile(onnx.load(path), tmp_path).plan()
    for plan in (built, explained.explanation.plan):
        assert not plan.of_kind("quantize")
        assert {t for layer in plan.of_kind("compute") for t in layer.input_types} == {"float"}
    assert any("have 16 bits, which no integer kernel reads" in note for note in explained.notes)


def test_convs_that_are_quantized_at_run_time_are_named(tmp_path: Path):
    """onnxruntime issue 12854."""
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(TEXT.replace("OPSET", "17"))), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", path, op_types_to_quantize=["Conv"])
    (told,) = explain(path, pack="onnxruntime").notes
    assert told.startswith("ConvInteger ('conv_quant') has its input quantized in each run")
    (told,) = explain(path, pack="openvino").notes
    assert told.startswith("OpenVINO computes 'conv_quant' in float, behind kernels that quantize")
    plan = OpenVinoEngine().compile(onnx.load(path), tmp_path).plan()
    layer = next(one for one in plan.of_kind("compute") if "conv_quant" in one.nodes)
    assert layer.output_types == ("float",)


def test_pairs_in_half_precision_are_told_to_be_cast(tmp_path: Path):
    """onnxruntime issue 22741: its kernels of integers have scales of float32."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 19]>
        g (float16[1,8,8,8] x) => (float16[1,8,8,8] y)
        <float16 s = {14336}, int8 z = {0}> {
          q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
          [conv] y = Conv(d, w)
        }""")
    weight = numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float16), "w")
    proto.graph.initializer.append(weight)
    path = tmp_path / "half.onnx"
    onnx.save(proto, path)
    found = explain(path, pack="onnxruntime").explanation.conversions
    reasons = {conversion.kind: conversion.because for conversion in found}
    assert reasons["quantize"] == (
        "'x' is float16, and the engine casts it to float before it quantizes"
    )


# Products without a bias, and a Relu in front of which a pair may be kept.
SPOKEN = """
<ir_version: 10, opset_import: ["": 21]>
g (float[1,8,16] x) => (float[1,8,8] y)
<float[16,16] w = {1}, float[16,8] v = {1}, float[1,8,16] k = {1}> {
  [first] m = MatMul(x, w)
  [sum] a = Add(m, k)
  [act] r = Relu(a)
  [last] y = MatMul(r, v)
}
"""


class _Tokens(_Images):
    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self._left = iter([{"x": draw.normal(size=(1, 8, 16)).astype(np.float32)}])


def conversions(plan: Plan) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(x.kind for x in plan.layers if x.kind in ("quantize", "dequantize"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**WIDE, "op_types_to_quantize": ["MatMul"]},
        {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt4},
        {
            "activation_type": QuantType.QUInt8,
            "extra_options": {"QDQKeepRemovableActivations": True},
        },
        {  # As TensorRT takes it; the product that leaves the graph has no pair behind it.
            "activation_type": QuantType.QInt8,
            "op_types_to_quantize": ["MatMul"],
            "extra_options": {
                "ActivationSymmetric": True,
                "OpTypesToExcludeOutputQuantization": ["MatMul"],
            },
        },
    ],
    ids=[
        "int8",
        "products of 16 bits",
        "weights of 4 bits",
        "a pair before a Relu",
        "signed pairs before products alone",
    ],
)
def test_conversions_of_other_files_are_predicted(options: Mapping[str, Any], tmp_path: Path):
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(SPOKEN)), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", path, _Tokens(), **options)
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    predicted = explain(path, pack="onnxruntime").explanation.plan
    assert diff_plans(predicted, built).exact.f1 == 1
    assert conversions(predicted) == conversions(built)


# What is computed in float stands between a Conv and what reads integers.
BETWEEN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,10] y)
<float[16,8,3,3] w = {1}, float[16] b = {1}, float[16,10] f = {1}, float[10] h = {1}> {
  [conv] c = Conv(x, w, b)
  [tanh] n = Tanh(c)
  [pool] m = MaxPool<kernel_shape = [2, 2]>(n)
  [sig] s = Sigmoid(m)
  [mean] p = GlobalAveragePool(s)
  [flat] v = Flatten(p)
  [fc] y = Gemm(v, f, h)
}
"""

# Shapes are computed of what operators of ONNX Runtime write, and a constant is no initializer.
RESHAPED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[2,2,16,9] y)
<float[16,8,3,3] w = {1}, int64[1] axis = {1}, int64[1] two = {2}, int64[1] rest = {-1}> {
  [conv] c = Conv(x, w)
  [half] k = Constant<value = float {0.5}>()
  [mul] m = Mul(c, k)
  [shape] s = Shape(m) [size] r = Gather(s, axis) [part] h = Div(r, two)
  [join] t = Concat<axis = 0>(h, rest) [view] u = Reshape(m, t)
  [square] n = Mul(u, u)
  [shape2] i = Shape(n) [size2] e = Gather(i, axis) [part2] f = Div(e, two)
  [join2] o = Concat<axis = 0>(two, two, rest, f) [view2] v = Reshape(n, o)
  [last] y = Softmax(v)
}
"""


@pytest.mark.parametrize(
    ("text", "samples"),
    [(BETWEEN, _Images), (RESHAPED, _Images), (SPOKEN, _Tokens)],
    ids=["images", "shapes", "words"],
)
def test_files_of_integer_operators_are_predicted_as_they_are_built(
    text: str, samples: Callable[[], CalibrationDataReader], tmp_path: Path
):
    """QLinearConv and its like read and write integers; a half of a pair is at their ends."""
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(text)), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", path, samples(), quant_format=QuantFormat.QOperator,
        activation_type=QuantType.QUInt8,
    )  # fmt: skip
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    predicted = explain(path, pack="onnxruntime").explanation.plan
    assert diff_plans(predicted, built).exact.f1 == 1
    assert conversions(predicted) == conversions(built)


def test_where_onnx_runtime_knows_no_shape_none_is_told(tmp_path: Path):
    """Its shape inference lacks this operator; a number would have no dimensions, either."""
    text = """
        <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[8,3] x, float[4,3] z) => (float[8,4] y) {
          [far] d = com.microsoft.CDist<metric = "euclidean">(x, z)
          [act] y = Relu(d)
        }
    """
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    graph = load_model(path).graph
    assert graph.type_of("d").shape is None


@pytest.mark.parametrize(
    ("kind", "dtype"), [("FP8", "float8e4m3fn"), ("INT8", "int8")], ids=["FP8", "INT8"]
)
def test_pairs_in_tensorrts_own_operators_are_predicted(tmp_path: Path, kind: str, dtype: str):
    """TensorRT issue 3987: NVIDIA's Model Optimizer exported FP8 in them before opset 19."""
    text = f"""
    <ir_version: 9, opset_import: ["": 17, "trt": 1]>
    g (float[1,128,64] x) => (float[1,128,64] y)
    <float[64,64] w = {{{", ".join(["0.1"] * 4096)}}}, float s = {{0.01}}> {{
      xq = trt.TRT_{kind}QuantizeLinear(x, s) xd = trt.TRT_{kind}DequantizeLinear(xq, s)
      wq = trt.TRT_{kind}QuantizeLinear(w, s) wd = trt.TRT_{kind}DequantizeLinear(wq, s)
      [fc] y = MatMul(xd, wd)
    }}"""
    onnx.save(parse_model(text), tmp_path / "model.onnx")
    found = explain(tmp_path / "model.onnx", gpu="h100-sxm")
    (product,) = [layer for layer in found.explanation.plan.layers if "fc" in layer.nodes]
    assert (found.source, product.input_types) == ("the model's own pairs", (dtype,))


def test_a_plugin_between_the_halves_of_a_pair_reads_integers(tmp_path: Path):
    """TensorRT issue 1616: so one that computes on int8 is written, as no pair moves past it."""
    text = f"""
    <ir_version: 9, opset_import: ["": 17, "my": 1]>
    g (float[1,128,64] x) => (float[1,128,64] y)
    <float[64,64] w = {{{", ".join(["0.1"] * 4096)}}}, float s = {{0.01}}, int8 z = {{0}},
     int8[1,128,64] n> {{
      xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)
      wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z) [fc1] a = MatMul(xd, wd)
      aq = QuantizeLinear(a, s, z) [norm] n = my.Norm(aq) nd = DequantizeLinear(n, s, z)
      [fc2] y = MatMul(nd, wd)
    }}"""
    onnx.save(parse_model(text), tmp_path / "model.onnx")
    layers_built = explain(tmp_path / "model.onnx", gpu="a100").explanation.plan.layers
    types = {layer.name: (layer.input_types[0], layer.output_types[0]) for layer in layers_built}
    assert types["fc1"] == types["norm"] == ("int8", "int8")
    assert types["fc2"][0] == "int8"


def test_quantizers_of_training_tools_are_no_plugins(tmp_path: Path):
    """RyzenAI-SW issue 339: Quark's blocks of floats with one exponent."""
    text = """
    <ir_version: 9, opset_import: ["": 17, "com.amd.quark": 1]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y) {
      q = com.amd.quark.BFPQuantizeDequantize(x) y = Relu(q)
    }"""
    onnx.save(parse_model(text), tmp_path / "model.onnx")
    (told,) = explain(tmp_path / "model.onnx", pack="tensorrt").unpredicted
    assert told.startswith("com.amd.quark.BFPQuantizeDequantize: a training tool's simulation")
    assert told.endswith("have the tool export Q/DQ pairs")


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
@pytest.mark.parametrize(("point", "is_integer"), [("", False), (", z", True)])
def test_int8_without_a_zero_point_is_not_converted(
    tmp_path: Path, op: str, point: str, is_integer: bool
):
    """As files of opset 21 may have it; held against the graph that ONNX Runtime optimizes."""
    shape, weight = ("1,4,8,8", "4,4,1,1") if op == "Conv" else ("8,4", "4,4")
    named = "" if point else "<output_dtype = 3>"
    path = tmp_path / "model.onnx"
    text = f"""
        <ir_version: 10, opset_import: ["": 21]> g (float[{shape}] x) => (float[{shape}] y)
        <float s = {{0.5}}, int8 z = {{0}}, int8[{weight}] w = {{{", ".join(["3"] * 16)}}}> {{
          q = QuantizeLinear{named}(x, s{point}) d = DequantizeLinear(q, s{point})
          v = DequantizeLinear(w, s{point}) [op] c = {op}(d, v)
          e = QuantizeLinear{named}(c, s{point}) y = DequantizeLinear(e, s{point})
        }}"""
    onnx.save(parse_model(text), path)
    plan = explain(path, pack="onnxruntime").explanation.plan
    assert ("op" in integer_nodes(plan)) == is_integer
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    made = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
    assert (f"QLinear{op}" in made) == is_integer


@pytest.mark.parametrize("pairs", ["apart", "one"])
def test_int8_that_is_moved_as_integers_is_not_converted(tmp_path: Path, pairs: str):
    """As tf2onnx writes quantized TFLite models: the Transpose stands inside the pair."""
    inside = "t = Transpose<perm = [0, 3, 1, 2]>(q) d = DequantizeLinear(t, s, z)"
    around = (
        "e = DequantizeLinear(q, s, z) t = Transpose<perm = [0, 3, 1, 2]>(e) "
        "p = QuantizeLinear(t, s, z) d = DequantizeLinear(p, s, z)"
    )
    body = {"one": inside, "apart": around}[pairs].replace("t = ", "[turn] t = ")
    path = tmp_path / "model.onnx"
    text = f"""
        <ir_version: 8, opset_import: ["": 17]> g (float[1,8,8,16] x) => (float[1,16,8,8] y)
        <float s = {{0.02}}, int8 z = {{3}}> {{
          q = QuantizeLinear(x, s, z) {body} [tanh] y = Tanh(d)
        }}"""
    onnx.save(parse_model(text), path)
    built = OnnxRuntimeEngine().compile(load_quantized(path), tmp_path).plan()
    predicted = explain(path, pack="onnxruntime").explanation.plan
    assert layers(predicted) == layers(built)
