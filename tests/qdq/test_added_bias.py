"""Biases that an Add adds to a product of integers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph import Edge
from placer.model import load_model
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.quantization import Placement, Range, Scheme

Save = Callable[..., Path]
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")
RANGES = {"x": Range(-1, 1), "m": Range(-4, 4), "s": Range(-4, 4)}
X, W, M, B = (
    Edge(*own) for own in (("x", "matmul", 0), ("w", "matmul", 1), ("m", "add", 0), ("b", "add", 1))
)


def linear(bias: str = "float[3] b = {1, 2, 3}", y: str = "y = Tanh(s)") -> str:
    return f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,5] x) => (float[1,4,3] y) <float[5,3] w = {{1}}, {bias}> {{
      [matmul] m = MatMul(x, w)
      [add] s = Add(m, b)
      [last] {y}
    }}
    """


def made(save: Save, text: str, edges: Sequence[Edge], scheme: Scheme = ORT) -> onnx.ModelProto:
    return Inserter(load_model(save(text)), scheme).insert(Placement.of(edges), RANGES)


def values(model: onnx.ModelProto, name: str) -> np.ndarray:
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


def test_its_scale_is_that_of_the_product(save: Save):
    candidate = made(save, linear(), [X, W, B])
    onnx.checker.check_model(candidate, full_check=True)
    scale = values(candidate, "x/scale") * values(candidate, "w/scale")
    np.testing.assert_array_equal(values(candidate, "b/scale"), scale)
    integers = values(candidate, "b/quantized")
    assert integers.dtype == np.int32
    np.testing.assert_array_equal(integers, np.rint([1, 2, 3] / scale.astype(np.float64)))


def test_the_pair_is_read_back(save: Save):
    candidate = made(save, linear(), [X, W, B])
    assert extract_placement(candidate).placement == Placement.of([X, W, B])


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        (linear(), [X, W, M, B]),  # The Add reads integers.
        (linear(), [W, B]),  # The product is one of floats.
        (linear("float[1] b = {1}"), [X, W, B]),
        (linear("float[1,3] b = {1, 2, 3}"), [X, W, B]),  # No Gemm is made of stacked matrices.
        (linear(y="y = Sub(s, m)"), [X, W, B]),  # Something else reads the product, too.
    ],
)
def test_elsewhere_it_is_a_constant_like_others(save: Save, text: str, edges: Sequence[Edge]):
    assert values(made(save, text, edges), "b/quantized").dtype == np.uint8


@pytest.mark.parametrize("product", ["m = MatMul(x, w)", "s = Gemm(x, w, b)"])
def test_a_row_is_written_in_one_dimension_since_kernels_add_no_other(save: Save, product: str):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[4,5] x) => (float[4,3] y) <float[5,3] w = {1}, float[1,3] b = {1, 2, 3}> {
      [matmul] PRODUCT
      [last] y = Tanh(s)
    }
    """.replace("PRODUCT", product)
    if "Gemm" in product:
        edges = [X, W]
    else:
        text, edges = text.replace("[last]", "[add] s = Add(m, b)\n[last]"), [X, W, B]
    candidate = made(save, text, edges)
    onnx.checker.check_model(candidate, full_check=True)
    assert values(candidate, "b/quantized").shape == (3,)
    model = load_model(save(text))
    compiled = OnnxRuntimeEngine().compile(candidate, model.base_dir)
    assert [layer.op for layer in compiled.plan().of_kind("compute")] == ["QGemm", "Tanh"]
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    expected = np.tanh(x @ model.array("w") + model.array("b"))
    np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, atol=0.02)


def test_a_scheme_without_int32_biases_has_none(save: Save):
    scheme = Scheme(activation="int8", symmetric=True, bias="float")
    assert values(made(save, linear(), [X, W, B], scheme), "b/quantized").dtype == np.int8


def test_onnx_runtime_computes_the_sum_on_integers_and_writes_float(save: Save):
    candidate = made(save, linear(), [X, W, B])
    model = load_model(save(linear()))
    compiled = OnnxRuntimeEngine().compile(candidate, model.base_dir)
    layers = [(layer.op, layer.nodes) for layer in compiled.plan().of_kind("compute")]
    assert layers == [("QGemm", ("add", "matmul")), ("Tanh", ("last",))]
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(1, 4, 5)
    expected = np.tanh(x @ model.array("w") + model.array("b"))
    np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, atol=0.02)
