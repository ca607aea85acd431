"""Bodies of If, Loop and Scan as part of one flat graph, and back: the same function and file."""

import numpy as np
import onnx.checker
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.flat import body_of, entered_bodies, flatten, nest
from placer.graph.index import index_graph, with_nodes
from placer.graph.scopes import Body
from placer.graph.text import parse_model
from tests.reference_outputs import outputs

# Both branches call their tensors and nodes alike; one weight is shared by them, one is not.
CHOICE = """
<ir_version: 8, opset_import: ["": 17]>
g (bool go, float[2,4] x) => (float[2,4] y) <float[4,4] shared = {0.5}> {
  [before] p = Relu(x)
  [choice] y = If (go) <
    then_branch = a () => (float[2,4] r) <float[4] own = {1, 2, 3, 4}> {
      [one] m = MatMul(p, shared)
      [two] n = Mul(m, own)
      [three] r = Tanh(n)
    },
    else_branch = b () => (float[2,4] r) {
      [one] m = MatMul(p, shared)
      [two] r = Neg(m)
    }
  >
}
"""
THEN, ELSE = Body("choice", "then_branch"), Body("choice", "else_branch")


def flat(text: str) -> tuple[ModelProto, dict[str, tuple[Body, ...]]]:
    proto = parse_model(text)
    return proto, flatten(proto.graph)


def bodies(proto: ModelProto) -> tuple[GraphProto, GraphProto]:
    choice = proto.graph.node[-1]
    return body_of(choice, "then_branch"), body_of(choice, "else_branch")


def names(nodes: list[NodeProto]) -> list[str]:
    return [node.name for node in nodes]


def test_a_graph_without_some_nodes_has_no_scopes_of_these():
    proto, scopes = flat(CHOICE)
    graph = index_graph(proto.graph, {}, scopes)
    rest = [graph.by_name[name] for name in ("before", "one", "two")]
    assert with_nodes(graph, rest).scopes == dict.fromkeys(["one", "two"], (THEN,))


def test_nodes_of_branches_stand_before_their_if_under_names_of_their_own():
    proto, scopes = flat(CHOICE)
    assert names(proto.graph.node) == ["before", "one", "two", "three", "one_1", "two_1", "choice"]
    assert [list(node.output) for node in proto.graph.node] == [
        *(["p"], ["m"], ["n"], ["r"], ["m_1"], ["r_1"], ["y"]),
    ]
    assert scopes == {
        **dict.fromkeys(["one", "two", "three"], (THEN,)),
        **dict.fromkeys(["one_1", "two_1"], (ELSE,)),
    }
    assert [body.output[0].name for body in bodies(proto)] == ["r", "r_1"]
    assert [tensor.name for tensor in proto.graph.initializer] == ["shared", "own"]


def test_an_initializer_goes_into_the_innermost_body_that_holds_its_readers():
    proto, scopes = flat(CHOICE)
    nest(proto.graph, scopes)
    onnx.checker.check_model(proto)
    first, second = bodies(proto)
    assert names(first.node) == ["one", "two", "three"]
    assert names(second.node) == ["one_1", "two_1"]
    constants = [proto.graph.initializer, first.initializer, second.initializer]
    assert [[t.name for t in found] for found in constants] == [["shared"], ["own"], []]


def add_pair(proto: ModelProto, tensor: str, before: int, readers: list[int]) -> None:
    """Let the nodes at ``readers`` read ``tensor`` behind a pair at the position ``before``."""
    scale = [f"{tensor}/scale", f"{tensor}/zero"]
    made = [f"{tensor}/quantized", f"{tensor}/dequantized"]
    for index in readers:
        node = proto.graph.node[index]
        node.input[list(node.input).index(tensor)] = made[1]
    pair = [
        helper.make_node("QuantizeLinear", [tensor, *scale], made[:1], f"{tensor}/QuantizeLinear"),
        helper.make_node(
            "DequantizeLinear", [made[0], *scale], made[1:], f"{tensor}/DequantizeLinear"
        ),
    ]
    nodes = list(proto.graph.node)
    kept = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend([*kept[:before], *pair, *kept[before:]])
    values = np.float32(0.1), np.uint8(0)
    proto.graph.initializer.extend(map(numpy_helper.from_array, map(np.array, values), scale))


def test_a_tensor_that_both_branches_read_is_quantized_once_and_dequantized_in_each():
    proto, scopes = flat(CHOICE)
    add_pair(proto, "p", 1, [1, 4])
    nest(proto.graph, scopes)
    onnx.checker.check_model(proto)
    first, second = bodies(proto)
    assert names(proto.graph.node) == ["before", "p/QuantizeLinear", "choice"]
    assert [names(body.node)[:2] for body in (first, second)] == [
        ["p/DequantizeLinear_1", "one"],
        ["p/DequantizeLinear", "one_1"],
    ]
    outputs(proto, go=np.array(True), x=np.ones((2, 4), np.float32))


def test_an_input_that_one_branch_reads_is_quantized_there():
    proto, scopes = flat(CHOICE.replace("MatMul(p, shared)\n      [two] r", "Abs(x) [two] r"))
    add_pair(proto, "x", 0, [4])
    nest(proto.graph, scopes)
    assert names(bodies(proto)[1].node)[:2] == ["x/QuantizeLinear", "x/DequantizeLinear"]


@pytest.mark.parametrize("returned", ["p", "shared"])
def test_a_body_returns_only_what_it_computes(returned: str):
    text = CHOICE.replace("[4,4] shared", "[2,4] shared").replace("MatMul(p, shared)", "Abs(p)")
    proto, scopes = flat(text)
    bodies(proto)[1].output[0].name = returned
    nest(proto.graph, scopes)
    last = bodies(proto)[1].node[-1]
    assert (last.op_type, list(last.input)) == ("Identity", [returned])
    outputs(proto, go=np.array(False), x=np.ones((2, 4), np.float32))


@pytest.mark.parametrize(("scanned", "fits"), [(1, True), (2, True), (0, False), (3, False)])
def test_a_scan_of_more_inputs_than_it_has_is_not_entered(scanned: int, fits: bool):
    body = onnx.parser.parse_graph("b (float[4] s, float[4] e) => (float[4] t) { t = Add(s, e) }")
    node = helper.make_node("Scan", ["x", "rows"], ["y"], body=body, num_scan_inputs=scanned)
    assert bool(entered_bodies(node)) == fits


BODIES = ["If", "Loop", "Scan"]
OPS = ["Relu", "Neg", "Tanh", "Add", *BODIES]


@st.composite
def choices(draw: st.DrawFn, depth: int = 0, visible: tuple[str, ...] = ("x",)) -> GraphProto:
    """A graph of [4] tensors, some computed by bodies; different ones may use the same names."""
    graph = GraphProto(name="g")
    known = list(visible)
    if draw(st.booleans()):
        constant = f"w{depth}"
        values = np.array(draw(st.lists(st.integers(-3, 3), min_size=4, max_size=4)), "f")
        graph.initializer.append(numpy_helper.from_array(values, constant))
        known.append(constant)
    for index in range(draw(st.integers(1, 3))):
        op = draw(st.sampled_from(OPS if depth < 2 else OPS[: -len(BODIES)]))
        name = f"t{depth}_{index}"
        if op == "If":
            parts = [draw(choices(depth + 1, tuple(known))) for _ in range(2)]
            node = helper.make_node("If", ["go" if depth else "stay"], [name])
            for attribute, part in zip(("then_branch", "else_branch"), parts, strict=True):
                node.attribute.append(helper.make_attribute(attribute, part))
        elif op in BODIES:
            body = draw(choices(depth + 1, (*known, f"s{depth}")))
            node = repeated(
                op, body, draw(st.sampled_from(known)), name, depth, draw(st.booleans())
            )
        else:
            read = [draw(st.sampled_from(known)) for _ in range(2 if op == "Add" else 1)]
            node = helper.make_node(op, read, [name], draw(st.sampled_from(["", f"n{index}"])))
        graph.node.append(node)
        known.append(name)
    made = [known[-1]] if depth else known[-2:]
    kept = [name for name in made if any(name in node.output for node in graph.node)]
    graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in kept)
    return graph


def repeated(op: str, body: GraphProto, start: str, name: str, depth: int, computed: bool):
    """A Loop or Scan of three trips, which hands on what ``body`` returns and collects it, too."""
    body.node.append(helper.make_node("Identity", [body.output[0].name], [f"all{depth}"]))
    body.output.append(helper.make_tensor_value_info(f"all{depth}", TensorProto.FLOAT, [4]))
    state = helper.make_tensor_value_info(f"s{depth}", TensorProto.FLOAT, [4])
    if op == "Scan":
        body.input.extend([state, helper.make_tensor_value_info(f"e{depth}", 1, [4])])
        axes = [0] if computed else None
        return helper.make_node(
            op, [start, "rows"], [name, f"{name}_all"],
            body=body, num_scan_inputs=1, scan_output_axes=axes,
        )  # fmt: skip
    goes_on = f"c{depth}"
    body.input.append(helper.make_tensor_value_info(f"i{depth}", TensorProto.INT64, []))
    body.input.extend([helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []), state])
    if computed:  # Else the body returns its own input.
        body.node.append(helper.make_node("Not", ["never"], [goes_on := f"d{depth}"]))
    returned = [helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []), *body.output]
    returned = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in returned]
    del body.output[:]
    body.output.extend(returned)
    return helper.make_node(op, ["trips", "always", start], [name, f"{name}_all"], body=body)


@given(choices())
@settings(max_examples=30, deadline=None)
def test_a_graph_made_flat_and_nested_again_computes_the_same(graph: GraphProto):
    for name in ("go", "stay", "always", "never"):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.BOOL, []))
    graph.input.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
    graph.input.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, [3, 4]))
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]))
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    again = ModelProto.FromString(model.SerializeToString())
    scopes = flatten(again.graph)
    made = [tensor for node in again.graph.node for tensor in node.output]
    assert len(made) == len(set(made))
    assert len({node.name for node in again.graph.node}) == len(again.graph.node) or not scopes
    nest(again.graph, scopes)
    onnx.checker.check_model(again)
    twice = ModelProto.FromString(again.SerializeToString())
    nest(twice.graph, flatten(twice.graph))
    assert twice == again
    x = np.array([-1.5, 0.0, 0.5, 2.0], np.float32)
    always = {"always": np.array(True), "never": np.array(False), "trips": np.array(3)}
    rows = np.stack([x, -x, x / 2])
    for go in (True, False):
        for stay in (True, False):
            inputs = {"go": np.array(go), "stay": np.array(stay), "x": x, "rows": rows, **always}
            for one, other in zip(outputs(model, **inputs), outputs(again, **inputs), strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
