"""Detectors whose outputs are the boxes that NonMaxSuppression keeps."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from placer.engines.openvino.engine import OpenVinoEngine
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.trial_setup import candidates_before_trials
from placer.results.result import Result
from tests.conftest import with_random_weights
from tests.optimizer.test_optimize import Placer

# The smallest change of a score changes which boxes are kept, their order and their number.
DETECTOR = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,32,32] image) => (float[n,4] found, int64[n,3] kept)
<float[32,3,3,3] w0 = {0.2}, float[32,32,3,3] w1 = {0.06}, float[32,32,3,3] w2 = {0.06},
 float[4,32,1,1] wb = {0.2}, float[3,32,1,1] ws = {0.2}, int64[3] as_boxes = {1, 4, 1024},
 int64[3] as_scores = {1, 3, 1024}, int64[2] as_rows = {1024, 4}, int64 third = {2},
 int64 most = {50}, float overlap = {0.5}, float least = {0.6}> {
  [stem] a = Conv<pads = [1, 1, 1, 1]>(image, w0)
  [stem_relu] b = Relu(a)
  [body] c = Conv<pads = [1, 1, 1, 1]>(b, w1)
  [body_relu] d = Relu(c)
  [neck] e = Conv<pads = [1, 1, 1, 1]>(d, w2)
  [neck_relu] f = Relu(e)
  [box] g0 = Conv(f, wb)
  [score] h0 = Conv(f, ws)
  [flat_box] g1 = Reshape(g0, as_boxes)
  [boxes] boxes = Transpose<perm = [0, 2, 1]>(g1)
  [sigmoid] h1 = Sigmoid(h0)
  [scores] scores = Reshape(h1, as_scores)
  [nms] kept = NonMaxSuppression(boxes, scores, most, overlap, least)
  [index] index = Gather<axis = 1>(kept, third)
  [rows] rows = Reshape(boxes, as_rows)
  [take] found = Gather(rows, index)
}
"""
TOLD = (
    "NonMaxSuppression chooses the rows of found, kept, which cannot be compared one by one; "
    "accuracy is judged by what it chooses from: g0, h1"
)
ASKED = ("--budget", 3, "--preset", "quick", "--no-cache")


# A layer that works on the boxes, as the second stage of a two-stage detector does.
SECOND_STAGE = DETECTOR.replace(
    "[take] found = Gather(rows, index)",
    "[take] proposed = Gather(rows, index) [second] found = MatMul(proposed, wp)",
).replace("int64 third", "float[4,4] wp = {0.5}, int64 third")
# What Unique finds is told by its values, too, which are the candidate's.
BY_VALUE = (
    DETECTOR.split("[nms]", maxsplit=1)[0]
    + """
  [flat] of_image = Reshape(h1, minus) [once] values, first = Unique(of_image)
  [box_of] where = Mod(first, thousand) [rows] rows = Reshape(boxes, as_rows)
  [take] chosen = Gather(rows, where) [second] found = MatMul(chosen, wp)
}
"""
)
BY_VALUE = BY_VALUE.replace(", int64[n,3] kept)", ")").replace(
    "int64 third = {2}", "float[4,4] wp = {0.5}, int64 thousand = {1024}, int64[1] minus = {-1}"
)


def write(text: str = DETECTOR) -> None:
    onnx.save(with_random_weights(text), "net.onnx")
    x = np.random.default_rng(0).standard_normal((8, 3, 32, 32)).astype(np.float32)
    np.savez("data.npz", image=x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        ("onnxruntime",),
        ("openvino", "--export", "openvino"),
        ("fusion-model", "--gpu", "l4"),
    ],
    ids=["onnxruntime", "openvino", "fusion-model"],
)
def test_detectors_are_judged_by_what_their_boxes_are_chosen_from(
    engine: tuple[str, ...], placer: Placer
):
    write()
    finished = placer(
        "optimize", "net.onnx", "--data", "data.npz", "--engine", *engine, *ASKED, "-o", "out"
    )
    assert finished.code == 0, finished.err
    assert finished.out.count(TOLD) + finished.err.count(TOLD) == 1
    result = Result.read(Path("out"))
    default = next(t for t in result.trials if t.kind == "default")
    assert default.error is None
    assert [gate.where for gate in default.gates] in (["g0"], ["h1"])
    assert all(gate.value > 15 for gate in default.gates)
    written = onnx.load("out/optimized.onnx")
    assert [output.name for output in written.graph.output] == ["found", "kept"]
    assert Path("out/optimized.xml").exists() == ("--export" in engine)


@pytest.mark.slow
def test_a_gate_that_names_such_an_output_is_on_the_output(placer: Placer):
    write()
    finished = placer(
        *("optimize", "net.onnx", "--data", "data.npz", "--engine", "onnxruntime", *ASKED),
        *("--gate", "max_abs<=0.0001@found", "--gate", "sqnr>=15@h1", "-o", "out"),
    )
    assert finished.code == 3
    assert "no quantized candidate of 2 meets max_abs<=0.0001@found" in finished.err


def test_outputs_of_its_own_are_those_of_the_build_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write()
    request = Request(model=Path("net.onnx"), data="data.npz", engine="onnxruntime")
    task = prepare(request, QuietObserver())
    candidates = candidates_before_trials(task, {})
    measured = SimpleNamespace(run=lambda inputs: {"found": inputs["image"][0, 0]})
    outputs = candidates.judged_run(task.float_placement, measured)(task.inputs)
    assert outputs["found"].shape == (32, 32)  # The twin gives rows of four.
    assert {"g0", "h1"} <= outputs.keys()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_where_layers_work_on_what_was_chosen_the_float_model_chooses(engine: str, placer: Placer):
    write(SECOND_STAGE)
    finished = placer(
        *("optimize", "net.onnx", "--data", "data.npz", "--engine", engine, *ASKED),
        *("-o", "out"),
    )
    assert finished.code == 0, finished.err
    assert "with the float model's choices, by found/rows_of_float, and by what" in finished.out
    result = Result.read(Path("out"))
    default = next(t for t in result.trials if t.kind == "default")
    assert default.error is None
    assert {f"sqnr {name}" for name in ("g0", "h1", "found/rows_of_float")} == {
        name for name in result.best.metrics if name.startswith("sqnr")
    }
    evaluated = placer("eval", "net.onnx", "out/optimized.onnx", "--data", "data.npz")
    assert evaluated.code == 0, evaluated.err
    assert "found/rows_of_float" in evaluated.out


# A layer that works on the boxes of the highest scores, of which there are always as many.
QUERIES = (
    DETECTOR.split("[nms]", maxsplit=1)[0]
    + """
  [flat] of_image = Reshape(h1, minus) [top] best, which = TopK(of_image, k)
  [box_of] where = Mod(which, thousand) [rows] rows = Reshape(boxes, as_rows)
  [take] chosen = Gather(rows, where) [second] found = MatMul(chosen, wp)
}
"""
)
QUERIES = QUERIES.replace("(float[n,4] found, int64[n,3] kept)", "(float[40,4] found)").replace(
    "int64 third = {2}",
    "float[4,4] wp = {0.5}, int64[1] k = {40}, int64 thousand = {1024}, int64[1] minus = {-1}",
)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["float", "bfloat16"])
def test_an_engine_is_given_the_float_models_choices_of_known_number(base: str, placer: Placer):
    """In bfloat16 the engine itself would choose others of nearly equal scores."""
    if base == "bfloat16" and not OpenVinoEngine().has_bfloat16():
        pytest.skip("this CPU has no bfloat16")
    write(QUERIES)
    finished = placer(
        *("optimize", "net.onnx", "--data", "data.npz", "--engine", "openvino", "--base", base),
        *(*ASKED, "-o", "out"),
    )
    assert finished.code == 0, finished.err
    result = Result.read(Path("out"))
    default = next(t for t in result.trials if t.kind == "default")
    assert default.error is None
    assert all(gate.value > 20 for gate in default.gates)


@pytest.mark.slow
def test_where_it_cannot_choose_the_user_is_told_why_nothing_passes(placer: Placer):
    write(BY_VALUE)
    finished = placer(
        *("optimize", "net.onnx", "--data", "data.npz", "--engine", "onnxruntime", *ASKED),
        *("-o", "out"),
    )
    assert finished.code == 3, finished.out
    assert "accuracy is judged" not in finished.out + finished.err
    assert "; layers work on rows that Unique chose, which may only be" in finished.err


@pytest.mark.slow
def test_files_are_compared_the_same_way(placer: Placer):
    """By ``eval``, ``apply`` and ``import``."""
    write()
    made = placer(
        *("optimize", "net.onnx", "--data", "data.npz", "--engine", "onnxruntime", *ASKED),
        *("-o", "out"),
    )
    assert made.code == 0, made.err
    applied = placer("apply", "out/placement.yaml", "net.onnx", "--data", "data.npz", "-o", "made")
    assert applied.code == 0, applied.err
    evaluated = placer("eval", "net.onnx", "made/optimized.onnx", "--data", "data.npz")
    assert evaluated.code == 0, evaluated.err
    assert TOLD in evaluated.out
    assert "found" not in evaluated.out.replace(TOLD, "")
    imported = placer("import", "made/optimized.onnx", "--data", "data.npz", "-o", "float.onnx")
    assert imported.code == 0, imported.err
    assert re.search(r"outputs agree with the file's to \d\d\.\d dB", imported.out)
