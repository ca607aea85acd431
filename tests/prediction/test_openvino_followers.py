"""What follows a kernel and becomes part of it, and where integers are signed, as OpenVINO does."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

CONV = """
g (float[1,16,8,8] x, float[1,16,8,8] r) => (float[1,16,8,8] out)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float[16] gain = {1}, float[16] shift = {1},
 float[16] mean = {1}, float[16] power = {1}> {
  [root] variance = Exp(power)
  [conv] a = Conv(x, w)
  [act] b = ACT
  [norm] c = BatchNormalization(b, gain, shift, mean, variance)
  [conv2] out = Conv(c, w2)
}
"""
LINEAR = """
g (float[1,16,32] x) => (float[1,16,32] out)
<float[32,32] w = {1}, float[32,32] w2 = {1}> {
  [fc] a = MatMul(x, w)
  [act] b = ACT(a)
  [fc2] out = MatMul(b, w2)
}
"""
NORMALIZED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float least = {0.001},
 int64[4] shape = {1, 16, 8, 8}> {
  [conv] a = Conv(x, w)
  [norm] n = REDUCE<axes = [1]>(a)
  [clip] c = Clip(n, least)
  [expand] e = Expand(c, shape)
  [div] y = Div(a, e)
  [conv2] out = Conv(y, w2)
}
"""
VIEWED = """
g (float[1,16,8,8] x, float[1,16,64] k) => (float[1,64,64] out)
<float[16,16,3,3] w = {1}, float[16] bias = {1}, float half = {0.5}, int64[3] shape = {1, 16, 64}> {
  [conv] a = Conv<pads = [1, 1, 1, 1]>(INPUTS)
  [view] b = Reshape(a, shape)
  [act] c = ACT
  [turn] d = Transpose<perm = [0, 2, 1]>(c)
  [product] out = MatMul(d, k)
}
"""
SPLIT = """
g (float[1,64,32] x) => (float[1,2,64,16] out)
<float[32,96] w = {1}, int64[5] heads = {1, 64, 3, 2, 16}, int64[1] first = {0}, float half = {0.5},
 int64[3] ones = {1, 1, 1}> {
  [fc] a = MatMul(x, w)
  [view] b = Reshape(a, heads)
  [move] c = Transpose<perm = [2, 0, 3, 1, 4]>(b)
  [split] c0, c1, c2 = Split<axis = 0>(c, ones)
  [query] q0 = Squeeze(c0, first)
  [key] k0 = Squeeze(c1, first)
  [value] v = Squeeze(c2, first)
  [scale] q = Mul(q0, half)
  [turn] k1 = Transpose<perm = [0, 1, 3, 2]>(k0)
  [scale2] k = Mul(k1, half)
  [scores] s = MatMul(q, k)
  [softmax] p = Softmax(s)
  [mix] out = MatMul(p, v)
}
"""
READ = (Edge("x", "conv", 0),), (Edge("w", "conv", 1),)
PARTS = (Edge("c0", "query", 0), Edge("c1", "key", 0), Edge("c2", "value", 0))


def agree(text, pairs, folder):
    predicted, actual = plans(text, list(pairs), folder)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    return {names for names, _ in layers(actual)}


@pytest.mark.parametrize("pairs", [(), READ], ids=["float", "int8"])
@pytest.mark.parametrize("act", ["Relu(a)", "Add(a, r)"])
def test_a_conv_takes_a_norm_behind_its_activation(act, pairs, tmp_path):
    parts = agree(CONV.replace("ACT", act), pairs, tmp_path)
    assert any({"act", "norm"} <= part for part in parts)
    assert frozenset({"conv", "act", "norm"}) in parts or (act, pairs) == ("Add(a, r)", READ)


@pytest.mark.parametrize("act", ["Neg", "Round", "Softplus"])
def test_a_linear_layer_takes_any_operator_of_one_operand_that_kernels_have(act, tmp_path):
    assert frozenset({"fc", "act"}) in agree(LINEAR.replace("ACT", act), (), tmp_path)


@pytest.mark.parametrize("reduce", ["ReduceL1", "ReduceL2", "ReduceProd"])
def test_a_reduction_takes_what_follows(reduce, tmp_path):
    parts = agree(NORMALIZED.replace("REDUCE", reduce), READ, tmp_path)
    assert {frozenset({"norm", "clip"}), frozenset({"expand", "div"})} <= parts


@pytest.mark.parametrize("act", ["Mul(b, half)", "Sigmoid(b)"])
@pytest.mark.parametrize(("inputs", "takes"), [("x, w, bias", True), ("x, w", False)])
def test_an_int8_conv_takes_what_follows_a_view_only_if_it_adds_a_bias(
    inputs, takes, act, tmp_path
):
    """Without one the scale of its DQ is moved behind the view and keeps them apart."""
    text = VIEWED.replace("INPUTS", inputs).replace("ACT", act)
    assert (frozenset({"conv", "act"}) in agree(text, READ, tmp_path)) == takes


@pytest.mark.parametrize(
    "pairs",
    [
        # Three pairs of one scale: the one before the values is signed, the others are not.
        [PARTS],
        # One of the same scale in front of them all.
        [(Edge("c", "split", 0), *PARTS)],
        [(Edge("a", "view", 0),), PARTS],
    ],
    ids=["parts", "whole and parts", "another in front"],
)
def test_pairs_of_one_scale_that_stand_apart_are_signed_apart(pairs, tmp_path):
    predicted, actual = plans(SPLIT, pairs, tmp_path)
    assert layers(predicted) == layers(actual)


TURNED = """
g (float[1,64,2,16] x, float[1,64,2,16] z) => (float[1,2,64,64] out) <float half = {0.5}> {
  [query] q = Transpose<perm = [0, 2, 1, 3]>(x)
  [tanh] a = Tanh(z)
  [move] b = Transpose<perm = [0, 2, 1, 3]>(a)
  [turn] k = Transpose<perm = [0, 1, 3, 2]>(b)
  [scores] s = MatMul(q, k)
  [softmax] out = Softmax(s)
}
"""
KEYS, QUERIES = (Edge("a", "move", 0),), (Edge("x", "query", 0),)


@pytest.mark.parametrize("pairs", [(KEYS,), (KEYS, QUERIES)], ids=["keys", "both"])
def test_a_product_reads_keys_as_they_lie_before_their_transpose(pairs, tmp_path):
    """Though DQ of the pair before would move past it."""
    assert frozenset({"turn", "scores"}) in agree(TURNED, pairs, tmp_path)


# One operand of a sum or product carries a pair, or both do.
SUMMED = """
g (float[1,64,32] x, float[1,64,32] z) => (float[1,64,32] out)
<float[32,32] w = {1}, float[32] b = {1}> {
  [fc] m = MatMul(x, w)
  [bias] a = Add(m, b)
  [act] r = ACT(a)
  [both] out = OP(z, r)
}
"""
SECOND, FIRST = (Edge("r", "both", 1),), (Edge("z", "both", 0),)


@pytest.mark.parametrize(
    ("op", "act", "pairs", "quantized"),
    [
        ("Add", "Tanh", [SECOND], 1),
        ("Mul", "Tanh", [SECOND], 1),
        ("Sub", "Relu", [SECOND], 1),
        ("Mul", "Relu", [SECOND], 0),  # The zero point is 0.
        ("Add", "Tanh", [FIRST], 0),
        ("Add", "Relu", [FIRST, SECOND], 0),
        ("Mul", "Tanh", [FIRST, SECOND], 0),
    ],
)
def test_what_a_float_kernel_writes_is_quantized_for_a_sum_that_reads_one_pair(
    op, act, pairs, quantized, tmp_path
):
    predicted, actual = plans(SUMMED.replace("ACT", act).replace("OP", op), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert conversions(actual).total() == quantized


def test_a_float_conv_transpose_takes_a_scale_in_front_of_it(tmp_path):
    text = """
    g (float[1,16,8,8] x) => (float[1,16,16,16] out)
    <float[16,16,2,2] w = {1}, float[16,1,1] k = {1}> {
      [act] s = Sigmoid(x)
      [scale] r = Mul(s, k)
      [up] out = ConvTranspose<strides = [2, 2]>(r, w)
    }
    """
    assert frozenset({"scale", "up"}) in agree(text, (), tmp_path)


@pytest.mark.parametrize(
    ("kernel", "strides", "group", "in_integers"),
    [
        ((2, 2), (2, 2), 1, True),
        ((3, 3), (3, 3), 1, True),
        ((3, 2), (3, 1), 1, True),
        ((4, 4), (4, 4), 1, False),
        ((1, 1), (2, 2), 1, False),
        ((2, 2), (3, 3), 1, False),
        ((2, 3), (3, 3), 1, False),
        ((1, 2), (2, 1), 1, False),
        ((2, 1), (1, 2), 1, False),
        ((1, 3), (3, 1), 1, False),
        ((1, 2), (2, 2), 1, False),
        ((2, 1), (2, 2), 1, False),
        ((1, 3), (2, 3), 1, False),
        ((1, 3), (3, 3), 1, False),
        ((2, 2), (2, 2), 16, False),
    ],
)
def test_conv_transposes_with_gaps_wide_strides_or_groups_compute_in_float(
    kernel, strides, group, in_integers, tmp_path
):
    text = f"""
    g (float[1,16,8,8] x) => (float[1,a,b,c] out)
    <float[16,16,1,1] w0 = {{1}}, float[16,{16 // group},{kernel[0]},{kernel[1]}] w = {{1}}> {{
      [conv] a = Conv(x, w0)
      [act] r = Relu(a)
      [up] out = ConvTranspose<strides = {list(strides)}, group = {group}>(r, w)
    }}
    """
    pairs = [(Edge("x", "conv", 0),), (Edge("w0", "conv", 1),)]
    pairs += [(Edge("r", "up", 0),), (Edge("w", "up", 1),)]
    for plan in plans(text, pairs, tmp_path):
        (layer,) = (layer for layer in plan.layers if "up" in layer.nodes)
        assert [port.dtype for port in layer.inputs] == ["uint8" if in_integers else "float"]


MISH = """
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}> {
  [conv] a = Conv(x, w)
  [softplus] b = Softplus(a)
  [tanh] c = Tanh(b)
  [mul] d = Mul(a, c)
  [conv2] out = Conv(d, w2)
}
"""


@pytest.mark.parametrize(
    ("paired", "expected"),
    [
        ((), {frozenset({"conv", "softplus", "tanh", "mul"})}),
        (("tanh",), {frozenset({"conv"}), frozenset({"softplus"}), frozenset({"tanh", "mul"})}),
    ],
)
def test_mish_in_parts_is_part_of_a_conv_and_a_softplus_of_no_generated_kernel(
    paired, expected, tmp_path
):
    assert expected <= agree(MISH, [(Edge("b", node, 0),) for node in paired], tmp_path)


SCALED_BLOCK = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,3,3] w2 = {1}, float gamma = {1.7}, float alpha = {0.2},
 float beta = {1.3}> {
  [source] a = Softmax(x)
  [act1] b = Relu(a)
  [gamma1] c = Mul(b, gamma)
  [beta1] d = Div(c, beta)
  [conv1] e = Conv(d, w)
  [act2] f = ACT
  [gamma2] i = Mul(f, gamma)
  [conv2] j = Conv<pads = [1, 1, 1, 1]>(i, w2)
  [alpha1] k = Mul(j, alpha)
  [add] y = Add(k, a)
}
"""


@pytest.mark.parametrize("act", ["Relu(e)", "Tanh(e)"])
@pytest.mark.parametrize("paired", [False, True])
def test_numbers_that_several_nodes_read_are_written_into_kernels(act, paired, tmp_path):
    text = SCALED_BLOCK.replace("ACT", act)
    pairs = [(Edge("d", "conv1", 0),), (Edge("w", "conv1", 1),), (Edge("i", "conv2", 0),)]
    predicted, actual = plans(text, pairs if paired else [], tmp_path)
    assert layers(predicted) == layers(actual)
    found = {nodes for nodes, _ in layers(actual)}
    if paired:
        assert {"conv1", "act2", "gamma2"} in found
    else:
        assert {"gamma1", "beta1", "conv1", "act2"} in found
        assert {"gamma2", "conv2", "add"} in found  # The last product is one with weights already.


SHIFTED = """
g (float[1,64,16] x) => (float[1,64,16] y)
<float[16,16] w = {1}, float[16] bias = {1}, float[16] gain = {1}, float[16] shift = {1},
 float[16,16] w2 = {1}> {
  [source] a = Softmax(x)
  [fc1] b = MatMul(a, w)
  [bias1] c = Add(b, bias)
  [gain1] d = Mul(c, gain)
  [shift1] e = Add(d, shift)
  [fc2] f = MatMul(e, w2)
  [last] y = LAST
}
"""


@pytest.mark.parametrize("last", ["Tanh(f)", "Add(f, x)"])
def test_a_scale_and_a_shift_before_q_are_part_of_a_linear_layer(last, tmp_path):
    pairs = [(Edge("a", "fc1", 0),), (Edge("w", "fc1", 1),), (Edge("e", "fc2", 0),)]
    pairs += [(Edge("w2", "fc2", 1),)]
    predicted, actual = plans(SHIFTED.replace("LAST", last), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert layers(actual)[frozenset({"fc1", "bias1", "gain1", "shift1"}), ("uint8",)] == 1
