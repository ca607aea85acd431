"""If, Loop and Scan: replaced by what runs where the model fixes it, with the same outputs."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import placer
from placer.graph.bodies import bodies_of
from placer.model import load_model
from tests.model.test_normalize import outputs

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
