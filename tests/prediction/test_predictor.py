"""Which layers are predicted: what fuses, what each reads and writes, which conversions remain.

The rules here are few and small, so that a change of the built-in pack changes no expectation.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.predictor import Prediction, Predictor
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.target import Target, Typing
from tests.prediction.test_motion import HEAD, graph_texts, moved, placements

CONV = """
id: conv
pattern:
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
  act: {op: Relu, inputs: [c], output: y, optional: true}
layouts:
  int8:
    quantize: [conv.x, conv.w]
    default: true
    fuses: [{nodes: [conv, act], op: Convolution, inputs: int8, outputs: readers}]
  float:
    fuses: [{nodes: [conv, act], op: Convolution, inputs: float, outputs: float}]
"""
RESIDUAL = """
id: residual
priority: 1
pattern:
  add: {op: Add, inputs: [c, r], output: y, commutative: true}
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
layouts:
  int8-residual:
    quantize: [conv.x, conv.w, add.r]
    default: true
    fuses: [{nodes: [conv, add], op: Convolution, inputs: int8, outputs: int8}]
  float-residual:
    quantize: [conv.x, conv.w]
    fuses:
      - {nodes: [conv, add], op: Convolution, inputs: int8, outputs: float, float_like: add.r}
  both:
    quantize: [add.c, add.r]
    fuses: [{nodes: [add], op: PointWise, inputs: int8, outputs: readers}]
  float:
    fuses: [{nodes: [conv, add], op: Convolution, inputs: float, outputs: float}]
"""
STEM = """
id: stem
priority: 2
pattern:
  conv: {op: Conv, inputs: [x, w, "b?"], output: y}
where: [{dim: {tensor: x, axis: 1, at_most: 3}}]
layouts:
  int8:
    quantize: [conv.x, conv.w]
    default: true
    fuses:
      - nodes: [conv]
        op: Convolution
        inputs: int8
        outputs: readers
        float_type: float
        when: {typing: weak}
"""
MOVES = """
id: moves
pattern: {op: {op: [MaxPool, Reshape], inputs: [x, "_*"], output: y}}
motion: {before: x, after: y}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [op], op: [Pooling, NoOp], inputs: int8, outputs: same, reads: [op.x]}
      - {nodes: [op], op: [Pooling, NoOp], inputs: float, outputs: same}
"""
CONCAT = """
id: concat
pattern: {join: {op: Concat, inputs: ["xs*"], output: y}}
motion: {before: xs, after: y}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [join], op: Concat, inputs: int8, outputs: same, reads: [join.xs]}
      - {nodes: [join], op: Concat, inputs: float, outputs: same}
"""
SPLIT = """
id: split
pattern: {split: {op: Split, inputs: [x, "_?"], output: ["ys*"]}}
motion: {before: x, after: ys}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [split], op: Slice, inputs: int8, outputs: same, reads: [split.x]}
      - {nodes: [split], op: Slice, inputs: float, outputs: same}
"""
ABSORBED = """
id: absorbed
priority: 3
pattern:
  conv: {op: Conv, inputs: [x, w], output: c}
  act: {op: Relu, inputs: [c], output: y}
layouts:
  int8:
    quantize: [conv.x, conv.w, act.c]
    default: true
    fuses:
      - {nodes: [conv, act], op: ConvAct, inputs: int8, outputs: int8, absorbs: [act.c]}
"""


def rule(text: str) -> Rule:
    return parse_text(f"why: a sentence for the test\nsource: test\n{text}", "rule.yaml", Rule)


PACK = tuple(map(rule, (CONV, RESIDUAL, STEM, MOVES, CONCAT, SPLIT)))


def predict(
    graph: Graph,
    *groups: Sequence[Edge],
    rules: Sequence[Rule] = PACK,
    typing: Typing = "strong",
    base: str = "float16",
) -> Prediction:
    """The prediction with these scale groups; every weight has a pair too."""
    weights = [[e] for t in graph.initializers for e in graph.edges_of(t) if t.startswith("w")]
    placement = Placement(frozenset(map(frozenset, (*groups, *weights))))
    return Predictor(graph, rules, Target(typing=typing), base, "int8").predict(placement)


def lines(prediction: Prediction) -> list[str]:
    """A layer per line, as in the tests of rules."""
    layers = prediction.plan.layers
    return [f"{x.name}: {', '.join(x.input_types)} -> {', '.join(x.output_types)}" for x in layers]


def graph_of(signature: str, body: str) -> Graph:
    """A graph of tensors of shape (1, 4, 4, 4) or as written, and 1x1 convolutions."""
    weights = "float[4,4,1,1] w1 = {1}, float[4,3,1,1] w3 = {1}, int64[2] k = {1,-1}"
    return graph_of_text(f"{HEAD} g {signature} <{weights}> {{ {body} }}")


TWO_CONVS = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
    "[conv1] c = Conv(x, w1) [relu1] r = Relu(c) [conv2] out = Conv(r, w1)",
)
X, C, R = Edge("x", "conv1", 0), Edge("c", "relu1", 0), Edge("r", "conv2", 0)
OUT = Edge("out", "", 0)


def test_a_chain_runs_on_integers_between_its_pairs():
    prediction = predict(TWO_CONVS, [X], [R])
    assert lines(prediction) == [
        "quantize x: float -> int8",
        "conv1+relu1: int8 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]
    first, conv1, conv2, last = prediction.layers
    assert [x.layer.kind for x in prediction.layers] == [
        "quantize",
        "compute",
        "compute",
        "reformat",
    ]
    assert conv1.layer.nodes == ("conv1", "relu1")
    assert (conv1.claim.layout, conv2.claim.layout) == ("int8", "int8")
    assert (first.edges, conv1.edges, last.edges) == ((X,), (X,), (OUT,))
    assert first.claim is last.claim is None
    assert prediction.plan.estimated


def test_without_pairs_all_is_float_with_reformats_at_the_border():
    assert lines(predict(TWO_CONVS)) == [
        "reformat x: float -> float16",
        "conv1+relu1: float16 -> float16",
        "conv2: float16 -> float16",
        "reformat out: float16 -> float",
    ]
    assert lines(predict(TWO_CONVS, base="float")) == [
        "conv1+relu1: float -> float",
        "conv2: float -> float",
    ]


def test_a_quantized_graph_output_is_written_as_integers_and_dequantized():
    assert lines(predict(TWO_CONVS, [X], [R], [OUT]))[-2:] == [
        "conv2: int8 -> int8",
        "dequantize out: int8 -> float",
    ]


def test_a_pair_inside_a_layer_splits_it():
    assert lines(predict(TWO_CONVS, [X], [C], [R])) == [
        "quantize x: float -> int8",
        "conv1: int8 -> int8",
        "dequantize c: int8 -> float16",
        "relu1: float16 -> float16",
        "quantize r: float16 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]


def test_an_absorbed_pair_does_not_split_its_layer_but_must_be_there():
    rules = (*PACK, rule(ABSORBED))
    assert lines(predict(TWO_CONVS, [X], [C], [R], rules=rules))[1] == "conv1+relu1: int8 -> int8"
    assert predict(TWO_CONVS, [X], [C], [R], rules=rules).layers[1].layer.op == "ConvAct"
    assert predict(TWO_CONVS, [X], [R], rules=rules).layers[1].layer.op == "Convolution"


def test_a_weight_without_a_pair_leaves_its_conv_float():
    placement = Placement.of([X, Edge("w1", "conv2", 1), R])
    predictor = Predictor(TWO_CONVS, PACK, Target(typing="strong"), "float16", "int8")
    assert lines(predictor.predict(placement)) == [
        "quantize x: float -> int8",
        "dequantize x: int8 -> float16",
        "conv1+relu1: float16 -> float16",
        "quantize r: float16 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]


BLOCK = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
    "[short] s = Conv(x, w1) [long] c = Conv(x, w1) [add] a = Add(s, c) [conv3] out = Conv(a, w1)",
)
SHORT, LONG = Edge("s", "add", 0), Edge("c", "add", 1)
INPUTS, A3 = [Edge("x", "short", 0), Edge("x", "long", 0)], Edge("a", "conv3", 0)


def test_an_add_without_pairs_fuses_into_the_conv_that_runs_last():
    assert lines(predict(BLOCK, INPUTS, [A3])) == [
        "quantize x: float -> int8",
        "short: int8 -> float16",
        "long+add: int8, float16 -> float16",
        "quantize a: float16 -> int8",
        "conv3: int8 -> float16",
        "reformat out: float16 -> float",
    ]


def test_an_add_takes_the_conv_whose_branch_has_no_pair_and_writes_integers():
    assert lines(predict(BLOCK, INPUTS, [A3], [SHORT]))[1:3] == [
        "short: int8 -> int8",
        "long+add: int8, int8 -> int8",
    ]
    # The Conv that runs first has to wait for the other branch.
    assert lines(predict(BLOCK, INPUTS, [A3], [LONG]))[1:3] == [
        "long: int8 -> int8",
        "short+add: int8, int8 -> int8",
    ]


def test_an_add_with_pairs_on_both_branches_fuses_with_neither():
    assert lines(predict(BLOCK, INPUTS, [A3], [SHORT], [LONG]))[1:4] == [
        "short: int8 -> int8",
        "long: int8 -> int8",
        "add: int8, int8 -> int8",
    ]


def test_an_integer_residual_of_a_layer_with_float_output_is_dequantized():
    assert lines(predict(BLOCK, INPUTS, [SHORT])) == [
        "quantize x: float -> int8",
        "short: int8 -> int8",
        "dequantize s: int8 -> float16",
        "long+add: int8, float16 -> float16",
        "conv3: float16 -> float16",
        "reformat out: float16 -> float",
    ]


def test_under_weak_typing_the_residual_is_dequantized_to_fp32_and_so_is_the_sum():
    assert lines(predict(BLOCK, INPUTS, [SHORT], typing="weak")) == [
        "quantize x: float -> int8",
        "short: int8 -> int8",
        "dequantize s: int8 -> float",
        "long+add: int8, float -> float",
        "reformat a: float -> float16",
        "conv3: float16 -> float16",
        "reformat out: float16 -> float",
    ]


FORK = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b, float[1,4,4,4] s)",
    "[conv1] c = Conv(x, w1) [conv2] a = Conv(c, w1) [conv3] b = Conv(c, w1) "
    "[sigmoid1] s = Sigmoid(c)",
)
TO_2, TO_3, TO_S = Edge("c", "conv2", 0), Edge("c", "conv3", 0), Edge("c", "sigmoid1", 0)


def test_mixed_readers_get_float_and_a_quantize_for_those_with_a_pair():
    prediction = predict(FORK, [X], [TO_2, TO_3])
    assert lines(prediction)[:5] == [
        "quantize x: float -> int8",
        "conv1: int8 -> float16",
        "quantize c: float16 -> int8",
        "conv2: int8 -> float16",
        "conv3: int8 -> float16",
    ]
    assert prediction.layers[2].edges == (TO_2, TO_3)


COMPILED = """
id: compiled
priority: 1
pattern:
  first: {op: [Sigmoid, Relu, Mul], inputs: [x, "z?"], output: t}
  second: {op: [Sigmoid, Relu, Mul], inputs: [t, "_?"], output: y, optional: true}
layouts:
  follow:
    default: true
    fuses: [{nodes: [first, second], op: Compiled, inputs: int8, outputs: each, reads: any}]
"""


def test_a_compiled_layer_takes_pairs_inside_and_writes_what_each_reader_needs():
    graph = graph_of(
        "(float[1,4,4,4] x, float[1,4,4,4] z) => (float[1,4,4,4] a, float[1,4,4,4] b)",
        "[conv1] c = Conv(x, w1) [sigmoid1] s = Sigmoid(c) [mul1] m = Mul(s, z) "
        "[conv2] a = Conv(m, w1) [conv3] b = Conv(m, w1)",
    )
    inside, other = Edge("s", "mul1", 0), Edge("z", "mul1", 1)
    rules = [rule(CONV), rule(COMPILED)]
    before, behind = Edge("c", "sigmoid1", 0), Edge("m", "conv2", 0)
    groups = ([Edge("x", "conv1", 0)], [before], [inside], [other], [behind])
    assert lines(predict(graph, *groups, rules=rules, base="float"))[2:] == [
        # What was not quantized for somebody else is quantized inside.
        "sigmoid1+mul1: int8, float -> float, int8",
        "conv2: int8 -> float",
        "conv3: float -> float",
    ]
    found = predict(graph, [behind], [Edge("m", "conv3", 0), Edge("b", "", 0)], rules=rules)
    assert "sigmoid1+mul1: float16, float -> int8, int8" in lines(found)


MERGING = """
id: merging
pattern:
  op: {op: [Sigmoid, Add, Mul, Tanh], inputs: [x, "_*"], output: y}
layouts:
  follow:
    default: true
    fuses: [{nodes: [op], op: Compiled, inputs: int8, outputs: each, reads: READS, merges: true}]
"""


@pytest.mark.parametrize(("reads", "pair_splits"), [("any", False), ("[]", True)])
def test_layers_that_merge_are_one_however_many_and_whatever_their_shape(
    reads: str, pair_splits: bool
):
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b)",
        "[sigmoid1] s = Sigmoid(x) [tanh1] t = Tanh(x) [add1] u = Add(s, t) [mul1] v = Mul(s, u) "
        "[conv1] a = Conv(u, w1) [tanh2] w = Tanh(v) [conv2] b = Conv(w, w1)",
    )
    rules = [rule(CONV), rule(MERGING.replace("READS", reads))]

    def merged(*groups: list[Edge]) -> list[tuple[str, ...]]:
        layers = predict(graph, *groups, rules=rules, base="float").plan.of_kind("compute")
        return [layer.nodes for layer in layers if not layer.nodes[0].startswith("conv")]

    # Before tanh2 runs, conv1 has read what add1 writes.
    four = ("sigmoid1", "tanh1", "add1", "mul1")
    assert merged() == [four, ("tanh2",)]
    split = [("sigmoid1", "tanh1", "add1"), ("mul1", "tanh2")]
    assert merged([Edge("u", "mul1", 1)]) == (split if pair_splits else [four, ("tanh2",)])


def test_only_layers_of_one_node_merge_that_read_whatever_there_is_or_floats():
    with pytest.raises(InputError, match=r"`merges` is for a single node with `reads` any or \[\]"):
        rule(MERGING.replace("READS", "[op.x]"))


def test_a_layer_that_needs_its_readers_to_agree_splits_where_they_do_not():
    whole = CONV.replace(
        "inputs: float, outputs: float", "inputs: float, outputs: float, readers_agree: true"
    )
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b)",
        "[conv1] c = Conv(x, w1) [relu1] r = Relu(c) [conv2] a = Conv(r, w1) "
        "[conv3] b = Conv(r, w1)",
    )
    left, right = Edge("r", "conv2", 0), Edge("r", "conv3", 0)
    layers = {
        groups: [
            x.split(":")[0] for x in lines(predict(graph, *map(list, groups), rules=[rule(whole)]))
        ]
        for groups in ((), ((left, right),), ((left,),))
    }
    assert "conv1+relu1" in layers[()]
    assert "conv1+relu1" in layers[((left, right),)]
    assert {"conv1", "relu1"} < set(layers[((left,),)])


BETWEEN = """
id: between
pattern: {op: {op: Flatten, inputs: [x], output: y}}
layouts:
  follow:
    default: true
    fuses:
      - nodes: [op]
        op: Flatten
        inputs: int8
        outputs: same
        reads: [op.x]
        readers_quantized: KIND
"""


@pytest.mark.parametrize(
    ("kind", "groups", "types"),
    [
        ("as-read", ["xy"], "int8 -> int8"),
        ("as-read", ["x", "y"], "float -> float"),
        ("as-read", ["x"], "float -> float"),
        ("alike", ["x", "y"], "int8 -> int8"),
        ("alike", ["x"], "float -> float"),
    ],
)
def test_a_layer_that_needs_pairs_on_all_that_read_what_it_writes(
    kind: str, groups: list[str], types: str
):
    graph = graph_of("(float[1,4,4,4] x) => (float[1,64] y)", "[op1] y = Flatten(x)")
    edges = {"x": Edge("x", "op1", 0), "y": Edge("y", "", 0)}
    placed = [[edges[name] for name in group] for group in groups]
    found = predict(graph, *placed, rules=[rule(BETWEEN.replace("KIND", kind))], base="float")
    assert f"op1: {types}" in lines(found)


BARE = """
id: swish
pattern:
  mul: {op: Mul, inputs: [x, s], output: y}
  sigmoid: {op: Sigmoid, inputs: [x], output: s}
layouts:
  follow:
    default: true
    fuses:
      - nodes: [sigmoid, mul]
        op: Swish
        inputs: float
        outputs: float
        reads: []
        bare: [mul.x]
"""


def test_an_edge_that_must_be_bare_forbids_a_layer():
    graph = graph_of(
        "(float[4] x) => (float[4] y)", "[sigmoid1] s = Sigmoid(x) [mul1] y = Mul(x, s)"
    )
    found = [
        lines(predict(graph, *groups, rules=[rule(BARE)], base="float"))[-1]
        for groups in ([], [[Edge("x", "sigmoid1", 0)]], [[Edge("x", "mul1", 0)]])
    ]
    assert [line.split(":")[0] for line in found] == ["sigmoid1+mul1", "sigmoid1+mul1", "mul1"]


def test_each_reader_in_float_may_have_a_dequantization_of_its_own():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b)", "a = Exp(x) b = Tanh(x)"
    )
    placement = Placement.of(graph.edges_of("x"))
    for once, count in ((True, 1), (False, 2)):
        predictor = Predictor(graph, (), Target(), "float", "int8", dequantizes_once=once)
        assert len(predictor.predict(placement).plan.of_kind("dequantize")) == count


def test_constants_that_are_read_in_float_may_be_dequantized_in_every_run():
    graph = graph_of("(float[1,4,4,4] x) => (float[1,4,4,4] c)", "[conv1] c = Conv(x, w1)")
    x, w = Edge("x", "conv1", 0), Edge("w1", "conv1", 1)
    for rules, count in (((), 1), ([rule(CONV)], 0)):
        predictor = Predictor(graph, rules, Target(), "float", "int8", folds_constants=False)
        layers = predictor.predict(Placement.of([x, w])).plan.of_kind("dequantize")
        assert [layer.name for layer in layers if "w1" in layer.name] == ["dequantize w1"] * count


def test_a_residual_that_is_overwritten_has_the_type_that_is_written():
    summing = RESIDUAL.replace(
        "inputs: int8, outputs: int8}", "inputs: int8, outputs: readers, in_place: [add.r]}"
    )
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
        "[conv1] c = Conv(x, w1) [conv2] d = Conv(x, w1) [add1] a = Add(c, d) "
        "[conv3] out = Conv(a, w1)",
    )
    reads, shortcut = [Edge("x", "conv1", 0), Edge("x", "conv2", 0)], [Edge("c", "add1", 0)]
    behind = [Edge("a", "conv3", 0)]
    rules = [rule(CONV), rule(summing)]
    found = lines(predict(graph, reads, shortcut, rules=rules, base="float"))
    assert "dequantize c: int8 -> float" in found
    assert "conv2+add1: int8, float -> float" in found
    found = lines(predict(graph, reads, shortcut, behind, rules=rules, base="float"))
    assert "conv2+add1: int8, int8 -> int8" in found


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
    assert lines(predict(graph, [left], [right]))[:5] == [
        "split1: float -> float, float",
        "quantize l: float -> int8",
        "conv1: int8 -> float16",
        "quantize r: float -> int8",
        "conv2: int8 -> float16",
    ]


IMAGE = graph_of(
    "(float[1,3,4,4] x) => (float[1,4,4,4] out)",
    "[conv1] c = Conv(x, w3) [sigmoid1] s = Sigmoid(c) [conv2] out = Conv(s, w1)",
)


def test_a_conv_on_an_image_with_a_float_reader_writes_fp32_under_weak_typing_only():
    assert lines(predict(IMAGE, [X], typing="weak"))[1:3] == [
        "conv1: int8 -> float",
        "sigmoid1: float -> float",
    ]
    assert lines(predict(IMAGE, [X], typing="strong"))[1:3] == [
        "conv1: int8 -> float16",
        "sigmoid1: float16 -> float16",
    ]


def test_under_weak_typing_an_integer_conv_writes_a_graph_output_in_its_own_type():
    assert lines(predict(TWO_CONVS, [X], [R], typing="weak"))[-1] == "conv2: int8 -> float"


def test_under_weak_typing_an_integer_conv_writes_what_a_softmax_at_the_end_computes_in():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
        "[conv1] c = Conv(x, w1) [softmax1] out = Softmax<axis = 1>(c)",
    )
    ends = [lines(predict(graph, [X], typing=typing))[1:] for typing in ("weak", "strong")]
    assert ends[0] == ["conv1: int8 -> float", "softmax1: float -> float"]
    assert ends[1][0] == "conv1: int8 -> float16"


def test_reshapes_are_no_layer_and_integer_tensors_keep_their_type():
    graph = graph_of(
        "(float[1,4,4,4] x, int64[2] n) => (float[4,16] out, int64[2] m)",
        "[shape1] out = Reshape(x, n) [add1] m = Add(n, k)",
    )
    prediction = predict(graph)
    assert lines(prediction) == [
        "shape1: float, int64 -> float",
        "add1: int64 -> int64",
    ]
    assert [x.layer.kind for x in prediction.layers] == ["no-op", "compute"]
    assert [x.layer.op for x in prediction.layers] == ["NoOp", "Add"]


def test_a_subgraph_reads_what_it_captures_in_float():
    branch = "g () => (float[1,4,2,2] o) {{ o = {op}(p) }}"
    graph = graph_of(
        "(float[1,4,4,4] x, bool b) => (float[1,4,2,2] out)",
        "[pool1] p = MaxPool<kernel_shape = [3, 3]>(x) [if1] out = If<"
        f"then_branch = {branch.format(op='Relu')}, else_branch = {branch.format(op='Neg')}>(b)",
    )
    assert graph.edges_of("p") == (Edge("p", "if1", 1),)
    assert lines(predict(graph, [Edge("x", "pool1", 0)])) == [
        "quantize x: float -> int8",
        "pool1: int8 -> int8",
        "dequantize p: int8 -> float16",
        "if1: bool, float16 -> float16",
        "reformat out: float16 -> float",
    ]


def test_what_rules_are_not_asked_for_on_a_target_is_left_out():
    dated = rule(CONV.replace("layouts:", "when: {engine_versions: '>=10'}\nlayouts:"))

    def nodes(version: str | None) -> list[tuple[str, ...]]:
        target = Target(engine_version=version)
        predictor = Predictor(TWO_CONVS, [dated], target, "float", "int8")
        return [layer.nodes for layer in predictor.predict(EMPTY).plan.layers]

    assert nodes("8.6") == [("conv1",), ("relu1",), ("conv2",)]
    assert nodes("10.8") == nodes(None) == [("conv1", "relu1"), ("conv2",)]


@pytest.mark.parametrize(
    ("condition", "target", "met"),
    [
        ("engine_versions: '>=8.5,<11'", Target(engine_version="10.8"), True),
        ("engine_versions: '>=8.5,<11'", Target(engine_version="11.1"), False),
        ("engine_versions: '>=8.5'", Target(), True),
        ("compute_capability: '>=7.2'", Target(compute_capability="8.6"), True),
        ("compute_capability: '>=7.2'", Target(compute_capability="7.0"), False),
        ("compute_capability: '>=7.2'", Target(compute_capability="12.0"), True),
        ("typing: weak", Target(typing="weak"), True),
        ("typing: weak", Target(typing="strong"), False),
        ("typing: weak", Target(), True),
    ],
)
def test_conditions_on_the_target(condition: str, target: Target, met: bool):
    conditioned = rule(CONV.replace("layouts:", f"when: {{{condition}}}\nlayouts:"))
    assert target.meets(conditioned.when) is met


# Properties of any prediction, with the small rules and with the built-in pack.

RULES = {"small": PACK, "tensorrt": load_pack("tensorrt").rules}


@st.composite
def predictions(draw: st.DrawFn) -> tuple[Graph, Placement, Predictor]:
    graph = graph_of_text(draw(graph_texts()))
    target = Target(typing=draw(st.sampled_from(["weak", "strong"])))
    rules = RULES[draw(st.sampled_from(sorted(RULES)))]
    base = draw(st.sampled_from(["float", "float16"]))
    return graph, draw(placements(graph)), Predictor(graph, rules, target, base, "int8")


@settings(max_examples=150, deadline=None)
@given(predictions())
def test_every_prediction_is_a_plan(case: tuple[Graph, Placement, Predictor]):
    """Every node is in one layer, and every layer reads what was written before in that type."""
    graph, placement, predictor = case
    prediction = predictor.predict(placement)
    covered = [node for layer in prediction.plan.layers for node in layer.nodes]
    assert sorted(covered) == sorted(graph.by_name)
    ready = {(tensor, "float") for tensor in graph.inputs}
    for predicted in prediction.layers:
        layer = predicted.layer
        assert {(port.tensor, port.dtype) for port in layer.inputs} <= ready, layer
        ready |= {(port.tensor, port.dtype) for port in layer.outputs}
        if layer.kind in ("compute", "no-op"):
            assert layer.nodes
            assert tuple(edge.tensor for edge in predicted.edges) == tuple(
                port.tensor for port in layer.inputs
            )
        else:
            assert len(set(predicted.edges)) == len(predicted.edges) > 0
            # A reformat of one type is a copy into a joined tensor.
            same = layer.input_types == layer.output_types
            assert not same or layer.kind in ("requantize", "reformat")
    assert {(tensor, "float") for tensor in graph.outputs} <= ready


@settings(max_examples=100, deadline=None)
@given(predictions())
def test_equal_forms_are_equal_plans(case: tuple[Graph, Placement, Predictor]):
    _, placement, predictor = case
    prediction = predictor.predict(placement)
    again = predictor.predict(moved(prediction.form))
    if again.form.canonical() == prediction.form.canonical():
        assert again.plan == prediction.plan
    assert predictor.predict(placement).plan == prediction.plan
