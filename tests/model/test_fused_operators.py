"""ONNX Runtime's fused operators: files that it optimized hold standard nodes again."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from placer.graph.text import graph_of_text, parse_model
from placer.model import load_model
from placer.model.passes.fused_operators import note_on_layouts, replace_fused
from tests.reference_outputs import outputs

STANDARD = {"", "ai.onnx"}


def optimized(proto: onnx.ModelProto, folder: Path) -> Path:
    """``proto`` as ONNX Runtime's own optimizer writes it, without layouts of this CPU."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(proto.SerializeToString(), options)
    return folder / "optimized.onnx"


def fused(path: Path) -> set[str]:
    return {n.op_type for n in onnx.load(path).graph.node if n.domain == "com.microsoft"}


def ops(proto: onnx.ModelProto) -> Counter[str]:
    assert {node.domain for node in proto.graph.node} <= STANDARD
    return Counter(node.op_type for node in proto.graph.node)


def weights(**shapes: tuple[int, ...]) -> list[TensorProto]:
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=shape) / 4 for name, shape in shapes.items()}
    return [numpy_helper.from_array(v.astype(np.float32), name) for name, v in values.items()]


CONVS = """
<ir_version: 9, opset_import: ["": 17]>
net (float[1,3,8,8] x) => (float[1,4,8,8] y)
<float[4,3,3,3] w1 = {1}, float[4,4,3,3] w2 = {1}, float[4] bias = {1}, float[4,4,1,1] w3 = {1},
 float[4,4,1,1] w4 = {1}, float low = {0}, float high = {6}> {
  [stem] a = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [relu] b = Relu (a)
  [left] c = Conv <pads = [1, 1, 1, 1]> (b, w2, bias)
  [clip] d = Clip (c, low, high)
  [right] e = Conv (d, w3)
  [leaky] f = LeakyRelu <alpha = 0.2> (e)
  [last] g = Conv (f, w4)
  [sum] h = Add (g, b)
  [out] y = Relu (h)
}
"""
BLOCK = """
<ir_version: 9, opset_import: ["": 17]>
net (float[1,4,8] x) => (float[1,4,8] y)
<float[8,8] wq = {1}, float[8,8] wk = {1}, float[8,8] wu = {1}, float[8] gamma = {1},
 float[8] beta = {1}, float[8] bu = {1}, float scale = {0.5}, float root = {1.4142135},
 float one = {1}, float half = {0.5}> {
  [q] q = MatMul (x, wq)
  [k] k = MatMul (x, wk)
  [turn] t = Transpose <perm = [0, 2, 1]> (k)
  [scores] s = MatMul (q, t)
  [scaled] c = Mul (s, scale)
  [softmax] p = Softmax (c)
  [values] v = MatMul (p, x)
  [sum] u = Add (v, x)
  [norm] n = LayerNormalization (u, gamma, beta)
  [up] h = MatMul (n, wu)
  [bias] b = Add (h, bu)
  [div] d = Div (b, root)
  [erf] e = Erf (d)
  [plus] f = Add (e, one)
  [mul] g = Mul (b, f)
  [halved] z = Mul (g, half)
  [skip] y = Add (z, n)
}
"""


def saved(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    results: dict[str, tuple[int, ...]],
    folder: Path,
    opset: int = 17,
    **tensors: tuple[int, ...],
) -> Path:
    """A file of ``nodes``, in float32; without standard operators where ``opset`` is 0."""
    values = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in group.items()]
        for group in (inputs, results)
    ]
    graph = helper.make_graph(nodes, "net", *values, weights(**tensors))
    opsets = [helper.make_opsetid("com.microsoft", 1)]
    opsets += [helper.make_opsetid("", opset)] if opset else []
    path = folder / "fused.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def trained(text: str) -> onnx.ModelProto:
    """The network with random weights."""
    proto = parse_model(text)
    shapes = {t.name: tuple(t.dims) for t in proto.graph.initializer if t.dims}
    kept = [tensor for tensor in proto.graph.initializer if not tensor.dims]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend([*kept, *weights(**shapes)])
    return proto


def test_convolutions_with_their_activation_are_nodes_again(tmp_path: Path):
    proto = trained(CONVS)
    path = optimized(proto, tmp_path)
    assert fused(path) == {"FusedConv"}
    model = load_model(path)
    assert ops(model.proto) == ops(proto)
    assert "took 3 fused nodes of ONNX Runtime apart" in model.notes
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], outputs(proto, x=x)[0], atol=1e-6)


def test_a_transformer_block_is_standard_again(tmp_path: Path):
    proto = trained(BLOCK)
    path = optimized(proto, tmp_path)
    assert fused(path) == {"FusedMatMul", "Gelu", "SkipLayerNormalization"}
    model = load_model(path)
    wanted = {"MatMul": 4, "Gemm": 1, "Softmax": 1, "LayerNormalization": 1, "Erf": 1}
    assert ops(model.proto).items() >= wanted.items()
    x = np.random.default_rng(1).normal(size=(1, 4, 8)).astype(np.float32)
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], outputs(proto, x=x)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("FastGelu", {}),
        ("QuickGelu", {"alpha": 1.702}),
        ("QuickGelu", {"alpha": 1.0}),
        ("BiasGelu", {}),
        ("FusedGemm", {"activation": "Relu", "transB": 1, "alpha": 0.5}),
        ("FusedGemm", {"activation": "LeakyRelu", "activation_alpha": 0.3}),
        ("FusedMatMul", {"transA": 1, "transB": 1, "alpha": 0.25}),
    ],
)
def test_each_operator_computes_what_onnx_runtime_does(
    op: str, attributes: dict[str, object], tmp_path: Path
):
    inputs = {"QuickGelu": ["x"], "FastGelu": ["x", "bias"], "BiasGelu": ["x", "bias"]}
    node = helper.make_node(
        op, inputs.get(op, ["x", "w"]), ["y"], domain="com.microsoft", **attributes
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 4)) for name in "xy"]
    graph = helper.make_graph([node], "net", values[:1], values[1:], weights(w=(4, 4), bias=(4,)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(proto, tmp_path / "fused.onnx")
    model = load_model(tmp_path / "fused.onnx")
    assert op not in ops(model.proto)
    x = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], outputs(proto, x=x)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        (["x"], {}),
        (["x", ""], {}),
        (["x", "x"], {"activation": 3}),
        (["x", "x"], {"group": 1.5}),
        (["x", "x"], {"strides": "11"}),
        (["x", "x"], {"activation": "Softplus"}),
        (["x", "x"], {"activation": "LeakyRelu", "activation_params": [0.1, 0.2]}),
    ],
)
def test_a_damaged_or_unknown_node_stays_for_the_engine_to_judge(
    inputs: list[str], attributes: dict[str, object]
):
    node = helper.make_node("FusedConv", inputs, ["y"], domain="com.microsoft", **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 1, 2, 2)) for n in "xy"]
    proto = helper.make_model(helper.make_graph([node], "net", values[:1], values[1:]))
    assert replace_fused(proto, lambda _: {}) == 0
    assert [node.op_type for node in proto.graph.node] == ["FusedConv"]


def test_an_attribute_of_a_function_that_is_none_stays():
    node = helper.make_node("FusedConv", ["x", "x"], ["y"], domain="com.microsoft")
    node.attribute.add(name="strides", type=AttributeProto.INTS, ref_attr_name="own")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 1, 2, 2)) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    assert replace_fused(helper.make_model(graph, opset_imports=opsets), lambda _: {}) == 0


def test_empty_lists_are_attributes_that_are_not_given(tmp_path: Path):
    node = helper.make_node("FusedConv", ["x", "w"], ["y"], "conv", domain="com.microsoft")
    node.attribute.add(name="pads", type=AttributeProto.INTS)
    path = saved([node], {"x": (1, 2, 4, 4)}, {"y": (1, 3, 4, 4)}, tmp_path, w=(3, 2, 1, 1))
    assert ops(load_model(path).proto) == {"Conv": 1}


@pytest.mark.parametrize("opset", [11, 14, 17, 21])
def test_a_norm_is_standard_at_every_opset(opset: int, tmp_path: Path):
    inputs = ["x", "x", "gain", "", "bias"]
    node = helper.make_node("SkipLayerNormalization", inputs, ["y"], domain="com.microsoft")
    shapes = {"gain": (4,), "bias": (4,)}
    path = saved([node], {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, tmp_path, opset, **shapes)
    model = load_model(path)
    assert ops(model.proto) == {"Add": 2, "LayerNormalization": 1}
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    expected = outputs(onnx.load(path), x=x)[0]
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], expected, atol=2e-6)


NORM = """
<ir_version: 8, opset_import: ["": OPSET]>
net (float[2,4] x) => (float[2,4] y)
<float two = {2}, float epsilon = {1e-5}, float[4] gain = {1, 2, 3, 4},
 float[4] shift = {1, 1, 0, 0}> {
  mean = ReduceMean <axes = [-1]> (x)
  centred = Sub (x, mean)
  squares = Pow (centred, two)
  variance = ReduceMean <axes = [-1]> (squares)
  raised = Add (variance, epsilon)
  deviation = Sqrt (raised)
  normed = Div (centred, deviation)
  scaled = Mul (normed, gain)
  y = Add (scaled, shift)
}
"""


@pytest.mark.parametrize("opset", [11, 16])
def test_a_norm_that_the_file_s_opset_lacks_is_read(opset: int, tmp_path: Path):
    proto = parse_model(NORM.replace("OPSET", str(opset)))
    path = optimized(proto, tmp_path)
    assert [(n.domain, n.op_type) for n in onnx.load(path).graph.node] == [
        ("", "LayerNormalization")
    ]
    model = load_model(path)
    assert ops(model.proto) == {"LayerNormalization": 1}
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], outputs(proto, x=x)[0], atol=2e-6)


def test_a_model_of_fused_operators_alone_gets_an_opset(tmp_path: Path):
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    path = saved([node], {"x": (2, 4)}, {"y": (2, 4)}, tmp_path, 0)
    assert ops(load_model(path).proto) == {"Mul": 2, "Sigmoid": 1}


@pytest.mark.parametrize("shapes", [((2, 3, 3), (3,)), ((3,), (3, 3))])
def test_a_transposed_product_with_a_vector_stays(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path
):
    node = helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", transA=1)
    path = saved(
        [node], {"x": shapes[0]}, {"y": (3,) * (len(shapes[0]) - 1)}, tmp_path, w=shapes[1]
    )
    assert [node.op for node in load_model(path).graph.nodes] == ["FusedMatMul"]


def test_new_names_are_taken_by_no_input_and_no_body(tmp_path: Path):
    conv = helper.make_node(
        "FusedConv", ["x", "w"], ["y"], domain="com.microsoft", activation="Relu"
    )
    made = [helper.make_tensor_value_info("y_Conv", TensorProto.FLOAT, (1, 2, 2, 2))]
    bodies = [
        helper.make_graph([helper.make_node(op, ["y"], ["y_Conv"])], op, [], made)
        for op in ("Abs", "Neg")
    ]
    switch = helper.make_node("Cast", ["s"], ["go"], to=TensorProto.BOOL)
    chosen = helper.make_node("If", ["go"], ["z"], then_branch=bodies[0], else_branch=bodies[1])
    shapes = {"x": (1, 2, 2, 2), "s": (1,), "y_Conv_1": (1,)}
    path = saved([conv, switch, chosen], shapes, {"z": (1, 2, 2, 2)}, tmp_path, w=(2, 2, 1, 1))
    inputs = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    found = outputs(load_model(path).proto, **inputs)[0]
    np.testing.assert_allclose(found, outputs(onnx.load(path), **inputs)[0], atol=1e-6)


def test_the_branch_that_runs_is_taken_apart_too(tmp_path: Path):
    made = [helper.make_tensor_value_info("o", TensorProto.FLOAT, (2, 4))]
    bodies = [
        helper.make_graph(
            [helper.make_node("Gelu", ["x"], ["o"], domain="com.microsoft")], "b", [], made
        )
        for _ in range(2)
    ]
    true = helper.make_node("Constant", [], ["go"], value=helper.make_tensor("", 9, [], [1]))
    node = helper.make_node("If", ["go"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    path = saved([true, node], {"x": (2, 4)}, {"y": (2, 4)}, tmp_path)
    assert ops(load_model(path).proto)["Erf"] == 1


def test_what_standard_operators_lack_stays(tmp_path: Path):
    node = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transBatchA=1)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 2, 2)) for n in "xy"]
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "kept.onnx")
    assert [node.op for node in load_model(tmp_path / "kept.onnx").graph.nodes] == ["FusedMatMul"]


def test_what_is_fitted_to_one_processor_is_told() -> None:
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17, "com.microsoft.nchwc": 1]>
        net (float[1,8,4,4] x, float[8,8,1,1] w) => (float[1,8,4,4] y) {
          [in] a = com.microsoft.nchwc.ReorderInput(x)
          [conv_nchwc] b = com.microsoft.nchwc.Conv(a, w)
          [out] y = com.microsoft.nchwc.ReorderOutput <channels = 8> (b)
        }
    """)
    assert note_on_layouts(graph) == (
        "ONNX Runtime's optimizer has fitted this file to one processor: 'conv_nchwc' "
        "(com.microsoft.nchwc.Conv), which no rule quantizes; give the model as it was before "
        "ONNX Runtime optimized it"
    )
