"""Attentions with masks, positions and shared keys, and what FP16 does not hold."""

from pathlib import Path

import pytest

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of

ATTENTION = """
    (float[1,16,64] x INPUTS) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64,64] w2 = {1}, float[64,64] w3 = {1}, float[64,64] w4 = {1},
     float[16,16] wp = {1}> {
      heads = Constant<value = int64[4] {1, 16, 4, 16}>()
      rows = Constant<value = int64[3] {1, 16, 64}>()
      one_row = Constant<value = int64[4] {1, 1, 1, 16}>()
      all_rows = Constant<value = int64[4] {1, 1, 16, 16}>()
      half = Constant<value = float {0.5}>()
      one = Constant<value = float {1.0}>()
      low = Constant<value = float {-1000.0}>()
      zero = Constant<value = float {0.0}>()
      [queries] a1 = MatMul(x, w1)
      [view1] b1 = Reshape(a1, heads)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(b1)
      [keys] a2 = MatMul(x, w2)
      [view2] b2 = Reshape(a2, heads)
      [turn2] k = Transpose<perm = [0, 2, 3, 1]>(b2)
      [values] a3 = MatMul(x, w3)
      [view3] b3 = Reshape(a3, heads)
      [turn3] v = Transpose<perm = [0, 2, 1, 3]>(b3)
      BEFORE
      BEHIND
      [mix] o = MatMul(WEIGHTS, v)
      [turn4] t = Transpose<perm = [0, 2, 1, 3]>(o)
      [view4] r = Reshape(t, rows)
      [project] out = MatMul(r, w4)
    }"""
SCORES = "[scores] s0 = MatMul(q, k)\n[scale] s1 = Mul(s0, half)\n"
SOFT = "[soft] m = Softmax<axis = -1>(s2)"


def attention(before: str, behind: str = SOFT, inputs: str = "", weights: str = "m") -> str:
    text = ATTENTION.replace("INPUTS", f", {inputs}" if inputs else "")
    return text.replace("BEFORE", before).replace("BEHIND", behind).replace("WEIGHTS", weights)


ATTENTIONS = {
    "a mask is computed of what tokens are there": attention(
        SCORES + "[gone] g = Sub(one, mask)\n[big] b = Mul(g, low)\n[add] s2 = Add(b, s1)",
        inputs="float[1,1,1,16] mask",
    ),
    "scores are replaced": attention(
        SCORES + "[replace] s2 = Where(mask, s1, low)", inputs="bool[1,1,16,16] mask"
    ),
    "a mask of one row is repeated for all": attention(
        SCORES
        + """[there] c = Cast<to = 9>(mask)
        [row] g = Gather<axis = 0>(c, index)
        [view5] h = Reshape(g, one_row)
        [repeat] e = Expand(h, all_rows)
        [choose] b = Where(e, zero, low)
        [add] s2 = Add(s1, b)""",
        inputs="int64[16] mask, int64[16] index",
    ),
    "positions have scores of their own": attention(
        SCORES + "[places] p = MatMul(q, wp)\n[add] s2 = Add(s1, p)"
    ),
    "rows that are masked whole are replaced": attention(
        SCORES + "[add] s2 = Add(s1, mask)",
        SOFT + "\n[look] n = IsNaN(m)\n[clean] p = Where(n, zero, m)",
        "float[1,1,16,16] mask",
        "p",
    ),
    "queries and keys are scaled": attention(
        "[scale1] q1 = Mul(q, half)\n[scale2] k1 = Mul(k, half)\n[scores] s2 = MatMul(q1, k1)"
    ),
    "casts change nothing": attention(
        SCORES + "[cast1] s2 = Cast<to = 1>(s1)",
        SOFT + "\n[cast2] p = Cast<to = 1>(m)",
        weights="p",
    ),
}
# Queries and values have biases, keys have none, as in BEiT.
POSITIONS = """
    (float[1,17,64] x) => (float[1,17,64] out)
    <float[64,64] w1 = {1}, float[64,64] w2 = {1}, float[64,64] w3 = {1}, float[64,64] w4 = {1},
     float[64] b1 = {1}, float[64] b3 = {1}, float[1,4,17,17] positions = {1}> {
      heads = Constant<value = int64[4] {1, 17, 4, 16}>()
      rows = Constant<value = int64[3] {1, 17, 64}>()
      half = Constant<value = float {0.5}>()
      [queries] a1 = MatMul(x, w1)
      [bias1] c1 = Add(a1, b1)
      [view1] d1 = Reshape(c1, heads)
      [turn1] q0 = Transpose<perm = [0, 2, 1, 3]>(d1)
      [keys] a2 = MatMul(x, w2)
      [view2] d2 = Reshape(a2, heads)
      [turn2] k0 = Transpose<perm = [0, 2, 3, 1]>(d2)
      [values] a3 = MatMul(x, w3)
      [bias3] c3 = Add(a3, b3)
      [view3] d3 = Reshape(c3, heads)
      [turn3] v = Transpose<perm = [0, 2, 1, 3]>(d3)
      [scale1] q = Mul(q0, half)
      [scale2] k = Mul(k0, half)
      [scores] s0 = MatMul(q, k)
      [add] s1 = Add(s0, positions)
      [soft] m = Softmax<axis = -1>(s1)
      [mix] o = MatMul(m, v)
      [turn4] t = Transpose<perm = [0, 2, 1, 3]>(o)
      [view4] r = Reshape(t, rows)
      [project] out = MatMul(r, w4)
    }"""
QUANTIZED = {
    "keys of an INT8 product are scaled where its sums are": (
        "x->queries w1->queries x->keys w2->keys x->values w3->values",
        POSITIONS,
    )
}
test_attentions = builder_test(
    {**ATTENTIONS, "where positions are added, an attention scales keys without a bias": POSITIONS},
    17,
)
test_quantized_attentions = builder_test(QUANTIZED, 17)


@pytest.mark.parametrize("shown", ATTENTIONS)
def test_an_attention_is_one_kernel_whatever_masks_it(shown: str, tmp_path: Path):
    model = model_of(text_of(ATTENTIONS[shown], 17), tmp_path)
    layers = predicted(model.graph, EMPTY).layers
    assert [{"scores", "soft", "mix"} <= set(layer.nodes) for layer in layers].count(True) == 1


GROUPED = """
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64,32] w2 = {1}, float[64,32] w3 = {1}, float[64,64] w4 = {1}> {
      heads = Constant<value = int64[4] {1, 16, 4, 16}>()
      shared = Constant<value = int64[4] {1, 16, 2, 16}>()
      axis = Constant<value = int64[1] {2}>()
      twice = Constant<value = int64[5] {1, 2, 2, 16, 16}>()
      all = Constant<value = int64[4] {1, 4, 16, 16}>()
      rows = Constant<value = int64[3] {1, 16, 64}>()
      [queries] a1 = MatMul(x, w1)
      [view1] b1 = Reshape(a1, heads)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(b1)
      [keys] a2 = MatMul(x, w2)
      [view2] b2 = Reshape(a2, shared)
      [turn2] k0 = Transpose<perm = [0, 2, 1, 3]>(b2)
      [longer1] k1 = Unsqueeze(k0, axis)
      [repeat1] k2 = Expand(k1, twice)
      [view3] k3 = Reshape(k2, all)
      [turn3] k = Transpose<perm = [0, 1, 3, 2]>(k3)
      [values] a3 = MatMul(x, w3)
      [view4] b3 = Reshape(a3, shared)
      [turn4] v0 = Transpose<perm = [0, 2, 1, 3]>(b3)
      [longer2] v1 = Unsqueeze(v0, axis)
      [repeat2] v2 = Expand(v1, twice)
      [view5] v = Reshape(v2, all)
      [scores] s = MatMul(q, k)
      [soft] m = Softmax<axis = -1>(s)
      [mix] o = MatMul(m, v)
      [turn5] t = Transpose<perm = [0, 2, 1, 3]>(o)
      [view6] r = Reshape(t, rows)
      [project] out = MatMul(r, w4)
    }"""
NORMED = """
    (float[1,16,64] x, float[1,16,64] y) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64,64] w2 = {1}, float[64] g = {1}> {
      two = Constant<value = float {2.0}>()
      tiny = Constant<value = float {0.00001}>()
      one = Constant<value = float {1.0}>()
      [product1] p1 = MatMul(x, w1)
      [add1] r0 = Add(p1, y)
      [cast] r = Cast<to = 1>(r0)
      [square] s = Pow(r, two)
      [mean] m = ReduceMean<axes = [2]>(s)
      [more] a = Add(m, tiny)
      [root] t = Sqrt(a)
      [invert] i = Div(one, t)
      [norm] n = Mul(r, i)
      [gain] h = Mul(g, n)
      [product2] p2 = MatMul(h, w2)
      [add2] out = Add(p2, RESIDUAL)
    }"""
test_shared_keys_and_norms = builder_test(
    {
        "keys and values are shared by heads": GROUPED,
        "a residual is cast to FP32 for a norm and read so": NORMED.replace("RESIDUAL", "r"),
        "a residual is read before the cast": NORMED.replace("RESIDUAL", "r0"),
    },
    17,
)


def test_a_residual_that_is_read_cast_alone_is_written_in_fp32(tmp_path: Path):
    model = model_of(text_of(NORMED.replace("RESIDUAL", "r"), 17), tmp_path)
    layer = next(la for la in predicted(model.graph, EMPTY).layers if "add1" in la.nodes)
    assert [port.dtype for port in layer.outputs] == ["float"]
