"""Nodes that compute the same: ONNX Runtime runs one of them where no pair is before them."""

from pathlib import Path

import pytest

from placer.graph import Edge
from tests.prediction.test_onnxruntime_plans import plans
from tests.prediction.test_openvino_plans import conversions, layers

POOLED = """
g (float[1,16,8,8] x) => (float[1,48,8,8] y) {
  [first] a = Tanh(x)
  [pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)
  [pool2] q = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)
  [join] y = Concat<axis = 1>(a, p, q)
}
"""
# As separable convolutions of a NASNet begin.
ACTIVATED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,1,3,3] w1 = {1}, float[16,1,5,5] w2 = {1}> {
  [first] a = Tanh(x)
  [relu1] r = Relu(a)
  [relu2] s = Relu(a)
  [conv1] c = Conv<pads = [1, 1, 1, 1], group = 16>(r, w1)
  [conv2] d = Conv<pads = [2, 2, 2, 2], group = 16>(s, w2)
  [sum] y = Add(c, d)
}
"""
# What reads equal nodes may be equal, too, but is not where a constant differs.
IN_A_ROW = """
g (float[1,16] x) => (float[1,16] y, float[1,16] z, float[1,16] u)
<float two = {2}, float[16] v = {1}, float[16] w = {1}> {
  [tanh1] a = Tanh(x) [tanh2] b = Tanh(x)
  [mul1] c = Mul(a, two) [mul2] d = Mul(b, two)
  [sub1] e = Sub(c, v) [sub2] f = Sub(d, w)
  [exp1] y = Exp(e) [exp2] z = Exp(f) [sin1] u = Sin(d)
}
"""
BRANCHES = [
    (Edge("r", "conv1", 0),),
    (Edge("w1", "conv1", 1),),
    (Edge("s", "conv2", 0),),
    (Edge("w2", "conv2", 1),),
    (Edge("c", "sum", 0),),
    (Edge("d", "sum", 1),),
    (Edge("y", "", 0),),
]
POOLS = [
    (Edge("a", "pool1", 0), Edge("a", "pool2", 0), Edge("a", "join", 0)),
    (Edge("p", "join", 1),),
    (Edge("q", "join", 2),),
    (Edge("y", "", 0),),
]


@pytest.mark.parametrize(
    ("text", "pairs", "one"),
    [
        (POOLED, [], {"pool1", "pool2"}),
        (POOLED, POOLS, {"pool1"}),
        (ACTIVATED, [], {"relu1", "relu2"}),
        (ACTIVATED, BRANCHES, {"relu1", "relu2"}),
        (ACTIVATED, [(Edge("a", "relu1", 0), Edge("a", "relu2", 0)), *BRANCHES], {"conv1"}),
        (IN_A_ROW, [], {"mul1", "mul2"}),
        (IN_A_ROW, [], {"sub2"}),
    ],
)
def test_equal_nodes_are_one_where_no_pair_is_before_them(
    text: str, pairs: list[tuple[Edge, ...]], one: set[str], tmp_path: Path
):
    predicted, built = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(built)
    assert conversions(predicted) == conversions(built)
    assert frozenset(one) in {nodes for nodes, _ in layers(built)}
