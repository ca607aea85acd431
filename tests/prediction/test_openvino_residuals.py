"""Residual sums behind products with scales and biases, predicted as OpenVINO builds them."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

BLOCK = """
  [norm#] q# = LayerNormalization(r#, gain, shift)
  [fc#] g# = MatMul(q#, w#)
  [bias#] c# = Add(g#, b#)
  [scale#] y# = Mul(c#, k#)
  [sum#] r$ = Add(r#, y#)
"""
SCALED = """
g (float[1,24,32] r0) => (float[1,24,32] out)
<float[32] gain = {1}, float[32] shift = {1}, float[32,32] w0 = {1}, float[32] b0 = {1},
 float[32] k0 = {1}, float[32,32] w1 = {1}, float[32] b1 = {1}, float[32] k1 = {1},
 float[32,32] w2 = {1}, float[32] b2 = {1}, float[32] k2 = {1}> {
BLOCKS
  [last] out = LayerNormalization(r3, gain, shift)
}
""".replace(
    "BLOCKS", "".join(BLOCK.replace("#", str(n)).replace("$", str(n + 1)) for n in range(3))
)
DEEP = """
g (float[1,6,6,32] x0, float[1,6,6,32] r) => (float[1,6,6,32] out)
<float[32,32] w = {1}, float[32] b = {1}, float[32] gain = {1}, float[32] shift = {1},
 float[6,6,32] places = {1}> {
  [norm] x = LayerNormalization(x0, gain, shift)
  [fc] g = MatMul(x, w)
  [bias] c = Add(g, b)
  [act] e = ACT
  [sum] s = Add(e, r)
  [last] out = LayerNormalization(s, gain, shift)
}
"""
HALVED = """
g (float[1,24,32] x, float[1,24,32] r) => (float[1,24,32] out)
<float[32,32] w = {1}, float[32] b = {1}, float[32,32] w2 = {1}, float half = {0.5},
 float third = {3},
 float[32] gain = {1}, float[32] shift = {1}> {
  [fc] g = MatMul(x, w)
  [bias] c = Add(g, b)
  [scale] y = Mul(c, half)
  [other] q = OTHER
  [sum] s = Add(OPERANDS)
  [last] out = LayerNormalization(s, gain, shift)
}
"""
HEADS = """
g (float[1,2,24,16] q, float[1,2,16,24] k, float[1,2,24,16] v) => (float[1,24,32] out)
<float half = {0.5}, float[32] each = {1}, float[32,32] w = {1}, int64[3] shape = {1, 24, 32}> {
  [scores] s = MatMul(q, k)
  [softmax] p = Softmax(s)
  [mix] o = MatMul(p, v)
  [heads] t = Transpose<perm = [0, 2, 1, 3]>(o)
  [view] b = Reshape(t, shape)
  [act] e = ACT
  [fc] out = MatMul(e, w)
}
"""


def quantized(*numbers: int) -> list[tuple[Edge, ...]]:
    edges = [(Edge(f"q{n}", f"fc{n}", 0), Edge(f"w{n}", f"fc{n}", 1)) for n in numbers]
    return [(edge,) for pair in edges for edge in pair]


@pytest.mark.parametrize(
    ("numbers", "moved"),
    [((0,), [0]), ((0, 1), [0]), ((1, 2), [1]), ((0, 1, 2), [0, 2]), ((0, 2), [0, 2])],
)
def test_every_other_scale_in_a_row_moves_past_its_sum(numbers, moved, tmp_path):
    predicted, actual = plans(SCALED, quantized(*numbers), tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    together = [n for n in range(3) if any(f"sum{n}" in x.nodes and f"bias{n}" in x.nodes
                                           for x in actual.layers)]  # fmt: skip
    assert together == moved


@pytest.mark.parametrize(
    ("other", "operands", "moves"),
    [
        ("Tanh(r)", "q, y", True),
        ("MatMul(r, w2)", "y, q", True),
        ("MatMul(r, w2)", "q, y", False),
        ("Mul(r, third)", "y, q", False),
    ],
)
def test_a_half_moves_past_its_sum_but_for_scales_and_products_in_front(
    other, operands, moves, tmp_path
):
    text = HALVED.replace("OTHER", other).replace("OPERANDS", operands)
    pairs = [(Edge("x", "fc", 0),), (Edge("w", "fc", 1),)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert any({"scale", "sum"} <= {*layer.nodes} for layer in actual.layers) is moves


@pytest.mark.parametrize(
    "act", ["Identity(c)", "Relu(c)", "HardSwish(c)", "Add(c, places)", "Add(places, c)"]
)
def test_the_bias_of_a_product_of_four_dimensions_is_a_layer_behind_it(act, tmp_path):
    pairs = [(Edge("x", "fc", 0),), (Edge("w", "fc", 1),)]
    text = DEEP.replace("ACT", act)
    if "places" in act:  # Two constants are one, and no bias where a sum of two tensors follows.
        text = text.replace("Add(e, r)", "Softmax(e)")
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert (frozenset({"sum"}), ("float",)) in layers(actual)


@pytest.mark.parametrize(
    ("act", "moves"), [("HardSwish(b)", True), ("Mul(b, half)", True), ("Mul(b, each)", False)]
)
@pytest.mark.parametrize("pairs", [[], [(Edge("e", "fc", 0),), (Edge("w", "fc", 1),)]])
def test_what_follows_the_heads_of_attention_is_computed_before_they_move(
    act, moves, pairs, tmp_path
):
    predicted, actual = plans(HEADS.replace("ACT", act), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    together = any({"mix", "act"} <= set(x.nodes) for x in actual.layers)
    assert together == (moves and not (pairs and "half" in act))
