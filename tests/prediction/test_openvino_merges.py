"""Nodes that OpenVINO makes one before it fuses anything: Concats in a row, Convs of a Split."""

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.layers.joined import with_joined_concats
from placer.prediction.layers.kept_axes import with_kept_axes
from placer.prediction.layers.no_ops import WithoutNoOps
from tests.prediction.test_openvino_plans import HEAD, conversions, layers, plans

NESTED = """
g (float[1,8,8,8] x, float[1,8,8,8] z, float[1,8,8,8] u) => (float[1,8,8,8] y OUT)
<float[8,24,1,1] w = {1}> {
  [one] a = Softmax(x)
  [two] b = Tanh(z)
  [three] c = Softmax(u)
  [inner] d = Concat<axis = 1>(a, b)
  [outer] e = Concat<axis = AXIS>(c, d)
  [conv] y = Conv(e, w)
  MORE
}
"""
SPLIT = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[8,8,1,1] w = {1}, float[8,8,1,1] w2 = {1}, float[8] bias = {1}, float[16] gain = {1},
 float[16] power = {1}> {
  [root] variance = Exp(power)
  [source] a = Softmax(x)
  [split] p, q = Split<axis = 1>(a)
  [conv1] b = Conv(p, w BIAS)
  [conv2] c = Conv(q, w2)
  [join] d = Concat<axis = 1>(b, c)
  [norm] e = BatchNormalization(d, gain, gain, gain, variance)
  [act] y = Relu(e)
}
"""


@pytest.mark.parametrize(
    ("axis", "more", "out", "joined", "paired"),
    [
        ("1", "", "", True, False),
        ("1", "", "", True, True),
        ("-3", "", "", False, False),
        ("1", "[more] o = Tanh(d)", ", float[1,16,8,8] o", False, False),
        ("1", "[more] o = Tanh(d)", ", float[1,16,8,8] o", False, True),
    ],
)
def test_a_concat_that_another_alone_reads_is_one_with_it(
    axis, more, out, joined, paired, tmp_path
):
    text = NESTED.replace("AXIS", axis).replace("MORE", more).replace("OUT", out)
    pairs = [(Edge("e", "conv", 0),), (Edge("w", "conv", 1),)] if paired else []
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert any({"inner", "outer"} <= nodes for nodes, _ in layers(actual)) is joined


def test_pairs_before_concats_that_are_one_stay_where_they_are():
    text = HEAD + NESTED.replace("AXIS", "1").replace("MORE", "").replace("OUT", "")
    left = with_joined_concats(WithoutNoOps(graph_of_text(text), {}))
    assert left.graph.by_name["outer"].inputs == ("c", "a", "b")
    assert left.twins == {"outer": ("inner",)}
    assert left.moved == {
        Edge("a", "inner", 0): (Edge("a", "outer", 1),),
        Edge("b", "inner", 1): (Edge("b", "outer", 2),),
        Edge("d", "outer", 1): (Edge("a", "outer", 1), Edge("b", "outer", 2)),
    }


@pytest.mark.parametrize(
    ("bias", "pairs", "whole"),
    [
        ("", [], True),
        (", bias", [], False),
        ("", [(Edge("p", "conv1", 0), Edge("q", "conv2", 0))], False),
    ],
)
def test_convs_of_a_split_are_one_with_groups(bias, pairs, whole, tmp_path):
    predicted, actual = plans(SPLIT.replace("BIAS", bias), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    together = {"split", "conv1", "conv2", "join", "norm", "act"}
    assert any(nodes == together for nodes, _ in layers(actual)) is whole


EXPANDED = """
g (float[1,2,1,24,16] x, float[1,2,4,24,16] z) => (float[1,2,4,24,16] y)
<int64[5] shape = {1, 2, 4, 24, 16}> {
  [tanh] a = Tanh(x)
  [copy] b = Expand(a, shape)
  [reader] y = READER
}
"""


@pytest.mark.parametrize(
    ("reader", "pairs", "merged"),
    [
        ("Softmax(b)", [], False),
        ("Softmax(b)", [(Edge("a", "copy", 0),)], False),
        ("Sigmoid(b)", [(Edge("a", "copy", 0),)], False),
        ("Mul(b, z)", [], True),
        ("Mul(b, z)", [(Edge("a", "copy", 0),)], True),
        ("Mul(b, z)", [(Edge("b", "reader", 0),)], False),
    ],
)
def test_expand_copies_unless_what_reads_it_takes_it_along(reader, pairs, merged, tmp_path):
    predicted, actual = plans(EXPANDED.replace("READER", reader), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert (
        frozenset({"tanh", "copy", "reader"}) in {nodes for nodes, _ in layers(actual)}
    ) is merged


ORDERED = """
g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,8,8] OUTS)
<float[16,16,1,1] w = {1}> {
  [relu] a = Relu(x)
  [softmax] b = Softmax(z)
  [add] c = Add(b, a)
  [conv] d = Conv(a, w)
}
"""


@pytest.mark.parametrize(
    ("outputs", "one"), [("d, float[1,16,8,8] c", True), ("c, float[1,16,8,8] d", False)]
)
def test_nodes_are_one_kernel_by_the_order_from_the_last_output_back(outputs, one, tmp_path):
    """Where its output is the last, Conv comes before Softmax, and so between both nodes."""
    predicted, actual = plans(ORDERED.replace("OUTS", outputs), [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert any({"relu", "add"} <= nodes for nodes, _ in layers(actual)) is one


def test_a_node_between_that_reads_the_first_keeps_none_apart_if_all_else_is_there(tmp_path):
    text = """
    g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,8,8] c, float[1,16,8,8] d)
    <float[16,16,1,1] w = {1}> {
      [tanh] a = Tanh(x)
      [max] c = Max(a, z)
      [conv] d = Conv(a, w)
    }
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert any({"tanh", "max"} <= nodes for nodes, _ in layers(actual))


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        ("[less] l = Less(x, z) [cast] c = Cast<to = 1>(l) [mul] m = Mul(x, c)", "less cast mul"),
        ("[eq] l = Equal(x, z) [where] m = Where(l, x, z)", "eq where"),
        ("[eq] l = Equal(i, j) [cast] c = Cast<to = 1>(l) [mul] m = Mul(x, c)", "cast mul"),
        ("[cast] c = Cast<to = 1>(b) [mul] m = Mul(x, c)", "mul"),
    ],
)
def test_comparisons_and_casts_of_narrow_types_are_element_wise(body, whole, tmp_path):
    text = f"""
    g (float[1,24,16] x, float[1,24,16] z, int64[1,24,16] i, int64[1,24,16] j, bool[1,24,16] b)
    => (float[1,24,16] y) {{ {body} [last] y = Softmax(m) }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert frozenset(whole.split()) in {nodes for nodes, _ in layers(actual)}


@pytest.mark.parametrize(
    ("reduce", "view"),
    [
        ("ReduceMean<axes = [2, 3], keepdims = 0>(a)", "Reshape(b, shape)"),
        ("ReduceMax<axes = [2, 3], keepdims = 0>(a)", "Unsqueeze(b, axes)"),
    ],
)
@pytest.mark.parametrize("paired", [False, True])
def test_a_reduction_is_one_with_the_view_that_puts_its_axes_back(reduce, view, paired, tmp_path):
    text = f"""
    g (float[1,8,6,6] x) => (float[1,8,6,6] y)
    <float[8,8,1,1] w = {{1}}, int64[4] shape = {{1, 8, 1, 1}}, int64[2] axes = {{2, 3}}> {{
      [act] a = Tanh(x)
      [reduce] b = {reduce}
      [view] c = {view}
      [conv] d = Conv(c, w)
      [gate] y = Mul(a, d)
    }}
    """
    pairs = [(Edge("c", "conv", 0),), (Edge("w", "conv", 1),)] if paired else []
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert any({"reduce", "view"} <= nodes for nodes, _ in layers(actual))


def test_a_reduction_of_no_axes_is_no_reduction():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 18]>
    g (float[1,1,1] x) => (float[1,1,1] y) <int64[3] shape = {1, 1, 1}> {
      [reduce] b = ReduceSum<keepdims = 0, noop_with_empty_axes = 1>(x)
      [view] y = Reshape(b, shape)
    }
    """)
    left = WithoutNoOps(graph, {})
    assert with_kept_axes(left) is left
