"""Models that give integers alone, as segmentation networks that end in ArgMax do."""

from pathlib import Path

import numpy as np
import onnx

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


def test_integers_are_to_stay_as_they_are(placer: Placer):
    write()
    finished = placer("optimize", "net.onnx", "--data", "data.npz", *ASKED, "-o", "out")
    assert finished.code == 0, finished.err
    told = "gate argmax_agreement>=0.99, as the model has no float output"
    assert finished.out.count(told) == 1
    assert finished.out.index(told) < finished.out.index("calibrating on")
    default = next(t for t in Result.read(Path("out")).trials if t.kind == "default")
    assert [gate.gate for gate in default.gates] == ["argmax_agreement>=0.99"]
    assert 0.9 < default.gates[0].value <= 1


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
    onnx.save(with_random_weights(WORDS), "words.onnx")
    finished = placer("optimize", "words.onnx", *asked, "--preset", "quick", "--no-cache")
    assert finished.code == 2
    assert "words.onnx has no output that a metric compares, but text, sequences" in finished.err


def test_a_gate_on_floats_is_refused_before_calibration(placer: Placer):
    write()
    asked = ("--data", "data.npz", "--gate", "cosine>=0.9", *ASKED, "-o", "out")
    finished = placer("optimize", "net.onnx", *asked)
    assert finished.code == 2
    assert "gate cosine>=0.9 needs a float output, which the model has not; use" in finished.err
    assert "calibrating" not in finished.out


def test_a_missed_gate_says_nothing_of_noise_and_the_search_goes_on(placer: Placer):
    write()
    asked = ("--data", "data.npz", "--gate", "argmax_agreement>=0.9999", "--budget", 6)
    engine = ("--engine", "fusion-model", "--gpu", "a100", "--preset", "quick", "--no-cache")
    finished = placer("optimize", "net.onnx", *asked, *engine, "-o", "out")
    assert finished.code in (0, 3), finished.err
    trials = Result.read(Path("out")).trials
    assert [t for t in trials if t.gates and not all(gate.passed for gate in t.gates)]
    assert len(trials) > 2
