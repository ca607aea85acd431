"""Scales behind an activation of an integer Conv are where OpenVINO computes them."""

from pathlib import Path

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

X, W = (Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),)
MODEL = """
g (float[1,16,16,16] x) => (float[1,16,N,N] out)
<float[16,16,3,3] w = {1}, float k = {SCALE}, float[1,16,1,1] b = {1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [act1] h = ACT(a)
  [mul1] m = Mul(h, k)
  [add1] y = Add(m, b)
  READERS
}
"""
# A gate of the channels, as in PP-OCR.
GATED = """
  [pool1] p = GlobalAveragePool(y)
  [act2] q = Softmax<axis = 1>(p)
  [mul2] out = Mul(y, q)
"""
POOLED = """
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y)
  [act2] out = Softmax(p)
"""
SUMMED = """
  [act3] c = Softmax(x)
  [add2] o = Add(y, c)
  [act2] s = Softmax(y)
  [mul2] out = Mul(o, s)
"""
# All that reads the scale may compute it by itself.
POOLED_TWICE = """
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y)
  [pool2] q = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(y)
  [act2] s = Softmax(p)
  [act3] t = Softmax(q)
  [mul2] out = Mul(s, t)
"""
POOLED_AND_SUMMED = """
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y)
  [add2] o = Add(y, x)
  [act2] s = Softmax(p)
  [pool2] q = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(o)
  [mul2] out = Mul(s, q)
"""
SUMMED_TWICE = """
  [act2] c = Softmax(x)
  [add2] o = Add(y, c)
  [add3] q = Add(c, y)
  [act3] s = Softmax(o)
  [mul2] out = Mul(s, q)
"""
# A root moves before the view, and one over it does not if it is the divisor of a product.
INVERSE = """
g (float[1,8,64] x) => (float[1,1,8,64] out)
<int64[4] shape = {1, 1, 8, 64}, float tiny = {0.1}, float[1,1,8,1] gain = {2}> {
  [act1] s = Softmax(x)
  [max1] a = Max(s, tiny)
  [mul1] b = Mul(a, a)
  [view1] v = Reshape(b, shape)
  [add1] c = Add(v, tiny)
  [sqrt1] d = Sqrt(c)
  [inverse1] e = Reciprocal(d)
  [mul2] out = Mul(e, gain)
}
"""


@pytest.mark.parametrize("act", ["HardSwish", "Relu"])
@pytest.mark.parametrize(
    ("readers", "factor", "paired", "layer"),
    [
        (GATED, "2", "", {"mul1", "add1", "pool1"}),
        (GATED, "2", "pool1", {"mul1", "add1", "mul2"}),
        (GATED, "-2", "pool1", {"conv1", "act1", "mul1", "add1"}),
        (POOLED, "2", "", {"mul1", "add1"}),
        (POOLED, "2", "pool1", {"conv1", "act1", "mul1", "add1"}),
        (SUMMED, "2", "", {"mul1", "add1"}),
        (SUMMED, "-2", "act2", {"mul1", "add1"}),
        (POOLED_TWICE, "2", "", {"mul1", "add1"}),
        (POOLED_AND_SUMMED, "2", "", {"mul1", "add1"}),
        (SUMMED_TWICE, "2", "", {"mul1", "add1", "add3", "mul2"}),
    ],
)
def test_scales_move_behind_pools_and_sums_and_into_pairs(
    act: str, readers: str, factor: str, paired: str, layer: set[str], tmp_path: Path
):
    size = "8,8" if readers in (POOLED, POOLED_TWICE, POOLED_AND_SUMMED) else "16,16"
    text = MODEL.replace("ACT", act).replace("READERS", readers).replace("N,N", size)
    pairs = [X, W, *([(Edge("y", paired, 0),)] if paired else [])]
    predicted, actual = plans(text.replace("SCALE", factor), pairs, tmp_path)
    assert layer in [set(one.nodes) for one in actual.layers]
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


def test_what_a_quotient_is_stays_behind_a_view(tmp_path: Path):
    predicted, actual = plans(INVERSE, [], tmp_path)
    assert layers(predicted) == layers(actual)


ELSEWHERE = """
g (float[1,16,8,8] x, float[1,16,8,8] r) => (float[1,16,1,1] y, float[1,16,8,8] z)
<float[16,16,1,1] w = {1}, float half = {0.5}> {
  [conv1] z = Conv(r, w)
  [act1] a = Tanh(x)
  [mul1] b = Mul(a, half)
  [pool1] y = GlobalAveragePool(b)
}
"""


@pytest.mark.parametrize(
    ("pairs", "layer"),
    [([], {"act1", "mul1"}), ([(Edge("r", "conv1", 0),), W], {"mul1", "pool1"})],
    ids=["float", "a pair elsewhere"],
)
def test_a_factor_of_something_element_wise_moves_behind_a_mean(pairs, layer, tmp_path: Path):
    predicted, actual = plans(ELSEWHERE, pairs, tmp_path)
    assert layer in [set(one.nodes) for one in actual.layers]
    assert layers(predicted) == layers(actual)
