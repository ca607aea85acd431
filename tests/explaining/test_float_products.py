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
    ],
)
def test_a_transposed_conv_in_float_is_told(engine, first, zero, is_float, tmp_path: Path):
    path = tmp_path / "model.onnx"
    proto = parse_model(TRANSPOSED.replace("ZERO", zero).replace("FIRST", first))
    onnx.save(proto, path)
    notes = " ".join(explain(path, pack=engine).notes)
    assert (TOLD in notes) == is_float
    runner = OpenVinoEngine() if engine == "openvino" else OnnxRuntimeEngine()
    built = runner.compile(proto, tmp_path).plan()
    (layer,) = (one for one in built.of_kind("compute") if "up" in one.nodes)
    assert (layer.input_types[0] == "float") == is_float
