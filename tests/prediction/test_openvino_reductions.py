"""Softmaxes that are written out, and reductions in a row, are the layers that OpenVINO builds."""

from pathlib import Path

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

SOFTMAX = """
g (float[1,8,32] x) => (float[1,8,16] out) <float[32,16] w = {1}, int64[AXES] axes = {VALUES}> {
  [abs1] s = Abs(x)
  [max1] m = ReduceMax<axes = [VALUES]>(s)
  [sub1] d = Sub(s, m)
  [exp1] e = Exp(d)
  [sum1] t = ReduceSum(e, axes)
  [div1] y = Div(e, t)
  [fc1] out = MatMul(y, w)
}
"""
UNSHIFTED = """
g (float[1,8,32] x) => (float[1,8,16] out) <float[32,16] w = {1}, int64[AXES] axes = {VALUES}> {
  [abs1] s = Abs(x)
  [exp1] e = Exp(s)
  [sum1] t = ReduceSum(e, axes)
  [div1] y = Div(e, t)
  [fc1] out = MatMul(y, w)
}
"""
REDUCED = """
g (float[1,16,8,8] x) => (float[SHAPE] y) <float[16,16,1,1] w = {1}> {
  [conv1] a = Conv(x, w)
  [first1] b = FIRST(a)
  [second1] c = SECOND(b)
  [act1] y = Abs(c)
}
"""


@pytest.mark.parametrize("text", [SOFTMAX, UNSHIFTED], ids=["with the maximum", "without"])
@pytest.mark.parametrize(("axes", "is_softmax"), [([-1], True), ([1], True), ([1, 2], False)])
@pytest.mark.parametrize("pairs", [[], [(Edge("y", "fc1", 0),), (Edge("w", "fc1", 1),)]])
def test_a_softmax_is_put_together_along_one_axis(
    text: str, axes: list[int], is_softmax: bool, pairs: list[tuple[Edge, ...]], tmp_path: Path
):
    values = ", ".join(map(str, axes))
    text = text.replace("AXES", str(len(axes))).replace("VALUES", values)
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    assert (
        any({"exp1", "sum1", "div1"} <= set(layer.nodes) for layer in actual.layers) is is_softmax
    )


@pytest.mark.parametrize(
    ("first", "second", "shape", "is_one"),
    [
        ("ReduceMean<axes = [3]>", "ReduceMean<axes = [2]>", "1,16,1,1", True),
        ("ReduceMax<axes = [3]>", "ReduceMax<axes = [2]>", "1,16,1,1", True),
        (
            "ReduceMean<axes = [3], keepdims = 0>",
            "ReduceMean<axes = [2], keepdims = 0>",
            "1,16",
            True,
        ),
        ("ReduceMean<axes = [3]>", "ReduceMean<axes = [2], keepdims = 0>", "1,16,1", False),
        ("ReduceMean<axes = [3]>", "ReduceMax<axes = [2]>", "1,16,1,1", False),
        ("ReduceL2<axes = [3]>", "ReduceL2<axes = [2]>", "1,16,1,1", True),
        ("ReduceL2<axes = [3]>", "ReduceL1<axes = [2]>", "1,16,1,1", False),
    ],
)
def test_reductions_of_one_kind_in_a_row_are_one(
    first: str, second: str, shape: str, is_one: bool, tmp_path: Path
):
    text = REDUCED.replace("FIRST", first).replace("SECOND", second).replace("SHAPE", shape)
    predicted, actual = plans(text, [(Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),)], tmp_path)
    assert layers(predicted) == layers(actual)
    assert any({"first1", "second1"} <= set(layer.nodes) for layer in actual.layers) is is_one


SCALED = """
g (float[1,8,64] x) => (float[1,8,1] out) <float[64,64] w = {1}, float k = {64}> {
  [fc1] h = MatMul(x, w)
  [first1] m = ReduceMean<axes = [2]>(h)
  [mul1] z = Mul(m, k)
  [act1] s = Softmax<axis = 1>(z)
  [add1] out = Add(SUMMANDS)
}
"""


@pytest.mark.parametrize(
    ("summands", "is_apart"), [("z, s", True), ("z, z", True), ("s, s", False)]
)
def test_a_mean_leaves_a_scale_that_moves_past_a_sum(summands: str, is_apart: bool, tmp_path: Path):
    text = SCALED.replace("SUMMANDS", summands)
    predicted, actual = plans(text, [(Edge("x", "fc1", 0),), (Edge("w", "fc1", 1),)], tmp_path)
    assert layers(predicted) == layers(actual)
    assert ({"first1"} in [set(one.nodes) for one in actual.layers]) is is_apart


THRICE = """
g (float[1,16,8,8] x) => (float[1,1,1,1] y) <float[16,16,1,1] w = {1}> {
  [conv1] a = Conv(x, w)
  [first1] b = KIND<axes = [3]>(a)
  [second1] c = KIND<axes = [2]>(b)
  [third1] d = KIND<axes = [1]>(c)
  [act1] y = Softmax(d)
}
"""


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMin", "ReduceProd"])
@pytest.mark.parametrize("pairs", [[], [(Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),)]])
def test_three_reductions_of_one_kind_are_one(
    kind: str, pairs: list[tuple[Edge, ...]], tmp_path: Path
):
    predicted, actual = plans(THRICE.replace("KIND", kind), pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert {"first1", "second1", "third1"} in [set(one.nodes) for one in actual.layers]


@pytest.mark.parametrize("reduction", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("operands", ["p, k", "k, p"])
@pytest.mark.parametrize(
    ("shape", "axis", "keeps", "constant", "together"),
    [
        ("1,8,16", 1, 0, "16", False),
        ("1,8,16", 1, 1, "16", False),
        ("1,8,16", -2, 0, "16", False),
        ("1,8,16", -1, 0, "8", True),
        ("1,8,16", 1, 1, "", True),
        ("1,8,16", 2, 0, "8", True),
        ("1,8,16", 2, 1, "8,1", True),
        ("1,8,6,16", 3, 0, "6", False),
        ("1,8,6,16", "1,2", 0, "16", False),
        ("1,8,6,16", "2,3", 0, "8", True),
        ("1,8,6,16", "2,3", 0, "8,1", False),
        ("1,8,6,16", "1,2,3", 1, "8,1,1", False),
        ("1,8,16", "", 1, "8,1", False),
    ],
)
def test_a_mean_takes_constants_of_channels_along_unless_it_is_over_channels(
    shape, axis, keeps, constant, together, operands, reduction, tmp_path
):
    rank = len(shape.split(",")) - (0 if keeps else len(str(axis).split(",")))
    axes = f"axes = [{axis}], " if axis else ""
    text = f"""
    g (float[{shape}] x) => (float[{",".join("ABCD"[:rank])}] y)
    <float{f"[{constant}]" if constant else ""} k = {{0.5}}> {{
      [tanh] a = Tanh(x) [mean] p = {reduction}<{axes}keepdims = {keeps}>(a)
      [sum] y = Add({operands})
    }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert (frozenset({"mean", "sum"}) in {nodes for nodes, _ in layers(actual)}) is together
