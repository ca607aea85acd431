"""Weights that are moved behind their pair, as engines take them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from placer.graph.text import parse_model
from placer.model import load_quantized
from placer.qdq.extract import extract_placement
from placer.qdq.moved_weights import move_weights
from placer.qdq.own_pairs import own_pairs
from placer.quantization import Range


def moved(text: str) -> onnx.ModelProto:
    proto = parse_model(text)
    move_weights(proto.graph)
    onnx.checker.check_model(proto)
    return proto


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {"x": x})
    return np.asarray(out)


LINEAR = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,4] y)
    <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float s = {0.5}, int8 z = {0}> {
      [q] q = QuantizeLinear(w, s, z)
      [d] d = DequantizeLinear(q, s, z)
      [t] t = Transpose<perm = [1, 0]>(d)
      [fc] y = MatMul(x, t)
    }"""


def test_a_transpose_behind_a_weights_pair_is_applied_to_the_weight():
    proto = moved(LINEAR)
    found = extract_placement(proto)
    assert [node.name for node in found.nodes] == ["fc"]
    assert {(e.tensor, e.node, e.input_index) for e in found.placement.edges} == {("t", "fc", 1)}
    assert tuple(found.constants["t"].dims) == (3, 4)
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    # ONNX Runtime rounds x, too, where the weight's pair stands right before the product.
    assert np.allclose(run(proto, x), run(parse_model(LINEAR), x), rtol=0.01)


def test_a_transpose_before_a_weights_pair_is_applied_to_the_weight():
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,4] y)
        <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float s = {0.5}, int8 z = {0}> {
          [t] t = Transpose<perm = [1, 0]>(w)
          [q] q = QuantizeLinear(t, s, z)
          [d] d = DequantizeLinear(q, s, z)
          [fc] y = MatMul(x, d)
        }"""
    found = extract_placement(moved(text))
    assert [node.name for node in found.nodes] == ["fc"]
    assert tuple(found.constants["t"].dims) == (3, 4)


def test_pairs_that_were_moved_are_called_as_in_the_file():
    found = extract_placement(moved(LINEAR))
    assert list(own_pairs(found).nodes.values()) == [("q", "d")]


def test_without_a_zero_point_integers_have_the_type_that_their_q_names():
    """TensorRT reads int8 there, although ONNX's default is uint8 (ONNX Runtime issue 27845)."""
    text = """
        <ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y, float[2] z)
        <float s = {0.5}> {
          a = QuantizeLinear<output_dtype = 3>(x, s) b = DequantizeLinear(a, s) y = Relu(b)
          c = QuantizeLinear(y, s) d = DequantizeLinear(c, s) z = Exp(d)
        }"""
    found = extract_placement(parse_model(text))
    pairs = own_pairs(found)
    assert {edge.tensor: dtype for edge, dtype in found.dtypes.items()} == {
        "x": "int8",
        "y": "uint8",
    }
    assert pairs.types == {"x": "int8", "y": "uint8"}
    assert pairs.ranges == {"x": Range(-64, 63.5), "y": Range(0, 127.5)}


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("Reshape(d, shape)", (6, 2)),
        ("Reshape(d, kept)", (4, 1, 3)),
        ("Flatten(d)", (4, 3)),
        ("Unsqueeze(d, axes)", (1, 4, 3)),
        ("Transpose(d)", (3, 4)),
    ],
)
def test_nodes_that_only_move_elements(node: str, shape: tuple[int, ...]):
    text = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1] x) => (float[1] y)
        <int8[4,3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, float s = {{0.5}}, int8 z = {{0}},
         int64[2] shape = {{6, -1}}, int64[3] kept = {{0, 1, -1}}, int64[1] axes = {{0}}> {{
          [d] d = DequantizeLinear(w, s, z)
          [m] m = {node}
          [a] a = Abs(m)
          [sum] total = ReduceSum<keepdims = 0>(a)
          [y] y = Mul(total, x)
        }}"""
    found = extract_placement(moved(text))
    assert [n.name for n in found.nodes] == ["a", "sum", "y"]
    assert tuple(found.constants["m"].dims) == shape


@pytest.mark.parametrize(
    ("node", "axis", "shape"),
    [
        ("Transpose<perm = [3, 2, 0, 1]>(d)", 0, (4, 3, 2, 2)),  # TensorFlow's weights.
        ("Reshape(d, shape)", 1, (12, 4)),
        ("Unsqueeze(d, axes)", 4, (1, 2, 2, 3, 4)),
    ],
)
def test_several_scales_stay_with_their_channels(node: str, axis: int, shape: tuple[int, ...]):
    """As weights of TensorFlow's layers have them (tensorflow-onnx issue 1719)."""
    text = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1] x) => (float y)
        <int8[2,2,3,4] w = {{{", ".join(map(str, range(48)))}}}, float[4] s = {{1, 2, 3, 4}},
         int8[4] z = {{0, 0, 0, 0}}, int64[2] shape = {{12, 4}}, int64[1] axes = {{0}}> {{
          [d] d = DequantizeLinear<axis = 3>(w, s, z)
          [m] m = {node}
          [a] a = Mul(m, x)
          [sum] y = ReduceMax<keepdims = 0>(a)
        }}"""
    proto = moved(text)
    assert run(proto, np.ones(1, np.float32)) == run(parse_model(text), np.ones(1, np.float32))
    found = extract_placement(proto)
    assert tuple(found.constants["m"].dims) == shape
    assert list(found.axes.values()) == [axis]


def test_axes_that_count_from_the_end_contradict_the_standard_and_break_nothing():
    proto = parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1] x) => (float[2,1] y)
        <int8[1,2] w = {1, 2}, float[2] s = {1, 2}, int8[2] z = {0, 0}> {
          d = DequantizeLinear(w, s, z)
          m = Transpose<perm = [1, 0]>(d)
          y = Mul(m, x)
        }""")
    proto.graph.node[1].attribute[0].ints[0] = -1
    move_weights(proto.graph)
    assert list(extract_placement(proto).axes.values()) == [0]


def test_a_reshape_that_parts_channels_stays():
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1] x) => (float[4,2] y)
        <int8[2,4] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[4] s = {1, 2, 3, 4},
         int8[4] z = {0, 0, 0, 0}, int64[2] shape = {4, 2}> {
          [d] d = DequantizeLinear(w, s, z)
          [m] m = Reshape(d, shape)
          [a] y = Mul(m, x)
        }"""
    assert moved(text) == parse_model(text)


def test_what_reads_nothing_stays():
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[3] x) => (float[3] y)
        {
          [draw] r = RandomNormal<shape = [3]>()
          [add] y = Add(x, r)
        }"""
    assert moved(text) == parse_model(text)


def test_what_an_output_or_a_computed_shape_needs_stays():
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,4] y, float[3,4] t)
        <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float s = {0.5}, int8 z = {0}> {
          [d0] q = QuantizeLinear(w, s, z)
          [d] d = DequantizeLinear(q, s, z)
          [t] t = Transpose<perm = [1, 0]>(d)
          [fc] y = MatMul(x, t)
        }"""
    assert moved(text) == parse_model(text)


def test_weights_in_another_file_get_their_shape_only(tmp_path: Path):
    proto = parse_model(LINEAR)
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    quantized = load_quantized(tmp_path / "m.onnx")
    move_weights(quantized.graph)
    found = extract_placement(quantized)
    assert tuple(found.constants["t"].dims) == (3, 4)
    assert [node.name for node in found.nodes] == ["fc"]


def test_scales_and_shapes_in_another_file_are_not_read(tmp_path: Path):
    """Where the shape is not there either, the weight stays as it is."""
    text = LINEAR.replace("Transpose<perm = [1, 0]>(d)", "Reshape(d, shape)")
    proto = parse_model(text.replace("<float[4,3] w", "<int64[2] shape = {3, 4}, float[4,3] w"))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    quantized = load_quantized(tmp_path / "m.onnx")
    move_weights(quantized.graph)
    assert [node.name for node in quantized.graph.node] == ["q", "d", "t", "fc"]
