"""What is written is compared with the file that was given, once, where ONNX Runtime runs both."""

from pathlib import Path

import pytest

import placer
from placer.errors import InputError
from placer.graph import Edge
from placer.model import load_model
from placer.quantization import Placement
from tests.apply.placements import file_of
from tests.model.normalized import Save

# Only when it runs does it show that the Resize reduces, of which opset 10 takes other places.
OTHER = """
    <ir_version: 5, opset_import: ["": 10]>
    g (float[1,2,8,8] x) => (float[1,2,H,W] y)
    <float[2,2,1,1] w = {0.5}, float[4] by = {1, 2, 13.3, 13.3}> {
      [conv] c = Conv(x, w)
      shape = Shape(c)
      sizes = Cast<to = 1>(shape)
      scales = Div(sizes, by)
      [resize] r = Resize(c, scales)
      [relu] y = Relu(r)
    }"""


def test_another_function_is_refused_with_the_node_where_it_begins(save: Save, tmp_path: Path):
    path, message = (
        save(OTHER),
        r"output 'y' keeps .* dB .* differ from node 'resize' \(Resize\) on",
    )
    with pytest.raises(InputError, match=message):
        placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (1, 2, 8, 8)})
    with pytest.raises(InputError, match=message):
        placer.optimize(path, engine="onnxruntime", output=tmp_path / "run")
    assert not list(tmp_path.glob("fixed*")) + list(tmp_path.glob("run"))


def test_apply_refuses_another_function(save: Save, tmp_path: Path):
    path = save(OTHER)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    file = file_of(placement, load_model(path).graph, tmp_path, "onnxruntime")
    with pytest.raises(InputError, match=r"computes something else: output 'y'"):
        placer.apply_placement(file.path, path, output=tmp_path / "applied")


def test_a_file_that_onnxruntime_does_not_run_is_not_compared(save: Save, tmp_path: Path):
    """It has no Add of opset 6."""
    path = save("""
        <ir_version: 3, opset_import: ["": 6]>
        g (float[1,4] x) => (float[1,4] y) { y = Add(x, x) }""")
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (1, 4)})
    assert "is not compared with the file: ONNX Runtime does not run the file" in fixed.uncompared


def test_outputs_drawn_at_random_are_not_compared(save: Save, tmp_path: Path):
    path = save("""
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x) => (float[1,4] y, float[1,4] z) {
          r = RandomNormalLike(x)
          y = Add(x, r)
          z = Neg(x)
        }""")
    assert not placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (1, 4)}).uncompared


def test_outputs_without_a_finite_value_are_told(save: Save, tmp_path: Path):
    path = save("""
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x) => (float[1,4] y, float[1,4] z) {
          a = Abs(x)
          z = Neg(a)
          y = Log(z)
        }""")
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (1, 4)})
    assert fixed.uncompared.endswith(
        "is not compared with the file at y: no value there is finite on the input that was tried"
    )


def test_integers_alone_tell_no_distance_which_is_said(save: Save, tmp_path: Path):
    path = save("""
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x) => (int64[1,4] y) {
          a = Floor(x)
          y = Cast<to = 7>(a)
        }""")
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (1, 4)})
    assert "is not compared with the file: the file has no float output" in fixed.uncompared


def test_a_model_with_a_fixed_input_is_compared_with_that_value(save: Save, tmp_path: Path):
    path = save("""
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x, float rate) => (float[1,4] y) { y = Mul(x, rate) }""")
    assert not placer.fix_inputs(path, tmp_path / "fixed.onnx", {"rate": 3}).uncompared
