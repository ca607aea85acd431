"""Where Q moves past what moves elements or joins maps, and what is computed before it moves."""

from pathlib import Path

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

TURNED = """
g (float[1,64,16] x, float[1,64,16] z) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16] v = {1}, int64[4] shape = {1, 8, 8, 16}> {
  [source] a = SOURCE
  [view] b = Reshape(a, shape)
  [turn] c = Transpose<perm = [0, 3, 1, 2]>(b)
  [conv] y = Conv(c, w)
}
"""
DEEP = """
g (float[1,32,8,8] x, float[1,32,8,8] z) => (float[1,8,16,16] y)
<float[8,8,1,1] w = {1}> {
  [add] a = Add(x, z)
  [deep] b = DepthToSpace<blocksize = 2>(a)
  [conv] y = Conv(b, w)
}
"""
MIXED = """
g (float[1,2,64,16] q, float[1,64,32] x) => (float[1,2,64,64] y)
<float[32,32] w = {1}, int64[4] heads = {1, 64, 2, 16}> {
  [fc] a = MatMul(x, w)
  [view] b = Reshape(a, heads)
  [turn] k = Transpose<perm = [0, 2, 3, 1]>(b)
  [product] y = MatMul(q, k)
}
"""
VIEWED = """
g (float[1,64,32] x, float[1,64,32] z) => (float[1,64,2,16] y)
<float[16,16] w = {1}, float[32,32] v = {1}, int64[4] shape = {1, 64, 2, 16}, float three = {3}> {
  [source] a = SOURCE
  [view] b = Reshape(a, shape)
  [act] c = ACT
  [fc] y = MatMul(c, w)
}
"""
JOINED = """
g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,32,8,8] y)
<float[32,32,1,1] w = {1}, float[16,16,3,3] w1 = {1}, float[32] power = {1}, float[32] shift = {1},
 float[32] mean = {1}> {
  [positive] gain = Exp(power)
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [tanh] b = Tanh(z)
  [join] c = Concat<axis = 1>(a, b)
  BODY
}
"""
ACT = "[act] d = Relu(c)"
NORM = "[norm] d0 = BatchNormalization(c, gain, shift, mean, gain) [act] d = Relu(d0)"
ADDED = """
g (float[1,32,8,8] x) => (float[1,32,8,8] y)
<float[16,16,3,3] w = {1}, float[16,16,1,1] w2 = {1}, float[16,16,1,1] w3 = {1}> {
  [split] s, p = Split<axis = 1>(x)
  [conv0] a = Conv(p, w3)
  [conv1] b = Conv<pads = [1, 1, 1, 1]>(a, w)
  [add] c = Add(b, p)
  [conv2] d = Conv(c, w2)
  [join] y = Concat<axis = 1>(d, s)
}
"""
GATED = """
g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}> {
  [source] a = SOURCE
  [mean] m = GlobalAveragePool(a)
  [conv] g0 = Conv(m, w)
  [gate] g = Sigmoid(g0)
  [mul] y = MUL
}
"""


def check(text, pairs, folder):
    """The actual layers and conversions, which must be the predicted ones."""
    predicted, actual = plans(text, pairs, folder)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    return layers(actual), conversions(actual)


READ = [(Edge("c", "conv", 0),), (Edge("w", "conv", 1),)]


def test_q_behind_a_transpose_moves_past_a_view_into_the_kernel_before(tmp_path):
    found, converted = check(TURNED.replace("SOURCE", "Add(x, z)"), READ, tmp_path)
    assert found[frozenset({"source"}), ("uint8",)] == 1
    assert found[frozenset({"turn"}), ("uint8",)] == 1
    assert not converted


def test_q_moves_past_no_pair(tmp_path):
    pairs = [(Edge("b", "turn", 0), READ[0][0]), READ[1]]
    found, _ = check(TURNED.replace("SOURCE", "Add(x, z)"), pairs, tmp_path)
    assert found[frozenset({"source"}), ("float",)] == 1


def test_q_behind_a_view_stays(tmp_path):
    text = TURNED.replace("SOURCE", "Add(x, z)")
    text = text.replace("[conv] y = Conv(c, w)", "[fc] q = MatMul(b, v)")
    text = text.replace("(float[1,16,8,8] y)", "(float[1,16,8,8] c, float[1,8,8,16] q)")
    pairs = [(Edge("b", "fc", 0),), (Edge("v", "fc", 1),)]
    found, _ = check(text, pairs, tmp_path)
    assert found[frozenset({"source"}), ("float",)] == 1


def test_q_of_two_readers_stays_behind_a_transpose(tmp_path):
    text = TURNED.replace("SOURCE", "Add(x, z)").replace(
        "[conv] y = Conv(c, w)",
        "[conv] d = Conv(c, w) [second] e = Conv(c, w2) [sum] y = Add(d, e)",
    )
    text = text.replace("int64[4] shape", "float[16,16,1,1] w2 = {1}, int64[4] shape")
    both = (Edge("c", "conv", 0), Edge("c", "second", 0))
    found, converted = check(text, [both, READ[1], (Edge("w2", "second", 1),)], tmp_path)
    assert found[frozenset({"turn"}), ("float",)] == 1
    assert converted["quantize", "float", "uint8"] == 1


def test_q_stays_behind_a_change_of_depth_to_space(tmp_path):
    found, _ = check(DEEP, [(Edge("b", "conv", 0),), READ[1]], tmp_path)
    assert found[frozenset({"deep"}), ("float",)] == 1


def test_a_pair_on_the_second_operand_of_a_product_is_part_of_its_kernel(tmp_path):
    pairs = [(Edge("k", "product", 1),), (Edge("x", "fc", 0),), (Edge("w", "fc", 1),)]
    found, converted = check(MIXED, pairs, tmp_path)
    assert found[frozenset({"turn"}), ("float",)] == 1
    assert sum(converted.values()) == 1  # Of x.


@pytest.mark.parametrize("source", ["Add(x, z)", "MatMul(x, v)"])
@pytest.mark.parametrize("act", ["HardSwish(b)", "Tanh(b)", "Mul(b, three)", "Relu(b)"])
@pytest.mark.parametrize("paired", [False, True])
def test_what_is_element_wise_behind_a_view_is_computed_before_it(source, act, paired, tmp_path):
    text = VIEWED.replace("SOURCE", source).replace("ACT", act)
    pairs = [(Edge("c", "fc", 0),), (Edge("w", "fc", 1),)] if paired else []
    found, _ = check(text, pairs, tmp_path)
    stays = paired and act in ("Mul(b, three)", "Relu(b)")  # Part of Q.
    assert (found[frozenset({"source", "act"}), ("float",)] == 1) is not stays


@pytest.mark.parametrize("body", ["[act] d = Relu(c)", NORM])
@pytest.mark.parametrize("int8", [False, True])
def test_what_q_takes_along_behind_a_concat_moves_to_the_branches(body, int8, tmp_path):
    text = JOINED.replace("BODY", f"{body} [conv] y = Conv(d, w)")
    pairs = [(Edge("d", "conv", 0),), (Edge("w", "conv", 1),)]
    own = [(Edge("x", "conv1", 0),), (Edge("w1", "conv1", 1),)] if int8 else []
    found, _ = check(text, [*pairs, *own], tmp_path)
    assert found[frozenset({"join"}), ("uint8",)] == 1
    assert found[frozenset({"conv1"}), ("uint8" if int8 else "float",)] == 1


def test_it_moves_behind_the_pair_that_a_branch_has_for_its_other_reader(tmp_path):
    text = JOINED.replace("[conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)", "")
    made = (
        "[conv2] b = Conv<pads = [1, 1, 1, 1]>(z, w1) [conv1] a = Conv<pads = [1, 1, 1, 1]>(b, w1)"
    )
    text = text.replace("[tanh] b = Tanh(z)", made)
    text = text.replace("float[1,32,8,8] y", "float[1,64,8,8] y")
    body = "[act] d = Relu(c) [conv] e = Conv(d, w) [join2] y = Concat<axis = 1>(e, d)"
    pairs = [(Edge("b", "conv1", 0), Edge("b", "join", 1)), (Edge("w1", "conv1", 1),)]
    pairs += [(Edge("d", "conv", 0), Edge("d", "join2", 1)), (Edge("w", "conv", 1),)]
    found, converted = check(text.replace("BODY", body), pairs, tmp_path)
    assert found[frozenset({"join"}), ("uint8",)] == 1
    assert converted["requantize", "uint8", "uint8"] == 1
    assert not any("act" in nodes for nodes, _ in found)


def test_it_stays_where_something_else_reads_the_concat(tmp_path):
    text = JOINED.replace("BODY", "[act] d = Relu(c) [conv] e = Conv(d, w) [add] y = Add(e, c)")
    pairs = [(Edge("d", "conv", 0),), (Edge("w", "conv", 1),)]
    found, _ = check(text, pairs, tmp_path)
    assert found[frozenset({"join"}), ("float",)] == 1


def test_a_sum_that_no_conv_takes_along_quantizes_by_itself(tmp_path):
    pairs = [(Edge("c", "conv2", 0),), (Edge("w2", "conv2", 1),)]
    found, converted = check(ADDED, pairs, tmp_path)
    assert found[frozenset({"add"}), ("uint8",)] == 1
    assert not converted


@pytest.mark.parametrize(("source", "shifts"), [("Add(x, z)", True), ("Abs(x)", False)])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_an_element_wise_kernel_writes_floats_for_a_product(
    source, shifts, first, shared, tmp_path
):
    text = GATED.replace("SOURCE", source).replace("MUL", "Mul(a, g)" if first else "Mul(g, a)")
    edges = [Edge("a", "mul", 0 if first else 1)] + ([Edge("a", "mean", 0)] if shared else [])
    found, _ = check(text, [tuple(edges)], tmp_path)
    is_read = shifts and not first and not shared
    assert (found[frozenset({"source"}), ("float",)] == 1) is not (is_read or shared)


def test_a_sum_of_two_pairs_reads_what_a_linear_layer_without_a_bias_writes(tmp_path):
    text = """
    g (float[1,64,16] x, float[1,64,16] z) => (float[1,64,16] y)
    <float[16,16] w = {1}, float[16,16] w2 = {1}> {
      [fc1] a = MatMul(x, w)
      [add1] b = Add(a, z)
      [fc2] c = MatMul(b, w2)
      [add2] y = Add(b, c)
    }
    """
    pairs = [(Edge("b", "add2", 0),), (Edge("c", "add2", 1),), (Edge("w2", "fc2", 1),)]
    check(text, pairs, tmp_path)


def test_scales_of_branches_that_a_conv_reads_in_float_stay_apart(tmp_path):
    text = JOINED.replace("BODY", "[conv] y = Conv(c, w)")
    pairs = [(Edge("a", "join", 0),), (Edge("b", "join", 1),)]
    found, converted = check(text, pairs, tmp_path)
    assert found[frozenset({"join"}), ("uint8",)] == 1
    assert converted["requantize", "uint8", "uint8"] == 0


@pytest.mark.parametrize("body", [NORM, ACT])
def test_q_that_took_a_norm_along_is_a_layer_in_each_branch(body, tmp_path):
    text = JOINED.replace("[tanh] b = Tanh(z)", "[conv2] b = Conv<pads = [1, 1, 1, 1]>(z, w2)")
    text = text.replace("float[32] mean", "float[16,16,3,3] w2 = {1}, float[32] mean")
    read = [("d", "conv", 0), ("w", "conv", 1), ("x", "conv1", 0), ("w1", "conv1", 1)]
    pairs = [(Edge(*edge),) for edge in (*read, ("z", "conv2", 0), ("w2", "conv2", 1))]
    _, converted = check(text.replace("BODY", body + " [conv] y = Conv(d, w)"), pairs, tmp_path)
    kept = 2 if "BatchNormalization" in body else 0
    assert converted["quantize", "float", "uint8"] == 2 + kept  # Those of the inputs besides.


EQUAL = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,8,16,8] z)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, int64[1] start = {0}, int64[1] end = {8},
 int64[1] axis = {1}, int64[1] begin = {0}, float[16,8,1,1] w3 = {1}, float[16,8,1,1] w4 = {1}> {
  [source] a = Softmax(x)
  [first] b = FIRST
  [second] c = SECOND
  [conv1] d = Conv(b, w)
  [conv2] e = Conv(c, w2)
  [sum] y = Add(d, e)
  [turn] z = Transpose<perm = [0, 2, 1, 3]>(a)
}
"""


@pytest.mark.parametrize(
    ("first", "second", "merged", "paired"),
    [
        ("Tanh(a)", "Tanh(a)", True, True),
        ("Softmax(a)", "Softmax(a)", True, False),
        ("Softmax(a)", "Softmax(a)", True, True),
        ("Softmax(a)", "Softmax<axis = 1>(a)", False, True),
        ("Conv(a, w)", "Conv(a, w)", True, False),
        ("Conv(a, w)", "Conv(a, w2)", False, False),
        ("Slice(a, start, end, axis)", "Slice(a, begin, end, axis)", True, True),
    ],
)
def test_nodes_that_compute_the_same_are_one(first, second, merged, paired, tmp_path):
    text = EQUAL.replace("FIRST", first).replace("SECOND", second)
    if "Slice" in first:
        text = text.replace("Conv(b, w)", "Conv(b, w3)").replace("Conv(c, w2)", "Conv(c, w4)")
    pairs = [(Edge("b", "conv1", 0),), (Edge("c", "conv2", 0),)] if paired else []
    found, _ = check(text, pairs, tmp_path)
    together = [nodes for nodes, _ in found if {"first", "second"} <= nodes]
    assert bool(together) is merged


TOKENS = """
g (float[1,16,16,16] x) => (float[1,16,16,16] y)
<float[16] gain = {2}, float[16] shift = {0.5}, float[16,16,1,1] w = {1}> {
  [norm] b = SOURCE
  [turn] c = Transpose<perm = [0, 3, 1, 2]>(b)
  [conv] y = Conv(c, w)
}
"""


@pytest.mark.parametrize(
    "source", ["LayerNormalization(x, gain, shift)", "LayerNormalization(x, gain)", "Tanh(x)"]
)
@pytest.mark.parametrize("int8", [False, True])
def test_a_transpose_that_openvino_merges_with_a_layout_is_a_layer(source, int8, tmp_path):
    found, _ = check(TOKENS.replace("SOURCE", source), READ if int8 else [], tmp_path)
    assert found[frozenset({"turn"}), ("uint8" if int8 else "float",)] == 1


@pytest.mark.parametrize("mean", ["GlobalAveragePool(b)", "ReduceMean<axes = [2, 3]>(b)"])
@pytest.mark.parametrize("paired", [False, True])
def test_a_mean_takes_the_transpose_in_front_of_it_along(mean, paired, tmp_path):
    text = f"""
    g (float[1,8,8,16] x) => (float[1,16,1,1] y) <float[16,16,1,1] w = {{1}}> {{
      [tanh] a = Tanh(x)
      [turn] b = Transpose<perm = [0, 3, 1, 2]>(a)
      [mean] c = {mean}
      [conv] y = Conv(c, w)
    }}
    """
    found, _ = check(text, [(Edge("b", "mean", 0),)] if paired else [], tmp_path)
    assert (found[frozenset({"turn", "mean"}), ("float",)] == 1) is not paired


RECURRENT = """
g (float[3,12,16] x) => (float[12,DIRS,3,8] out)
<float[DIRS,24,16] w = {1}, float[DIRS,24,8] r = {1}> {
  [act1] a = Tanh(x)
  [turn1] t = Transpose<perm = [1, 0, 2]>(a)
  [cell1] out = GRU<hidden_size = 8, direction = "DIRECTION">(t, w, r)
}
"""


@pytest.mark.parametrize(("direction", "cells"), [("forward", 1), ("bidirectional", 2)])
def test_a_transpose_to_steps_of_a_batch_goes_away_before_cells(
    direction: str, cells: int, tmp_path: Path
):
    text = RECURRENT.replace("DIRS", str(cells)).replace("DIRECTION", direction)
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert sum("cell1" in one.nodes for one in actual.layers) == cells


@pytest.mark.parametrize("perm", [(2, 0, 1), (0, 2, 1), (1, 2, 0), (2, 1, 0)])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_another_transpose_before_cells_is_one_with_openvinos_own(op, perm, tmp_path):
    shape = [0, 0, 0]
    for axis, size in zip(perm, (6, 2, 16), strict=True):
        shape[axis] = size
    rows = {"LSTM": 32, "GRU": 24}[op]
    text = f"""
    g (float{shape} x) => (float[6,2,8] y)
    <float[1,{rows},16] w = {{1}}, float[1,{rows},8] r = {{1}}, int64[1] one = {{1}}> {{
      [act1] a = Tanh(x)
      [turn1] t = Transpose<perm = {[*perm]}>(a)
      [cell1] c = {op}<hidden_size = 8>(t, w, r)
      [squeeze1] y = Squeeze(c, one)
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert frozenset({"turn1", "cell1"}) in {nodes for nodes, _ in layers(actual)}


CONVS = {
    "of rows": ("float[2,16,8]", "[conv1] a = Conv(x, w1, b)"),
    "activation": ("float[2,16,8]", "[conv1] c = Conv(x, w1, b) [act1] a = Exp(c)"),
    "view": ("float[2,16,3,8]", "[conv1] c = Conv(x, w2, b) [view1] a = Squeeze(c, two)"),
    "pool": (
        "float[2,16,4,8]",
        "[conv1] c = Conv(x, w2, b) [act1] d = Relu(c)"
        " [pool1] e = MaxPool<kernel_shape = [2, 1]>(d) [view1] a = Reshape(e, shape)",
    ),
}


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("convs", CONVS)
def test_a_transpose_of_what_a_conv_wrote_before_cells_is_a_layer(convs, paired, tmp_path):
    shape, made = CONVS[convs]
    text = f"""
    g ({shape} x) => (float[6,1,2,8] y)
    <float[16,16,3] w1 = {{1}}, float[16,16,3,3] w2 = {{1}}, float[16] b = {{1}},
     float[1,32,16] w = {{1}}, float[1,32,8] r = {{1}}, int64[1] two = {{2}},
     int64[3] shape = {{2, 16, 6}}> {{
      {made}
      [turn1] t = Transpose<perm = [2, 0, 1]>(a)
      [cell1] y = LSTM<hidden_size = 8>(t, w, r)
    }}
    """
    weight = "w2" if "w2" in made else "w1"
    pairs = [(Edge("x", "conv1", 0),), (Edge(weight, "conv1", 1),)] if paired else []
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert frozenset({"turn1"}) in {nodes for nodes, _ in layers(actual)}


def test_a_transpose_behind_a_float_conv_and_its_q_moves_floats(tmp_path):
    """The scale goes into the weights, and the change of type is merged with the Transpose."""
    text = """
    g (float[1,16,24] x) => (float[1,24,16] y) <float[16,16,1] w = {1}, float[16,16] v = {1}> {
      [conv] a = Conv(x, w)
      [turn] b = Transpose<perm = [0, 2, 1]>(a)
      [fc] y = MatMul(b, v)
    }
    """
    pairs = [(Edge("a", "turn", 0),), (Edge("v", "fc", 1),)]
    found, _ = check(text, pairs, tmp_path)
    assert found[frozenset({"turn"}), ("float",)] == 1


WINDOWS = """
g (float[4,3,8,8] q, float[4,3,8,8] k) => (float[4,3,8,8] y)
<float[1,3,8,8] bias = {1}, float[1,4,1,8,8] mask = {1}, int64[5] to = {1, 4, 3, 8, 8},
 int64[4] back = {4, 3, 8, 8}> {
  [product] a = MatMul(q, k)
  [first] b = FIRST
  [to] c = Reshape(b, to)
  [second] d = SECOND
  [back] e = Reshape(d, back)
  [softmax] y = Softmax(e)
}
"""


@pytest.mark.parametrize(
    ("first", "second", "layer"),
    [
        ("Add(a, bias)", "Add(c, mask)", {"first", "second"}),
        ("Sigmoid(a)", "Relu(c)", {"product", "first", "second"}),
    ],
)
def test_views_of_windows_do_not_keep_apart_what_is_element_wise(first, second, layer, tmp_path):
    text = WINDOWS.replace("FIRST", first).replace("SECOND", second)
    found, _ = check(text, [], tmp_path)
    assert found[frozenset(layer), ("float",)] == 1
