"""Models that compute in float64, wholly or in part: no pair fits there, and the rest works."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from tests.conftest import Finished
from tests.reference_outputs import sqnr

Placer = Callable[..., Finished]

WHOLE = """
<ir_version: 9, opset_import: ["": 17]>
g (double[1,8] x) => (double[1,8] y) <double[8,8] w = {0.5}> {
  [mm] a = MatMul(x, w)
  [relu] y = Relu(a)
}
"""
# The second product is one of float64.
PART = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8] x) => (double[1,8] y)
<float s = {0.02}, int8 z = {0}, float[8,8] w = {0.5}, double[8,8] v = {0.5}> {
  PAIR
  [mm] a = MatMul(DATA, w)
  [wide] b = Cast<to = 11>(a)
  [mm64] y = MatMul(b, v)
}
"""
FLOAT = PART.replace("PAIR", "").replace("DATA", "x")
QUANTIZED = PART.replace("DATA", "d").replace(
    "PAIR", "[q] q = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(q, s, z)"
)
PLACEMENT = """
format: placer-placement/1
id: 0123456789ab
model: sha256:00
pack: tensorrt
calibrated: true
scheme: {activation: int8, symmetric: true, weight: int8, per_channel: true, bias: float}
groups:
"""
OF_FLOAT = """
- {edges: [{tensor: x, node: mm, input: 0}], range: [-3.0, 3.0]}
- {edges: [{tensor: w, node: mm, input: 1}]}
"""
OF_DOUBLE = """
- {edges: [{tensor: b, node: mm64, input: 0}], range: [-9.0, 9.0]}
- {edges: [{tensor: v, node: mm64, input: 1}]}
"""


def saved(text: str) -> Path:
    """The model with random weights of both widths, and data for it."""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if len(tensor.dims) == 2:
            wide = tensor.data_type == onnx.TensorProto.DOUBLE
            values = rng.standard_normal((8, 8)).astype(np.float64 if wide else np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, "net.onnx")
    np.savez("data.npz", x=rng.standard_normal((6, 8)))
    return Path("net.onnx")


def outputs(path: Path | str) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (name,) = (value.name for value in session.get_inputs())
    is_wide = session.get_inputs()[0].type == "tensor(double)"
    with np.load("data.npz") as file:
        rows = file["x"].astype(np.float64 if is_wide else np.float32)
    return np.concatenate([session.run(None, {name: row[None]})[0] for row in rows])


def test_extract_of_a_float64_model(placer: Placer):
    saved(WHOLE)
    command = ("--inputs", "a", "--outputs", "y", "--data", "data.npz", "-o", "part.onnx")
    finished = placer("extract", "net.onnx", *command)
    assert finished.code == 0, finished.err
    kept = onnx.load("part.onnx").graph
    types = {v.type.tensor_type.elem_type for v in (*kept.input, *kept.output)}
    assert types == {onnx.TensorProto.DOUBLE}
    with np.load("part.npz") as file:
        reached = file["a"]
    assert (reached.dtype, reached.shape) == (np.float64, (6, 8))
    expected = outputs("net.onnx")
    np.testing.assert_allclose(np.maximum(reached, 0), expected, rtol=1e-14)


def test_import_leaves_float64_as_it_is(placer: Placer):
    source = outputs(saved(QUANTIZED))
    finished = placer("import", "net.onnx", "--data", "data.npz", "-o", "float.onnx")
    assert finished.code == 0, finished.err
    assert "on 6 samples of data.npz, the float model's outputs agree with" in finished.out
    assert [node.op_type for node in onnx.load("float.onnx").graph.node] == [
        "MatMul",
        "Cast",
        "MatMul",
    ]
    found = outputs("float.onnx")
    assert found.dtype == np.float64
    assert sqnr(source, found) > 25


def test_apply_quantizes_what_is_float32_and_says_what_is_not(placer: Placer):
    source = outputs(saved(FLOAT))
    Path("placement.yaml").write_text(PLACEMENT + OF_FLOAT + OF_DOUBLE)
    finished = placer("apply", "placement.yaml", "net.onnx", "--base", "float", "-o", "out")
    assert finished.code == 0, finished.err
    assert "'b' is not a float32, float16 or bfloat16 tensor" in finished.out
    written = onnx.load("out/optimized.onnx")
    assert [n.input[0] for n in written.graph.node if n.op_type == "QuantizeLinear"] == ["x"]
    found = outputs("out/optimized.onnx")
    assert found.dtype == np.float64
    assert sqnr(source, found) > 25


def test_apply_refuses_a_placement_of_float64_alone(placer: Placer):
    saved(FLOAT)
    Path("placement.yaml").write_text(PLACEMENT + OF_DOUBLE)
    before = sorted(Path().iterdir())
    for options in ((), ("--data", "data.npz", "--no-cache")):
        refused = placer("apply", "placement.yaml", "net.onnx", *options, "-o", "out")
        assert refused.code == 2
        assert "none of its 2 edges is found in net.onnx" in refused.err
        assert refused.err.count("\n") == 1
        assert sorted(Path().iterdir()) == before


def test_apply_converts_no_float64_to_float16(placer: Placer):
    """The rest of the model may go to float16; what is float64 stays."""
    source = outputs(saved(FLOAT))
    Path("placement.yaml").write_text(PLACEMENT + OF_FLOAT)
    finished = placer("apply", "placement.yaml", "net.onnx", "--base", "float16", "-o", "out")
    assert finished.code == 0, finished.err
    found = outputs("out/optimized.onnx")
    assert found.dtype == np.float64
    assert sqnr(source, found) > 25
