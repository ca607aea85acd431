"""Normalising: what changes, and that outputs do not."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.model import load_model, save_model

Save = Callable[..., Path]


def outputs(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes, without its own optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, inputs)


def ops(path: Path) -> Counter[str]:
    return Counter(node.op for node in load_model(path).graph.nodes)


BLOCKS = {
    "conv": ("Conv", (4, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "transpose": ("ConvTranspose", (4, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
}
SHAPES = {"row": (1, 4, 1, 1), "column": (4, 1, 1), "one": (1,), "scalar": (), "pixels": (6, 6)}


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Random chains of weighted, affine, idle and non-linear nodes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    nodes, tensors, tensor = [], [], "x"

    def weight(shape: tuple[int, ...]) -> str:
        name = f"w{len(tensors)}"
        values = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        tensors.append(numpy_helper.from_array(values, name))
        return name

    kinds = [*BLOCKS, "bn", "Add", "Mul", "Identity", "Constant", "Dropout", "Relu", "branch"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8)):
        made = f"t{len(nodes)}"
        if kind in BLOCKS:
            op, shape, attributes = BLOCKS[kind]
            bias = [weight((4,))] if draw(st.booleans()) else []
            node = helper.make_node(op, [tensor, weight(shape), *bias], [made], **attributes)
        elif kind == "bn":
            inputs = [tensor, *(weight((4,)) for _ in range(4))]
            node = helper.make_node("BatchNormalization", inputs, [made], epsilon=1e-3)
        elif kind in ("Add", "Mul"):
            inputs = [tensor, weight(SHAPES[draw(st.sampled_from(list(SHAPES)))])]
            node = helper.make_node(kind, inputs[:: draw(st.sampled_from([1, -1]))], [made])
        elif kind == "Constant":
            value = numpy_helper.from_array(rng.random((4, 1, 1), np.float32))
            nodes.append(helper.make_node("Constant", [], [f"c{len(nodes)}"], value=value))
            node = helper.make_node("Add", [tensor, nodes[-1].output[0]], [made])
        elif kind == "branch":
            node = helper.make_node("Mul", [tensor, tensor], [made])
        else:
            node = helper.make_node(kind, [tensor], [made])
        nodes.append(node)
        tensor = made
    info = [
        helper.make_tensor_value_info(t, TensorProto.FLOAT, [1, 4, 6, 6]) for t in ("x", tensor)
    ]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_normalising_keeps_outputs(tmp_path_factory: pytest.TempPathFactory, proto) -> None:
    path = tmp_path_factory.mktemp("net") / "model.onnx"
    onnx.save(proto, path)
    model = load_model(path)
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)
    before, after = outputs(proto, x=x), outputs(model.proto, x=x)
    scale = np.abs(before[0]).max() + 1
    np.testing.assert_allclose(after[0] / scale, before[0] / scale, atol=2e-6)
    if not any("folded" in note for note in model.notes):
        np.testing.assert_array_equal(after[0], before[0])
    onnx.checker.check_model(model.proto, full_check=True)
    assert [o.name for o in model.proto.graph.output] == [o.name for o in proto.graph.output]
    assert len({node.name for node in model.graph.nodes}) == len(model.graph.nodes)


@settings(max_examples=20, deadline=None)
@given(networks())
def test_a_normalised_model_stays_as_it_is(tmp_path_factory, proto) -> None:
    folder = tmp_path_factory.mktemp("net")
    onnx.save(proto, folder / "model.onnx")
    once = load_model(folder / "model.onnx")
    save_model(once.proto, folder, folder / "again.onnx")
    again = load_model(folder / "again.onnx")
    assert again.notes == ()
    assert again.proto.graph.node == once.proto.graph.node


def test_batch_normalization_with_other_readers_of_the_convolution_stays(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] c)
        <float[2,2,1,1] w = {1}, float[2] one = {1, 1}, float[2] zero = {0, 0}> {
          c = Conv(x, w)
          y = BatchNormalization(c, one, zero, zero, one)
        }
        """
    )
    assert ops(path) == {"Conv": 1, "BatchNormalization": 1}


def test_weights_that_others_read_are_copied_before_folding(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
        <float[2,2,1,1] w = {1}, float[2] s = {2, 3}, float[2] zero = {0, 0},
         float[2] one = {1, 1}> {
          c = Conv(x, w)
          y = BatchNormalization(c, s, zero, zero, one)
          z = Conv(x, w)
        }
        """
    )
    x = np.ones((1, 2, 4, 4), np.float32)
    model = load_model(path)
    assert Counter(n.op for n in model.graph.nodes) == {"Conv": 2}
    for before, after in zip(outputs(onnx.load(path), x=x), outputs(model.proto, x=x), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5)


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_takes_a_batch_normalization_and_its_own_beta(save: Save, transposed: int):
    shape = "3,5" if transposed else "5,3"
    path = save(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,5] x) => (float[2,3] y)
        <float[{shape}] w = {{1}}, float[3] b = {{1, 2, 3}}, float[3] s = {{2, 3, 4}},
         float[3] m = {{0, 1, 2}}, float[3] v = {{1, 2, 3}}> {{
          c = Gemm<transB = {transposed}, alpha = 2.0, beta = 3.0>(x, w, b)
          y = BatchNormalization(c, s, b, m, v)
        }}
        """
    )
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    assert ops(path) == {"Gemm": 1}
    before, after = outputs(onnx.load(path), x=x), outputs(load_model(path).proto, x=x)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)


def test_old_opsets_are_raised(save: Save):
    path = save(
        """
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x) => (float[1,1,4] y) {
          z = Unsqueeze<axes = [0]>(x)
          y = Clip(z)
        }
        """
    )
    model = load_model(path)
    assert model.proto.opset_import[0].version == 17
    assert "opset 11 raised to 17" in model.notes
    x = np.arange(4, dtype=np.float32)[None]
    np.testing.assert_array_equal(outputs(model.proto, x=x)[0], x[None])


def test_a_converter_failure_names_the_node(save: Save):
    path = save(
        """
        <ir_version: 6, opset_import: ["": 6]>
        g (float[1,2,4,4] x, float[2] s) => (float[1,2,4,4] y) {
          [relu] r = Relu(x)
          [norm] y = BatchNormalization<is_test = 0>(r, s, s, s, s)
        }
        """
    )
    with pytest.raises(InputError, match=r"cannot be raised to 17 at node 'norm' \(BatchN"):
        load_model(path)


def test_local_functions_are_inlined(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x) => (float[1,4] y) { y = mine.twice(x) }
        <opset_import: ["": 17], domain: "mine">
        twice (a) => (b) { b = Add(a, a) }
        """
    )
    onnx.save(proto, tmp_path / "model.onnx")
    assert ops(tmp_path / "model.onnx") == {"Add": 1}


def test_constant_subgraphs_are_folded_but_dynamic_shapes_are_not(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,4] x) => (float[M] y)
        <int64[1] a = {-1}, int64[1] b = {2}> {
          s = Shape<start = 1>(x)
          two = Mul(b, b)
          minus = Sub(two, b)
          minus2 = Sub(minus, b)
          flat = Add(minus2, a)
          y = Reshape(x, flat)
        }
        """
    )
    model = load_model(path)
    assert [n.op for n in model.graph.nodes] == ["Reshape"]
    x = np.ones((3, 4), np.float32)
    assert outputs(model.proto, x=x)[0].shape == (12,)
