"""Engines that give garbage, and the rules behind a pair that an engine refuses."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.gates import Gate
from placer.accuracy.sanity import invalid_output
from placer.calibration.dataset import synthetic_dataset
from placer.engines.base import Compiled, Tensors
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.errors import RunError
from placer.model import load_model
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.trials.trial import TrialRunner, blame
from placer.qdq import Inserter
from placer.quantization import EMPTY, Range
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

EXPECTED = {"y": np.array([1.0, -2.0, 3.0], np.float32), "n": np.array([1, 2])}
CONV = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,32,8,8] x) => (float[1,32,8,8] y)
    <float[32,32,1,1] w = {0.1}> {
      [conv] c = Conv(x, w)
      [relu] y = Relu(c)
    }
"""


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([1.0, -2.0, 3.0], None),
        ([1.01, -2.0, 2.9], None),
        ([1.0, np.nan, 3.0], "output 'y' holds NaN or infinity"),
        ([1.0, np.inf, 3.0], "output 'y' holds NaN or infinity"),
        ([0.0, 0.0, 0.0], "output 'y' is zero throughout"),
        ([-1.0, 2.0, -3.0], "output 'y' differs grossly from ONNX Runtime's result"),
        ([1.0, -2.0], "output 'y' is of shape (2,) instead of shape (3,)"),
    ],
)
def test_garbage_is_told_from_rounding(found: list[float], problem: str | None):
    outputs = {**EXPECTED, "y": np.array(found, np.float32)}
    reason = invalid_output(outputs, EXPECTED)
    assert (reason is None) == (problem is None)
    assert (reason or "").startswith(problem or "")


def test_a_missing_output_is_named():
    assert invalid_output({}, EXPECTED) == "output 'y' is missing instead of shape (3,)"


class Zeros(OnnxRuntimeModel):
    """ONNX Runtime with a fused layer that has gone wrong."""

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        return {name: 0 * value for name, value in super().run(inputs).items()}


class Broken(OnnxRuntimeEngine):
    """Right on the float model, wrong on any with pairs."""

    verified = True

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> OnnxRuntimeModel:
        quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        return (Zeros if quantized else OnnxRuntimeModel)(model, base_dir, self.threads)


def test_a_candidate_with_garbage_is_a_failed_trial(save: Callable[..., Path]):
    model = load_model(save(CONV))
    pack = load_pack("onnxruntime")
    sites = find_sites(model.graph, pack.rules)
    placement = place(sites, {})
    ranges = {edge.tensor: Range(-3.0, 3.0) for edge in placement.edges}
    data = synthetic_dataset(model, 2, seed=0)
    inputs = next(iter(data)).inputs

    def outcome(engine: OnnxRuntimeEngine) -> str | None:
        candidates = Candidates(model, engine, Inserter(model, pack.manifest.scheme), ranges)
        baseline: Compiled = candidates.compile(EMPTY)
        gates = (Gate.parse("sqnr>=1"),)
        evaluator = Evaluator(model.graph, gates, data, baseline.run)
        return TrialRunner(candidates, evaluator, baseline, inputs, 3, sites)(placement).error

    assert outcome(OnnxRuntimeEngine()) is None
    assert outcome(Broken()) == "invalid output: output 'y' is zero throughout"


def test_a_refused_pair_names_its_rule(save: Callable[..., Path]):
    model = load_model(save(CONV))
    sites = find_sites(model.graph, load_pack("tensorrt").rules)
    placement = place(sites, {})
    refusal = str(RunError("refuses: node 'x/QuantizeLinear' (QuantizeLinear): no kernel"))
    assert blame(refusal, placement, sites) == (
        f"{refusal}; the pair is there by rule conv-bn-act at 'conv'"
    )
    other = "refuses: node 'conv' (Conv): no kernel"
    assert blame(other, placement, sites) == other
    assert blame(refusal, EMPTY, sites) == refusal
