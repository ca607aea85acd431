"""What keeps ONNX Runtime from making layers of integers between pairs."""

from pathlib import Path

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.prediction.layers.clamps import Bounds, bounds_of
from tests.prediction.test_onnxruntime_plans import HEAD, VERSION, plans

CLAMPED = """
g (float[1,16,32] x) => (float[1,16,8] y)
<float[32,8] w = {{1}}, float low = {{0}}, float high = {{0.5}},
 float down = {{-1}}, float up = {{1}}> {{
  [product] c = MatMul(x, w)
  [act] r = {act}
  [last] y = Tanh(r)
}}
"""
READ_FIRST = CLAMPED.replace("float[1,16,8] y", "float[1,16,8] y, float[1,16,8] z").replace(
    "[last]", "[first] z = Sigmoid(c)\n  [last]"
)
LEAVES = CLAMPED.replace("float[1,16,8] y", "float[1,16,8] y, float[1,16,8] c")
OPEN = CLAMPED.replace("float[1,16,32] x", "float[1,16,32] x, float top")
READS = [(Edge("x", "product", 0),), (Edge("w", "product", 1),)]
BEHIND = (Edge("r", "last", 0),)
# Q behind the sum covers more than what the Clip before it leaves.
SHARED = """
g (float[1,16,8,8] x) => (float[1,32,8,8] y)
<float[16,16,1,1] w = {1}, float low = {0}, float high = {0.1}> {
  [conv] c = Conv(x, w)
  [act] r = Clip(c, low, high)
  [join] y = Concat<axis = 1>(r, x)
}
"""
SHARED_PAIRS = [
    (Edge("x", "conv", 0),),
    (Edge("w", "conv", 1),),
    (Edge("r", "join", 0), Edge("x", "join", 1), Edge("y", "", 0)),
]
ROW = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}> {
  [conv] c = Conv(x, w)
  [act] a = Relu(c)
  [act2] r = Relu(a)
  [last] y = Tanh(r)
}
"""
LONG_ROW = ROW.replace("Relu(a)", "Relu(b)").replace("[act2]", "[act1] b = Relu(a)\n  [act2]")
GEMM = ROW.replace("[1,16,8,8]", "[4,16]").replace("[16,16,1,1]", "[16,16]").replace("Conv", "Gemm")
WHERE = """
g (float[1,9,16] x, float[1,9,16] z, bool[1,9,16] c) => (float[1,9,16] y) {
  [where] w = Where(c, x, z)
  [act] r = Relu(w)
  [last] y = Tanh(r)
}
"""
WHERE_PAIRS = [(Edge("x", "where", 1),), (Edge("z", "where", 2),), BEHIND]
ROW_PAIRS = [(Edge("x", "conv", 0),), (Edge("w", "conv", 1),), BEHIND]
TURNED = """
g (float[1,16,8,8] x) => (float[1,8,8,16] y) {
  [turn] t = Transpose<perm = [0, 2, 3, 1]>(x)
  [last] y = Softmax(t)
}
"""
TURNED_PAIRS = [(Edge("x", "turn", 0),), (Edge("t", "last", 0),)]
TWO_TURNS = """
g (float[2,24,4,16] x) => (float[2,4,16,24] y) {
  [heads] h = Transpose<perm = [0, 2, 1, 3]>(x)
  [turn] t = Transpose<perm = [0, 1, 3, 2]>(h)
  [last] y = Softmax(t)
}
"""
# Neither turns the other back, though shapes are equal.
SQUARE_TURNS = """
g (float[2,8,8,8] x) => (float[2,8,8,8] y) {
  [heads] h = Transpose<perm = [0, 2, 1, 3]>(x)
  [turn] t = Transpose<perm = [0, 1, 3, 2]>(h)
  [last] y = Softmax(t)
}
"""
READ_TWICE = """
g (float[1,49,32] x) => (float[1,1,49,32] y, float[1,1,49,32] z) <int64[1] axis = {1}> {
  [turn] t = Unsqueeze(x, axis)
  [tanh] y = Tanh(t)
  [last] z = Softmax(t)
}
"""
# Two others read what stands before the Relu, each through a DQ of its own.
BETWEEN = """
g (float[1,16,8] x) => (float[1,16,8] y, float[1,16,8] z) {
  [sig] t = Sigmoid(x)
  [act] r = Relu(t)
  [last] y = Softmax(r)
  [tanh] z = Tanh(t)
}
"""
BETWEEN_PAIRS = [
    (Edge("x", "sig", 0),),
    (Edge("t", "act", 0), Edge("t", "tanh", 0)),
    (Edge("r", "last", 0),),
]
# A dense layer as Keras writes it.
DENSE = """
g (float[4,16] x) => (float[4,8] y) <float[16,8] w = {1}, float[8] b = {1}> {
  [product] m = MatMul(x, w)
  [bias] a = Add(m, b)
  [act] r = Relu(a)
  [last] y = Softmax(r)
}
"""
ONE_NUMBER = DENSE.replace("float[8] b", "float[1] b")
READ_TWICE_PAIRS = [(Edge("x", "turn", 0), Edge("t", "last", 0))]
# Two clamps in one Conv or Gemm before Q: before 1.31 ONNX Runtime gives two nodes one name.
REFUSED = pytest.mark.skipif(VERSION < (1, 31), reason="ONNX Runtime refuses its own graph")


def reading_integers(plan: Plan) -> set[frozenset[str]]:
    """The nodes, but for a Relu or Clip, of each layer that computes from integers."""
    computing = (layer for layer in plan.layers if layer.kind == "compute")
    reading = (x for x in computing if any(port.dtype == "uint8" for port in x.inputs))
    return {frozenset(layer.nodes) - {"act", "act2"} for layer in reading}


@pytest.mark.parametrize(
    ("text", "pairs", "integers"),
    [
        (CLAMPED.format(act="Relu(c)"), READS, 0),
        (CLAMPED.format(act="Relu(c)"), [*READS, BEHIND], 1),
        (CLAMPED.format(act="Clip(c, low, high)"), [*READS, BEHIND], 1),
        # The bounds of Q's range, -1 and 1, are half a step from its integers.
        (CLAMPED.format(act="Clip(c, down, up)"), [*READS, BEHIND], 0),
        (OPEN.format(act="Clip(c, low, top)"), [*READS, BEHIND], 0),
        (READ_FIRST.format(act="Relu(c)"), [*READS, BEHIND], 0),
        (LEAVES.format(act="Relu(c)"), [*READS, BEHIND], 0),
        (SHARED, SHARED_PAIRS, 1),
        pytest.param(ROW, ROW_PAIRS, 1, marks=REFUSED),
        pytest.param(GEMM, ROW_PAIRS, 1, marks=REFUSED),
        (WHERE, WHERE_PAIRS, 1),
        (TURNED, TURNED_PAIRS, 1),
        (TWO_TURNS, [(Edge("t", "last", 0),)], 1),
        (SQUARE_TURNS, [(Edge("x", "heads", 0),)], 1),
        (SQUARE_TURNS, [], 0),
        (READ_TWICE, READ_TWICE_PAIRS, 0),
        (BETWEEN, BETWEEN_PAIRS, 1),
        (DENSE, [], 0),
        (DENSE, READS, 0),
        (DENSE.replace("Relu", "Tanh"), READS, 0),
        (DENSE, [*READS, BEHIND], 1),
        (ONE_NUMBER, [], 0),
        (ONE_NUMBER, [*READS, BEHIND], 0),
        (ONE_NUMBER.replace("Relu", "Sigmoid"), [], 0),
        (DENSE.replace("float[8] b", "float[1,8] b").replace("Relu", "Sigmoid"), [], 0),
    ],
    ids=[
        "a Relu alone reads the product",
        "a pair follows the Relu",
        "a pair follows the Clip",
        "a pair covers half a step more than the Clip leaves",
        "the Clip's bound is computed",
        "the product is read before the Relu, too",
        "the product is a graph output, too",
        "a pair covers more than the Clip leaves",
        "a pair follows two Relus",
        "a pair follows two Relus of a Gemm",
        "a pair follows the Relu of a Where",
        "pairs given apart have the same numbers",
        "two Transposes",
        "two Transposes of a cube behind a pair",
        "two Transposes of a cube in float",
        "one of two readers has a pair",
        "a Relu between equal pairs is gone",
        "a dense layer in float",
        "its product between pairs",
        "another activation",
        "a dense layer between pairs",
        "a bias of one number in float",
        "a bias of one number between pairs",
        "a bias of one number and another activation",
        "a bias of one row and another activation",
    ],
)
def test_layers_of_integers(
    text: str, pairs: list[tuple[Edge, ...]], integers: int, tmp_path: Path
):
    predicted, built = plans(text, pairs, tmp_path)
    assert diff_plans(predicted, built).exact.f1 == 1
    for plan in (predicted, built):
        computing = [x for x in plan.layers if x.kind == "compute" and "uint8" in x.output_types]
        assert len(computing) == integers
    assert reading_integers(predicted) == reading_integers(built)


# What ONNX Runtime does with a row of clamps before Q: @ stands for what each node reads.
RELU, TURN = "Relu(@)", "Transpose<perm = [0, 1, 3, 2]>(@)"
MOVED = {
    "several Relus behind a sum": ("Sum(@, @)", RELU, RELU, RELU),
    "a Relu and a Clip behind a HardSwish": ("HardSwish(@)", RELU, "Clip(@, low, high)"),
    "a Clip that leaves numbers below zero": ("HardSwish(@)", "Clip(@, down, high)"),
    "Q moves past a Transpose behind the last Relu": (RELU, TURN, RELU),
    "but not behind the one before": (TURN, RELU, RELU),
}


@pytest.mark.parametrize("given", [[], ["first"]], ids=["one pair", "two pairs"])
@pytest.mark.parametrize("row", MOVED.values(), ids=MOVED)
def test_clamps_before_a_pair(row: tuple[str, ...], given: list[str], tmp_path: Path):
    lines = [f"[n{i}] t{i + 1} = {op.replace('@', f't{i}')}" for i, op in enumerate(row)]
    text = f"""
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float low = {{0}}, float high = {{6}}, float down = {{-0.1}}> {{
      [first] t0 = Tanh(x) {" ".join(lines)} [last] y = Tanh(t{len(row)})
    }}"""
    ends = [(Edge("x", "first", 0),) for _ in given]
    predicted, built = plans(text, [*ends, (Edge(f"t{len(row)}", "last", 0),)], tmp_path)
    found = diff_plans(predicted, built)
    assert found.exact.f1 == 1
    assert found.false_conversions == found.missed_conversions == 0


# Relus before a Clip are one with it; C: a Clip, R: a Relu.
@pytest.mark.parametrize("behind", [True, False], ids=["before a pair", "in float"])
@pytest.mark.parametrize(
    ("product", "row"),
    [
        ("Conv", "RC"),
        ("Conv", "RRC"),
        pytest.param("Conv", "RCR", marks=REFUSED),
        pytest.param("Conv", "CRC", marks=REFUSED),
        ("Conv", "RCRR"),
        ("Gemm", "RRC"),
        pytest.param("Gemm", "RCR", marks=REFUSED),
        pytest.param("Gemm", "CRR", marks=REFUSED),
    ],
)
def test_clamps_in_a_row_behind_a_product(product: str, row: str, behind: bool, tmp_path: Path):
    operators = {"R": "Relu(t{})", "C": "Clip(t{}, low, high)"}
    lines = [f"[n{i}] t{i + 1} = {operators[kind].format(i)}" for i, kind in enumerate(row)]
    shapes = ("1,16,8,8", "16,16,1,1") if product == "Conv" else ("4,16", "16,16")
    text = f"""
    g (float[{shapes[0]}] x) => (float[{shapes[0]}] y)
    <float[{shapes[1]}] w = {{1}}, float low = {{0}}, float high = {{6}}> {{
      [product] t0 = {product}(x, w) {" ".join(lines)} [last] y = Tanh(t{len(row)})
    }}"""
    last = (Edge(f"t{len(row)}", "last", 0),)
    predicted, built = plans(text, [*READS, last] if behind else [], tmp_path)
    assert diff_plans(predicted, built).exact.f1 == 1


@pytest.mark.parametrize("bias", [True, False], ids=["int32 bias", "float bias"])
@pytest.mark.parametrize("behind", [True, False], ids=["before a pair", "in float"])
def test_a_clamp_behind_the_reshape_of_a_gemm_is_no_part_of_it(
    bias: bool, behind: bool, tmp_path: Path
):
    text = """
    g (float[1,8,16] x) => (float[1,8,16] y) <float[16,16] w = {1}, float[16] b = {1}> {
      [product] a = MatMul(x, w) [add] t0 = Add(a, b) [relu] t1 = Relu(t0) [last] y = Tanh(t1)
    }"""
    pairs = [*READS, *([(Edge("b", "add", 1),)] if bias else [])]
    pairs += [(Edge("t1", "last", 0),)] if behind else []
    predicted, built = plans(text, pairs, tmp_path)
    found = diff_plans(predicted, built)
    assert found.exact.f1 == 1
    wrong = [one.kind for one in found.conversions if one.missing or one.extra]
    assert set(wrong) <= {"reformat"}  # The Reshapes.


def test_a_relu_that_a_body_returns_does_not_keep_its_product_in_float(tmp_path: Path):
    """As where the graph returns it: no node of that body reads it; another Relu is read there."""
    text = """
    g (float[1,16,32] x, bool flag) => (float[1,16,8] z) <float[32,8] w = {1}> {
      [choice] y = If(flag) <
        then_branch = yes () => (float[1,16,8] r) {
          [product] c = MatMul(x, w) [act] r = Relu(c)
        },
        else_branch = no () => (float[1,16,8] s) {
          [product2] d = MatMul(x, w) [act2] e = Relu(d) [last] s = Tanh(e)
        }>
      [end] z = Tanh(y)
    }"""
    pairs = [(Edge(t, "product", i), Edge(t, "product2", i)) for i, t in enumerate("xw")]
    predicted, built = plans(text, pairs, tmp_path)
    assert diff_plans(predicted, built).exact.f1 == 1
    assert reading_integers(predicted) == reading_integers(built) == {frozenset({"product"})}


def test_a_conv_before_three_relus_computes_in_float(tmp_path: Path):
    predicted, built = plans(LONG_ROW, ROW_PAIRS, tmp_path)
    assert reading_integers(predicted) == reading_integers(built) == set()


def test_bounds_are_those_of_constants_and_attributes():
    graph = graph_of_text(
        HEAD
        + "g (float[4] x, float low) => (float[4] y)"
        + "<float zero = {0}, float six = {6}> {"
        + "[relu] a = Relu(x) [clip] b = Clip(a, zero, six) [half] c = Clip(b, zero)"
        + "[open] y = Clip(c, low) }"
    )
    found = {node.name: bounds_of(node, graph) for node in graph.nodes}
    assert found["relu"] == found["half"] == Bounds(low=0.0)
    assert found["clip"] == Bounds(0.0, 6.0)
    assert found["open"] is None
