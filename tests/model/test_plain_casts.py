"""CastLikes become Casts, so that zeros that PyTorch's newer exporter computes are constants."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from placer.model import load_model

Save = Callable[..., Path]

# A Conv without a bias and the norm behind it, as the exporter writes them without its optimizer.
ZEROS = """<ir_version: 9, opset_import: ["": 20]>
g (float[1,2,4,4] x) => (float[1,3,4,4] out)
<float[3,2,1,1] w = {1,2,3,4,5,6}, float[3] scale = {2,2,2}, float[3] shift = {1,1,1},
 float[3] mean = {0,1,2}, float[3] variance = {1,1,1}, float zero = {0}, int64[1] one = {1}> {
  [shape] dims = Shape<start = 0, end = 1>(w)
  [like] typed = CastLike(zero, x)
  [expand] zeros = Expand(typed, dims)
  [conv] a = Conv(x, w, zeros)
  [norm] b = BatchNormalization(a, scale, shift, mean, variance)
  [act] out = Relu(b)
}"""
BEHIND = """<ir_version: 9, opset_import: ["": 17]>
g (float[4] x, float16[4] y) => (float16[4] out) {
  [like] a = CastLike(x, y)
  [add] out = Add(a, y)
}"""


def test_a_computed_bias_is_a_constant_and_the_norm_is_folded(save: Save) -> None:
    path = save(ZEROS)
    model = load_model(path)
    assert [node.name for node in model.graph.nodes] == ["conv", "act"]
    assert "wrote 1 CastLike nodes as Casts" in model.notes
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 2, 4, 4), np.float32)}
    expected = ReferenceEvaluator(onnx.load(path)).run(None, feeds)[0]
    found = ReferenceEvaluator(model.proto).run(None, feeds)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_an_activation_gives_its_type_is_cast_to_it(save: Save) -> None:
    nodes = load_model(save(BEHIND)).graph.nodes
    assert [(node.op, node.inputs) for node in nodes] == [("Cast", ("x",)), ("Add", ("a", "y"))]
    assert nodes[0].attributes["to"] == onnx.TensorProto.FLOAT16


BRANCH = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,4,4] x) => (float[1,3,4,4] out)
<float[3,2,1,1] w = {1}, float zero = {0}, int64[1] dims = {3}, bool taken = {1}> {
  zeros = If(taken) <
    then_branch = t () => (float[3] y) { a = CastLike(zero, x) y = Expand(a, dims) },
    else_branch = e () => (float[3] z) { b = CastLike(zero, x) z = Expand(b, dims) }>
  [conv] out = Conv(x, w, zeros)
}"""


def test_a_bias_in_a_branch_that_always_runs_is_a_constant(save: Save) -> None:
    model = load_model(save(BRANCH))
    (conv,) = model.graph.nodes
    assert conv.name == "conv"
    np.testing.assert_array_equal(model.array(conv.inputs[2]), np.zeros(3, np.float32))
    assert "wrote 1 CastLike nodes as Casts" in model.notes
