"""What becomes one layer, as rules say it: pairs inside, merging, agreeing readers, bare edges."""

import pytest

from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Format, Placement
from placer.rules.behaviour import Behaviour
from placer.rules.target import Target
from tests.prediction.small_rules import (
    CONV,
    RESIDUAL,
    graph_of,
    lines,
    predict,
    rule,
)

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
        "[conv1] a = Conv(u, w1) [add2] w = Add(v, a) [conv2] b = Conv(w, w1)",
    )
    rules = [rule(CONV), rule(MERGING.replace("READS", reads))]

    def merged(*groups: list[Edge]) -> list[tuple[str, ...]]:
        layers = predict(graph, *groups, rules=rules, base="float").plan.of_kind("compute")
        return [layer.nodes for layer in layers if not layer.nodes[0].startswith("conv")]

    # What add2 reads, conv1 writes, which reads what add1 writes.
    four = ("sigmoid1", "tanh1", "add1", "mul1")
    assert merged() == [four, ("add2",)]
    split = [("sigmoid1", "tanh1", "add1"), ("mul1", "add2")]
    assert merged([Edge("u", "mul1", 1)]) == (split if pair_splits else [four, ("add2",)])


def test_only_layers_of_one_node_merge_that_read_whatever_there_is_or_floats():
    with pytest.raises(InputError, match=r"`merges` is for a single node with `reads` any or \[\]"):
        rule(MERGING.replace("READS", "[op.x]"))


def test_what_merges_takes_nothing_along():
    both = MERGING.replace("READS", "any").replace(
        "merges: true", "merges: true, takes: {op: [Relu]}"
    )
    with pytest.raises(
        InputError, match="`merges` joins what follows, too; `takes` is for what is `past`"
    ):
        rule(both)


LEADING = """
id: leading
pattern:
  norm: {op: InstanceNormalization, inputs: [x, "_*"], output: y}
layouts:
  follow:
    default: true
    fuses:
      - nodes: [norm]
        op: Norm
        inputs: float
        outputs: readers
        reads: []
        takes: {op: [Relu, Mul, Sub, Div]}
"""
SCALED = """
  [norm1] n = InstanceNormalization(x, gain, gain) [relu1] r = Relu(n) [mul1] m = Mul(r, scale)
  [conv1] a = Conv(m, w1)
"""


def test_a_layer_takes_along_what_follows_it_up_to_a_pair():
    interface = "(float[1,4,4,4] x) => (float[1,4,4,4] a) "
    constants = "float[4] gain = {1}, float[1,4,1,1] scale = {2}"
    rules = [rule(CONV), rule(LEADING)]

    def layers(graph: Graph, *groups: list[Edge]) -> list[str]:
        return lines(predict(graph, *groups, rules=rules, base="float"))

    graph = graph_of(interface, SCALED, constants)
    behind = Edge("m", "conv1", 0)
    assert layers(graph)[0] == "norm1+relu1+mul1: float -> float"
    assert layers(graph, [behind])[0] == "norm1+relu1+mul1: float -> int8"
    assert "norm1+relu1: float -> int8" in layers(graph, [Edge("r", "mul1", 0)])
    # A constant for each place is no scale of a channel, and one that others read is left alone.
    places = graph_of(interface, SCALED, constants.replace("[1,4,1,1] scale", "[4,4] scale"))
    shared = graph_of(
        interface.replace(" a)", " a, float[1,4,4,4] b)"),
        f"{SCALED} [mul2] b = Mul(x, scale)",
        constants,
    )
    assert layers(places)[0] == layers(shared)[0] == "norm1+relu1: float -> float"


def test_a_scale_that_readers_want_in_several_formats_stays_a_layer():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b)",
        f"{SCALED} [relu2] b = Relu(m)",
        "float[4] gain = {1}, float[1,4,1,1] scale = {2}",
    )
    rules = [rule(CONV), rule(LEADING)]
    whole = lines(predict(graph, rules=rules, base="float"))
    assert whole[0] == "norm1+relu1+mul1: float -> float"
    split = lines(predict(graph, [Edge("m", "conv1", 0)], rules=rules, base="float"))
    assert split[:2] == ["norm1+relu1: float -> float", "mul1: float -> float"]


@pytest.mark.parametrize(("op", "taken"), [("Sub", True), ("Div", False)])
def test_what_is_taken_from_a_constant_follows_and_what_divides_one_does_not(op, taken):
    # As in plans of OpenVINO 2026.4.1: c - x is x times -1, plus c.
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] a) ",
        f"[norm1] n = InstanceNormalization(x, gain, gain) [rest] a = {op}(one, n)",
        "float[4] gain = {1}, float one = {1}",
    )
    layers = lines(predict(graph, rules=[rule(LEADING)], base="float"))
    assert ("norm1+rest: float -> float" in layers) == taken


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
    for behaviour, count in ((Behaviour(), 1), (Behaviour(dequantizes="each"), 2)):
        predictor = Predictor(graph, (), Target(), "float", "int8", behaviour=behaviour)
        assert len(predictor.predict(placement).plan.of_kind("dequantize")) == count


def test_constants_that_are_read_in_float_may_be_dequantized_in_every_run():
    graph = graph_of("(float[1,4,4,4] x) => (float[1,4,4,4] c)", "[conv1] c = Conv(x, w1)")
    x, w = Edge("x", "conv1", 0), Edge("w1", "conv1", 1)
    behaviour = Behaviour(constants="dequantized")
    for rules, count in (((), 1), ([rule(CONV)], 0)):
        predictor = Predictor(graph, rules, Target(), "float", "int8", behaviour=behaviour)
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


ONLY_INT8 = """
id: pooled
priority: 1
pattern:
  conv: {op: Conv, inputs: [x, w], output: c}
  pool: {op: MaxPool, inputs: [c], output: y}
layouts:
  all:
    quantize: [conv.x, conv.w]
    default: true
    fuses: [{nodes: [conv, pool], op: Pooled, inputs: int8, integers: int8, outputs: readers}]
"""


@pytest.mark.parametrize(
    ("integer", "chosen", "is_fused"),
    [
        ("int8", None, True),
        ("float8e4m3fn", None, False),
        ("int8", "float8e4m3fn", False),
    ],
)
def test_a_layer_of_one_type_of_integers_is_built_for_no_other(
    integer: str, chosen: Format | None, is_fused: bool
):
    """``chosen``: the format of the site, where it is another than the scheme's ``integer``."""
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,3,3] a)",
        "[conv1] c = Conv(x, w1) [pool1] a = MaxPool<kernel_shape = [2, 2]>(c)",
    )
    placement = Placement.of(graph.edges_into(graph.by_name["conv1"])).in_format(chosen)
    predictor = Predictor(graph, [rule(ONLY_INT8)], Target(), "float16", integer)
    layers = predictor.predict(placement).plan.layers
    assert (("conv1", "pool1") in [layer.nodes for layer in layers]) == is_fused
