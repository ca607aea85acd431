"""Weights of reduced range, which leave room for sums of two neighbours."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import numpy_helper
from pydantic import ValidationError

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.model import load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from placer.quantization.neighbours import (
    added_in_pairs,
    magnitudes,
    neighbours,
    weight_magnitudes,
)

Save = Callable[..., Path]

FULL = Scheme(activation="uint8", symmetric=False, bias="int32")
REDUCED = FULL.model_copy(update={"weight_range": "reduced"})


def test_the_sum_of_two_neighbours_counts_where_it_is_larger():
    rows = np.array([[1.0, 2.0, -3.0, -1.0], [5.0, -5.0, 5.0, -5.0]])
    assert magnitudes(rows, (4,)).max(axis=1).tolist() == [4.0, 5.0]


def test_kernels_of_a_conv_may_go_through_its_channels_first():
    """Two channels of 1x3: as stored 4 and 0 are neighbours; with channels last, 4 and 3."""
    rows = np.array([[4.0, 0.0, 0.0, 3.0, 0.0, 0.0]])
    assert magnitudes(rows, (6,)).max() == 4
    assert magnitudes(rows, (2, 1, 3)).max() == 7


def test_neighbours_in_either_order():
    assert neighbours((3,)).tolist() == [[3, 0, 1], [1, 2, 3]]
    before, behind, before_last, behind_last = neighbours((2, 1, 2)).tolist()
    assert (before, behind) == ([4, 0, 1, 2], [1, 2, 3, 4])
    # With channels last the order is 0, 2, 1, 3.
    assert (before_last, behind_last) == ([4, 2, 0, 1], [2, 3, 1, 4])


@given(arrays(np.float32, (3, 8), elements=st.floats(-4, 4, width=32)))
def test_no_sum_of_two_products_leaves_16_bits(weights: np.ndarray):
    """They are at most 255 times as large as the sum of two integers."""
    scale = np.maximum(magnitudes(weights, (2, 2, 2)).max(axis=1, keepdims=True), 1e-6) / 127
    stored = np.rint(weights / scale)
    last = stored.reshape(3, 2, 4).transpose(0, 2, 1).reshape(3, 8)
    for placed in (stored, last):
        assert np.abs(255 * (placed[:, 1:] + placed[:, :-1])).max() <= 32767


NODES = {
    "conv": ("float[1,4,6,6] x", "float[8,4,3,3] w", "Conv(x, w)"),
    "conv in groups": ("float[1,4,6,6] x", "float[8,2,3,3] w", "Conv<group = 2>(x, w)"),
    "transpose": ("float[1,4,6,6] x", "float[4,3,2,2] w", "ConvTranspose(x, w)"),
    "gemm": ("float[2,6] x", "float[6,3] w", "Gemm(x, w)"),
    "gemm transposed": ("float[2,6] x", "float[3,6] w", "Gemm<transB = 1>(x, w)"),
    "matmul": ("float[2,6] x", "float[6,3] w", "MatMul(x, w)"),
    "matmul in a batch": ("float[2,2,6] x", "float[2,6,3] w", "MatMul(x, w)"),
}
# Of each the inputs of one output, as rows of kernels with channels last.
ROWS = {
    "conv": lambda w: w.transpose(0, 2, 3, 1).reshape(8, -1),
    "conv in groups": lambda w: w.transpose(0, 2, 3, 1).reshape(8, -1),
    "transpose": lambda w: w.transpose(1, 2, 3, 0).reshape(3, -1),
    "gemm": lambda w: w.T,
    "gemm transposed": lambda w: w,
    "matmul": lambda w: w.T,
    "matmul in a batch": lambda w: w.transpose(0, 2, 1).reshape(6, 6),
}


def integers(save: Save, node: tuple[str, str, str], scheme: Scheme) -> np.ndarray:
    """The quantized weight."""
    read, weight, made = node
    sizes = ",".join("NCHW"[: read.count(",") + 1])
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    g ({read}) => (float[{sizes}] y) <{weight} = {{1}}> {{ [node] y = {made} }}
    """
    model = load_model(save(text))
    edges = [Edge("x", "node", 0), Edge("w", "node", 1)]
    proto = Inserter(model, scheme).insert(Placement.of(edges), {"x": Range(-1, 1)})
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    return numpy_helper.to_array(tensors["w/quantized"]).astype(int)


@pytest.mark.parametrize("name", NODES)
def test_sums_of_two_weights_of_an_output_are_held(save: Save, name: str):
    full, reduced = (ROWS[name](integers(save, NODES[name], s)) for s in (FULL, REDUCED))
    assert np.abs(full[:, 1:] + full[:, :-1]).max() > 128
    assert 100 <= np.abs(reduced[:, 1:] + reduced[:, :-1]).max() <= 128
    assert np.abs(reduced).max() <= 127


def test_depthwise_convs_have_kernels_that_add_in_32_bits(save: Save):
    node = ("float[1,4,6,6] x", "float[4,1,3,3] w", "Conv<group = 4>(x, w)")
    full, reduced = (integers(save, node, scheme) for scheme in (FULL, REDUCED))
    np.testing.assert_array_equal(full, reduced)


def test_sums_are_held_along_the_inputs_of_every_reader(save: Save):
    """One weight is read by columns and by rows: all of it is 1 by columns, +1 and -1 by rows."""
    path = save("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,6] x) => (float[2,6] y, float[2,6] z) <float[6,6] w = {0}> {
      [columns] y = MatMul(x, w)
      [rows] z = Gemm<transB = 1>(x, w)
    }
    """)
    proto = onnx.load(path)
    signs = np.tile(np.array([1, -1], np.float32), (6, 3))
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(signs, "w"))
    onnx.save(proto, path)
    weight = quantized_weight(path, [Edge("w", "columns", 1), Edge("w", "rows", 1)])
    assert np.abs(weight[1:] + weight[:-1]).max() <= 128


IMPORTED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2,6] x) => (float[2,3] y)
<float s = {0.01}, uint8 z = {128}, float t = {0.5}, int8 v = {0}, int8[6,3] q = {VALUE}> {
  [quantize] i = QuantizeLinear(x, s, z)
  [dequantize] d = DequantizeLinear(i, s, z)
  [weight] w = DequantizeLinear(q, t, v)
  [node] y = MatMul(d, w)
}
"""


@pytest.mark.parametrize(("value", "kept"), [(60, 60), (127, 64)])
def test_scales_of_a_file_stay_where_they_leave_room(save: Save, value: int, kept: int):
    path = save(IMPORTED.replace("VALUE", ", ".join([str(value)] * 18)))
    (node,) = load_model(path).graph.nodes
    weight = quantized_weight(path, [Edge(node.inputs[1], node.name, 1)])
    assert set(np.unique(weight)) == {kept}


def quantized_weight(path: Path, edges: Sequence[Edge]) -> np.ndarray:
    """The integers of what ``edges`` read, of reduced range and with one scale."""
    model, scheme = load_model(path), REDUCED.model_copy(update={"per_channel": False})
    activations = [Edge("x", edge.node, 0) for edge in edges]
    placement = Placement.of([*activations, *edges])
    proto = Inserter(model, scheme).insert(placement, {"x": Range(-1, 1)})
    (weight,) = (t for t in proto.graph.initializer if t.name == f"{edges[0].tensor}/quantized")
    return numpy_helper.to_array(weight).astype(int)


@pytest.mark.parametrize("shape", [(6, 0), (0, 3)])
def test_weights_without_values_have_nothing_to_add(shape: tuple[int, ...]):
    graph = graph_of_text("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,6] x) => (float[2,3] y) <float[6,3] w = {1}> { [node] y = MatMul(x, w) }
    """)
    (node,) = graph.nodes
    weight = added_in_pairs(graph, node)
    assert weight is not None
    assert weight_magnitudes(np.zeros(shape, np.float32), node, weight).shape == shape


def test_one_scale_for_a_weight_holds_the_sums_of_all_its_outputs(save: Save):
    scheme = REDUCED.model_copy(update={"per_channel": False})
    rows = ROWS["gemm"](integers(save, NODES["gemm"], scheme))
    assert np.abs(rows[:, 1:] + rows[:, :-1]).max() in (126, 127, 128)


def test_schemes_say_it_where_it_is_not_usual():
    assert "weight_range" not in FULL.model_dump()
    assert REDUCED.model_dump()["weight_range"] == "reduced"
    assert Scheme.model_validate(REDUCED.model_dump()) == REDUCED
    with pytest.raises(ValidationError, match="weight_range: reduced is for weights in int8"):
        Scheme(
            activation="float8e4m3fn",
            symmetric=True,
            weight="float8e4m3fn",
            bias="float",
            weight_range="reduced",
        )
