"""Reading a Q/DQ model back: the float graph behind it and the placement that its pairs are."""

from functools import cache
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from placer.graph import Edge, Graph
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.qdq.extract import ExtractedModel, extract_placement
from placer.quantization import EMPTY, Placement, Range, Scheme
from placer.quantization.placement import ScaleGroup

HEAD = '<ir_version: 9, opset_import: ["": 17]>'
TENSORRT = Scheme(activation="int8", symmetric=True, bias="float")
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")
NET = f"""
{HEAD}
g (float[1,4,8,8] x) => (float[1,8,8,8] out, float[1,4,8,8] s, float[1,4,8,8] d)
<float[4,4,1,1] w = {{0.5}}, float[4,4,3,3] v = {{0.25}}, float[4] b = {{1,2,3,4}},
 float[4,1,1] k = {{2,3,4,5}}> {{
  [conv1] a = Conv(x, w, b)
  [relu1] r = Relu(a)
  [conv2] c = Conv<pads = [1, 1, 1, 1]>(r, v)
  [add1] s = Add(c, x)
  [conv3] d = Conv(s, w)
  [mul1] m = Mul(d, k)
  [join] out = Concat<axis = 1>(m, s)
}}
"""
CONSTANTS = ("w", "v", "k")


def read(proto: onnx.ModelProto) -> tuple[ExtractedModel, Graph]:
    found = extract_placement(proto)
    return found, found.graph({}, Path("model.onnx"))


def assert_same_graph(graph: Graph, expected: Graph) -> None:
    """Nodes, tensors, edges and the types of all that nodes read or write."""
    for node, other in zip(graph.nodes, expected.nodes, strict=True):
        assert (node.name, node.op, node.inputs, node.outputs) == (
            (other.name, other.op, other.inputs, other.outputs)
        )
        assert node.attributes == other.attributes
    assert (graph.inputs, graph.outputs) == (expected.inputs, expected.outputs)
    assert graph.consumers == expected.consumers
    for tensor in expected.consumers:
        assert graph.type_of(tensor) == expected.type_of(tensor), tensor
        assert (tensor in graph.initializers) == (tensor in expected.initializers)
        if tensor in expected.initializers:
            assert graph.initializers[tensor].dims == expected.initializers[tensor].dims


@cache
def net(folder: Path) -> tuple[Model, Inserter]:
    path = folder / "net.onnx"
    onnx.save(parse_model(NET), path)
    model = load_model(path)
    return model, Inserter(model, TENSORRT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("net")


def expected_placement(placement: Placement, ranges: dict[str, float]) -> Placement:
    """Groups of the same range are one; a constant's edges are a group of their own."""
    groups: dict[object, set[Edge]] = {}
    for group in placement.groups:
        tensors = {edge.tensor for edge in group.edges}
        activations = tensors - set(CONSTANTS)
        limit = max((ranges[tensor] for tensor in activations), default=None)
        for edge in group.edges:
            key = edge.tensor if edge.tensor in CONSTANTS else limit
            groups.setdefault(key, set()).add(edge)
    return Placement.of_scales(ScaleGroup(frozenset(edges)) for edges in groups.values())


@st.composite
def net_placements(draw: st.DrawFn, graph: Graph) -> Placement:
    """Any edges of the net but its input's type and bias, in up to three groups."""
    groups: dict[object, set[Edge]] = {}
    edges = sorted(edge for edges in graph.consumers.values() for edge in edges)
    for edge in edges:
        group = draw(st.sampled_from([None, 1, 2, 3]))
        if group is not None and edge.tensor != "b":
            key = edge.tensor if edge.tensor in CONSTANTS else group
            groups.setdefault(key, set()).add(edge)
    return Placement.of_groups(groups.values())


@pytest.mark.slow
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_what_was_inserted_is_found_again(folder: Path, data: st.DataObject):
    model, inserter = net(folder)
    placement = data.draw(net_placements(model.graph))
    ranges = {t: data.draw(st.sampled_from([1.0, 2.0, 3.0])) for t in model.graph.consumers}
    proto = inserter.insert(placement, {t: Range(-r, r) for t, r in ranges.items()})
    found, graph = read(proto)
    assert found.placement == expected_placement(placement, ranges)
    assert_same_graph(graph, model.graph)
    assert found.structure == extract_placement(model.proto).structure


def test_a_float_model_has_the_empty_placement(folder: Path):
    model, _ = net(folder)
    found, graph = read(model.proto)
    assert found.placement == EMPTY
    assert_same_graph(graph, model.graph)


def test_weights_keep_their_name_and_float_type(folder: Path):
    model, _ = net(folder)
    placement = Placement.of([Edge("w", "conv1", 1), Edge("w", "conv3", 1), Edge("v", "conv2", 1)])
    for scheme in (TENSORRT, TENSORRT.model_copy(update={"per_channel": False})):
        found, graph = read(Inserter(model, scheme).insert(placement, {}))
        assert found.placement == placement
        assert graph.type_of("v") == model.graph.type_of("v")
        assert graph.initializers["v"].data_type == onnx.TensorProto.INT8


def test_a_quantized_bias_is_an_edge_too(folder: Path):
    model, _ = net(folder)
    placement = Placement.of([Edge("x", "conv1", 0), Edge("w", "conv1", 1)])
    found, graph = read(Inserter(model, ORT).insert(placement, {"x": Range(-1, 2)}))
    assert found.placement.edges == placement.edges | {Edge("b", "conv1", 2)}
    assert_same_graph(graph, model.graph)


def test_a_quantized_graph_output_is_found_under_its_name(folder: Path):
    model, inserter = net(folder)
    s = [Edge("s", "", 1), Edge("s", "conv3", 0)]
    proto = inserter.insert(Placement.of(s), {"s": Range(-1, 1)})
    assert "s/float" in {tensor for node in proto.graph.node for tensor in node.output}
    found, graph = read(proto)
    assert found.placement == Placement.of(s)
    assert graph.producer["s"].name == "add1"
    assert graph.edges_of("s") == model.graph.edges_of("s")


def pairs_model(body: str, more: str = "", outputs: str = "float[1,4] out") -> onnx.ModelProto:
    constants = f"float s1 = {{0.5}}, float s2 = {{0.25}}, int8 z = {{0}} {more}"
    return parse_model(f"{HEAD} g (float[1,4] x) => ({outputs}) <{constants}> {{ {body} }}")


def test_nodes_without_a_name_or_with_one_twice_get_one():
    proto = pairs_model(
        """
        q = QuantizeLinear(x, s1, z) d = DequantizeLinear(q, s1, z)
        a = Relu(d)
        [same] b = Relu(a)
        [Relu_3] c = Sigmoid(b)
        [same] e = Tanh(c)
        out = Relu(e)
        """
    )
    found, graph = read(proto)
    names = [node.name for node in graph.nodes]
    assert names == ["Relu_0", "same", "Relu_3", "Tanh_3", "Relu_4"]
    assert len(graph.by_name) == 5
    assert found.placement == Placement.of([Edge("x", "Relu_0", 0)])


def test_a_free_name_is_none_that_a_node_has():
    _, graph = read(pairs_model("a = Relu(x) [Relu_0] out = Relu(a)"))
    assert [node.name for node in graph.nodes] == ["Relu_0_", "Relu_0"]


def test_of_chained_pairs_the_last_one_counts():
    found, graph = read(
        pairs_model(
            """
            q = QuantizeLinear(x, s1, z) d = DequantizeLinear(q, s1, z)
            q2 = QuantizeLinear(d, s2, z) d2 = DequantizeLinear(q2, s2, z)
            [first] a = Relu(d)
            [second] b = Relu(d2)
            [third] out = Add(a, b)
            """
        )
    )
    groups = (ScaleGroup(frozenset([Edge("x", name, 0)])) for name in ("first", "second"))
    assert found.placement == Placement.of_scales(groups)
    assert graph.by_name["second"].inputs == ("x",)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("s1, z", "s1, z", True),
        ("s1, z", "t1, z", True),  # another initializer of the same value
        ("s1, z", "u1, z", True),  # of shape (1,)
        ("s1, z", "s1, y", True),  # another zero point of 0
        ("s1, z", "s2, z", False),
        ("s1, z", "s1, z3", False),
    ],
)
def test_pairs_of_equal_scale_and_zero_point_are_one_group(first: str, second: str, together: bool):
    found, _ = read(
        pairs_model(
            f"""
            q = QuantizeLinear(x, {first}) d = DequantizeLinear(q, {first})
            [relu] a = Relu(d)
            p = QuantizeLinear(a, {second}) e = DequantizeLinear(p, {second})
            [tanh] out = Tanh(e)
            """,
            ", float t1 = {0.5}, float[1] u1 = {0.5}, int8 y = {0}, int8 z3 = {3}",
        )
    )
    assert len(found.placement.groups) == (1 if together else 2)
    assert found.placement.edges == {Edge("x", "relu", 0), Edge("a", "tanh", 0)}


def test_scales_that_are_computed_are_told_apart_by_name():
    found, _ = read(
        pairs_model(
            """
            s = ReduceMax<keepdims = 0>(x)
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
            [relu] a = Relu(d)
            p = QuantizeLinear(a, s, z) e = DequantizeLinear(p, s, z)
            r = QuantizeLinear(e, s1, z) f = DequantizeLinear(r, s1, z)
            [tanh] b = Tanh(e)
            [sinh] c = Sinh(f)
            [add] out = Add(b, c)
            """
        )
    )
    assert sorted(len(group.edges) for group in found.placement.groups) == [1, 2]


def test_shapes_that_the_file_computes_are_known(tmp_path: Path):
    proto = parse_model(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8] x) => (float[1,8,8] y)
        <float s = {0.1}, uint8 z = {0},
         int64[1] axis = {1}, int64[1] two = {2}, int64[1] none = {0}> {
          [q] i = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(i, s, z)
          [shape] sizes = Shape(d) [size] rows = Gather(sizes, axis) [half] end = Div(rows, two)
          [upper] u = Slice(d, none, end, axis) [last] y = Tanh(u)
        }"""
    )
    assert extract_placement(proto).graph({}, tmp_path / "net.onnx").type_of("u").shape == (1, 8, 8)


def test_two_outputs_that_one_tensor_becomes():
    proto = pairs_model(
        """
        [relu] a = Relu(x)
        q = QuantizeLinear(a, s1, z) out = DequantizeLinear(q, s1, z)
        p = QuantizeLinear(a, s2, z) more = DequantizeLinear(p, s2, z)
        """,
        outputs="float[1,4] out, float[1,4] more",
    )
    found, graph = read(proto)
    assert found.outputs == graph.outputs == ("out", "out")
    assert graph.producer["out"].name == "relu"
    assert found.placement.edges == {Edge("out", "", 0), Edge("out", "", 1)}


def test_an_output_that_is_the_quantized_input():
    proto = pairs_model("q = QuantizeLinear(x, s1, z) out = DequantizeLinear(q, s1, z)")
    found, graph = read(proto)
    assert (graph.nodes, graph.inputs, graph.outputs) == ((), ("x",), ("x",))
    assert found.placement == Placement.of([Edge("x", "", 0)])


def test_a_constant_called_like_a_tensor_of_the_model_keeps_its_name():
    """Only what placer itself quantized goes by the name of the float weight."""
    proto = pairs_model(
        """
        w = DequantizeLinear(wq, s1, z)
        [add] out = Add(x, w)
        """,
        ", int8[4] wq = {1,2,3,4}",
    )
    for tensor in proto.graph.initializer:
        tensor.name = tensor.name.replace("wq", "w/quantized")
    proto.graph.node[0].input[0] = "w/quantized"
    found, graph = read(proto)
    assert graph.by_name["add"].inputs == ("x", "w/quantized")
    assert graph.type_of("w/quantized").is_float
    assert found.placement == Placement.of([Edge("w/quantized", "add", 1)])


def test_structure_tells_models_apart():
    texts = ("[a] out = Relu(x)", "[a] out = Tanh(x)", "[b] out = Relu(x)")
    protos = [pairs_model(text) for text in texts]
    protos += [pairs_model(f"[a] out = LeakyRelu<alpha = {alpha}>(x)") for alpha in (0.1, 0.2)]
    larger = pairs_model("[a] out = Relu(x)")
    larger.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    assert len({extract_placement(proto).structure for proto in (*protos, larger)}) == 6


def test_constants_of_a_pair_do_not_count_for_the_structure():
    first = pairs_model(
        "q = QuantizeLinear(x, s1, z) d = DequantizeLinear(q, s1, z) [a] out = Relu(d)"
    )
    second = pairs_model("[a] out = Relu(x)")
    assert extract_placement(first).structure == extract_placement(second).structure


@pytest.mark.parametrize(
    ("reads", "dtype"), [("Cast <to = 1> (t)", TensorProto.INT8), ("Relu(d)", TensorProto.FLOAT)]
)
def test_integers_that_a_body_reads_between_a_pair_are_no_floats(reads: str, dtype: int):
    proto = parse_model(f"""
        {HEAD}
        g (float[1,2] x, bool p) => (float[2,1] d, float[2,1] y)
        <float s = {{1}}, int8 z = {{0}}> {{
          q = QuantizeLinear(x, s, z) t = Transpose(q) d = DequantizeLinear(t, s, z)
          y = If(p) <then_branch = a () => (float[2,1] b) {{ b = {reads} }},
                     else_branch = e () => (float[2,1] c) {{ c = Identity(d) }}>
        }}""")
    graph = extract_placement(proto).graph({}, Path("model.onnx"))
    assert graph.type_of("t").dtype == dtype
