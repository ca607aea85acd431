"""If, Loop and Scan: replaced by what runs where the model fixes it, with the same outputs."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import placer
from placer.graph.bodies import bodies_of
from placer.model import load_model
from tests.reference_outputs import outputs

Save = Callable[..., Path]

# A recurrent cell: a state, a stacked output, the count of trips, and a Transpose of a weight.
LOOP = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2,4] x, float[2,4] h) => (float[2,4] y, float[M,2,4] all, float[M,1] n)
<float[4,4] w = {0.5}, int64 trips = {TRIPS}, bool go = {GO}> {
  [loop] y, all, n = Loop (trips, go, h) <
    body = b (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t, float[2,4] o, float[1] k) {
      d = Identity(c)
      v = Transpose(w)
      [product] m = MatMul(s, v)
      one = Constant<value = float[4] {1, 2, 3, 4}>()
      z = Mul(x, one)
      a = Add(m, z)
      t = Tanh(a)
      o = Neg(t)
      f = Cast<to = 1>(i)
      shape = Constant<value = int64[1] {1}>()
      k = Reshape(f, shape)
    }
  >
}
"""
SCAN = """
<ir_version: 8, opset_import: ["": 17]>
g (float[LENGTH,2,4] x, float[2,4] h) => (float[2,4] y, float[2,L,4] all)
<float[4,4] w = {0.5}> {
  [scan] y, all = Scan <
    num_scan_inputs = 1, scan_input_directions = [1],
    scan_output_directions = [BACK], scan_output_axes = [1],
    body = b (float[2,4] s, float[2,4] e) => (float[2,4] t, float[2,4] o) {
      m = MatMul(s, w)
      a = Add(m, e)
      t = Tanh(a)
      o = Neg(t)
    }
  > (h, x)
}
"""


def same_outputs(path: Path, **shapes: tuple[int, ...]) -> Counter[str]:
    """Operators of the model once loaded, which has the outputs that the file has, bit for bit."""
    loaded = load_model(path, shapes)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape, "f") for name, shape in shapes.items()}
    found = outputs(loaded.proto, **inputs)
    for expected, output in zip(outputs(onnx.load(path), **inputs), found, strict=True):
        np.testing.assert_array_equal(expected, output, strict=True)
    return Counter(node.op for node in loaded.graph.nodes)


def test_a_loop_of_three_trips_becomes_three_cells(save: Save):
    path = save(LOOP.replace("TRIPS", "3").replace("GO", "1"))
    found = same_outputs(path, x=(2, 4), h=(2, 4))
    assert (found["MatMul"], found["Tanh"], found["Mul"], found["Loop"]) == (3, 3, 1, 0)
    loaded = load_model(path)
    assert "unrolled 1 Loop and Scan nodes whose trip count is fixed" in loaded.notes
    assert [node.name for node in loaded.graph.by_op["MatMul"]] == [
        "loop/0/product",
        "loop/1/product",
        "loop/2/product",
    ]
    assert len({node.inputs[1] for node in loaded.graph.by_op["MatMul"]}) == 1


@pytest.mark.parametrize(
    ("trips", "go", "condition"),
    [
        pytest.param("0", "1", "Identity(c)", id="no-trip"),
        pytest.param("3", "0", "Identity(c)", id="never-begins"),
        pytest.param("3", "1", "Not(c)", id="ends-by-itself"),
        pytest.param("900", "1", "Identity(c)", id="too-many-nodes"),
    ],
)
def test_other_loops_stay(save: Save, trips: str, go: str, condition: str):
    text = LOOP.replace("TRIPS", trips).replace("GO", go).replace("Identity(c)", condition)
    assert same_outputs(save(text), x=(2, 4), h=(2, 4)) == {"Loop": 1}
    assert bodies_of(load_model(save(text)).proto).sentence().endswith("which no rule enters")


def test_a_loop_that_draws_random_numbers_stays(save: Save):
    text = LOOP.replace("TRIPS", "3").replace("GO", "1").replace("Neg(t)", "RandomNormalLike(t)")
    assert [node.op for node in load_model(save(text)).graph.nodes] == ["Loop"]


def test_the_copies_may_not_exceed_a_number_of_nodes_over_all_levels(save: Save):
    inner = """
      o = Loop (many, go, t) <
        body = j (int64 p, bool q, float[2,4] r) => (bool u, float[2,4] l) {
          u = Identity(q)
          l = Abs(r)
        }
      >"""
    text = LOOP.replace("TRIPS", "3").replace("GO", "1").replace("o = Neg(t)", inner)
    shapes = {"x": (2, 4), "h": (2, 4)}
    few = save(text.replace("bool go", "int64 many = {5}, bool go"))
    assert same_outputs(few, **shapes)["Abs"] == 15
    many = save(text.replace("bool go", "int64 many = {900}, bool go"))
    found = same_outputs(many, **shapes)
    assert (found["MatMul"], found["Loop"]) == (3, 2)


@pytest.mark.parametrize("back", ["0", "1"])
def test_a_scan_over_a_fixed_length_becomes_its_cells(save: Save, back: str):
    path = save(SCAN.replace("LENGTH", "3").replace("BACK", back))
    found = same_outputs(path, x=(3, 2, 4), h=(2, 4))
    assert (found["MatMul"], found["Gather"], found["Scan"]) == (3, 3, 0)


def test_an_open_length_stays_until_a_shape_fixes_it(save: Save, tmp_path: Path):
    path = save(SCAN.replace("LENGTH", "N").replace("BACK", "0"))
    shapes = {"x": (3, 2, 4), "h": (2, 4)}
    assert same_outputs(path, **shapes) == {"Scan": 1}
    assert bodies_of(onnx.load(path)).sentence() == (
        "4 of 5 nodes (80%) stay float in the bodies of Scan 'scan', which no rule enters; "
        "placer extract --shape NAME=SHAPE puts what runs in their place"
    )
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, shapes)
    assert fixed.bodies.nodes == 0
    assert same_outputs(fixed.model, **shapes)["MatMul"] == 3


COUNTING = """
<ir_version: 8, opset_import: ["": 17]>
g (float[3,4] x) => (float[M,3,4] y, float[3,4] w)
<int64 n = {TRIPS}, bool go = {1}> {
  free = Neg(x)
  y = Loop (n, go) <
    body = b (int64 i, bool c) => (bool d, float[3,4] part) {
      d = Identity(c)
      trip_0_0 = Abs(x)
      f = Cast<to = 1>(i)
      part = Add(trip_0_0, f)
    }
  >
  w = Add(free, x)
}
"""


@pytest.mark.parametrize("taken", ["y/0/f", "y/1/f", "y/trip_1_0", "y/condition_True_0"])
def test_names_that_unrolling_adds_are_new(save: Save, taken: str):
    path = save(COUNTING.replace("TRIPS", "2"))
    proto = onnx.load(path)
    proto.graph.node[0].output[0] = proto.graph.node[-1].input[0] = taken
    onnx.save(proto, path)
    assert same_outputs(path, x=(3, 4))["Add"] == 3


def test_the_slices_of_a_scan_have_new_names(save: Save):
    text = SCAN.replace("LENGTH", "3").replace("BACK", "0").replace("m = ", "slice_0 = ")
    assert same_outputs(save(text.replace("(m, e)", "(slice_0, e)")), x=(3, 2, 4), h=(2, 4))


def test_a_trip_that_the_body_takes_as_a_vector_is_one(save: Save):
    text = COUNTING.replace("TRIPS", "2").replace("int64 i,", "int64[1] i,")
    text = text.replace("f = Cast<to = 1>(i)", "rows = Gather(x, i)")
    text = text.replace("Add(trip_0_0, f)", "Sub(rows, first)")
    text = text.replace("float[3,4] part", "float[1,4] part").replace("[M,3,4] y", "[M,1,4] y")
    path = save(text.replace("<int64 n", "<float[1] first = {1}, int64 n"))
    assert same_outputs(path, x=(3, 4))["Gather"] == 2


def test_nodes_that_stack_results_count_too(save: Save):
    assert same_outputs(save(COUNTING.replace("TRIPS", "450")), x=(3, 4))["Loop"] == 1
    assert same_outputs(save(COUNTING.replace("TRIPS", "390")), x=(3, 4))["Loop"] == 0


@pytest.mark.parametrize(
    "ends", ["few-inputs", "few-outputs", "no-output", "more-outputs", "count"]
)
def test_a_damaged_loop_stays_for_the_engine_to_judge(save: Save, ends: str):
    path = save(LOOP.replace("TRIPS", "3").replace("GO", "1"))
    proto = onnx.load(path)
    loop = proto.graph.node[0]
    body = loop.attribute[0].g
    if ends == "few-inputs":
        loop.input.pop()
    elif ends == "more-outputs":
        loop.output.append("more")
    elif ends == "count":
        trips = next(t for t in proto.graph.initializer if t.name == "trips")
        trips.CopyFrom(numpy_helper.from_array(np.array(np.nan, np.float32), "trips"))
    else:
        del body.output[1 if ends == "few-outputs" else 0 :]
    onnx.save(proto, path)
    assert [node.op for node in load_model(path).graph.nodes] == ["Loop"]


@pytest.mark.parametrize("count", [-1, 0, 3, 2**40])
def test_a_scan_of_an_impossible_number_of_inputs_stays(save: Save, count: int):
    path = save(SCAN.replace("LENGTH", "3").replace("BACK", "0"))
    proto = onnx.load(path)
    next(a for a in proto.graph.node[0].attribute if a.name == "num_scan_inputs").i = count
    onnx.save(proto, path)
    assert [node.op for node in load_model(path).graph.nodes] == ["Scan"]


def test_a_branch_that_lacks_an_output_stays_for_the_engine_to_judge(save: Save):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[3,4] x) => (float[3,4] y)
    <bool go = {1}> {
      y = If (go) <
        then_branch = yes () => (float[3,4] o) { o = Neg(x) },
        else_branch = no () => (float[3,4] o) { o = Abs(x) }
      >
    }
    """
    path = save(text)
    proto = onnx.load(path)
    proto.graph.node[0].output.append("more")
    onnx.save(proto, path)
    assert [node.op for node in load_model(path).graph.nodes] == ["If"]


def test_bounds_of_a_range_that_an_if_hid_become_scalars(save: Save):
    """ONNX's AffineGrid as its test writes it out: shapes of one dimension are cut by Split."""
    path = save("""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[2] size) => (int64[N] y)
        <bool yes = {1}, int64 zero = {0}, int64 one = {1}> {
          end = If (yes) <
            then_branch = a () => (int64[1] p) { p, q = Split(size) },
            else_branch = b () => (int64 r) { r = Identity(zero) }
          >
          y = Range(zero, end, one)
        }""")
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Split", "Reshape", "Range"]
    onnx.checker.check_model(model.proto, full_check=True)
    size = np.array([3, 5])
    np.testing.assert_array_equal(outputs(model.proto, size=size)[0], np.arange(3))
    np.testing.assert_array_equal(outputs(onnx.load(path), size=size)[0], np.arange(3))
