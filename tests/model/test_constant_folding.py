"""Constants and fixed shapes are computed when a model is loaded, and outputs stay."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.graph.external_data import is_external
from placer.model import load_model
from placer.model.passes import constant_folding
from tests.model.normalized import Save, ops, same_outputs
from tests.reference_outputs import outputs


def test_constant_subgraphs_are_folded_but_dynamic_shapes_are_not(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,4] x) => (float[M] y)
        <int64[1] a = {-1}, int64[1] b = {2}> {
          s = Shape<start = 1>(x)
          two = Mul(b, b)
          minus = Sub(two, b)
          minus2 = Sub(minus, b)
          flat = Add(minus2, a)
          y = Reshape(x, flat)
        }
        """
    )
    model = load_model(path)
    assert [n.op for n in model.graph.nodes] == ["Reshape"]
    x = np.ones((3, 4), np.float32)
    assert outputs(model.proto, x=x)[0].shape == (12,)


def test_a_part_of_a_static_shape_is_a_constant(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,3] x) => (int64[K] y, float[2,3] r) {
          r = Relu(x)
          s = Shape<start = 1>(r)
          d = Mul(s, s)
          y = Identity(d)
        }
        """
    )
    assert same_outputs(path, x=np.ones((2, 3), np.float32)) == ["Relu", "Identity"]


def test_positions_that_the_shape_fixes_are_constants(save: Save):
    """A detector's anchors: how many there are is known once what counts them is folded."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,5] x) => (float[1,5] y)
        <float zero = {0}, float one = {1}, float half = {0.5}, int64 last = {1}> {
          s = Shape(x)
          n = Gather<axis = 0>(s, last)
          count = Cast<to = 1>(n)
          r = Range(zero, count, one)
          centres = Add(r, half)
          row = Expand(centres, s)
          y = Mul(x, row)
        }
        """
    )
    assert same_outputs(path, x=np.ones((1, 5), np.float32)) == ["Mul"]


def test_float_constants_between_integer_casts_stay_floats(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (int64[2] x) => (int64[2] y) <float half = {0.5}> {
          f = Cast<to = 1>(x)
          h = Mul(f, half)
          y = Cast<to = 7>(h)
        }
        """
    )
    assert same_outputs(path, x=np.array([8, 6])) == ["Cast", "Mul", "Cast"]


def test_what_is_random_or_large_or_a_sequence_is_not_folded(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, float s, float[4] z)
        <float[2] w = {1, 2}, int64[1] n = {1000000}> {
          r = RandomNormalLike<seed = 1.0>(w)
          y = Mul(x, r)
          c = ConstantOfShape(n)
          s = ReduceSum<keepdims = 0>(c)
          q = SequenceConstruct(w, w)
          z = ConcatFromSequence<axis = 0>(q)
        }
        """
    )
    left = ["RandomNormalLike", "Mul", "ConstantOfShape", "ReduceSum"]
    assert ops(path) == Counter([*left, "SequenceConstruct", "ConcatFromSequence"])


def test_what_is_computed_of_weights_in_another_file_is_folded_too(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,64] x) => (float[N,64] y) <float[64,64] w = {1}, float[64] b = {2}> {
          negated = Neg(w)
          turned = Transpose(negated)
          h = MatMul(x, turned)
          y = Add(h, b)
        }
    """
    inside = load_model(save(text))
    path = tmp_path / "external" / "model.onnx"
    path.parent.mkdir()
    proto = onnx.load(inside.path)
    for tensor in proto.graph.initializer:  # Only raw bytes are put into another file.
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    outside = load_model(path)
    assert [node.op for node in outside.graph.nodes] == ["MatMul", "Add"]
    assert is_external(outside.graph.initializers["b"])  # Nothing is made of it.
    for name in inside.graph.initializers:
        np.testing.assert_array_equal(outside.array(name), inside.array(name))
    # What has no room within the model stays as it is.
    monkeypatch.setattr(constant_folding, "_MAX_INLINE_BYTES", 0)
    monkeypatch.setattr(constant_folding, "_MAX_GROWN_BYTES", 0)
    assert [node.op for node in load_model(path).graph.nodes][:2] == ["Neg", "Transpose"]


def test_constant_weights_are_computed_once(save: Save):
    """A transposed weight becomes an initializer, however large."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,64] x) => (float[N,64] y) <float[64,64] w = {1}> {
          t = Transpose(w)
          y = MatMul(x, t)
        }
        """
    )
    assert same_outputs(path, x=np.ones((3, 64), np.float32)) == ["MatMul"]
    assert [t.name for t in load_model(path).proto.graph.initializer] == ["t"]


def test_what_onnx_runtime_cannot_fold_does_not_keep_the_rest_from_it(save: Save):
    """ONNX Runtime has no CumSum of uint32."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, uint32[2] z)
        <float[2] a = {1, 2}, uint32[2] i = {1, 2}, int32 axis = {0}> {
          b = Neg(a)
          y = Add(x, b)
          c = CumSum(i, axis)
          d = CumSum(c, axis)
          z = Identity(d)
        }
        """
    )
    assert ops(path) == {"Add": 1, "CumSum": 2}
