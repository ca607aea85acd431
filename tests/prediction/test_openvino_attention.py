"""Attention, and what OpenVINO computes before what moves elements, predicted as it is built."""

from pathlib import Path

import onnx
import pytest

from placer.common.processor import PROCESSORS, Processor, this_processor
from placer.engines.openvino.engine import OpenVinoEngine
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import Placement, Range
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_openvino_plans import HEAD, conversions, layers, plans, varied

QUERIES = {
    "plain": ("q = Sigmoid(x)", "float[1,2,64,16]"),
    "moved": ("q = Transpose<perm = [0, 2, 1, 3]>(x)", "float[1,64,2,16]"),
    "scaled": ("q = Mul(x, half)", "float[1,2,64,16]"),
    "moved, scaled": (
        "q1 = Transpose<perm = [0, 2, 1, 3]>(x) [scale] q = Mul(q1, half)",
        "float[1,64,2,16]",
    ),
    "turned": ("q = Transpose<perm = [0, 1, 3, 2]>(x)", "float[1,2,16,64]"),
}
KEYS = {
    "turned": "k = Transpose<perm = [0, 1, 3, 2]>(y)",
    "turned, scaled": "k1 = Transpose<perm = [0, 1, 3, 2]>(y) [scale2] k = Mul(k1, half)",
}
BETWEEN = {
    "nothing": "t = Identity(s)",
    "scale, bias, mask": "s1 = Mul(s, half) [bias] s2 = Add(b, s1) [mask] t = Add(s2, m)",
    "softcap": "s1 = Tanh(s) [cap] t = Mul(s1, half)",
}


@pytest.mark.parametrize(
    ("queries", "keys", "between"),
    [
        ("plain", "turned", "softcap"),
        ("moved", "turned, scaled", "scale, bias, mask"),
        ("scaled", "turned", "scale, bias, mask"),
        ("moved, scaled", "turned, scaled", "nothing"),
        ("turned", "turned", "nothing"),
    ],
)
def test_attention_takes_what_openvino_takes(queries, keys, between, tmp_path):
    made, shape = QUERIES[queries]
    text = f"""
    g ({shape} x, float[1,2,64,16] y, float[1,2,64,16] v, float[1,2,64,64] b, float[1,1,64,64] m)
    => (float[1,64,2,16] out)
    <float half = {{0.5}}> {{
      [query] {made} [key] {KEYS[keys]}
      [scores] s = MatMul(q, k) [between] {BETWEEN[between]} [softmax] p = Softmax(t)
      [mix] o = MatMul(p, v) [heads] out = Transpose<perm = [0, 2, 1, 3]>(o)
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)


MASKED = """
g (float[1,2,64,16] x, float[1,2,16,64] z, float[1,2,64,16] v, float[1,1,64,64] m)
=> (float[1,2,64,16] out)
<float half = {0.5}> {
  [query] q = Tanh(x) [key] k = Tanh(z) [value] w = Tanh(v)
  [scores] s = MatMul(q, k) [scale] s1 = Mul(s, half) [mask] s2 = Add(s1, m)
  [softmax] p = Softmax(s2)
  [after] p1 = Mul(p, half) [mix] out = MatMul(p1, w)
}
"""


@pytest.mark.parametrize(
    ("pairs", "whole"),
    [
        ([(Edge("s", "scale", 0),)], True),
        ([(Edge("s1", "mask", 0),)], True),
        ([(Edge("p", "after", 0),), (Edge("p1", "mix", 0),), (Edge("w", "mix", 1),)], True),
        ([(Edge("s2", "softmax", 0),)], False),
    ],
)
def test_pairs_inside_attention_are_part_of_it_but_before_softmax(pairs, whole, tmp_path):
    predicted, actual = plans(MASKED, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    made = frozenset({"scores", "scale", "mask", "softmax", "after", "mix"})
    assert (made in {nodes for nodes, _ in layers(actual)}) is whole


@pytest.mark.parametrize("act", ["Sigmoid", "HardSwish", "Erf", "Floor", "LeakyRelu"])
@pytest.mark.parametrize(
    ("given", "keys", "values"),
    [
        ("float[1,2,16,8] x, float[1,2,8,16] y, float[1,2,16,8] v", "y", "v"),
        ("float[16,8] x", "w1", "w2"),
        ("float[16,8] x, float[16,8] v", "w1", "v"),
    ],
)
def test_attention_takes_an_operator_between_softmax_and_values(given, keys, values, act, tmp_path):
    text = f"""
    g ({given}) => ({given.partition(" ")[0]} out)
    <float[8,16] w1 = {{1}}, float[16,8] w2 = {{1}}> {{
      [query] q = Tanh(x) [scores] s = MatMul(q, {keys}) [softmax] p = Softmax(s)
      [act] p1 = {act}(p) [mix] out = MatMul(p1, {values})
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("after", "whole"),
    [
        ("Mul(p, half)", True),
        ("Add(half, p)", True),
        ("Exp(p)", True),
        ("Div(half, p)", True),
        ("Sub(half, p)", False),
        ("Add(p, each)", False),
        ("Div(p, each)", False),
        ("Min(each, p)", False),
        ("Mul(p, mask)", False),
    ],
)
def test_products_of_integers_with_weights_take_no_array_behind_softmax(
    after, whole, paired, tmp_path
):
    text = f"""
    g (float[4,16,32] x, float[4,16,16] mask) => (float[4,16,32] y)
    <float[32,16] k = {{1}}, float[16,32] v = {{1}}, float[16] each = {{1}}, float half = {{0.5}}>
    {{
      [query] q = Tanh(x) [scores] s = MatMul(q, k) [soft] p = Softmax(s)
      [after] p1 = {after} [mix] y = MatMul(p1, v)
    }}
    """
    edges = (
        Edge("q", "scores", 0),
        Edge("k", "scores", 1),
        Edge("p1", "mix", 0),
        Edge("v", "mix", 1),
    )
    predicted, actual = plans(text, [(edge,) for edge in edges] if paired else [], tmp_path)
    assert layers(predicted) == layers(actual)
    if this_processor().exact_products or not paired:
        together = frozenset({"scores", "soft", "after", "mix"})
        assert (together in {nodes for nodes, _ in layers(actual)}) is (whole or not paired)


def moved(rest: str, shape: str = "float[1,4,64,8]") -> str:
    return f"""
    g (float[1,64,32] x) => ({shape} z)
    <float[32,32] w = {{1}}, int64[4] heads = {{1, 64, 4, 8}}, float half = {{0.5}},
     float root = {{1.4142135}}, float one = {{1}}> {{ [fc] a = MatMul(x, w) {rest} }}
    """


VIEW = "[view] b = Reshape(a, heads) [move] c = Transpose<perm = [0, 2, 1, 3]>(b) "
GELU = """[div] d = Div(c, root) [erf] e = Erf(d) [add] f = Add(e, one)
          [mul] g = Mul(c, f) [half] z = Mul(g, half)"""
# As PyTorch's newer exporter writes it.
HALVED = """[half] b1 = Mul(c, half) [div] d = Div(c, root) [erf] e = Erf(d) [add] f = Add(e, one)
            [mul] z = Mul(b1, f)"""
FC = [(Edge("x", "fc", 0),), (Edge("w", "fc", 1),)]


@pytest.mark.parametrize("pairs", [[], FC])
@pytest.mark.parametrize(
    ("rest", "taken"),
    [
        ("[scale] z = Mul(c, half)", {"fc", "scale"}),
        ("[act] d = Sigmoid(c) [scale] z = Mul(d, half)", {"fc", "act", "scale"}),
        (GELU, {"fc", "div", "erf", "add", "mul", "half"}),
        (HALVED, {"fc", "half", "div", "erf", "add", "mul"}),
        # No operator that OpenVINO calls element-wise; its first operand is the constant.
        ("[act] z = LeakyRelu(c)", {"fc"}),
        ("[scale] z = Mul(half, c)", {"fc"}),
    ],
)
def test_what_follows_movers_is_computed_before_them(rest, taken, pairs, tmp_path):
    predicted, actual = plans(moved(VIEW + rest), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert frozenset(taken) in {nodes for nodes, _ in layers(actual)}


@pytest.mark.parametrize(("rest", "pairs"), [("z = Neg(c)", []), ("z = Sub(half, c)", FC)])
def test_plans_tell_where_signs_change_before_movers(rest, pairs, tmp_path):
    _, actual = plans(moved(f"{VIEW} [sign] {rest}"), pairs, tmp_path)
    assert frozenset({"fc", "sign"}) in {nodes for nodes, _ in layers(actual)}


RESIDUAL = """
g (float[1,16,8,8] x, float[1,16,8,8] u) => (float[1,16,8,8] z)
<float[16,16,3,3] w = {1}, float root = {1.4142135}, float one = {1}, float half = {0.5}> {
  [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [sum] c = Add(a, u)
  ACT
}
"""


@pytest.mark.parametrize("act", ["[s] d = Sigmoid(c) [p] z = Mul(d, c)", GELU, HALVED])
def test_activations_of_several_nodes_follow_a_residual(act, tmp_path):
    predicted, actual = plans(RESIDUAL.replace("ACT", act), [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert [len(nodes) for nodes, _ in layers(actual)] == [2 + act.count(" = ")]


@pytest.mark.parametrize("shape", ["float", "float[1,3,1,1]"])
@pytest.mark.parametrize(
    ("shift", "apart"),
    [("Sub(x, mean)", True), ("Add(mean, x)", True), ("Sub(mean, x)", False), ("Tanh(x)", False)],
)
@pytest.mark.parametrize("scale", ["Div(a, deviation)", "Mul(a, deviation)"])
def test_a_scale_behind_a_shift_is_no_part_of_a_convs_weights(scale, shift, apart, shape, tmp_path):
    text = f"""
    g (float[1,3,8,8] x) => (float[1,8,8,8] y)
    <{shape} mean = {{0.5}}, {shape} deviation = {{0.2}}, float[8,3,1,1] w = {{1}}> {{
      [shift] a = {shift} [scale] d = {scale} [conv] c = Conv(d, w) [act] y = Relu(c)
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert (frozenset({"conv", "act"}) in {nodes for nodes, _ in layers(actual)}) is apart


@pytest.mark.parametrize("act", ["y = Relu(a)", "s = Sigmoid(a) [swish] y = Mul(a, s)"])
@pytest.mark.parametrize("operands", ["c, d", "d, c"])
@pytest.mark.parametrize("bias", ["", ", b"])
def test_a_conv_with_computed_weights_adds_what_is_computed(bias, operands, act, tmp_path):
    text = f"""
    g (float[1,16,8,8] x, float[16,16,1,1] kernel, float[1,16,8,8] z) => (float[1,16,8,8] y)
    <float[16,16,1,1] w2 = {{1}}, float[16] b = {{1}}> {{
      [weights] w = Tanh(kernel) [conv] c = Conv(x, w{bias}) [other] d = Conv(z, w2)
      [sum] a = Add({operands}) [act] {act}
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)


PARTS = """
g (float[1,64,32] x) => (float[1,64,2,16] out)
<float[32,96] w = {1}, int64[5] heads = {1, 64, 3, 2, 16}, int64[1] first = {0},
 int64[3] ones = {1, 1, 1}> {
  [fc] a = MatMul(x, w)
  [view] b = Reshape(a, heads)
  [move] c = Transpose<perm = [2, 0, 3, 1, 4]>(b)
  [split] c0, c1, c2 = Split<axis = 0>(c, ones)
  [query] q0 = Squeeze(c0, first)
  [key] k0 = Squeeze(c1, first)
  [value] v = Squeeze(c2, first)
  [act] q = Tanh(q0)
  [turn] k = Transpose<perm = [0, 1, 3, 2]>(k0)
  [scores] s = MatMul(q, k)
  [softmax] p = Softmax(s)
  [mix] o = MatMul(p, v)
  [back] out = Transpose<perm = [0, 2, 1, 3]>(o)
}
"""
A = (Edge("a", "view", 0),)


@pytest.mark.parametrize(
    ("pairs", "written"),
    [
        ([A], "int8"),
        # Another pair stands between the first one and what reads signed integers.
        ([A, (Edge("c", "split", 0),)], "uint8"),
        ([A, (Edge("c1", "key", 0),), (Edge("c2", "value", 0),)], "uint8"),
        # But not in front of the keys.
        ([A, (Edge("c2", "value", 0),)], "int8"),
    ],
)
def test_the_last_pair_before_signed_operands_is_signed(pairs, written, tmp_path):
    predicted, actual = plans(PARTS, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert (frozenset({"move"}), (written,)) in layers(actual)


@pytest.mark.parametrize(
    ("bias", "more", "within"),
    [
        ("[m1] f = Mul(e, half)", "", {"m1"}),
        ("[m0] f0 = Sub(half, e) [m1] f = Mul(f0, half)", "", {"m0", "m1"}),
        ("[m1] f = Add(e, e)", "", set()),
        ("[m1] f = Mul(e, half)", "[again] z = Softmax(f)", set()),
    ],
)
def test_what_computes_a_bias_for_an_attention_alone_is_part_of_it(bias, more, within, tmp_path):
    text = f"""
    g (float[1,4,24,16] q, float[1,4,16,24] k, float[1,4,24,16] v, float[1,4,24,24] e)
    => (float[1,4,24,16] y{", float[1,4,24,24] z" if more else ""})
    <float half = {{0.5}}> {{
      {bias}
      [scores] s = MatMul(q, k) [add] m = Add(s, f) [soft] p = Softmax(m) [mix] y = MatMul(p, v)
      {more}
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert frozenset({"scores", "add", "soft", "mix"} | within) in {n for n, _ in layers(actual)}


SYMMETRIC = load_pack("openvino").with_scheme("symmetric")
SCORES = [(Edge("q", "scores", 0),), (Edge("k", "scores", 1),)]
# Tanh, and what never leaves -1 to 1, so that no pair has a zero point.
RANGES = {name: Range(-1.0, 1.0) for name in ("q", "k", "w")}
WHOLE = {frozenset({"scores", "scale", "mask", "softmax", "after", "mix"})}
APART = {
    frozenset({"scores", "scale"}),
    *(frozenset({n}) for n in ("mask", "softmax", "after", "mix")),
}


def masked(folder: Path) -> Model:
    onnx.save(varied(parse_model(HEAD + MASKED)), folder / "model.onnx")
    return load_model(folder / "model.onnx")


def predicted(model: Model, placement: Placement, processor: Processor) -> Plan:
    target = Target(processor=processor)
    predictor = make_predictor(model.graph, SYMMETRIC, target, "float", ranges=RANGES)
    return predictor.predict(placement).plan


def behind_the_operands(plan: Plan) -> set[frozenset[str]]:
    """The nodes of each layer that is none of the operands'."""
    return {nodes for nodes, _ in layers(plan)} - {
        frozenset({n}) for n in ("query", "key", "value")
    }


@pytest.mark.parametrize("kind", PROCESSORS)
def test_attention_is_one_layer_of_integers_only_with_vnni(kind, tmp_path):
    model, processor = masked(tmp_path), PROCESSORS[kind]
    in_integers = predicted(model, Placement.of_groups(SCORES), processor)
    expected = WHOLE if processor.exact_products else APART
    assert behind_the_operands(in_integers) == expected
    assert behind_the_operands(predicted(model, Placement.of(()), processor)) == WHOLE


@pytest.mark.parametrize("pairs", [[], SCORES])
def test_openvino_agrees_on_this_processor(pairs, tmp_path):
    model, placement = masked(tmp_path), Placement.of_groups(pairs)
    candidate = Inserter(model, SYMMETRIC.manifest.scheme).insert(placement, RANGES)
    actual = OpenVinoEngine().compile(candidate, tmp_path).plan()
    assert layers(predicted(model, placement, this_processor())) == layers(actual)


PRODUCT = """
g (float[1,2,64,16] x, float[1,2,16,64] z) => (float[1,64,2,64] out)
{
  [query] q = Tanh(x) [key] k = Tanh(z) [scores] s = MatMul(q, k)
  [heads] out = Transpose<perm = [0, 2, 1, 3]>(s)
}
"""


def test_a_product_of_integers_writes_integers_to_what_moves_them(tmp_path):
    onnx.save(varied(parse_model(HEAD + PRODUCT)), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    placement = Placement.of_groups([*SCORES, (Edge("s", "heads", 0),)])
    ranges = {**RANGES, "s": Range(-16.0, 16.0)}
    target = Target(processor=this_processor())
    predictor = make_predictor(model.graph, SYMMETRIC, target, "float", ranges=ranges)
    candidate = Inserter(model, SYMMETRIC.manifest.scheme).insert(placement, ranges)
    actual = OpenVinoEngine().compile(candidate, tmp_path).plan()
    assert layers(predictor.predict(placement).plan) == layers(actual)
    assert (frozenset({"scores"}), ("int8",)) in layers(actual)
