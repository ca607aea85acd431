"""Outputs whose rows the data choose, and what they are chosen from."""

from pathlib import Path

import onnx
import pytest

from placer.graph.chosen_rows import ChosenRows, chosen_rows
from placer.graph.text import parse_model
from placer.model import load_model
from tests.conftest import with_random_weights

# The boxes and scores of a detector, and what is behind them.
DETECTOR = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,8,8] image) => (OUTPUTS)
<float[4,3,1,1] w = {0.1}, float[2,3,1,1] v = {0.2}, int64[3] as_boxes = {1, 4, 64},
 int64[3] as_scores = {1, 2, 64}, int64 most = {9}, float low = {0.3}, int64[1] k = {5},
 float[4,4] u = {0.1}, int64[2] as_rows = {64, 4}, int64 third = {2}, int64[1] minus = {-1}> {
  [box] a = Conv(image, w)
  [flat_box] b = Reshape(a, as_boxes)
  [turn] boxes = Transpose<perm = [0, 2, 1]>(b)
  [score] c = Conv(image, v)
  [sigmoid] d = Sigmoid(c)
  [flat_score] scores = Reshape(d, as_scores)
  REST
}
"""
NMS = "[nms] kept = NonMaxSuppression(boxes, scores, most, low, low)"
KEPT = f"""
  {NMS}
  [third_column] index = Gather<axis = 1>(kept, third)
  [rows] rows = Reshape(boxes, as_rows)
  [take] found = Gather(rows, index)
"""


def found(outputs: str, rest: str, tmp_path: Path) -> ChosenRows | None:
    text = DETECTOR.replace("OUTPUTS", outputs).replace("REST", rest)
    onnx.save(parse_model(text), tmp_path / "net.onnx")
    return chosen_rows(load_model(tmp_path / "net.onnx").graph)


def test_rows_are_chosen_from_what_a_layer_wrote_last(tmp_path: Path):
    rows = found("float[n,4] found, int64[n,3] kept", KEPT, tmp_path)
    assert rows == ChosenRows(("found", "kept"), ("NonMaxSuppression",), ("a", "d"))


def test_outputs_beside_the_chosen_ones_stay(tmp_path: Path):
    rows = found("float[n,4] found, float[1,2,64] scores", KEPT, tmp_path)
    assert rows == ChosenRows(("found",), ("NonMaxSuppression",), ("a", "d"))


@pytest.mark.parametrize(
    ("outputs", "rest", "expected"),
    [
        (
            "float[1,2,5] best, int64[1,2,5] which",
            "[top] best, which = TopK(scores, k)",
            (("which",), ("TopK",), ("d",)),  # The largest are sorted: they change little.
        ),
        (
            "float[m] found",
            "[large] e = ReduceMax<axes = [1]>(scores) [over] f = Greater(e, low)"
            "[where] g = NonZero(f) [turned] h = Transpose(g) [take] found = GatherND(boxes, h)",
            (("found",), ("NonZero",), ("e", "a")),
        ),
    ],
    ids=["the largest", "those above a threshold"],
)
def test_other_ways_of_choosing(outputs: str, rest: str, expected: tuple, tmp_path: Path):
    assert found(outputs, rest, tmp_path) == ChosenRows(*expected)


# A second stage that looks at the boxes that the first one proposes.
SECOND = KEPT.replace("found", "proposed") + "[second] found = MatMul(proposed, u)"


def test_choices_before_layers_are_the_references(tmp_path: Path):
    rows = found("float[n,4] found", SECOND, tmp_path)
    assert rows == ChosenRows(
        ("found",),
        ("NonMaxSuppression",),
        ("a", "d"),
        reference_choices=("nms",),
        comparable=("found",),
    )


def test_choices_behind_the_last_layer_choose_from_what_it_wrote(tmp_path: Path):
    rest = SECOND.replace("found", "e") + "[column] f = Gather<axis = 1>(e, third)"
    rest += "[top] best, which = TopK(f, k) [take] found = Gather(e, which)"
    rows = found("float[5,4] found", rest, tmp_path)
    assert rows == ChosenRows(
        ("found",), ("NonMaxSuppression", "TopK"), ("a", "d", "f", "e"), reference_choices=("nms",)
    )


@pytest.mark.parametrize("bodies", [False, True])
def test_what_a_branch_chooses_is_chosen_by_its_if(tmp_path: Path, bodies: bool):
    """Where there may be no box, libraries have NonMaxSuppression in an If."""
    branches = """
      [first] best = ReduceMax<keepdims = 0>(scores) [any] is_any = Greater(best, low)
      [branch] kept = If(is_any) <
        then_branch = then () => (int64[k,3] some) {
          [nms] some = NonMaxSuppression(boxes, scores, most, low, low)
        },
        else_branch = else () => (int64[0,3] none) {
          [none] none = ConstantOfShape<value = int64[1] {0}>(no_rows)
        }
      >
    """
    text = DETECTOR.replace("int64 third", "int64[2] no_rows = {0, 3}, int64 third")
    text = text.replace("REST", branches + SECOND.replace(NMS, ""))
    onnx.save(parse_model(text.replace("OUTPUTS", "float[m,4] found")), tmp_path / "net.onnx")
    rows = chosen_rows(load_model(tmp_path / "net.onnx", bodies=bodies).graph)
    assert rows is not None
    assert (rows.operators, rows.reference_choices) == (("NonMaxSuppression",), ("branch",))
    assert set(rows.sources) == {"best", "a", "d"}


@pytest.mark.parametrize(
    "rest",
    [
        "[same] found = Identity(boxes)",
        "[size] s = Shape(boxes) [where] i = NonZero(s) [zero] z = ReduceSum<keepdims = 0>(i)"
        "[sum] t = Cast<to = 1>(z) [add] found = Add(boxes, t)",
    ],
    ids=["nothing is chosen", "arithmetic on shapes"],
)
def test_models_that_choose_nothing_by_value(rest: str, tmp_path: Path):
    assert found("float[1,64,4] found", rest, tmp_path) is None


def test_what_only_has_the_shape_of_a_choice_is_judged(tmp_path: Path):
    rest = KEPT + "[size] many = Shape(found)"
    assert found("int64[2] many, float[1,64,4] boxes", rest, tmp_path) is None


# What two of four experts add to each token, and what one adds to those that it is chosen for.
GATED = """
  [hot] h = OneHot(i, four, values) [weights] wide = Unsqueeze(v, last) [gates] hv = Mul(h, wide)
  [gate] g = ReduceSum<keepdims = 0>(hv, one) [mixed] e = MatMul(g, experts) [add] y = Add(x, e)
"""
ROUTED = """
  [is_first] first = Equal(i, zero) [where] where = NonZero(first)
  [column] token = Gather(where, zero) [tokens] t = Gather(x, token) [expert] e = MatMul(t, expert)
  [rows] rows = Unsqueeze(token, last) [back] y = ScatterND<reduction = "add">(x, rows, e)
"""


@pytest.mark.parametrize("rest", [GATED, ROUTED], ids=["gated", "routed"])
def test_experts_are_chosen_for_a_token_that_stays_where_it_is(rest: str, tmp_path: Path):
    """Another expert is an error of the output, so that is what is judged."""
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[16,8] x) => (float[16,8] y)
    <float[8,4] router = {{0.1}}, float[4,8] experts = {{0.1}}, float[8,8] expert = {{0.1}},
     int64[1] two = {{2}}, int64 four = {{4}}, float[2] values = {{0, 1}}, int64[1] last = {{-1}},
     int64[1] one = {{1}}, int64 zero = {{0}}> {{
      [router] p = MatMul(x, router) [top] v, i = TopK(p, two)
      {rest}
    }}
    """
    onnx.save(with_random_weights(text), tmp_path / "net.onnx")
    assert chosen_rows(load_model(tmp_path / "net.onnx").graph) is None


def test_what_a_loop_chooses_stays_within_it(tmp_path: Path):
    """As a router does that sends tokens to experts step by step."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[4,8] x, int64 trips) => (float[4,8] y) <bool go = {1}, int64[1] k = {2}> {
      [loop] y = Loop(trips, go, x) <body = step (int64 i, bool c, float[4,8] h) =>
        (bool d, float[4,8] z) {
          [go_on] d = Identity(c) [top] v, j = TopK(h, k)
          [put] z = ScatterElements<axis = 1>(h, j, v)
        }>
    }
    """
    onnx.save(parse_model(text), tmp_path / "net.onnx")
    for bodies in (False, True):
        assert chosen_rows(load_model(tmp_path / "net.onnx", bodies=bodies).graph) is None


# A decoder works on each sound as many times as the frames that it lasts.
SPEECH = """
<ir_version: 9, opset_import: ["": 17]>
g (float[4,8] x) => (float[frames,8] y)
<float[8,1] duration = {0.1}, float[8,8] decoder = {0.1}, int64[1] row = {-1}, int64 first = {0},
 int64 one = {1}, int64[1] column = {1}, int64 last = {3}> {
  [duration] d = MatMul(x, duration) [sounds] s = Reshape(d, row)
  LENGTHS
  [ends] ends = CumSum(n, first) [total] total = ReduceMax<keepdims = 0>(ends)
  [frames] f = Range(first, total, one) [as_column] c = Unsqueeze(f, column)
  [later] later = GreaterOrEqual(c, ends) [number] i = Cast<to = 7>(later)
  [sound] which = ReduceSum<keepdims = 0>(i, column) [take] t = Gather(x, which)
  [decoder] z = MatMul(t, decoder) [tanh] y = Tanh(z)
}
"""


@pytest.mark.parametrize(
    ("lengths", "operator", "node"),
    [
        ("[up] r = Ceil(s) [integer] n = Cast<to = 7>(r)", "Ceil", "up"),
        ("[integer] n = Cast<to = 7>(s)", "Cast", "integer"),
    ],
)
def test_lengths_that_are_rounded_are_judged_by_what_is_rounded(
    lengths: str, operator: str, node: str, tmp_path: Path
):
    """Behind the float model's lengths the decoder's rows can be compared."""
    onnx.save(with_random_weights(SPEECH.replace("LENGTHS", lengths)), tmp_path / "net.onnx")
    rows = chosen_rows(load_model(tmp_path / "net.onnx").graph)
    assert rows == ChosenRows(("y",), (operator,), ("d",), (node,), ("y",))
    assert rows.decide_lengths


def test_a_mask_that_chooses_no_rows_hides_no_lengths(tmp_path: Path):
    """As the splines of VITS: what a mask picks goes back to where it was."""
    lengths = """
      [low] m = Less(s, limit) [where] h = NonZero(m) [turn] j = Transpose(h)
      [pick] p = GatherND(s, j) [grow] q = Mul(p, limit) [back] b = ScatterND(s, j, q)
      [up] r = Ceil(b) [integer] n = Cast<to = 7>(r)
    """
    text = SPEECH.replace("LENGTHS", lengths).replace("int64 one", "float limit = {2}, int64 one")
    onnx.save(with_random_weights(text), tmp_path / "net.onnx")
    rows = chosen_rows(load_model(tmp_path / "net.onnx").graph)
    assert rows == ChosenRows(("y",), ("Ceil",), ("b",), ("up",), ("y",))
    assert rows.decide_lengths


def test_what_is_rounded_before_a_recurrent_layer_decides_no_length(tmp_path: Path):
    """As activations are in arithmetic that quantizes."""
    lengths = """
      [quantize] q = Round(s) [steps] t1 = Reshape(q, each)
      [cells] h = LSTM<hidden_size = 1>(t1, gates, state) [rows] s1 = Reshape(h, row)
      [up] r = Ceil(s1) [integer] n = Cast<to = 7>(r)
    """
    constants = "int64[3] each = {4, 1, 1}, float[1,4,1] gates = {1}, float[1,4,1] state = {1}"
    text = SPEECH.replace("LENGTHS", lengths).replace("int64 one", f"{constants}, int64 one")
    onnx.save(with_random_weights(text), tmp_path / "net.onnx")
    rows = chosen_rows(load_model(tmp_path / "net.onnx").graph)
    assert rows == ChosenRows(("y",), ("Ceil",), ("h",), ("up",), ("y",))


def test_numbers_that_are_rounded_and_decide_no_length_choose_nothing(tmp_path: Path):
    text = SPEECH.replace("LENGTHS", "[up] r = Ceil(s) [integer] n = Cast<to = 7>(r)")
    text = text.replace("Range(first, total, one)", "Range(first, last, one)")
    onnx.save(with_random_weights(text), tmp_path / "net.onnx")
    assert chosen_rows(load_model(tmp_path / "net.onnx").graph) is None


@pytest.mark.parametrize(
    ("inputs", "length"),
    [
        (
            "float[1] scale",
            "[shape] m = Shape(a) [float] h = Cast<to = 1>(m) [grown] i = Mul(h, zooms)"
            "[down] j = Floor(i) [integer] n = Cast<to = 7>(j) [enlarge] y = Resize(a, , , n)",
        ),
        (
            "int64[1] length",
            "[float] h = Cast<to = 1>(length) [strided] i = Div(h, two) [down] j = Floor(i)"
            "[integer] n = Cast<to = 7>(j) [cut] y = Slice(a, zero, n, axis)",
        ),
    ],
    ids=["an enlarged map", "the valid part of a recording"],
)
def test_lengths_that_follow_from_inputs_are_the_same_in_all_models(
    inputs: str, length: str, tmp_path: Path
):
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x, {inputs}) => (float[1,4,H,W] y)
    <float[4,4,1,1] w = {{0.1}}, float[1] two = {{2}}, int64[1] zero = {{0}},
     int64[1] axis = {{2}}, float[2] ones = {{1, 1}}> {{
      [conv] c = Conv(x, w) [relu] a = Relu(c)
      {"[zoom] zooms = Concat<axis = 0>(ones, scale, scale)" if "scale" in inputs else ""}
      {length}
    }}
    """
    onnx.save(with_random_weights(text), tmp_path / "net.onnx")
    assert chosen_rows(load_model(tmp_path / "net.onnx").graph) is None
