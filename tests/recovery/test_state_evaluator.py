"""Noise of a state on samples held back, as gates see it on all of them together."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.calibration.dataset import load_dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.text import parse_model
from placer.model import load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from placer.recovery.methods import mean_noises
from placer.recovery.recover import StateEvaluator
from placer.recovery.state import State

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
TWO_HEADS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2] x) => (float[1,4] y)
<float[2,2] v = {1, 0.4, -1, 0.3}, float[2,2] w = {0.5, 2, 1, -1}>
{
    [boxes] a = MatMul(x, v)
    [scores] b = MatMul(x, w)
    [none] r = Relu(b)
    [heads] y = Concat<axis = 1>(a, r)
}
"""


def test_samples_together_have_the_noise_that_an_evaluation_of_all_of_them_tells(tmp_path: Path):
    """Also where one is a hundred times fainter, and where a head is silent on another.

    The faint one is nearly all noise, which is nothing beside the others: the mean of each
    sample's own ratio would be 0.3 and more.
    """
    onnx.save(parse_model(TWO_HEADS), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    x = np.array([[1.2, 0.7], [-2, -0.5], [-0.3, 1.9], [0.004, 0.013]], np.float32)
    np.savez(tmp_path / "x.npz", x=x[:, None])
    data = load_dataset(str(tmp_path / "x.npz"), model)
    placement = Placement.of([model.graph.edges_into(model.graph.nodes[i])[0] for i in (0, 1)])

    def run_of(state: State) -> Run:
        candidate = Inserter(state.model, INT8).insert(placement, state.ranges)
        return OnnxRuntimeModel(candidate, model.base_dir, 1).run

    state = State(model, model, {"x": Range(-2.0, 2.0)})
    evaluator = StateEvaluator.of(model, run_of, 1)
    reference = OnnxRuntimeModel(model.proto, model.base_dir, 1).run
    whole = Evaluator(model.graph, (), data, reference).evaluate(run_of(state)).noises
    found = evaluator.noises(state, evaluator.batches(data))
    assert set(whole) == {"y", "y[0:2, axis 1]", "y[2:4, axis 1]"}
    assert mean_noises(found) == pytest.approx(whole)
    assert found[1]["y[2:4, axis 1]"] == 0
    alone = [batch.evaluate(run_of(state)).noises["y"] for batch in evaluator.batches(data)]
    assert np.mean(alone) > 100 * whole["y"]
