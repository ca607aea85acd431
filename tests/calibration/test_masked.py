"""Tensors that no scale fits stay float: masked scores, and what is behind a Log."""

from pathlib import Path

import numpy as np
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.calibration.masked import masked_tensors
from placer.errors import InputError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.results.result import Result
from tests.calibration.conftest import model_of
from tests.optimizer.test_optimize import Placer

# Scores of attention, which no first position lets see the second; Softmax ends the infinity.
MASKED = """
<ir_version: 9, opset_import: ["": 17]>
net (float[2,160] x) => (float[2,160] y)
<float[160,160] wk = {0.005}, float[2,2] mask = {0, -inf, 0, 0}> {
  [keys] k = MatMul (x, wk)
  [turn] t = Transpose <perm = [1, 0]> (k)
  [scores] s = MatMul (x, t)
  [masked] m = Add (s, mask)
  [bias] a = Add (m, s)
  [softmax] p = Softmax (a)
  [values] y = MatMul (p, x)
}
"""


def test_what_a_mask_reaches_is_found_and_ends_at_the_softmax(tmp_path: Path):
    model = model_of(MASKED, tmp_path)
    data = synthetic_dataset(model, 4, 0)
    found = masked_tensors(model, ["s", "m", "a", "p", "x", "mask"], [data])
    assert found == {"m", "a", "mask"}
    assert masked_tensors(model, ["s", "p"], [data]) == set()


@pytest.mark.parametrize("far", ["-1e4", "-1e9", "-3.4e38"])
def test_a_finite_mask_beside_the_scores_is_found_too(tmp_path: Path, far: str):
    model = model_of(MASKED.replace("-inf", far), tmp_path)
    data = synthetic_dataset(model, 4, 0)
    # The mask alone is two values, which eight bits hold.
    assert masked_tensors(model, ["s", "m", "a", "p", "x", "mask"], [data]) == {"m", "a"}


@pytest.mark.parametrize(
    ("value", "unfit"), [("<value = float[1] {-1e4}>", {"m", "a"}), ("", set())]
)
def test_a_mask_of_a_shape_that_the_sample_gives_is_found_too(
    tmp_path: Path, value: str, unfit: set[str]
):
    """Without a value, ConstantOfShape makes zeros."""
    text = MASKED.replace("(float[2,160] x)", "(float[2,160] x, int64[2] size)").replace(
        "float[2,2] mask = {0, -inf, 0, 0}> {",
        f"int64 one = {{1}}> {{ f = ConstantOfShape {value} (size) mask = Trilu (f, one)",
    )
    model = model_of(text, tmp_path)
    x = np.random.default_rng(0).normal(size=(4, 2, 160)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, size=np.full((4, 2), 2))
    data = load_dataset(str(tmp_path / "data.npz"), model)
    assert masked_tensors(model, ["s", "m", "a", "p", "x"], [data]) == unfit


def test_attention_to_one_position_only_is_no_mask(tmp_path: Path):
    # On some of these samples all that Softmax gives is nearly 0 or nearly 1.
    model = model_of(MASKED.replace("-inf", "-1e4").replace("0.005", "0.1"), tmp_path)
    data = synthetic_dataset(model, 32, 0)
    assert masked_tensors(model, ["s", "m", "a", "p"], [data]) == {"m", "a"}


def test_large_values_without_a_gap_are_no_mask(tmp_path: Path):
    model = model_of(
        """
        <ir_version: 9, opset_import: ["": 17]>
        net (float[1,3,4,4] x) => (float[1,3,4,4] y) <float far = {-5000}> {
          [scale] y = Mul (x, far)
        }
        """,
        tmp_path,
    )
    assert masked_tensors(model, ["x", "y"], [synthetic_dataset(model, 4, 0)]) == set()


def test_a_logarithm_of_zero_is_found(tmp_path: Path):
    model = model_of(
        """
        <ir_version: 9, opset_import: ["": 17]>
        net (float[4] x) => (float[4] y) {
          [relu] r = Relu (x)
          [log] l = Log (r)
          [exp] y = Exp (l)
        }
        """,
        tmp_path,
    )
    data = synthetic_dataset(model, 4, 0)
    assert masked_tensors(model, ["x", "r", "l", "y"], [data]) == {"l"}


def test_nan_that_reaches_an_output_is_no_mask(tmp_path: Path):
    model = model_of(
        """
        <ir_version: 9, opset_import: ["": 17]>
        net (float[16] x) => (float[16] y) {
          [log] l = Log (x)
          [sum] y = Add (l, x)
        }
        """,
        tmp_path,
    )
    data = synthetic_dataset(model, 4, 0)
    assert masked_tensors(model, ["l"], [data]) == set()
    with pytest.raises(InputError, match="random inputs do not suit this model; give real ones"):
        calibrate(model, ["l"], data)


def test_infinity_that_only_the_data_brings_is_refused_by_calibration(tmp_path: Path):
    model = model_of(
        """
        <ir_version: 9, opset_import: ["": 17]>
        net (float[4] x) => (float[4] y) <float far = {900}> {
          [first] a = Mul (x, far)
          [second] b = Mul (a, a)
          [third] c = Mul (b, b)
          [fourth] d = Mul (c, c)
          [overflow] y = Mul (d, d)
        }
        """,
        tmp_path,
    )
    data = synthetic_dataset(model, 1, 0)
    assert masked_tensors(model, ["y"], [data]) == set()
    with pytest.raises(InputError, match="random inputs do not suit this model; give real ones"):
        calibrate(model, ["y"], data)


@pytest.mark.slow
def test_masked_scores_stay_float_and_the_rest_is_searched(tmp_path: Path, placer: Placer):
    model_of(MASKED, tmp_path)
    asked = ("--engine", "onnxruntime", "--budget", 3, "--output", "out")
    finished = placer("optimize", tmp_path / "model.onnx", *asked)
    assert finished.code == 0, finished.err
    result = Result.read(Path("out"))
    assert [trial.kind for trial in result.trials][:2] == ["none", "everything"]
    assert [warning for warning in result.warnings if "no scale fits" in warning]


# The mask of a Transformer that is exported with it as an input.
GIVEN = MASKED.replace("(float[2,160] x)", "(float[2,160] x, float[2,2] mask)").replace(
    ", float[2,2] mask = {0, -inf, 0, 0}", ""
)


def given(folder: Path, mask: list[list[float]]) -> str:
    """Eight samples of random values with this mask, an .npz file."""
    values = np.random.default_rng(0).standard_normal((8, 2, 160)).astype(np.float32)
    path = folder / "data.npz"
    np.savez(path, x=values, mask=np.array([mask] * 8, np.float32))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("far", [-np.inf, -1e4, -3.4e38])
def test_what_a_mask_among_the_inputs_reaches_stays_float(
    tmp_path: Path, placer: Placer, far: float
):
    """Found as a constant's reach is, and searched on ONNX Runtime to the end."""
    model = model_of(GIVEN, tmp_path)
    source = given(tmp_path, [[0, far], [0, 0]])
    found = masked_tensors(model, ["s", "m", "a", "p", "x"], [load_dataset(source, model)])
    assert found == {"m", "a"}
    asked = ("--engine", "onnxruntime", "--budget", 3, "--output", "out", "--data", source)
    finished = placer("optimize", tmp_path / "model.onnx", *asked)
    assert finished.code == 0, finished.err
    result = Result.read(Path("out"))
    assert [trial.kind for trial in result.trials][:2] == ["none", "everything"]
    assert result.trials[1].gates[0].value > 15
    assert [warning for warning in result.warnings if "no scale fits" in warning]


def test_a_mask_that_only_evaluation_data_hold_stays_float_too(tmp_path: Path):
    """As where calibration samples are all of full length."""
    model_of(GIVEN, tmp_path)
    full = str(tmp_path / "full.npz")
    Path(given(tmp_path, [[0, 0], [0, 0]])).rename(full)
    masked = given(tmp_path, [[0, -np.inf], [0, 0]])

    def quantized(evaluation: str) -> set[str]:
        asked = {"model": tmp_path / "model.onnx", "data": full, "engine": "onnxruntime"}
        task = prepare(Request(**asked, evaluation_data=evaluation), QuietObserver())
        return {edge.tensor for edge in task.edges}

    assert quantized(full) - quantized(masked) == {"m", "a", "mask"}


def test_a_row_that_is_masked_whole_is_refused(tmp_path: Path):
    """Softmax of infinities alone is NaN."""
    model = model_of(GIVEN, tmp_path)
    source = given(tmp_path, [[-np.inf, -np.inf], [0, 0]])
    with pytest.raises(InputError) as caught:
        masked_tensors(model, ["m"], [load_dataset(source, model)])
    assert str(caught.value) == (
        f"{source}, sample 0: array 'mask' holds -Inf, which reaches output 'y' of the float model "
        "as NaN or Inf; remove or repair that sample"
    )
