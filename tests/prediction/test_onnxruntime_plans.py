"""Plans of ONNX Runtime, predicted as they are built."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_openvino_plans import layers, varied

PACK = load_pack("onnxruntime")
HEAD = '<ir_version: 9, opset_import: ["": 17]>'


def plans(text: str, pairs: list[tuple[Edge, ...]], folder: Path) -> tuple[Plan, Plan]:
    """Predicted and built, of the groups of ``pairs``."""
    onnx.save(varied(parse_model(HEAD + text)), folder / "model.onnx")
    model, scheme = load_model(folder / "model.onnx"), PACK.manifest.scheme
    placement = Placement.of_groups(pairs)
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    predictor = make_predictor(model.graph, PACK, Target(), "float", ranges=ranges)
    actual = OnnxRuntimeEngine().compile(candidate, folder).plan()
    return predictor.predict(placement).plan, actual


BIASED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16] b = {1}> {
  [conv] c = Conv(x, w, b)
  [act] y = Tanh(c)
}
"""
# What conv1 writes as integers is read in float, with another tensor that is float.
MOVED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}> {
  [tanh] t = Tanh(x)
  [conv1] c = Conv(x, w)
  [add] a = Add(t, c)
  [conv2] d = Conv(a, v)
  [last] y = Tanh(d)
}
"""
X, W = Edge("x", "conv", 0), Edge("w", "conv", 1)
FIRST = [(Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),), (Edge("c", "add", 1),)]
SECOND = [(Edge("a", "conv2", 0),), (Edge("v", "conv2", 1),), (Edge("d", "last", 0),)]


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [
        # A candidate has biases between pairs as integers, whatever follows their Conv.
        (BIASED, [(X,), (W,)], {"quantize": 1, "dequantize": 3}),
        # TryFixTransposeMissingQ: a pair behind what the optimizer moves before the sum.
        (MOVED, [*FIRST, *SECOND], {"quantize": 3, "dequantize": 3}),
        (MOVED, FIRST, {"quantize": 1, "dequantize": 1}),
    ],
)
def test_plans_are_predicted_as_they_are_built(
    tmp_path: Path, text: str, pairs: list[tuple[Edge, ...]], expected: dict[str, int]
):
    predicted, built = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(built)
    assert Counter(x.kind for x in predicted.layers if x.kind in expected) == expected
    assert Counter(x.kind for x in built.layers if x.kind in expected) == expected
