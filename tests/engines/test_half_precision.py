"""FP16 and BF16 models on ONNX Runtime's CPU provider."""

import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.engines.half_precision import HalfPrecisionModel, in_float32
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.graph.text import parse_model
from placer.model import load_model
from placer.qdq.bases import InputOutputTypes
from placer.qdq.precision import convert

Save = Callable[..., Path]

CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,4,8,8] x) => (float[2,4,8,8] y)
<float[4,4,3,3] w = {0.1}, float[4] b = {0.25, -0.5, 0, 1}> {
  c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  r = Relu(c)
  y = Sigmoid(r)
}
"""
X = np.random.default_rng(0).uniform(-1, 1, (2, 4, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_rounding_after_each_node_is_what_float16_kernels_do(save: Save, io: InputOutputTypes):
    model = convert(load_model(save(CHAIN)), "float16", io)
    runs = HalfPrecisionModel(model.proto, Path(), 1).run({"x": X})["y"]
    emulated = OnnxRuntimeModel(in_float32(model.proto, Path()), Path(), 1).run({"x": X})["y"]
    assert emulated.dtype == np.float32
    np.testing.assert_allclose(runs.astype(np.float32), emulated, atol=2**-11)


def test_onnx_runtime_has_no_bfloat16_kernels_so_values_are_rounded():
    model = parse_model("""
        <ir_version: 10, opset_import: ["": 22]>
        g (bfloat16[4] x, bfloat16[4] z) => (bfloat16[4] y) {
          s = Add(x, z)
          y = Mul(s, s)
        }
    """)
    with pytest.raises(RunError, match="Could not find an implementation"):
        OnnxRuntimeModel(model, Path(), 1)
    x, z = np.float32([1.001, -3.14159, 1e-30, 300.5]), np.float32([1, 0.01, 1e-30, 0.3])
    (found,) = HalfPrecisionModel(model, Path(), 1).run({"x": x, "z": z}).values()

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    total = rounded(rounded(x) + rounded(z))
    np.testing.assert_array_equal(found, rounded(total * total))


def test_an_operator_that_fails_only_when_it_runs_is_rounded_too():
    """ONNX Runtime has no 16-bit AffineGrid, and fails within what it expands it to."""
    model = parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        g (float16[1,2,3] x) => (float16[1,2,2,2] y) <int64[4] size = {1, 1, 2, 2}> {
          y = AffineGrid(x, size)
        }
    """)
    x = np.array([[[1, 0, 0.25], [0, 1, -0.5]]], np.float32)
    ran = HalfPrecisionModel(model, Path(), 1)
    (first,), (again,) = ran.run({"x": x}).values(), ran.run({"x": x}).values()
    assert (
        first.tolist()
        == again.tolist()
        == [[[[-0.25, -1.0], [0.75, -1.0]], [[-0.25, 0.0], [0.75, 0.0]]]]
    )


def test_what_is_no_16_bit_model_is_refused_as_ever():
    model = parse_model("""
        <ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[4] x) => (float[4] y) { y = com.microsoft.NoSuchOperator(x) }
    """)
    with pytest.raises(RunError, match="ONNX Runtime refuses the model"):
        HalfPrecisionModel(model, Path(), 1)


def test_16_bit_types_in_a_subgraph_cannot_be_judged_without_kernels():
    model = parse_model("""
        <ir_version: 10, opset_import: ["": 22]>
        g (bool c, bfloat16[4] x) => (bfloat16[4] y) {
          y = If(c) <
            then_branch = a () => (bfloat16[4] t) { t = Add(x, x) },
            else_branch = b () => (bfloat16[4] e) { e = Mul(x, x) }
          >
        }
    """)
    onnx.checker.check_model(model)
    with pytest.raises(RunError, match="16-bit types in a subgraph"):
        HalfPrecisionModel(model, Path(), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_weights_are_dequantized_beside_the_memory_that_a_run_may_take(
    monkeypatch: pytest.MonkeyPatch,
):
    """All 16 MiB of them until its end: of a network of 3 GiB that is more than the limit."""
    nodes = "".join(
        f"d{i} = DequantizeLinear(w{i}, s) y{i + 1} = MatMul(y{i}, d{i}) " for i in range(4)
    )
    proto = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17]>
    g (float[1,1024] y0) => (float[1,1024] y4) <float s = {{0.001}}> {{ {nodes} }}""")
    ones = np.ones((1024, 1024), np.int8)
    proto.graph.initializer.extend(numpy_helper.from_array(ones, f"w{i}") for i in range(4))
    monkeypatch.setenv("PLACER_MAX_RUN_BYTES", str(6 * 2**20))
    model = HalfPrecisionModel(proto, Path(), 1)
    y = model.run({"y0": np.ones((1, 1024), np.float32)})["y4"]
    np.testing.assert_allclose(y, np.full((1, 1024), 1.024**4), rtol=1e-5)
