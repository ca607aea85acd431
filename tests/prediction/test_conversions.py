"""Which conversions remain: pairs that share a layer, move over others, and meet in a Concat."""

from placer.graph import Edge
from placer.prediction.layers.motion import move_pairs, scales_of
from placer.quantization import Placement
from placer.quantization.placement import ScaleGroup
from tests.prediction.small_rules import (
    BLOCK,
    FORK,
    INPUTS,
    TO_2,
    TO_3,
    TO_S,
    X,
    graph_of,
    lines,
    predict,
)


def test_pairs_of_equal_range_are_one_quantize():
    assert lines(predict(FORK, [X], [TO_2], [TO_3])) == lines(predict(FORK, [X], [TO_2, TO_3]))


def test_each_scale_has_a_quantize_of_its_own():
    prediction = predict(FORK, [X], [TO_2, Edge("a", "", 0)], [TO_3])
    assert lines(prediction)[1:6] == [
        "conv1: int8 -> float16",
        "quantize c: float16 -> int8",
        "conv2: int8 -> int8",
        "quantize c: float16 -> int8",
        "conv3: int8 -> float16",
    ]
    quantize = [x for x in prediction.layers if x.layer.kind == "quantize"]
    assert [x.edges for x in quantize] == [(X,), (TO_2,), (TO_3,)]


def test_scales_of_one_tensor_stay_two_when_one_loses_another_tensor():
    """Files have such: one scale for x and c, and another one for c."""
    groups = (ScaleGroup(frozenset(edges)) for edges in ([X, TO_2], [TO_3]))
    placement = Placement.of_scales(groups).without({X})
    assert placement != Placement.of_groups([[TO_2], [TO_3]])
    assert placement.id != Placement.of_groups([[TO_2], [TO_3]]).id
    form = move_pairs(scales_of(placement), ())
    assert form.scales[TO_2] != form.scales[TO_3]


def test_agreeing_readers_get_integers_and_a_reader_that_no_rule_covers_a_dequantize():
    prediction = predict(FORK, [X], [TO_2, TO_3, TO_S])
    assert lines(prediction) == [
        "quantize x: float -> int8",
        "conv1: int8 -> int8",
        "conv2: int8 -> float16",
        "conv3: int8 -> float16",
        "dequantize c: int8 -> float16",
        "sigmoid1: float16 -> float16",
        "reformat a: float16 -> float",
        "reformat b: float16 -> float",
        "reformat s: float16 -> float",
    ]
    sigmoid = prediction.layers[5]
    assert (sigmoid.claim, sigmoid.layer.op, sigmoid.edges) == (None, "Sigmoid", (TO_S,))


POOLED = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,2,2] out)",
    "[conv1] c = Conv(x, w1) [pool1] p = MaxPool<kernel_shape = [3, 3]>(c) "
    "[conv2] out = Conv(p, w1)",
)
TO_POOL, BEHIND = Edge("c", "pool1", 0), Edge("p", "conv2", 0)


def test_a_pair_behind_a_pool_moves_before_it():
    assert lines(predict(POOLED, [X], [BEHIND]))[1:4] == [
        "conv1: int8 -> int8",
        "pool1: int8 -> int8",
        "conv2: int8 -> float16",
    ]


def test_unequal_scales_around_a_pool_cost_a_requantize():
    prediction = predict(POOLED, [X], [TO_POOL], [BEHIND])
    assert lines(prediction)[2:5] == [
        "pool1: int8 -> int8",
        "requantize p: int8 -> int8",
        "conv2: int8 -> float16",
    ]
    assert prediction.layers[3].edges == (BEHIND,)


def test_a_requantize_before_a_dequantize_serves_its_edge_once():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,2,2] a, float[1,4,2,2] b)",
        "[pool1] p = MaxPool<kernel_shape = [3, 3]>(x) [relu1] a = Relu(p) [relu2] b = Relu(p)",
    )
    first, second = Edge("p", "relu1", 0), Edge("p", "relu2", 0)
    prediction = predict(graph, [Edge("x", "pool1", 0)], [first, second])
    assert [(x.layer.kind, x.edges) for x in prediction.layers if not x.nodes][1:3] == [
        ("requantize", (first, second)),
        ("dequantize", (first, second)),
    ]


def test_two_readers_of_one_reformat_are_both_served():
    prediction = predict(BLOCK)
    assert lines(prediction)[0] == "reformat x: float -> float16"
    assert prediction.layers[0].edges == tuple(INPUTS)


JOINED = graph_of(
    "(float[1,4,4,4] x) => (float[1,8,4,4] out, float[1,4,4,4] more)",
    "[conv1] a = Conv(x, w1) [conv2] b = Conv(x, w1) [join] j = Concat<axis = 1>(a, b) "
    "[relu1] out = Relu(j) [conv3] more = Conv(b, w1)",
)
TO_JOIN = [Edge("a", "join", 0), Edge("b", "join", 1)]
BOTH, B3 = [Edge("x", "conv1", 0), Edge("x", "conv2", 0)], Edge("b", "conv3", 0)


def test_a_concat_copies_integers_if_its_inputs_share_a_scale():
    assert lines(predict(JOINED, BOTH, [*TO_JOIN, B3]))[1:5] == [
        "conv1: int8 -> int8",
        "conv2: int8 -> int8",
        "join: int8, int8 -> int8",
        "dequantize j: int8 -> float16",
    ]


def test_a_concat_of_unequal_scales_copies_floats():
    assert lines(predict(JOINED, BOTH, [TO_JOIN[0]], [TO_JOIN[1], B3]))[1:6] == [
        "conv1: int8 -> int8",
        "conv2: int8 -> int8",
        "dequantize a: int8 -> float16",
        "dequantize b: int8 -> float16",
        "join: float16, float16 -> float16",
    ]


def test_a_scale_hoisted_onto_another_pair_is_a_requantize():
    hoisted = [Edge("j", "relu1", 0)]
    prediction = predict(JOINED, BOTH, [TO_JOIN[1], B3], hoisted)
    assert lines(prediction)[1:5] == [
        "conv1: int8 -> int8",
        "conv2: int8 -> int8",
        "requantize b: int8 -> int8",
        "join: int8, int8 -> int8",
    ]


def test_integers_that_went_through_two_scales_are_no_substitute_for_one():
    """conv3 wants b in the scale of j, concat wants it rounded to its own pair before."""
    prediction = predict(JOINED, BOTH, [TO_JOIN[1]], [Edge("j", "relu1", 0), B3])
    converted = [(x.layer.kind, x.edges) for x in prediction.layers if x.layer.kind != "compute"]
    assert converted[1:4] == [
        ("quantize", (TO_JOIN[1],)),
        ("requantize", (TO_JOIN[1],)),
        ("dequantize", (Edge("j", "relu1", 0),)),
    ]
    assert converted[4] == ("quantize", (B3,))


def test_split_copies_integers_of_one_scale_and_floats_of_two():
    graph = graph_of(
        "(float[1,8,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b)",
        "[split1] l, r = Split<axis = 1>(x) [conv1] a = Conv(l, w1) [conv2] b = Conv(r, w1)",
    )
    left, right = Edge("l", "conv1", 0), Edge("r", "conv2", 0)
    assert lines(predict(graph, [left, right]))[:4] == [
        "quantize x: float -> int8",
        "split1: int8 -> int8, int8",
        "conv1: int8 -> float16",
        "conv2: int8 -> float16",
    ]
    assert lines(predict(graph, [left], [right]))[:6] == [
        "reformat x: float -> float16",  # The candidate has a Cast behind its FP32 input.
        "split1: float16 -> float16, float16",
        "quantize l: float16 -> int8",
        "conv1: int8 -> float16",
        "quantize r: float16 -> int8",
        "conv2: int8 -> float16",
    ]
