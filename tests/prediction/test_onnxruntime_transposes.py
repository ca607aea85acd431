"""What becomes of Transposes in ONNX Runtime, predicted as it is built."""

from pathlib import Path

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.select import make_predictor
from placer.quantization import EMPTY, Placement
from placer.rules.target import Target
from tests.prediction.test_onnxruntime_plans import HEAD, PACK, W, X, plans
from tests.prediction.test_openvino_plans import layers

# A Transpose of the image and one to channels last are one, which is the model's.
IMAGE = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}> {
  [first] a = Softmax(x)
  [turn] t = Transpose<perm = [0, 1, 3, 2]>(a)
  [conv] c = Conv(t, w)
  [last] y = Tanh(c)
}
"""
# Two Convs read channels last, so that the Transpose goes away.
SHARED = """
g (float[1,8,8,16] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}> {
  [first] a = Softmax(x)
  [turn] t = Transpose<perm = [0, 3, 1, 2]>(a)
  [conv] c = Conv(t, w)
  [conv2] d = Conv(t, v)
  [sum] s = Add(c, d)
  [last] y = Tanh(s)
}
"""
# The channels of a Conv's map, which are last, are split by a view before they are turned so.
BOXES = """
g (float[1,16,8,8] x) => (float[1,8,8,4,4] y) <float[16,16,1,1] w = {1}, int64[5] s = {1,4,4,8,8}> {
  [conv] c = Conv(x, w)
  [view] v = Reshape(c, s)
  [turn] t = Transpose<perm = [0, 3, 4, 1, 2]>(v)
  [last] y = Softmax(t)
}
"""
# TOKENS become a map beside that of a Conv; of two that are none, one is turned behind the view.
TOKENS = """
g (float[1,64,16] x, float[1,16,8,8] z) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, int64[4] s = {1,16,8,8}> {
  [first] a = Softmax(x)
  [turn] t = Transpose<perm = [0, 2, 1]>(a)
  [view] v = Reshape(t, s)
  [conv] c = Conv(z, w)
  [sum] d = Add(v, c)
  [last] y = Tanh(d)
}
"""
SUMMED = """
g (float[1,64,16] x, float[1,16,8,8] z) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, int64[4] s = {1,16,8,8}> {
  [first] a = Softmax(x)
  [turn] t = Transpose<perm = [0, 2, 1]>(a)
  [view] v = Reshape(t, s)
  [sum] d = Add(v, z)
  [conv] c = Conv(d, w)
  [last] y = Tanh(c)
}
"""
# What a Conv in blocks adds a residual to is turned on its way out of the blocks.
NORMS = """
g (float[1,16,8,8] x) => (float[1,8,8,16] y, float[1,16,4,4] p)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}> {
  [conv] c = Conv(x, w)
  [conv2] d = Conv(c, v)
  [sum] s = Add(c, d)
  [turn] t = Transpose<perm = [0, 2, 3, 1]>(s)
  [last] y = Softmax(t)
  [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
}
"""
# What leaves the graph is turned, and so is what a mean over its rows reads.
LEFT = """
g (float[1,16,8,8] x) => (float[1,64,16] y, float[1,1,16] m)
<float[16,16,1,1] w = {1}, int64[3] s = {1,16,64}> {
  [conv] c = Conv(x, w)
  [view] v = Reshape(c, s)
  [turn] y = Transpose<perm = [0, 2, 1]>(v)
  [mean] m = ReduceMean<axes = [1]>(y)
}
"""
# Queries, keys and values of one projection: its Transpose moves past what takes them apart.
HEADS = """
g (float[2,16,3,4,8] x) => (float[2,4,16,8] y) <NUMBERS, float root = {0.5}> {
  [norm] z = Softmax(x)
  [heads] t = Transpose<perm = [2, 0, 3, 1, 4]>(z)
  APART
  [scale] p = Mul(q, root)
  TURNED
  [scores] m = MatMul(p, e)
  [weights] h = Softmax(m)
  [sum] y = MatMul(h, v)
}
"""
ZERO = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}"
SQUEEZED = "[q1] q = Squeeze(a, zero) [k1] k = Squeeze(b, zero) [v1] v = Squeeze(c, zero)"
SPLIT = f"[cut] a, b, c = Split<axis = 0>(t) {SQUEEZED}"
SLICED = f"""
  [cut1] a = Slice(t, zero, one, zero)
  [cut2] b = Slice(t, one, two, zero)
  [cut3] c = Slice(t, two, three, zero)
  {SQUEEZED}
"""
SINGLE = "int64 zero = {0}, int64 one = {1}, int64 two = {2}"
GATHERED = "[q1] q = Gather(t, zero) [k1] k = Gather(t, one) [v1] v = Gather(t, two)"
TURN = "[turn] e = Transpose<perm = [0, 1, 3, 2]>(k)"
ROWS = f"{ZERO}, int64[3] rows = {{8, 16, 8}}, int64[4] columns = {{2, 4, 8, 16}}"
BETWEEN_VIEWS = """
  [join] d = Reshape(k, rows)
  [turn] f = Transpose<perm = [0, 2, 1]>(d)
  [apart] e = Reshape(f, columns)
"""
VIEWS = (Edge("a", "turn", 0), Edge("t", "view", 0), Edge("v", "sum", 0))


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [
        (
            IMAGE,
            [(Edge("t", "conv", 0),), (W,), (Edge("c", "last", 0),)],
            {"quantize": 1, "dequantize": 1},
        ),
        (
            SHARED,
            [
                (Edge("t", "conv", 0), Edge("t", "conv2", 0)),
                (W,),
                (Edge("v", "conv2", 1),),
                (Edge("c", "sum", 0),),
                (Edge("d", "sum", 1),),
                (Edge("s", "last", 0),),
            ],
            {"quantize": 1, "dequantize": 1},
        ),
        (
            BOXES,
            [(X,), (W,), (Edge("c", "view", 0), Edge("v", "turn", 0), Edge("t", "last", 0))],
            {"quantize": 1, "dequantize": 1},
        ),
        (
            TOKENS,
            [VIEWS, (Edge("z", "conv", 0),), (W,), (Edge("c", "sum", 1),), (Edge("d", "last", 0),)],
            {"quantize": 2, "dequantize": 1},
        ),
        (
            SUMMED,
            [VIEWS, (Edge("z", "sum", 1),), (W,), (Edge("d", "conv", 0),), (Edge("c", "last", 0),)],
            {"quantize": 2, "dequantize": 1},
        ),
        (NORMS, [], {}),
        (LEFT, [], {}),
    ],
    ids=[
        "an image",
        "two Convs",
        "boxes",
        "tokens",
        "tokens of which one is a sum",
        "blocks",
        "what leaves",
    ],
)
def test_transposes_are_predicted_as_they_are_built(
    tmp_path: Path, text: str, pairs: list[tuple[Edge, ...]], expected: dict[str, int]
):
    predicted, built = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(built)
    for plan in (predicted, built):
        found = {kind: sum(x.kind == kind for x in plan.layers) for kind in expected}
        assert found == expected


@pytest.mark.parametrize(
    ("numbers", "apart", "turned"),
    [
        (SINGLE, GATHERED, TURN),
        (ZERO, SPLIT, TURN),
        (ZERO, SLICED, TURN),
        (ROWS, SPLIT, BETWEEN_VIEWS),
        (ROWS, SLICED, BETWEEN_VIEWS),
    ],
    ids=["gathered", "split", "sliced", "split with views", "sliced with views"],
)
def test_heads_of_a_joint_projection_are_predicted_as_they_are_built(
    numbers: str, apart: str, turned: str, tmp_path: Path
):
    text = HEADS.replace("NUMBERS", numbers).replace("APART", apart).replace("TURNED", turned)
    predicted, built = plans(text, [], tmp_path)
    assert layers(predicted) == layers(built)


@pytest.mark.parametrize(("version", "kind"), [("1.28.0", "compute"), ("1.29.0", "no-op")])
def test_transposes_move_past_views_from_the_version_that_does_so(version: str, kind: str):
    graph = graph_of_text(HEAD + BOXES)
    view = (Edge("c", "view", 0), Edge("v", "turn", 0), Edge("t", "last", 0))
    placement = Placement.of_groups([(X,), (W,), view])
    plan = make_predictor(graph, PACK, Target(version), "float").predict(placement).plan
    assert [layer.kind for layer in plan.layers if layer.nodes == ("turn",)] == [kind]


@pytest.mark.parametrize(("version", "product"), [("1.27.0", {"turn"}), ("1.28.0", set())])
def test_the_heads_of_keys_are_gathered_turned_from_a_version_on(version: str, product: set[str]):
    text = HEADS.replace("NUMBERS", SINGLE).replace("APART", GATHERED).replace("TURNED", TURN)
    graph = graph_of_text(HEAD + text)
    plan = make_predictor(graph, PACK, Target(version), "float").predict(EMPTY).plan
    found = [set(layer.nodes) for layer in plan.layers if "scores" in layer.nodes]
    assert found == [{"scale", "scores"} | product]


# Behind what adds it to a float, an integer Conv's result goes on to another integer Conv.
RESIDUAL = """
g (float[1,16,8] x, float[1,16,8] r) => (float[1,16,8] out)
<float[16,16,1] w = {1}, float[16,16,1] v = {1}, float root = {1.4142135}, float one = {1},
 float half = {0.5}> {
  [conv] c = Conv(x, w)
  [add] a = Add(c, r)
  ACT
  [conv2] z = Conv(y, v)
  [end] out = Softmax(z)
}
"""
GELU = (
    "[div] d = Div(a, root) [erf] e = Erf(d) [plus] f = Add(e, one) [mul] m = Mul(a, f) "
    "[half] y = Mul(m, half)"
)
QUICK = "[gate] s = Sigmoid(a) [mul] y = Mul(a, s)"


@pytest.mark.parametrize("act", ["[act] y = Abs(a)", "[act] y = Selu(a)", GELU, QUICK])
def test_behind_a_dequantized_residual_that_leads_to_a_transpose_is_a_pair(
    act: str, tmp_path: Path
) -> None:
    edges = ("x", "conv", 0), ("w", "conv", 1), ("c", "add", 0), ("y", "conv2", 0)
    pairs = [(Edge(*edge),) for edge in (*edges, ("v", "conv2", 1), ("z", "end", 0))]
    predicted, actual = plans(RESIDUAL.replace("ACT", act), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    for kind in ("quantize", "dequantize"):
        count = sum(layer.kind == kind for layer in predicted.layers)
        assert count == sum(layer.kind == kind for layer in actual.layers) == 3
