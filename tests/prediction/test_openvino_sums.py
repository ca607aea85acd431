"""Sums of two maps of which both carry pairs, and sums with constants, predicted as OpenVINO builds
them."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

SILU = "[gate#] h# = Sigmoid(u#) [act#] v# = Mul(u#, h#)"
WRITERS = {
    "relu": "[conv#] u# = Conv(x#, w#, b#) [act#] v# = Relu(u#)",
    "tanh": "[conv#] u# = Conv(x#, w#, b#) [act#] v# = Tanh(u#)",
    "silu": f"[conv#] u# = Conv(x#, w#, b#) {SILU}",
    "none": "[act#] v# = Softmax(x#)",
}
MAPS = """
g (float[1,16,8,8] x0, float[1,16,8,8] x1) => (float[1,16,8,8] out)
<float[16,16,1,1] w0 = {1}, float[16,16,1,1] w1 = {0.5}, float[16] b0 = {1}, float[16] b1 = {0.5},
 float[16,16,1,1] w = {1}> {
  FIRST
  SECOND
  [add] t = Add(v0, v1)
  [next] o = Conv(t, w)
  [last] out = Softmax(o)
}
"""
LINEAR = """
g (float[1,10,32] x) => (float[1,10,64] out)
<float[32,64] w = {1}, float[64] b = {1}, TYPE k = {1}> {
  [fc] g = MatMul(x, w)
  [bias] c = Add(g, b)
  [more] d = OP(c, k)
  [act] e = Relu(d)
  [last] out = Softmax(e)
}
"""
GATED = """
g (float[1,8,8,8] x, float[1,8,8,8] y, float[1,16,8,8] z) => (float[1,16,8,8] out)
<float unused = {1}> {
  [relu0] a = Relu(x)
  [relu1] b = Relu(y)
  [join] c = Concat<axis = 1>(a, b)
  [gate] s = Softmax(z)
  [mul] m = Mul(c, s)
  [last] out = Softmax(m)
}
"""


def edge(tensor, node, index=0):
    return (Edge(tensor, node, index),)


@pytest.mark.parametrize("second", WRITERS)
@pytest.mark.parametrize("first", WRITERS)
@pytest.mark.parametrize("int8", [(0, 1), (1,), (0,)])
def test_the_sum_of_two_maps_with_pairs_is_part_of_the_conv_that_openvino_chooses(
    int8, first, second, tmp_path
):
    text = MAPS.replace("FIRST", WRITERS[first].replace("#", "0"))
    text = text.replace("SECOND", WRITERS[second].replace("#", "1"))
    pairs = [edge("v0", "add"), edge("v1", "add", 1), edge("t", "next"), edge("w", "next", 1)]
    for number in int8:
        if (first, second)[number] != "none":
            pairs += [edge(f"x{number}", f"conv{number}"), edge(f"w{number}", f"conv{number}", 1)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


@pytest.mark.parametrize("other", ["relu", "none"])
@pytest.mark.parametrize("int8", [(0, 1), (1,)])
def test_a_prelu_stands_where_a_leaky_relu_may(int8, other, tmp_path):
    text = MAPS.replace("[add] t = Add(v0, v1)", "[add] s = Add(v0, v1) [after] t = PRelu(s, q)")
    text = text.replace(
        "float[16] b0", "float[16,1,1] p = {0.2}, float[16,1,1] q = {0.3}, float[16] b0"
    )
    text = text.replace("FIRST", WRITERS[other].replace("#", "0"))
    text = text.replace("SECOND", "[conv1] u1 = Conv(x1, w1, b1) [act1] v1 = PRelu(u1, p)")
    pairs = [edge("v0", "add"), edge("v1", "add", 1), edge("t", "next"), edge("w", "next", 1)]
    for number in int8:
        if number or other != "none":
            pairs += [edge(f"x{number}", f"conv{number}"), edge(f"w{number}", f"conv{number}", 1)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


@pytest.mark.parametrize("act", ["tanh", "silu"])
def test_an_operand_that_is_read_in_float_too_keeps_its_integers_for_a_sum(act, tmp_path):
    text = MAPS.replace("FIRST", "[act0] v0 = Softmax(x0) [other] z = Conv(v0, w0)")
    text = text.replace("SECOND", WRITERS[act].replace("#", "1").replace("x1", "z"))
    pairs = [edge("z", "conv1"), edge("w1", "conv1", 1), edge("v0", "add"), edge("v1", "add", 1)]
    pairs += [edge("t", "next"), edge("w", "next", 1)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


@pytest.mark.parametrize("act", ["relu", "tanh", "silu"])
@pytest.mark.parametrize("bare", [None, "v1", "x"])
def test_a_sum_that_is_read_in_float_too_is_quantized_apart_if_its_conv_does_not_take_it(
    bare, act, tmp_path
):
    text = MAPS.replace("(float[1,16,8,8] out)", "(float[1,16,8,8] out, float[1,16,8,8] beside)")
    text = text.replace("FIRST", "[act0] x = Softmax(x0)")
    text = text.replace("SECOND", WRITERS[act].replace("#", "1").replace("x1", "x"))
    text = text.replace("v0", "x").replace("[next]", "[float] beside = Softmax(t) [next]")
    read = [Edge("x", "conv1", 0)] + [Edge("x", "add", 0)] * (bare != "x")
    pairs = [read, edge("w1", "conv1", 1), edge("t", "next"), edge("w", "next", 1)]
    predicted, actual = plans(text, pairs + [edge("v1", "add", 1)] * (bare != "v1"), tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


@pytest.mark.parametrize("act", ["Relu", "LeakyRelu", "Tanh"])
def test_integers_that_something_else_reads_are_kept_for_a_sum(act, tmp_path):
    text = MAPS.replace("FIRST", WRITERS["silu"].replace("#", "0"))
    text = text.replace("SECOND", "[conv1] u1 = Conv(v0, w1, b1) [act1] v1 = ACT(u1)")
    text = text.replace("[add]", "[conv2] u2 = Conv(v1, w1) [act2] v2 = ACT(u2) [add]")
    text = text.replace("Add(v0, v1)", "Add(v0, v2)").replace("ACT", act)
    pairs = [
        edge("x0", "conv0"), edge("w0", "conv0", 1),
        (Edge("v0", "conv1", 0), Edge("v0", "add", 0)), edge("w1", "conv1", 1),
        edge("v1", "conv2"), edge("w1", "conv2", 1),
        edge("v2", "add", 1), edge("t", "next"), edge("w", "next", 1),
    ]  # fmt: skip
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


def test_a_conv_takes_the_sum_with_the_float_map_that_it_quantizes(tmp_path):
    text = MAPS.replace("FIRST", "[act0] v0 = Softmax(x0)")
    text = text.replace("SECOND", "[conv1] v1 = Conv(v0, w1)")
    pairs = [edge("v0", "conv1"), edge("w1", "conv1", 1), edge("v1", "add", 1)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


@pytest.mark.parametrize("kind", ["float[10,64]", "float[64]", "float[1,10,1]"])
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("int8", [False, True])
def test_a_bias_and_positions_behind_it_are_one_sum_behind_the_product(int8, op, kind, tmp_path):
    pairs = [edge("x", "fc"), edge("w", "fc", 1)] if int8 else []
    text = LINEAR.replace("TYPE", kind).replace("OP", op)
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)


def test_a_product_reads_the_integers_of_a_concat(tmp_path):
    predicted, actual = plans(GATED, [edge("c", "mul")], tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)


HARD_SWISH = {
    "sixth inside": "[cut] i = Clip(h, zero, six) [part] j = Mul(i, sixth) [act] t = Mul(a, j)",
    "quotient inside": "[cut] i = Clip(h, zero, six) [part] j = Div(i, six) [act] t = Mul(j, a)",
    "quotient behind": "[cut] i = Clip(h, zero, six) [part] j = Mul(i, a) [act] t = Div(j, six)",
    "other numbers": "[cut] i = Clip(h, zero, six) [part] j = Div(i, three) [act] t = Mul(j, a)",
}
CUT = """
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,1,1] w = {1}, float[16] b = {1}, float three = {3}, float zero = {0}, float six = {6},
 float sixth = {0.16666667}, float[16,16,1,1] w2 = {0.5}> {
  [conv] a = Conv(x, w, b)
  [shift] h = Add(a, three)
  ACT
  [next] o = Conv(t, w2)
  [last] out = Softmax(o)
}
"""


@pytest.mark.parametrize("act", HARD_SWISH)
@pytest.mark.parametrize("int8", [False, True])
def test_a_conv_takes_a_hard_swish_of_several_nodes(int8, act, tmp_path):
    pairs = [edge("x", "conv"), edge("w", "conv", 1), edge("t", "next"), edge("w2", "next", 1)]
    text = CUT.replace("ACT", HARD_SWISH[act])
    predicted, actual = plans(text, pairs if int8 else [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    whole = frozenset({"conv", "shift", "cut", "part", "act"})
    assert (whole in {nodes for nodes, _ in layers(predicted)}) == (act != "other numbers")


NORMED = """
g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,8,8] out)
<float[1,32,1,1] any = {0.5}, float[1,32,1,1] shift = {0.1}, float[16,32,1,1] w = {1},
 float[16,16,1,1] v = {1}> {
  [first] a = FIRST
  [second] b = Softmax(z)
  [join] k = Concat<axis = 1>(a, b)
  [positive] gain = Abs(any)
  [scale] n = Mul(k, gain)
  [move] m = Add(n, shift)
  [act] y = Relu(m)
  [conv] o = Conv(y, w)
  [last] out = Softmax(o)
}
"""


@pytest.mark.parametrize("first", ["Softmax(x)", "Conv(x, v)"])
def test_a_scale_and_a_shift_behind_a_concat_go_into_the_branches_quantizations(first, tmp_path):
    pairs = [edge("y", "conv"), edge("w", "conv", 1)]
    predicted, actual = plans(NORMED.replace("FIRST", first), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert (frozenset({"join"}), ("uint8",)) in layers(actual)
