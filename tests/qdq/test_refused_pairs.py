"""Pairs that cannot be: placements, types, scales and operators that are refused in a sentence."""

from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from onnx import numpy_helper

from placer.errors import InputError, RunError
from placer.graph import Edge
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range
from tests.qdq.nets import (
    BRANCHES,
    RANGES,
    TENSORRT,
    Save,
    values,
)
from tests.qdq.strip import strip


def half_model(path: Path, opset: int, smallest: float = 0.02) -> Model:
    """A float16 convolution; ``smallest``: the largest weight of its second channel."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 19]>
        g (float16[1,2,6,6] x) => (float16[1,2,6,6] y) { [conv] y = Conv(x, w) }
        """
    )
    proto.opset_import[0].version = opset
    weights = np.array([[0.3, -0.1], [0.001, smallest]], np.float16).reshape(2, 2, 1, 1)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, path)
    return load_model(path)


def test_scales_have_the_type_of_their_tensor(tmp_path: Path):
    model = half_model(tmp_path / "half.onnx", opset=19)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, {"x": Range(-1, 1)})
    onnx.checker.check_model(candidate, full_check=True)
    assert values(candidate, "x/scale") == np.float16(1 / 127)
    amax = np.abs(model.array("w")).max(axis=(1, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(values(candidate, "w/scale"), (amax / 127).astype(np.float16))
    restored = values(strip(candidate), "w/dequantized")
    np.testing.assert_allclose(restored, model.array("w"), atol=0.3 / 127)


def test_scales_that_their_type_cannot_hold_are_refused_not_raised(tmp_path: Path):
    model = half_model(tmp_path / "half.onnx", opset=19)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    expected = "'x' cannot be quantized: a scale of 3.94e-05 is outside 6.1e-05"
    with pytest.raises(RunError, match=expected):
        Inserter(model, TENSORRT).insert(placement, {"x": Range(-0.005, 0)})


def test_small_channels_of_a_weight_have_the_smallest_scale_of_their_type(tmp_path: Path):
    model = half_model(tmp_path / "half.onnx", opset=19, smallest=0.002)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, {"x": Range(-1, 1)})
    largest = np.float16(np.float16(0.3) / np.float32(127))
    assert values(candidate, "w/scale").tolist() == [largest, 2.0**-14]


@pytest.mark.parametrize(
    ("edge", "ranges", "expected"),
    [
        (Edge("r", "nowhere", 0), RANGES, "which the model does not have"),
        (Edge("r", "conv2", 1), RANGES, "which the model does not have"),
        (Edge("r", "conv2", 0), {}, "tensor 'r' has no calibrated range"),
    ],
)
def test_wrong_placements(save: Save, edge: Edge, ranges: dict[str, Range], expected: str):
    with pytest.raises(InputError, match=expected):
        Inserter(load_model(save(BRANCHES)), TENSORRT).insert(Placement.of([edge]), ranges)


UNUSUAL = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,4] x, bool c, double[4] d, float16[4] h)
=> (float[1,4] y, double[4] e, float16[4] i, float[1,4] x) {
  [relu] t = Relu(x)
  [if] y = If(c) <
    then_branch = yes () => (float[1,4] a) { a = Neg(t) },
    else_branch = no () => (float[1,4] b) { b = Abs(t) }
  >
  [neg] e = Neg(d)
  [half] i = Neg(h)
}
"""


def test_a_type_that_the_opset_cannot_quantize(save: Save):
    model = load_model(save(UNUSUAL.replace('["": 19]', '["": 17]')))
    with pytest.raises(InputError, match=r"of type FLOAT16, which needs opset 19; .* float32"):
        Inserter(model, TENSORRT).insert(Placement.of([Edge("h", "half", 0)]), {})


@pytest.mark.parametrize(
    ("edges", "ranges", "expected"),
    [
        ([Edge("t", "if", 1)], {"t": Range(0, 1)}, "a subgraph of the node reads"),
        ([Edge("d", "neg", 0)], {"d": Range(0, 1)}, "not a float32, float16 or bfloat16 tensor"),
        ([Edge("c", "if", 0)], {"c": Range(0, 1)}, "not a float32, float16 or bfloat16 tensor"),
        ([Edge("x", "", 3)], {"x": Range(0, 1)}, "which no node computes"),
        ([Edge("x", "relu", 0)], {"x": Range(0, float("inf"))}, "infinite or undefined range"),
        (
            [Edge("x", "relu", 0), Edge("h", "half", 0)],
            {"x": Range(0, 1), "h": Range(0, 1)},
            "'h' and 'x' cannot share a scale",
        ),
    ],
)
def test_what_cannot_be_quantized(
    save: Save, edges: list[Edge], ranges: dict[str, Range], expected: str
):
    model = load_model(save(UNUSUAL))
    with pytest.raises(InputError, match=expected):
        Inserter(model, TENSORRT).insert(Placement.of(edges, [["x", "h"]]), ranges)
