"""Models that give integers alone, as segmentation networks that end in ArgMax do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.model import load_model
from placer.model.judged import judged_by, with_scores
from placer.results.result import Result
from tests.conftest import with_random_weights
from tests.optimizer.test_optimize import Placer

# Two classes whose scores are far apart nearly everywhere.
SEGMENTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,16,16] x) => (int64[1,16,16] y)
<float[16,3,3,3] w1 = {0.2}, float[2,16,1,1] w2 = {0.2}> {
  [conv] c = Conv<pads = [1,1,1,1]>(x, w1)
  [relu] r = Relu(c)
  [head] s = Conv(r, w2)
  [best] y = ArgMax<axis = 1, keepdims = 0>(s)
}
"""
ASKED = ("--engine", "onnxruntime", "--budget", 3, "--preset", "quick", "--no-cache")


def write() -> None:
    onnx.save(with_random_weights(SEGMENTS), "net.onnx")
    x = np.random.default_rng(0).standard_normal((8, 3, 16, 16)).astype(np.float32)
    np.savez("data.npz", x=x)


@pytest.mark.slow
def test_integers_are_to_stay_as_they_are(placer: Placer):
    write()
    finished = placer("optimize", "net.onnx", "--data", "data.npz", *ASKED, "-o", "out")
    assert finished.code == 0, finished.err
    told = "gate argmax_agreement>=0.99, as the model has no float output"
    assert finished.out.count(told) == 1
    assert finished.out.index(told) < finished.out.index("calibrating on")
    tried = next(t for t in Result.read(Path("out")).trials if t.kind == "everything")
    assert [gate.gate for gate in tried.gates] == ["argmax_agreement>=0.99"]
    assert 0.9 < tried.gates[0].value <= 1
    assert tried.gates[0].where == "y"
    # The search learns from it which placements meet the gate; no metric is of it.
    assert tried.noise is not None
    assert 1e-6 < tried.noise < 0.1
    assert {name.split()[1] for name in Result.read(Path("out")).best.metrics} == {"y"}
    written = onnx.load("out/optimized.onnx")
    assert [output.name for output in written.graph.output] == ["y"]


ENLARGED = (
    SEGMENTS.replace("[best]", '[up] t = Resize<mode = "linear">(s, , twice) [best]')
    .replace("keepdims = 0>(s)", "keepdims = 0>(t)")
    .replace("int64[1,16,16] y", "int64[1,32,32] y")
    .replace("w2 = {0.2}", "w2 = {0.2}, float[4] twice = {1, 1, 2, 2}")
)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (SEGMENTS, ("s",)),
        (ENLARGED, ("s",)),
        (SEGMENTS.replace("16,16", "2048,2048"), ()),  # Too large to keep them of each sample.
        (SEGMENTS.replace("(int64[1,16,16] y)", "(int64[1,16,16] y, float[1,2,16,16] s)"), ()),
    ],
)
def test_noise_is_measured_at_the_scores_before_integers(
    save: Callable[..., Path], text: str, scores: tuple[str, ...]
):
    judged = with_scores(judged_by(load_model(save(text))))
    assert judged.scores == scores
    assert judged.has_more == bool(scores)


CLASSIFIER = """
<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 2]>
g (float[1,32] x) => (int64[1] label, seq(float[1,4]) scores) <float[32,4] w = {0.1}> {
  [mm] s = MatMul(x, w)
  [best] label = ArgMax<axis = 1, keepdims = 0>(s)
  [map] scores = SequenceConstruct(s)
}
"""
WORDS = CLASSIFIER.replace("int64[1] label", "string[1] label").replace(
    "[best] label = ArgMax<axis = 1, keepdims = 0>(s)",
    """[best] i = ArgMax<axis = 1, keepdims = 0>(s)
  label = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["a", "b"]>(i)""",
)


def test_sequences_and_maps_are_no_float_outputs(placer: Placer):
    """As scikit-learn's classifiers have them."""
    np.save("x.npy", np.random.default_rng(0).standard_normal((30, 32)).astype(np.float32))
    asked = ("--data", "x.npy", "--engine", "fusion-model", "--gpu", "a100", "--budget", 2)
    onnx.save(with_random_weights(CLASSIFIER), "net.onnx")
    finished = placer("optimize", "net.onnx", *asked, "--preset", "quick", "--no-cache")
    assert finished.code in (0, 3), finished.err
    assert "gate argmax_agreement>=0.99, as the model has no float output" in finished.out
    assert "warning: no gate judges scores, as metrics compare tensors only; export" in finished.out
    onnx.save(with_random_weights(WORDS), "words.onnx")
    finished = placer("optimize", "words.onnx", *asked, "--preset", "quick", "--no-cache")
    assert finished.code == 2
    assert "words.onnx has no output that a metric compares, but text, sequences" in finished.err


@pytest.mark.slow
def test_other_commands_leave_sequences_out_too(placer: Placer):
    np.save("x.npy", np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32))
    onnx.save(with_random_weights(CLASSIFIER), "net.onnx")
    asked = ("--data", "x.npy", "--no-cache")
    run = (*asked, "--force", "mm", "--gate", "argmax_agreement>=0.001", "--preset", "quick")
    placer("optimize", "net.onnx", *run, "--engine", "onnxruntime", "--budget", 2, "-o", "out")
    applied = placer("apply", "out/placement.yaml", "net.onnx", *asked, "-o", "applied")
    assert applied.code == 0, applied.err
    judged = placer("eval", "net.onnx", "applied/optimized.onnx", "--data", "x.npy")
    assert (judged.code, "│ label" in judged.out) == (0, True), judged.err
    found = placer("sensitivity", "net.onnx", *asked, "--engine", "onnxruntime")
    assert "matmul:mm" in found.out
    assert "│ exact" not in found.out  # Noise is that of the scores.


def test_without_known_scores_there_is_no_sensitivity(placer: Placer):
    large = CLASSIFIER.replace("32", "1").replace("float[1,4] w", "float[1,2200000] w")
    onnx.save(with_random_weights(large.replace("float[1,4]", "float[1,2200000]")), "net.onnx")
    refused = placer("sensitivity", "net.onnx", "--engine", "onnxruntime", "--no-cache")
    assert refused.code == 2
    assert "net.onnx has no float output, nor scores before it that are known" in refused.err


def test_shapes_behind_operators_of_classical_models_are_those_of_a_run(save: Callable[..., Path]):
    """As of scikit-learn's scalers, of which ONNX's inference knows no shape."""
    model = load_model(
        save("""
        <ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 2]>
        g (float[N,32] x) => (float[N,4] y) <float[32,4] w = {0.1}> {
          scaled = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x)
          y = MatMul(scaled, w)
        }
    """),
        {"x": (3, 32)},
    )
    assert model.graph.type_of("scaled").shape == (3, 32)


def test_a_gate_on_floats_is_refused_before_calibration(placer: Placer):
    write()
    asked = ("--data", "data.npz", "--gate", "cosine>=0.9", *ASKED, "-o", "out")
    finished = placer("optimize", "net.onnx", *asked)
    assert finished.code == 2
    assert "gate cosine>=0.9 needs a float output, which the model does not have" in finished.err
    assert "calibrating" not in finished.out


@pytest.mark.slow
def test_a_missed_gate_says_nothing_of_noise_and_the_search_goes_on(placer: Placer):
    write()
    asked = ("--data", "data.npz", "--gate", "argmax_agreement>=0.9999", "--budget", 6)
    engine = ("--engine", "fusion-model", "--gpu", "a100", "--preset", "quick", "--no-cache")
    finished = placer("optimize", "net.onnx", *asked, *engine, "-o", "out")
    assert finished.code in (0, 3), finished.err
    trials = Result.read(Path("out")).trials
    assert [t for t in trials if t.gates and not all(gate.passed for gate in t.gates)]
    assert len(trials) > 2
