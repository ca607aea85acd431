"""Nodes that do nothing, where an engine takes them out: no layers, and pairs move past them."""

from pathlib import Path
from types import ModuleType

import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.tensorrt.offline_builder import check_model
from placer.explaining.api import explain
from placer.graph import Edge
from placer.graph.text import graph_of_text, parse_model
from placer.plan import Plan
from placer.prediction.layers.no_ops import eliminated_by_onnxruntime, without_no_ops
from placer.prediction.layers.predictor import Predictor
from placer.prediction.select import make_predictor
from placer.quantization import EMPTY, Placement
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.behaviour import Behaviour
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.small_rules import CONV, rule

# A bias of 0, a gain of 1 and a Slice of all, as networks have them that were never trained.
TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,4,4] x) => (float[1,4,4,4] out, float[1,4,4,4] other)
<float[4,4,1,1] w1 = {1}, float[1,4,1,1] zero = {0}, float one = {1}, float two = {2},
 int64[1] start = {0}, int64[1] end = {4}> {
  [bias1] a = Add(zero, x)
  [gain1] b = Mul(a, one)
  [slice1] c = Slice(b, start, end, start)
  [conv1] out = Conv(c, w1)
  [scale1] other = Mul(b, two)
}
"""


def nodes(plan: Plan) -> list[tuple[str, ...]]:
    return [layer.nodes for layer in plan.of_kind("compute")]


def test_readers_read_what_idle_nodes_read():
    left = without_no_ops(graph_of_text(TEXT))
    assert [(node.name, node.inputs[0]) for node in left.graph.nodes] == [
        ("conv1", "x"),
        ("scale1", "x"),
    ]
    # A pair before all of them is one before each reader.
    assert set(left.moved[Edge("x", "bias1", 1)]) == {Edge("x", "conv1", 0), Edge("x", "scale1", 0)}
    assert left.moved[Edge("c", "conv1", 0)] == (Edge("x", "conv1", 0),)


def test_pairs_that_come_onto_one_edge_are_one_scale():
    """Also where the tensor of one of them has another scale for another reader."""
    edges = [Edge("b", "slice1", 0), Edge("b", "scale1", 0), Edge("c", "conv1", 0)]
    placement = Placement.of_scales(ScaleGroup(frozenset([edge])) for edge in edges)
    placed = without_no_ops(graph_of_text(TEXT)).placed(placement)
    assert placed.sorted() == [[Edge("x", "conv1", 0)], [Edge("x", "scale1", 0)]]
    assert len({group.variant for group in placed.groups}) == 2


def test_what_changes_a_value_or_a_shape_or_leaves_the_graph_stays():
    text = TEXT.replace("zero = {0}", "zero = {0.5}").replace("b, two", "a, one")
    names = [node.name for node in without_no_ops(graph_of_text(text)).graph.nodes]
    assert names == ["bias1", "conv1", "scale1"]
    wider = TEXT.replace("float[1,4,1,1] zero", "float[2,4,1,1] zero")
    wider = wider.replace("float[1,4,4,4] o", "float[2,4,4,4] o")
    assert "bias1" in [node.name for node in without_no_ops(graph_of_text(wider)).graph.nodes]


@pytest.mark.parametrize(
    ("node", "stays"),
    [
        ("Slice(c, last, first, axis, back)", True),  # Reversed.
        ("Slice(c, start, end, axis, one)", False),
        ("Pad(c, shift)", True),  # One place on, as language models shift their tokens.
        ("Pad(c, none)", False),
        ("Reshape(c, same)", False),  # As in attention of Whisper and wav2vec 2.0.
    ],
)
def test_what_moves_elements_within_the_shape_stays_on_openvino_too(node, stays, tmp_path):
    engine = pytest.importorskip("placer.engines.openvino.engine", exc_type=ImportError)
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,4,4] x) => (float[1,4,4,4] out)
    <float[4,4,1,1] w1 = {{1}}, int64[1] last = {{-1}}, int64[1] first = {{-9}},
     int64[1] axis = {{3}},
     int64[1] back = {{-1}}, int64[1] start = {{0}}, int64[1] end = {{9}}, int64[1] one = {{1}},
     int64[4] same = {{1, 4, 4, 4}},
     int64[8] shift = {{0, 0, 0, 1, 0, 0, 0, -1}}, int64[8] none = {{0, 0, 0, 0, 0, 0, 0, 0}}> {{
      [conv1] c = Conv(x, w1)
      [moved] m = {node}
      [conv2] out = Conv(m, w1)
    }}
    """
    names = [node.name for node in without_no_ops(graph_of_text(text)).graph.nodes]
    assert ("moved" in names) == stays
    plan = engine.OpenVinoEngine().compile(parse_model(text), tmp_path).plan()
    assert (("moved",) in nodes(plan)) == stays


def test_a_pair_on_either_side_of_an_idle_node_is_the_same_pair():
    graph = graph_of_text(TEXT)
    behaviour = Behaviour(no_ops="removed")
    predictor = Predictor(graph, [rule(CONV)], Target(), "float", "int8", behaviour=behaviour)
    weight, before = Edge("w1", "conv1", 1), Edge("x", "bias1", 1)
    one = Placement.of([weight, before])
    other = Placement.of([weight, Edge("c", "conv1", 0), Edge("b", "scale1", 0)])
    both = Placement.of([*one.edges, *other.edges], [["x", "b", "c"]])
    plans = [predictor.predict(placement).plan for placement in (one, other, both)]
    assert plans[0] == plans[1] == plans[2]
    assert nodes(plans[0]) == [("conv1",), ("scale1",)]
    # Taking one of two equal pairs away changes nothing.
    near = predictor.predict(Placement.of([*one.edges, *other.edges]))
    gone = frozenset(group for group in near.placement.groups if before in group.edges)
    assert not predictor.vary(near, Change(gone, frozenset()))


def test_openvino_takes_them_out(tmp_path):
    engine = pytest.importorskip("placer.engines.openvino.engine", exc_type=ImportError)
    plan = engine.OpenVinoEngine().compile(parse_model(TEXT), tmp_path).plan()
    assert sorted(nodes(plan)) == [("conv1",), ("scale1",)]
    idle = {layer.name for layer in plan.of_kind("no-op")}
    assert {"bias1", "gain1", "slice1"} <= idle


IDLE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,4,4] x) => (float[1,4,4,4] out)
<float[4,4,1,1] w1 = {{1}}, float one = {{1}}, float[1,4,1,1] zeros = {{0, 0, 0, 0}},
 int64[4] same = {{1, 4, 4, 4}}, int64[1] first = {{0}}, int64[1] axis = {{3}},
 int64[1] four = {{4}}, int64[1] all = {{9223372036854775807}}> {{
  {nodes}
}}
"""


def stays_on_onnxruntime(text: str, folder: Path) -> bool:
    """Whether the node ``idle1`` is a layer, as predicted and in the optimized graph."""
    graph = without_no_ops(graph_of_text(text), eliminated_by_onnxruntime).graph
    plan = OnnxRuntimeEngine().compile(parse_model(text), folder).plan()
    built = nodes(plan)
    assert {("conv1",), ("conv2",)} <= set(built)  # It is no part of another layer.
    assert (("idle1",) in built) == ("idle1" in [node.name for node in graph.nodes])
    return ("idle1",) in built


@pytest.mark.parametrize(
    ("node", "stays"),
    [
        ("Cast<to = 1>(c)", False),  # As attention in transformers casts its Softmax.
        ("Div(c, one)", False),  # As residual blocks in diffusers scale their sums.
        ("Add(c, zeros)", True),  # More than one number.
        ("Expand(c, same)", False),
        ("Reshape(c, same)", True),
        ("Reshape(c, size)", True),  # As exporters write it for a batch that is open.
        ("Slice(c, first, all, axis)", False),
        ("Slice(c, first, four, axis)", True),  # It has an end.
    ],
)
def test_onnxruntime_takes_out_some_of_them(node, stays, tmp_path):
    chain = (
        "[conv1] a = Conv(x, w1) [exp1] c = Exp(a) [size1] size = Shape(c) "
        f"[idle1] m = {node} [conv2] out = Conv(m, w1)"
    )
    assert stays_on_onnxruntime(IDLE.format(nodes=chain), tmp_path) == stays


@pytest.mark.parametrize(("node", "stays"), [("Cast<to = 1>(x)", False), ("Div(x, one)", True)])
def test_behind_a_graph_input_onnxruntime_takes_out_casts_alone(node, stays, tmp_path):
    chain = f"[idle1] m = {node} [conv1] c = Conv(m, w1) [conv2] out = Conv(c, w1)"
    assert stays_on_onnxruntime(IDLE.format(nodes=chain), tmp_path) == stays


# PyTorch exports a Softmax in FP32, .softmax(dim=-1, dtype=torch.float32).to(q.dtype), like that.
ATTENTION = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,64,32] q, float[1,4,32,64] k, float[1,4,64,32] v) => (float[1,4,64,32] out)
<float scale = {0.2}> {
  [scores] s = MatMul(q, k)
  [scaled] t = Mul(s, scale)
  [softmax] p = Softmax<axis = -1>(t)
  [cast1] p1 = Cast<to = 1>(p)
  [cast2] p2 = Cast<to = 1>(p1)
  [product] out = MatMul(p2, v)
}
"""


POOLED_TWICE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,8,8] x) => (float[1,64,4,4] y)
<float[32,32,1,1] w = {0.1}> {
  [pool] a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
  [conv] c = Conv(a, w)
  [act] r = Relu(c)
  [again] b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
  [join] y = Concat<axis = 1>(r, b)
}
"""


def test_casts_to_the_type_they_read_are_no_layers_of_tensorrt():
    graph, target = graph_of_text(ATTENTION), Target(engine_version="10.3", typing="strong")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float16")
    plan = predictor.predict(Placement.of([])).plan
    assert nodes(plan) == [("scores", "scaled", "softmax", "product")]


def test_a_pool_that_two_branches_compute_is_one_layer_of_tensorrt():
    """As in a DLA that PyTorch has traced; the builder calls that pass "dupe layer removal"."""
    graph, target = graph_of_text(POOLED_TWICE), Target(engine_version="10.3", typing="strong")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float")
    assert nodes(predictor.predict(Placement.of([])).plan) == [("pool", "again"), ("conv", "act")]


# Both Convs compute the same only where their pairs are the same.
CONVS_TWICE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,8,8] x) => (float[1,64,8,8] y)
<float[32,32,1,1] w = {0.1}> {
  [act] r = Sigmoid(x)
  [conv] a = Conv(r, w)
  [again] b = Conv(r, w)
  [soft] c = Softmax<axis = 1>(a)
  [join] y = Concat<axis = 1>(c, b)
}
"""


@pytest.mark.parametrize(
    ("paired", "expected"),
    [
        ((), {("conv", "again"): "float"}),  # As Convs of one tensor are in any case.
        (("conv",), {("conv",): "int8", ("again",): "float"}),
        (("again",), {("conv",): "float", ("again",): "int8"}),
        (("conv", "again"), {("conv", "again"): "int8"}),
    ],
)
def test_equal_convs_are_one_layer_of_tensorrt_only_where_their_pairs_are_equal(paired, expected):
    graph, target = graph_of_text(CONVS_TWICE), Target(engine_version="10.3", typing="strong")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float")
    pairs = [Edge(tensor, name, i) for name in paired for i, tensor in enumerate("rw")]
    layers = predictor.predict(Placement.of(pairs)).plan.layers
    convs = {x.nodes: x.input_types[0] for x in layers if {"conv", "again"}.intersection(x.nodes)}
    assert convs == expected


@pytest.mark.parametrize(
    ("given", "to", "base", "stays"),
    [
        ("float", 10, "float16", False),
        ("float16", 1, "float", False),
        ("float16", 1, "float16", True),  # The input needs no conversion.
        ("float", 11, "float16", True),  # That to FP16 is another one.
    ],
)
def test_casts_of_inputs_to_the_engines_floats_are_conversions(given, to, base, stays):
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g ({given}[1,16] x) => (float[1,16] y) {{
      [cast] c = Cast<to = {to}>(x)
      [softmax] s = Softmax(c)
      [back] y = Cast<to = 1>(s)
    }}
    """)
    target = Target(engine_version="10.13", typing="strong")
    plan = make_predictor(graph, load_pack("tensorrt"), target, base).predict(EMPTY).plan
    assert (("cast",) in nodes(plan)) == stays
    converted = [(*layer.input_types, *layer.output_types) for layer in plan.of_kind("reformat")]
    assert ((given, base) in converted) == (given != base)


# As quantizers leave them that take files of TensorFlow: the file stays as it is written.
TURNED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,16] x) => (float[1,16,8,8] y)
<float s = {0.05}, float t = {0.03}, int8 z = {0}, float[16,16,1,1] w = {1}> {
  [qw] u = QuantizeLinear(w, t, z)
  [dqw] v = DequantizeLinear(u, t, z)
  [q1] a = QuantizeLinear(x, s, z)
  [dq1] b = DequantizeLinear(a, s, z)
  [turn1] c = Transpose<perm = [0, 3, 1, 2]>(b)
  [conv1] d = Conv(c, v)
  [turn2] e = Transpose<perm = [0, 2, 3, 1]>(d)
  [q2] f = QuantizeLinear(e, t, z)
  [dq2] g = DequantizeLinear(f, t, z)
  [turn3] h = Transpose<perm = [0, 3, 1, 2]>(g)
  [conv2] y = Conv(h, v)
}
"""
RELU = TURNED.replace("(e, t, z)", "(i, t, z)").replace("[q2]", "[relu1] i = Relu(e)\n  [q2]")

# Of which the third has nothing left to undo.
THREE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,24,16] x) => (float[1,16,24] y)
<float s = {0.05}, int8 z = {0}> {
  [softmax1] a = Softmax(x)
  [turn1] b = Transpose<perm = [0, 2, 1]>(a)
  [q1] c = QuantizeLinear(b, s, z)
  [dq1] d = DequantizeLinear(c, s, z)
  [turn2] e = Transpose<perm = [0, 2, 1]>(d)
  [q2] f = QuantizeLinear(e, s, z)
  [dq2] g = DequantizeLinear(f, s, z)
  [turn3] h = Transpose<perm = [0, 2, 1]>(g)
  [softmax2] y = Softmax(h)
}
"""


def turned(plan: Plan) -> set[str]:
    """The Transposes and Convs that are in layers."""
    named = {name for layer in plan.layers for name in layer.nodes}
    return {name for name in named if name.startswith(("turn", "conv"))}


@pytest.mark.builder
@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx"])
def test_transposes_that_undo_each_other_around_a_pair_are_no_layers(
    pack: str, tmp_path: Path, builder: ModuleType
):
    path = tmp_path / "model.onnx"
    for text, left in [(TURNED, {"turn1"}), (RELU, {"turn1", "turn2", "turn3"})]:
        onnx.save(parse_model(text), path)
        predicted = explain(path, pack=pack).explanation.plan
        built = check_model(builder, onnx.load(path), "sm89").plan
        assert turned(predicted) == turned(built) == {"conv1", "conv2"} | left


@pytest.mark.builder
@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx"])
def test_of_three_transposes_in_a_row_one_is_left(pack: str, tmp_path: Path, builder: ModuleType):
    path = tmp_path / "model.onnx"
    onnx.save(parse_model(THREE), path)
    assert turned(explain(path, pack=pack).explanation.plan) == {"turn3"}
    built = check_model(builder, onnx.load(path), "sm89").plan
    assert [layer.name.count("Tran") for layer in built.of_kind("compute")] == [0, 1]


@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx"])
def test_another_reader_keeps_the_first_of_them(pack: str, tmp_path: Path):
    text = TURNED.replace("8,8] y)", "8,8] y, float[1,8,8,16] o)")
    text = text.replace("[q2]", "o = Tanh(e)\n  [q2]")
    path = tmp_path / "model.onnx"
    onnx.save(parse_model(text), path)
    plan = explain(path, pack=pack).explanation.plan
    assert turned(plan) == {"conv1", "conv2", "turn1", "turn2"}
    assert any("conv2" in la.nodes and "int8" in {p.dtype for p in la.inputs} for la in plan.layers)
