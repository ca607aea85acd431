"""Blocks of language models and detectors are predicted and read as OpenVINO builds them."""

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET
from tests.prediction.test_openvino_plans import conversions, layers, plans

FC = [(Edge("x", "fc", 0),), (Edge("w", "fc", 1),)]
# A rotary embedding of the first half of each head.
ROTARY = """
g (float[1,24,4,16] i) => (float[1,4,24,16] out)
<float[1,1,24,8] cos = {0.5}, float[1,1,24,8] sin = {0.25}, int64[1] zero = {0},
 int64[1] half = {4}, int64[1] part = {8}, int64[1] last = {16}, int64[1] axis = {3},
 int64[2] halves = {4, 4}, int64[2] parts = {8, 8}> {
  [heads] k = Transpose<perm = [0, 2, 1, 3]>(i)
  CUT
  [even] p = Mul(x, cos)
  TURN
  [neg] n = Neg(v)
  [join] r = Concat<axis = -1>(n, u)
  [odd] t = Mul(r, sin)
  [sum] y = Add(p, t)
  [whole] w = Concat<axis = -1>(y, z)
  [softmax] out = Softmax(w)
}
"""
CUT = {
    "Slice": "[part] x = Slice(k, zero, part, axis) [rest] z = Slice(k, part, last, axis)",
    "Split": "[part] x, z = Split<axis = 3>(k, parts)",
}
TURN = {
    "Slice": "[low] u = Slice(x, zero, half, axis) [high] v = Slice(x, half, part, axis)",
    "Split": "[halve] u, v = Split<axis = 3>(x, halves)",
}


@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("turn", TURN)
@pytest.mark.parametrize(("pairs", "count"), [([], 2), ([(Edge("t", "sum", 1),)], None)])
def test_a_partial_rotary_embedding_is_one_layer_without_a_pair_inside(
    cut, turn, pairs, count, tmp_path
):
    text = ROTARY.replace("CUT", CUT[cut]).replace("TURN", TURN[turn])
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    if count:
        assert layers(actual).total() == count
    else:
        assert layers(actual).total() > 2


FACTOR = """
g (float[1,24,4,16] i, float[1,8,32] x) => (float[1,4,24,16] out, float[1,8,32] other)
<float[1,1,24,16] cos = {0.5}, float[1,1,24,16] sin = {0.25}, float half = {0.5},
 float[32,32] w = {1}, int64[2] halves = {8, 8}> {
  [fc] other = MatMul(x, w)
  [heads] h = Transpose<perm = [0, 2, 1, 3]>(i)
  [factor] k = Mul(h, half)
  [even] p = Mul(k, cos)
  [halve] u, v = Split<axis = 3>(k, halves)
  [neg] n = Neg(v)
  [join] r = Concat<axis = -1>(n, u)
  [odd] t = Mul(r, sin)
  [sum] y = Add(p, t)
  [softmax] out = Softmax(y)
}
"""


@pytest.mark.parametrize("factor", ["Mul(h, half)", "Neg(h)"])
def test_a_factor_keeps_a_rotary_embedding_apart_once_the_model_has_a_pair(factor, tmp_path):
    text = FACTOR.replace("Mul(h, half)", factor)
    embedding = frozenset("even halve neg join odd sum".split())
    for pairs in ([], FC):
        predicted, actual = plans(text, pairs, tmp_path)
        assert layers(predicted) == layers(actual)
        assert (embedding in {nodes for nodes, _ in layers(actual)}) is (not pairs)


def test_what_one_pair_does_elsewhere_is_predicted_from_a_near_prediction_too():
    head = '<ir_version: 9, opset_import: ["": 17]>'
    graph = graph_of_text(head + FACTOR)
    predictor = Predictor(graph, load_pack("openvino").rules, ANY_TARGET, "float", "uint8")
    bare, paired = Placement(frozenset()), Placement.of(e for (e,) in FC)
    before, after = predictor.predict(bare), predictor.predict(paired)
    assert layers(predictor.predict(paired, before).plan) == layers(after.plan)
    assert layers(predictor.predict(bare, after).plan) == layers(before.plan)
    for near, there in ((before, after), (after, before)):
        changed = predictor.vary(near, near.placement.change_to(there.placement))
        steps = {**near.steps, **changed}
        assert {i: step for i, step in steps.items() if step is not None} == there.steps


@pytest.mark.parametrize("pairs", [[], FC])
def test_a_norm_by_the_inverse_root_is_one_layer_past_casts_that_change_nothing(pairs, tmp_path):
    text = """
    g (float[1,64,32] x) => (float[1,64,32] y)
    <float[32,32] w = {1}, float one = {1}, float two = {2}, float tiny = {0.00001},
     float[32] gain = {0.5}> {
      [fc] a = MatMul(x, w)
      [cast] b = Cast<to = 1>(a)
      [square] c = Pow(b, two)
      [mean] d = ReduceMean<axes = [-1]>(c)
      [eps] e = Add(d, tiny)
      [root] f = Sqrt(e)
      [inverse] i = Div(one, f)
      [mul] m = Mul(b, i)
      [back] n = Cast<to = 1>(m)
      [scale] y = Mul(gain, n)
    }
    """
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    norm = {"square", "mean", "eps", "root", "inverse", "mul", "scale"}
    assert {nodes for nodes, _ in layers(actual)} == {frozenset({"fc"}), frozenset(norm)}


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [
        ("[fc] a = MatMul(x, w) [act] b = Tanh(a)", True),
        ("[fc] a = MatMul(x, w) [act] b = Add(a, x)", False),
        ("[fc] a = MatMul(x, w) [other] o = MatMul(x, v) [act] b = Add(o, a)", True),
    ],
)
def test_a_norm_of_a_product_is_apart_only_where_a_dequantization_reaches_it(
    body, is_whole, tmp_path
):
    text = f"""
    g (float[1,64,32] x) => (float[1,64,32] y)
    <float[32,32] w = {{1}}, float[32,32] v = {{1}}, float tiny = {{0.00001}},
     float[32] gain = {{0.5}}> {{
      {body}
      [square] c = Mul(b, b)
      [mean] d = ReduceMean<axes = [-1]>(c)
      [eps] e = Add(d, tiny)
      [root] f = Sqrt(e)
      [inverse] i = Reciprocal(f)
      [mul] m = Mul(b, i)
      [scale] y = Mul(m, gain)
    }}
    """
    predicted, actual = plans(text, FC, tmp_path)
    assert layers(predicted) == layers(actual)
    norm = frozenset("square mean eps root inverse mul scale".split())
    assert (norm in {nodes for nodes, _ in layers(actual)}) is is_whole


@pytest.mark.parametrize("pairs", [[], FC])
def test_a_linear_layer_takes_a_gelu_of_products_and_tanh(pairs, tmp_path):
    text = """
    g (float[1,64,32] x) => (float[1,64,32] z)
    <float[32,32] w = {1}, float k = {0.044715}, float root = {0.797885}, float one = {1},
     float half = {0.5}> {
      [fc] c = MatMul(x, w)
      [square] d = Mul(c, c)
      [cube] q = Mul(d, c)
      [small] r = Mul(q, k)
      [inner] s = Add(c, r)
      [scale] u = Mul(s, root)
      [tanh] t = Tanh(u)
      [plus] f = Add(t, one)
      [mul] m = Mul(c, f)
      [halve] z = Mul(m, half)
    }
    """
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert [len(nodes) for nodes, _ in layers(actual)] == [10]


@pytest.mark.parametrize("cast", ["", "before", "behind"])
def test_plans_tell_what_is_computed_before_movers_past_casts(cast, tmp_path):
    text = """
    g (float[1,64,32] x) => (float[1,4,64,8] z)
    <float[32,32] w = {1}, int64[4] heads = {1, 64, 4, 8}> {
      [fc] a = MatMul(x, w)
      [first] b = BEFORE(a)
      [view] c = Reshape(b, heads)
      [move] d = Transpose<perm = [0, 2, 1, 3]>(c)
      [second] e = BEHIND(d)
      [act] z = Sigmoid(e)
    }
    """
    for place in ("before", "behind"):
        text = text.replace(place.upper(), "Cast<to = 1>" if place == cast else "Identity")
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert frozenset({"fc", "act"}) in {nodes for nodes, _ in layers(actual)}


@pytest.mark.parametrize(("heads", "taken"), [(1, False), (2, True)])
def test_attention_takes_a_transpose_that_moves_several_heads(heads, taken, tmp_path):
    text = f"""
    g (float[1,64,{heads},16] x, float[1,{heads},64,16] y, float[1,{heads},64,16] v)
    => (float[1,{heads},64,16] out) {{
      [query] q = Transpose<perm = [0, 2, 1, 3]>(x)
      [key] k = Transpose<perm = [0, 1, 3, 2]>(y)
      [scores] s = MatMul(q, k)
      [softmax] p = Softmax(s)
      [mix] out = MatMul(p, v)
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    (attention,) = (nodes for nodes, _ in layers(actual) if "scores" in nodes)
    assert ("query" in attention) == taken


@pytest.mark.parametrize(("ceil", "written"), [(0, "uint8"), (1, "float")])
def test_a_pool_that_rounds_sizes_up_computes_in_float(ceil, written, tmp_path):
    size = 4 + ceil
    text = f"""
    g (float[1,16,9,9] x) => (float[1,16,{size},{size}] y)
    <float[16,16,1,1] w = {{1}}, float[16,16,1,1] w2 = {{1}}> {{
      [conv1] a = Conv(x, w)
      [pool] b = AveragePool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {ceil}>(a)
      [conv2] y = Conv(b, w2)
    }}
    """
    pairs = [(Edge("a", "pool", 0),), (Edge("b", "conv2", 0),), (Edge("w2", "conv2", 1),)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert (frozenset({"pool"}), (written,)) in layers(actual)


CONVS = [(Edge("x", "conv1", 0), Edge("x", "conv2", 0))]
CONVS += [(Edge("w", "conv1", 1),), (Edge("w2", "conv2", 1),)]
FIRST, SECOND = (Edge("c", "sum", 0),), (Edge("f", "sum", 1),)


@pytest.mark.parametrize(
    ("pairs", "taken"), [([], False), ([SECOND], True), ([FIRST, SECOND], True)]
)
def test_the_pair_of_the_second_conv_with_silu_lets_the_first_take_their_sum(
    pairs, taken, tmp_path
):
    text = """
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,3,3] w = {1}, float[16,16,1,1] w2 = {1}> {
      [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
      [gate1] b = Sigmoid(a)
      [silu1] c = Mul(a, b)
      [conv2] d = Conv(x, w2)
      [gate2] e = Sigmoid(d)
      [silu2] f = Mul(d, e)
      [sum] g = Add(c, f)
      [softmax] y = Softmax(g)
    }
    """
    predicted, actual = plans(text, CONVS + pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    (summing,) = (nodes for nodes, _ in layers(actual) if "sum" in nodes)
    assert summing == ({"conv1", "gate1", "silu1", "sum"} if taken else {"sum"})


def test_a_sum_that_a_float_conv_cannot_take_along_is_apart_from_what_follows(tmp_path):
    """The first Conv reads what is added to its result, which is added again later."""
    text = """
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,3,3] w = {1}, float[16,16,1,1] w2 = {1}> {
      [act1] a = LeakyRelu(x)
      [conv1] b = Conv<pads = [1, 1, 1, 1]>(a, w)
      [sum1] c = Add(b, a)
      [act2] d = LeakyRelu(c)
      [conv2] e = Conv(d, w2)
      [sum2] f = Add(e, c)
      [softmax] y = Softmax(f)
    }
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert {frozenset({"sum1"}), frozenset({"act2"})} <= {nodes for nodes, _ in layers(actual)}


@pytest.mark.parametrize("shared", [True, False])
def test_plans_tell_a_relu_that_a_quantization_for_several_implies(shared, tmp_path):
    text = """
    g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z)
    <float[16,16,3,3] w = {1}, float[16,16,1,1] w2 = {1}, float[16,16,1,1] w3 = {1}> {
      [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu] b = Relu(a)
      [conv2] y = Conv(b, w2)
      [conv3] z = Conv(b, w3)
    }
    """
    read = [Edge("b", "conv2", 0), Edge("b", "conv3", 0)]
    pairs = [(Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),)]
    pairs += [tuple(read)] if shared else [(edge,) for edge in read]
    pairs += [(Edge("w2", "conv2", 1),), (Edge("w3", "conv3", 1),)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert (frozenset({"conv1", "relu"}), ("uint8",)) in layers(actual)


PARTS = """
g (SHAPE x) => (SHAPE out)
<float two = {2}, float tiny = {0.00001}, GAIN gain = {0.5}, GAIN shift = {0.25}> {
  [source] a = Tanh(x)
  [mean] m = ReduceMean<axes = [AXIS]>(a)
  [sub] d = Sub(a, m)
  [pow] q = Pow(d, two)
  [mean2] v = ReduceMean<axes = [AXIS]>(q)
  [eps] e = Add(v, tiny)
  [sqrt] r = Sqrt(e)
  [div] y = Div(d, r)
  [mul] z = Mul(y, gain)
  [add] s = Add(z, shift)
  [softmax] out = Softmax(s)
}
"""


@pytest.mark.parametrize(
    ("shape", "axis", "gain", "whole"),
    [
        ("float[1,64,16]", "-1", "float[16]", True),
        ("float[1,8,8,16]", "-1", "float[16]", False),
        ("float[1,16,8,8]", "1", "float[16,1,1]", False),
    ],
)
def test_a_norm_of_maps_that_is_exported_as_its_parts_is_several_layers(
    shape, axis, gain, whole, tmp_path
):
    text = PARTS.replace("SHAPE", shape).replace("AXIS", axis).replace("GAIN", gain)
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    norm = {"mean", "sub", "pow", "mean2", "eps", "sqrt", "div"}
    assert any(norm <= nodes for nodes, _ in layers(actual)) is whole


@pytest.mark.parametrize(("clamp", "count"), [("", 1), ("[relu] c1 = Relu(c0)", 2)])
def test_scales_behind_a_conv_stay_with_it_where_a_pair_and_floats_are_read(clamp, count, tmp_path):
    text = """
    g (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float[1,16,1,1] gain = {2}> {
      [conv] c0 = Conv(x, w)
      CLAMP
      [scale] y = Mul(c, gain)
      [conv2] d = Conv(y, w2)
      [sigmoid] e = Sigmoid(d)
      [sum] f = Add(y, e)
      [softmax] out = Softmax(f)
    }
    """.replace("CLAMP", clamp).replace("(c, gain)", "(c1, gain)" if clamp else "(c0, gain)")
    pairs = [(Edge("y", "conv2", 0),), (Edge("w2", "conv2", 1),)]
    for plan in plans(text, pairs, tmp_path):
        first = {nodes for nodes, _ in layers(plan) if nodes & {"conv", "scale"}}
        assert len(first) == count
