"""A predicted plan depends on what a model computes, not on how its file is written."""

from collections import Counter
from collections.abc import Iterable
from random import Random

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph import Edge, Graph, index_graph
from placer.graph.text import graph_of_text, parse_model
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_motion import HEAD, graph_texts, placements

RULES = load_pack("tensorrt").rules
Layers = Counter[tuple[object, ...]]

# Two residual blocks whose Adds have a Conv on either side.
RESIDUAL = f"""
{HEAD} g (float[1,4,4,4] t0) => (float[1,4,4,4] t9) <float[4,4,1,1] w4 = {{0.5}}> {{
  [n0] t1 = Conv(t0, w4) [n1] t2 = Relu(t1) [n2] t3 = Conv(t2, w4) [n3] t4 = Conv(t0, w4)
  [n4] t5 = Add(t3, t4) [n5] t6 = Relu(t5) [n6] t7 = Conv(t6, w4) [n7] t8 = Conv(t5, w4)
  [n8] t9 = Add(t8, t7)
}}
"""
TEXTS = st.one_of(graph_texts(), st.just(RESIDUAL))


def layers_of(graph: Graph, placement: Placement, version: str, back: dict[str, str]) -> Layers:
    """The layers without their order, and conversions by what they convert.

    ``back``: what nodes and tensors are called in the layers returned.
    """
    target = Target(version, typing="weak")
    plan = Predictor(graph, RULES, target, "float16", "int8").predict(placement).plan

    def called(names: Iterable[str]) -> frozenset[str]:
        return frozenset(back.get(name, name) for name in names)

    return Counter(
        (
            layer.kind,
            layer.op if layer.nodes else "",
            called(layer.nodes or (port.tensor for port in layer.inputs)),
            tuple(sorted(layer.input_types)),
            tuple(sorted(layer.output_types)),
        )
        for layer in plan.layers
    )


@st.composite
def reordered(draw: st.DrawFn, text: str) -> Graph:
    """The graph of ``text`` with its nodes in another order in which each follows what it reads."""
    model, graph = parse_model(text), graph_of_text(text)
    known = {value.name for value in (*model.graph.input, *model.graph.initializer)}
    left, order = list(model.graph.node), list[onnx.NodeProto]()
    while left:
        ready = [node for node in left if known.issuperset(node.input)]
        order.append(draw(st.sampled_from(ready)))
        known.update(order[-1].output)
        left.remove(order[-1])
    del model.graph.node[:]
    model.graph.node.extend(order)
    return index_graph(model.graph, graph.types)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_order_of_nodes_in_the_file_changes_no_layer(data: st.DataObject):
    """From 8.6; older versions go by the order where two Convs could take an Add."""
    text = data.draw(TEXTS)
    graph, other = graph_of_text(text), data.draw(reordered(text))
    placement = data.draw(placements(graph))
    assert layers_of(other, placement, "10.4", {}) == layers_of(graph, placement, "10.4", {})


def test_what_is_copied_for_a_concat_serves_no_other_reader_wherever_that_is():
    nodes = ["[n2] t3 = Reshape(t2, s)", "[n3] t4 = Concat<axis = 1>(t0, t2)"]
    graphs = [
        graph_of_text(f"""
            {HEAD} g (float[1,4,4,4] t0)
            => (float[1,4,4,4] t1, float[1,4,4,4] t3, float[1,8,4,4] t4)
            <int64[4] s = {{1, 4, 4, 4}}> {{
              [n0] t1 = Relu(t0) [n1] t2 = Relu(t0) {" ".join(order)}
            }}""")
        for order in (nodes, nodes[::-1])
    ]
    group = [Edge("t0", "n1", 0), Edge("t3", "", 1), Edge("t4", "", 2)]
    first, second = (layers_of(g, Placement.of_groups([group]), "10.4", {}) for g in graphs)
    assert first == second


def test_what_is_laid_out_anew_for_a_conv_serves_no_reader_that_takes_it_as_it_was():
    """A Relu behind a Reshape reads row-major integers and writes such floats."""
    nodes = ["[n1] t2 = Conv(t1, w4)", "[n2] t3 = Relu(t1)"]
    graphs = [
        graph_of_text(f"""
            {HEAD} g (float[1,4,4,4] t0) => (float[1,4,4,4] t2, float[1,4,4,4] t3)
            <int64[4] s = {{1, 4, 4, 4}}, float[4,4,1,1] w4 = {{0.5}}> {{
              [n0] t1 = Reshape(t0, s) {" ".join(order)}
            }}""")
        for order in (nodes, nodes[::-1])
    ]
    pairs = Placement.of_groups([[Edge("t0", "n0", 0)], [Edge("w4", "n1", 1)]])
    first, second = (layers_of(g, pairs, "10.4", {}) for g in graphs)
    assert first == second
    copies = [kind for kind, _, tensors, *_ in first if kind == "reformat" and tensors == {"t3"}]
    assert copies == []


@settings(max_examples=60, deadline=None)
@given(st.data(), st.randoms(use_true_random=False))
def test_names_change_no_layer(data: st.DataObject, random: Random):
    text = data.draw(TEXTS)
    model, graph = parse_model(text), graph_of_text(text)
    old = [*graph.by_name, *graph.types]
    new = dict(zip(old, random.sample(range(len(old)), len(old)), strict=True))
    names = {name: f"x{number}" for name, number in new.items()} | {"": ""}
    for node in model.graph.node:
        node.name = names[node.name]
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = names[value.name]
    other = index_graph(model.graph, {names[name]: kind for name, kind in graph.types.items()})
    placement = data.draw(placements(graph))
    groups = (
        [Edge(names[e.tensor], names[e.node], e.input_index) for e in group.edges]
        for group in placement.groups
    )
    back = {name: original for original, name in names.items()}
    renamed = layers_of(other, Placement.of_groups(groups), "8.4", back)
    assert renamed == layers_of(graph, placement, "8.4", {})


@pytest.mark.parametrize("op", ["Mul", "Add", "Max"])
@pytest.mark.parametrize("version", ["8.6", "10.4"])
def test_an_operand_that_carries_a_pair_is_read_as_integers_at_either_place(op: str, version: str):
    first, second = (
        graph_of_text(f"""
            {HEAD} g (float[1,4,4,4] t0) => (float[1,4,4,4] t3) {{
              [n0] t1 = Sigmoid(t0) [n1] t2 = MaxPool<kernel_shape = [1, 1]>(t0)
              [n2] t3 = {op}({operands})
            }}""")
        for operands in ("t1, t2", "t2, t1")
    )
    places = [(Edge("t2", "n2", i), Edge("t0", "n1", 0)) for i in (1, 0)]
    layers = [
        layers_of(graph, Placement.of_groups([edges]), version, {})
        for graph, edges in zip((first, second), places, strict=True)
    ]
    assert layers[0] == layers[1]
    assert not any(kind == "dequantize" for kind, *_ in layers[0])


@pytest.mark.parametrize("version", ["8.6", "10.4"])
def test_parts_of_channels_are_copied_into_a_joined_tensor_whoever_cuts_them(version: str):
    cuts = [
        "[cut] t1, t2 = Split<axis = 1>(t0)",
        "[cut] t1 = Slice(t0, zero, two, one) [cut2] t2 = Slice(t0, two, four, one)",
    ]
    found = []
    for cut in cuts:
        graph = graph_of_text(f"""
            {HEAD} g (float[1,4,4,4] t0) => (float[1,4,4,4] t5)
            <float[2,2,1,1] w = {{1}}, float[4,4,1,1] v = {{1}}, int64[1] zero = {{0}},
             int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}}> {{
              {cut} [conv] t3 = Conv(t2, w) [join] t4 = Concat<axis = 1>(t1, t3)
              [last] t5 = Conv(t4, v)
            }}""")
        found.append(layers_of(graph, Placement.of(()), version, {}))
    split, slices = ({key[2] for key in layers if key[0] == "reformat"} for layers in found)
    assert split == slices >= {frozenset({"t1"})}


@pytest.mark.parametrize("version", ["8.6", "10.4"])
@pytest.mark.parametrize(
    "cut",
    [
        "[cut] t1, t2 = Split<axis = {0}>(t0)",
        "[cut] t1 = Slice(t0, zero, two, axis) [cut2] t2 = Slice(t0, two, four, axis)",
    ],
)
def test_an_axis_may_count_from_the_last_one(cut: str, version: str):
    first, second = (
        layers_of(
            graph_of_text(f"""
                {HEAD} g (float[1,4,4,4] t0) => (float[1,4,4,4] t4)
                <float[2,2,1,1] w = {{1}}, int64[1] axis = {{{axis}}}, int64[1] zero = {{0}},
                 int64[1] two = {{2}}, int64[1] four = {{4}}> {{
                  {cut.format(axis)} [conv] t3 = Conv(t2, w)
                  [join] t4 = Concat<axis = {axis}>(t1, t3)
                }}"""),
            Placement.of(()),
            version,
            {},
        )
        for axis in (1, -3)
    )
    assert first == second
    assert ("no-op", "NoOp", frozenset({"cut"})) in {key[:3] for key in first}
