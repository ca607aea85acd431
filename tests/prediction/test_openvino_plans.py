"""Predicted plans of small graphs are those that OpenVINO makes, pair by pair."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import this_processor
from placer.graph import Edge
from placer.graph.text import graph_of_text, parse_model
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

HEAD = '<ir_version: 9, opset_import: ["": 17]>'
PACK = load_pack("openvino")
# Two parts of what a Conv writes; one is added to what another Conv makes of the input.
SLICED = """
g (float[1,16,8,8] x) => (float[1,8,8,8] y, float[1,8,8,8] z)
<float[16,16,3,3] w = {1}, float[8,16,1,1] w2 = {1}, int64[1] first = {0}, int64[1] half = {8},
 int64[1] last = {16}, int64[1] axis = {1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [slice1] p = Slice(a, first, half, axis)
  [slice2] q = Slice(a, half, last, axis)
  [conv2] b = Conv(x, w2)
  [add1] y = Add(p, b)
  [softmax1] z = Softmax(q)
}
"""
POOLED = """
g (float[1,16,8,8] x) => (float[1,16,4,4] y)
<float[16,16,3,3] w = {1}, float[16,16,1,1] w2 = {1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [act1] b = ACT(a)
  [pool1] c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
  [conv2] y = Conv(c, w2)
}
"""
# What joins is read in float as well.
JOINED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,32,8,8] z)
<float[16,16,3,3] w = {1}, float[16,16,1,1] w1 = {1}, float[16,32,1,1] w2 = {1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [act1] b = Tanh(a)
  [conv3] d = Conv(x, w1)
  [act3] e = Tanh(d)
  [concat1] c = Concat<axis = 1>(b, e)
  [conv2] y = Conv(c, w2)
  [softmax1] z = Softmax(c)
}
"""
ATTENTION = """
g (float[1,16,32] x) => (float[1,16,8] y)
<float[32,24] w = {1}, int64[3] sizes = {8, 8, 8}> {
  [fc1] a = MatMul(x, w)
  [split1] q, k, v = Split<axis = 2>(a, sizes)
  [turn1] t = Transpose<perm = [0, 2, 1]>(k)
  [scores1] s = MatMul(q, t)
  [softmax1] p = Softmax(s)
  [mix1] y = MatMul(p, v)
}
"""
BEHIND = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}> {
  [conv1] a = Conv(x, w)
  [act1] y = Tanh(a)
}
"""
SINGLE = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}> {
  [conv1] a = Conv(x, w)
  [concat1] b = Concat<axis = 1>(a)
  [conv2] y = Conv(b, w2)
}
"""

NORM = """
g (float[1,8,8,16] x) => (float[1,16,8,8] y)
<float[16] gain = {1}, float[16] shift = {1}, float[16,16,3,3] w = {1}> {
  [norm1] a = LayerNormalization(x, gain, shift)
  [turn1] b = Transpose<perm = [0, 3, 1, 2]>(a)
  [conv1] y = Conv<pads = [1, 1, 1, 1]>(b, w)
}
"""
OUT = """
g (float[1,16,8,8] x) => (float[1,8,8,16] y) <float[16,16,1,1] w = {1}> {
  [conv1] a = Conv(x, w)
  [turn1] y = Transpose<perm = [0, 2, 3, 1]>(a)
}
"""
TOKENS = """
g (float[1,16,8,8] x) => (float[1,64,16] y)
<float[16,16,1,1] w = {1}, int64[3] shape = {1, 16, 64}> {
  [conv1] a = Conv(x, w)
  [view1] b = Reshape(a, shape)
  [turn1] y = Transpose<perm = [0, 2, 1]>(b)
}
"""

BIASED = TOKENS.replace("w = {1}", "w = {1}, float[16] bias = {1}").replace(
    "(x, w)", "(x, w, bias)"
)
# Strides of a Conv with a 1x1 kernel are taken past what its DQ does.
STRIDED = """
g (float[1,16,8,8] x) => (float[1,16,4,4] y, float[1,16,8,8] z)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float[16,16,3,3] w3 = {1}> {
  [conv1] a = Conv(x, w)
  [conv2] y = Conv<strides = [2, 2]>(a, w2)
  [conv3] z = Conv<pads = [1, 1, 1, 1]>(a, w3)
}
"""
ROUNDED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z)
<float[16,16,1,1] w = {1}> {
  [conv1] y = Conv(x, w)
  [softmax1] z = Softmax(x)
}
"""
# The Conv overwrites what SECOND writes with the sum.
SUMMED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,3,3] w2 = {1}> {
  [conv1] a = Conv(x, w)
  [second] b = SECOND
  [add1] y = Add(a, b)
}
"""


def varied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` with constants as networks have: OpenVINO treats one value throughout apart."""
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1:
            drawn = 0.3 * rng.standard_normal(values.shape).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(drawn, tensor.name))
    return proto


def plans(text: str, pairs: list[tuple[Edge, ...]], folder: Path) -> tuple[Plan, Plan]:
    """Predicted and built, of the groups of ``pairs``."""
    engine = pytest.importorskip("placer.engines.openvino.engine", exc_type=ImportError)
    onnx.save(varied(parse_model(HEAD + text)), folder / "model.onnx")
    model, target = load_model(folder / "model.onnx"), Target(processor=this_processor())
    placement, scheme = Placement.of_groups(pairs), PACK.manifest.scheme
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    predictor = make_predictor(model.graph, PACK, target, "float", ranges=ranges)
    actual = engine.OpenVinoEngine().compile(candidate, folder).plan()
    return predictor.predict(placement).plan, actual


def layers(plan: Plan) -> Counter[tuple[frozenset[str], tuple[str, ...]]]:
    return Counter(
        (frozenset(x.nodes), tuple(sorted(set(x.output_types)))) for x in plan.of_kind("compute")
    )


def conversions(plan: Plan) -> Counter[tuple[str, str, str]]:
    return Counter(
        (x.kind, x.input_types[0], x.output_types[0])
        for x in plan.of_kind("quantize", "dequantize", "requantize")
    )


X, W, W2 = Edge("x", "conv1", 0), Edge("w", "conv1", 1), Edge("w2", "conv2", 1)
W3, SUM = Edge("w3", "conv3", 1), [(X,), (W,), (Edge("b", "add1", 1),)]
TWICE = [(Edge("b", "pool1", 0), Edge("c", "conv2", 0)), (W2,)]
BRANCHES = (Edge("b", "concat1", 0), Edge("e", "concat1", 1))


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [
        # GroupedSliceToVSplitOptimization; nothing is added in place of a part of that Split.
        (SLICED, [], ("slice1", "slice2")),
        # What is left of the second pair is a layer unless its zero point is 0.
        (POOLED.replace("ACT", "Tanh"), TWICE, "requantize"),
        (POOLED.replace("ACT", "Relu"), TWICE, None),
        # But a pair that repeats those of all branches of a Concat is none.
        (JOINED, [(*BRANCHES, Edge("c", "conv2", 0)), (W2,)], None),
        # Keys and values are read as int8 only, so the tensor that they are part of is int8.
        (ATTENTION, [(Edge("a", "split1", 0),)], ("split1",)),
        # The kernel takes Q along, so that what follows reads integers.
        (BEHIND, [(Edge("a", "act1", 0),)], "quantize"),
        # A Concat of one tensor is nothing.
        (SINGLE, [], ("conv2",)),
        (SINGLE, [(X,), (W,), (Edge("b", "conv2", 0),), (W2,)], ("conv2",)),
        # MergeTransposeAndReorder: what a Transpose writes is where it was before.
        (NORM, [], ("conv1",)),
        (NORM, [(Edge("b", "conv1", 0),), (W,)], ("conv1",)),
        (OUT, [], ("conv1",)),
        (OUT, [(X,), (W,)], ("conv1",)),
        (TOKENS, [], ("conv1",)),
        (BIASED, [(X,), (W,)], ("conv1",)),
        # StridesOptimization: only a DQ that something else reads, too, stays in one piece.
        (STRIDED, [(Edge("a", "conv2", 0),), (W2,)], ("conv2",)),
        (STRIDED, [(Edge("a", "conv2", 0), Edge("a", "conv3", 0)), (W2,), (W3,)], "quantize"),
        # A Q that no kernel takes along is one layer with its DQ, and rounds.
        (SUMMED.replace("SECOND", "Conv<pads = [1, 1, 1, 1]>(x, w2)"), SUM, "quantize"),
        (SUMMED.replace("SECOND", "MaxPool<kernel_shape = [1, 1]>(x)"), SUM, "quantize"),
        (ROUNDED, [(Edge("x", "softmax1", 0),)], ("softmax1",)),
        (ROUNDED, [(X, Edge("x", "softmax1", 0)), (W,)], "quantize"),
        (TOKENS, [(X,), (W,)], ("turn1",)),
    ],
)
def test_layers_and_conversions_are_openvinos(text, pairs, expected, tmp_path):
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    if isinstance(expected, tuple):
        assert frozenset(expected) in {nodes for nodes, _ in layers(actual)}
    else:
        assert (expected or "quantize") in {kind for kind, _, _ in conversions(actual)}
        assert expected is not None or "requantize" not in {k for k, _, _ in conversions(actual)}


def test_an_operator_of_another_domain_is_no_sigmoid():
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17, "my.ops": 1]>
        g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,8,8] y) {
          [sigmoid1] s = my.ops.Sigmoid(x, z)
          [mul1] m = Mul(x, s)
          [mul2] y = Mul(m, s)
        }""")
    plan = make_predictor(graph, PACK, Target(), "float").predict(EMPTY).plan
    assert [layer.nodes for layer in plan.layers] == [("sigmoid1",), ("mul1", "mul2")]
