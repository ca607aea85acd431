"""FP8 (float8e4m3fn) as a scheme: scales, values, candidates, and what engines make of them."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from pydantic import ValidationError

from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph import Edge
from placer.model import load_model
from placer.qdq import Inserter
from placer.qdq.opset import with_opset
from placer.qdq.precision import convert
from placer.qdq.translation import translate, translate_ranges
from placer.quantization import Placement, Range, Scheme
from placer.quantization.numerics import (
    Quantization,
    activation_quantization,
    quantize_activation,
    quantize_weight,
    quantized_dtype,
    weight_scale,
)
from tests.reference_outputs import outputs, sqnr

Save = Callable[..., Path]

FP8 = Scheme(
    activation="float8e4m3fn",
    symmetric=True,
    weight="float8e4m3fn",
    per_channel=True,
    bias="float",
)
DTYPE = quantized_dtype("float8e4m3fn")

CONV = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,32,8,8] y)
<float[32,16,3,3] w = {0.1}, float[1,16,1,1] half = {0.5}> {
  [scale] s = Mul(x, half)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(s, w)
  [relu] y = Relu(c)
}
"""
PLACEMENT = Placement.of([Edge("s", "conv", 0), Edge("w", "conv", 1), Edge("y", "", 0)])
RANGES = {"s": Range(-5.0, 4.0), "y": Range(0.0, 7.0)}

QUANTIZE = onnx.parser.parse_model(
    """
    <ir_version: 9, opset_import: ["": 19]>
    g (float[N] x, float scale) => (float8e4m3fn[N] q, float[N] y)
    <float8e4m3fn zero = {0}> {
      q = QuantizeLinear<saturate = 1>(x, scale, zero)
      y = DequantizeLinear(q, scale, zero)
    }
    """
)
SESSION = ort.InferenceSession(QUANTIZE.SerializeToString())


def initializers(proto: ModelProto) -> dict[str, TensorProto]:
    return {t.name: t for t in proto.graph.initializer}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weight": "int8"}, "activation and weight must both be float8e4m3fn, or neither"),
        ({"activation": "int8"}, "activation and weight must both be float8e4m3fn, or neither"),
        ({"symmetric": False}, "float8e4m3fn needs symmetric: true and bias: float"),
        ({"bias": "int32"}, "float8e4m3fn needs symmetric: true and bias: float"),
    ],
)
def test_what_an_fp8_scheme_may_say(changed: dict[str, object], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Scheme.model_validate(FP8.model_dump() | changed)


def test_the_scale_maps_amax_to_448():
    assert activation_quantization(Range(-2.0, 1.5), FP8) == Quantization(
        float(np.float32(2.0 / 448)), 0
    )


def test_large_values_saturate_and_ties_go_to_even():
    values = np.array([0.0, -449.0, 1e9, 17.0, 19.0, 2.0**-10], np.float32)
    quantized = quantize_activation(values, Quantization(1.0, 0), FP8)
    assert quantized.dtype == DTYPE
    assert quantized.astype(np.float32).tolist() == [0, -448, 448, 16, 20, 0]


@given(
    values=arrays.arrays(np.float32, 50, elements=st.floats(-1e4, 1e4, width=32)),
    amax=st.floats(2.0**-6, 1e4, width=32),
)
@settings(max_examples=50, deadline=None)
def test_values_are_those_of_onnx_runtime(values: np.ndarray, amax: float):
    to = activation_quantization(Range(-amax, amax), FP8)
    feeds = {"x": values, "scale": np.array(to.scale, np.float32)}
    ours = quantize_activation(values, to, FP8)
    (dequantized,) = SESSION.run(["y"], feeds)
    np.testing.assert_array_equal(ours.astype(np.float32) * np.float32(to.scale), dequantized)
    weights = quantize_weight(values, np.array(to.scale, np.float32), None, "float8e4m3fn", -127)
    np.testing.assert_array_equal(weights.view(np.uint8), ours.view(np.uint8))


def test_weights_are_stored_as_fp8_per_channel(save: Save):
    model = with_opset(load_model(save(CONV)), 19)
    candidate = Inserter(model, FP8).insert(PLACEMENT, RANGES)
    onnx.checker.check_model(candidate, full_check=True)
    assert candidate.ir_version >= 9
    stored = initializers(candidate)
    for name in ("w/quantized", "w/zero_point", "s/zero_point"):
        assert stored[name].data_type == TensorProto.FLOAT8E4M3FN
    assert stored["w/quantized"].ByteSize() < 32 * 16 * 9 + 100
    weights = model.array("w")
    scale = numpy_helper.to_array(stored["w/scale"])
    np.testing.assert_allclose(scale, np.abs(weights).max(axis=(1, 2, 3)) / 448, rtol=1e-6)
    np.testing.assert_array_equal(scale, weight_scale(weights, 0, "float8e4m3fn"))
    restored = numpy_helper.to_array(stored["w/quantized"]).astype(np.float32)
    restored *= scale.reshape(-1, 1, 1, 1)
    # Three bits behind the leading one: half a step is at most 1/16 of a normal value.
    largest = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    assert (np.abs(restored - weights) <= np.maximum(np.abs(weights) / 16, largest / 1e5)).all()


@pytest.mark.parametrize("base", ["float", "float16"])
def test_onnx_runtime_and_onnxs_reference_agree(save: Save, base: str):
    model = load_model(save(CONV))
    model = convert(model, "float16", "keep") if base == "float16" else with_opset(model, 19)
    candidate = Inserter(model, FP8).insert(
        translate(PLACEMENT, model.graph), translate_ranges(RANGES, model.graph)
    )
    onnx.checker.check_model(candidate, full_check=True)
    x = np.random.default_rng(0).uniform(-3, 3, (1, 16, 8, 8)).astype(np.float32)
    # Its optimizations drop a Relu before FP8 as if that had no sign.
    (actual,) = outputs(candidate, x=x)
    (expected,) = ReferenceEvaluator(candidate).run(None, {"x": x})
    (floats,) = outputs(onnx.load(save(CONV)), x=x)
    # Sums in another order may fall to the other side of a tie: a step of FP8, in few places.
    assert np.mean(actual != expected) < 0.1
    assert sqnr(floats, actual) > 20


def test_an_opset_without_fp8_is_refused(save: Save):
    model = load_model(save(CONV))
    with pytest.raises(InputError, match=r"quantizes s -> conv\[0\] to FP8, which needs opset 19"):
        Inserter(model, FP8).insert(PLACEMENT, RANGES)


@pytest.mark.parametrize("base", ["float", "float16", "bfloat16"])
def test_nvidias_builder_runs_the_convolution_on_fp8(save: Save, base: str, builder: ModuleType):
    model = load_model(save(CONV))
    if base == "float":
        model = with_opset(model, 19)
    else:
        model = convert(model, "float16" if base == "float16" else "bfloat16", "keep")
    candidate = Inserter(model, FP8).insert(
        translate(PLACEMENT, model.graph), translate_ranges(RANGES, model.graph)
    )
    report = check_model(builder, candidate, "sm89")
    assert report.refusals == ()
    (convolution,) = [layer for layer in report.plan.layers if layer.op == "correlation"]
    assert convolution.input_types[0] == "fp8"
