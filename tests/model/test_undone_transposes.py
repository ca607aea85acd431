"""Transposes that others undo: what is left, and that outputs are the same numbers."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from placer.graph.edit import remove_dead_nodes
from placer.graph.text import parse_model
from placer.model import load_model
from placer.model.passes.undone_transposes import take_out_undone

Save = Callable[..., Path]
HEAD = '<ir_version: 9, opset_import: ["": 18]>\n'

# A Conv with a bias, an activation and a gate by itself, as tf2onnx leaves them.
BLOCK = """
g (float[1,4,6,5] x) => (float[1,8,5,4] out)
<float[4,4,1,1] w1 = {1}, float[4] b1 = {1, 2, 3, 4}, int64[2] axes = {1, 2},
 int64[8] pads = {0, 1, 0, 0, 0, 1, 0, 0}, float low = {0}, float high = {6}> {
  [conv1] c1 = Conv(x, w1)
  [back1] t1 = Transpose<perm = [0, 2, 3, 1]>(c1)
  [bias1] s = Add(t1, b1)
  [clip] r = Clip(s, low, high)
  [gate] h = Mul(s, r)
  [pad] p = Pad(h, pads)
  [mean] m = ReduceMean<keepdims = 1>(p, axes)
  [there1] t2 = Transpose<perm = [0, 3, 1, 2]>(m)
  [conv2] c2 = Conv(t2, w1)
  [back2] t3 = Transpose<perm = [0, 2, 3, 1]>(c2)
  [product] q = Mul(p, t3)
  [there2] t4 = Transpose<perm = [0, 3, 1, 2]>(q)
  [conv3] c3 = Conv(t4, w1)
  [back3] out = Transpose<perm = [0, 2, 3, 1]>(c3)
}"""


def outputs(proto: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return ReferenceEvaluator(proto).run(None, {"x": x})


def test_biases_and_gates_follow_their_convs(save: Save) -> None:
    path = save(HEAD + BLOCK)
    model = load_model(path)
    assert "took out 4 Transpose nodes that others undo" in model.notes
    assert "folded 1 Add nodes into the weights before them" in model.notes
    assert Counter(node.op for node in model.graph.nodes) == {
        "Conv": 3, "Clip": 1, "Mul": 2, "Pad": 1, "GlobalAveragePool": 1, "Transpose": 1,
    }  # fmt: skip
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 5)).astype(np.float32)
    (found,), (expected,) = outputs(model.proto, x), outputs(onnx.load(path), x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


STAYS = {
    "a reader that keeps the order": """
        [there] t = Transpose<perm = [0, 2, 3, 1]>(x)
        [norm] y = LayerNormalization<axis = -1>(t, w)
        [back] out = Transpose<perm = [0, 3, 1, 2]>(y)""",
    "another tensor beside": """
        [there] t = Transpose<perm = [0, 2, 3, 1]>(x)
        [sum] y = Add(t, z)
        [back] out = Transpose<perm = [0, 3, 1, 2]>(y)""",
    "another order": """
        [there] t = Transpose<perm = [0, 2, 3, 1]>(x)
        [relu] y = Relu(t)
        [back] out = Transpose<perm = [0, 2, 3, 1]>(y)""",
}


@pytest.mark.parametrize("nodes", STAYS.values(), ids=STAYS.keys())
def test_others_stay(nodes: str) -> None:
    proto = parse_model(
        f"{HEAD}g (float[1,4,4,4] x, float[1,4,4,4] z) => (float[1,4,4,4] out)"
        f"<float[4] w = {{1, 2, 3, 4}}> {{{nodes}}}"
    )
    before = proto.SerializeToString()
    assert take_out_undone(proto.graph) == 0
    assert proto.SerializeToString() == before


FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
UNARY = ("Relu", "Sigmoid", "Neg", "Tanh")
SHAPES = {
    True: [(2, 1, 1), (1, 2, 1, 1), (3,), (1, 1, 3, 1), (), (1,)],
    False: [(2,), (1, 1, 1, 2), (3, 1), (3, 1, 1), (), (1, 1)],
}


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Random nodes on tensors of two orders, with Transposes between them and some as outputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    nodes: list[onnx.NodeProto] = []
    constants: list[TensorProto] = []
    there = {True: ["x"], False: []}  # Tensors by whether channels come first.

    def constant(array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, f"k{len(constants)}"))
        return constants[-1].name

    def add(op: str, inputs: list[str], first: bool, **attributes: object) -> None:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        there[first].append(nodes[-1].output[0])

    kinds = ["turn", "turn", "turn", "unary", "add", "scale", "concat", "mean", "slice", "pad"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=4, max_size=14)):
        first = draw(st.booleans()) if there[False] else True
        source = draw(st.sampled_from(there[first][-3:]))
        channels = 1 if first else 3
        if kind == "turn":
            add("Transpose", [source], not first, perm=LAST if first else FIRST)
        elif kind == "unary":
            add(draw(st.sampled_from(UNARY)), [source], first)
        elif kind == "add":
            add(
                draw(st.sampled_from(("Add", "Mul"))),
                [source, draw(st.sampled_from(there[first]))],
                first,
            )
        elif kind == "scale":
            shape = draw(st.sampled_from(SHAPES[first]))
            add("Add", [source, constant(rng.normal(size=shape).astype(np.float32))], first)
        elif kind == "concat":
            # Halves of the channels of two tensors, so that all tensors are of one size.
            other = draw(st.sampled_from(there[first]))
            add("Concat", [source, other], first, axis=channels)
            whole = there[first].pop()
            ends = [constant(np.array([n], np.int64)) for n in (1, 3, channels)]
            add("Slice", [whole, *ends], first)
        elif kind == "mean":
            axes = constant(np.array([2, 3] if first else [1, 2], np.int64))
            add("ReduceMean", [source, axes], first, keepdims=1)
            mean = there[first].pop()
            add("Mul", [source, mean], first)
        elif kind == "slice":
            ends = [constant(np.array([n], np.int64)) for n in (0, 2, channels)]
            add("Slice", [source, *ends], first)
        else:
            pads = np.zeros(8, np.int64)
            pads[2 if first else 1] = 1
            add("Pad", [source, constant(pads)], first)
            padded = there[first].pop()
            ends = [constant(np.array([n], np.int64)) for n in (1, 4, 2 if first else 1)]
            add("Slice", [padded, *ends], first)
    written = [node.output[0] for node in nodes]
    others = [t for t in there[True] + there[False] if t in written]
    chosen = draw(st.lists(st.sampled_from(others), max_size=2))
    left = list(dict.fromkeys([*chosen, written[-1]]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3, 3])],
        [helper.make_tensor_value_info(t, TensorProto.FLOAT, [None] * 4) for t in left],
        constants,
    )
    remove_dead_nodes(graph)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_outputs_stay_the_same(proto: onnx.ModelProto) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    gone = take_out_undone(changed.graph)
    count = Counter(n.op_type for n in proto.graph.node)["Transpose"]
    assert Counter(n.op_type for n in changed.graph.node)["Transpose"] == count - gone
    x = np.random.default_rng(1).normal(size=(1, 2, 3, 3)).astype(np.float32)
    onnx.checker.check_model(changed, full_check=True)
    for found, expected in zip(outputs(changed, x), outputs(proto, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert take_out_undone(changed.graph) == 0


def test_names_in_bodies_are_not_given_again(save: Save):
    path = save(f"""{HEAD}
    g (float[1,4,6,5] x, bool c) => (float[1,4,4,3] y, float[1,4,6,5] z)
    <float[4,4,2,2] w = {{1}}> {{
      k = Conv(x, w) a = Transpose<perm = [0, 2, 3, 1]>(k) b = Relu(a)
      e = Transpose<perm = [0, 3, 1, 2]>(b) y = Conv(e, w)
      z = If(c)<then_branch = t () => (float[1,4,6,5] o) {{ inner = Neg(x) o = Neg(inner) }},
        else_branch = f () => (float[1,4,6,5] o) {{ o = Abs(x) }}>
    }}""")
    proto = onnx.load(path)
    then = next(a.g for a in proto.graph.node[-1].attribute if a.name == "then_branch")
    then.node[0].output[0] = then.node[1].input[0] = "b/turned"
    onnx.save(proto, path)
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Conv", "Relu", "Conv", "If"]
    onnx.checker.check_model(model.proto)
