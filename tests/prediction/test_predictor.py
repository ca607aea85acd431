"""Which layers are predicted: what fuses, what each reads and writes; and properties of all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.prediction.select import make_predictor
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET, Target
from tests.prediction.small_rules import (
    A3,
    BLOCK,
    CONV,
    FORK,
    INPUTS,
    PACK,
    TO_2,
    TO_3,
    C,
    R,
    X,
    graph_of,
    lines,
    predict,
    rule,
)
from tests.prediction.test_motion import graph_texts, moved, placements

ABSORBED = """
id: absorbed
priority: 3
pattern:
  conv: {op: Conv, inputs: [x, w], output: c}
  act: {op: Relu, inputs: [c], output: y}
layouts:
  int8:
    quantize: [conv.x, conv.w, act.c]
    default: true
    fuses:
      - {nodes: [conv, act], op: ConvAct, inputs: int8, outputs: int8, absorbs: [act.c]}
"""

TWO_CONVS = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
    "[conv1] c = Conv(x, w1) [relu1] r = Relu(c) [conv2] out = Conv(r, w1)",
)

OUT = Edge("out", "", 0)


def test_a_chain_runs_on_integers_between_its_pairs():
    prediction = predict(TWO_CONVS, [X], [R])
    assert lines(prediction) == [
        "quantize x: float -> int8",
        "conv1+relu1: int8 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]
    first, conv1, conv2, last = prediction.layers
    assert [x.layer.kind for x in prediction.layers] == [
        "quantize",
        "compute",
        "compute",
        "reformat",
    ]
    assert conv1.layer.nodes == ("conv1", "relu1")
    assert (conv1.claim.layout, conv2.claim.layout) == ("int8", "int8")
    assert (first.edges, conv1.edges, last.edges) == ((X,), (X,), (OUT,))
    assert first.claim is last.claim is None
    assert prediction.plan.estimated


def test_without_pairs_all_is_float_with_reformats_at_the_border():
    assert lines(predict(TWO_CONVS)) == [
        "reformat x: float -> float16",
        "conv1+relu1: float16 -> float16",
        "conv2: float16 -> float16",
        "reformat out: float16 -> float",
    ]
    assert lines(predict(TWO_CONVS, base="float")) == [
        "conv1+relu1: float -> float",
        "conv2: float -> float",
    ]


def test_a_quantized_graph_output_is_written_as_integers_and_dequantized():
    assert lines(predict(TWO_CONVS, [X], [R], [OUT]))[-2:] == [
        "conv2: int8 -> int8",
        "dequantize out: int8 -> float",
    ]


def test_a_pair_inside_a_layer_splits_it():
    assert lines(predict(TWO_CONVS, [X], [C], [R])) == [
        "quantize x: float -> int8",
        "conv1: int8 -> int8",
        "dequantize c: int8 -> float16",
        "relu1: float16 -> float16",
        "quantize r: float16 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]


def test_an_absorbed_pair_does_not_split_its_layer_but_must_be_there():
    rules = (*PACK, rule(ABSORBED))
    assert lines(predict(TWO_CONVS, [X], [C], [R], rules=rules))[1] == "conv1+relu1: int8 -> int8"
    assert predict(TWO_CONVS, [X], [C], [R], rules=rules).layers[1].layer.op == "ConvAct"
    assert predict(TWO_CONVS, [X], [R], rules=rules).layers[1].layer.op == "Convolution"


def test_a_weight_without_a_pair_leaves_its_conv_float():
    placement = Placement.of([X, Edge("w1", "conv2", 1), R])
    predictor = Predictor(TWO_CONVS, PACK, Target(typing="strong"), "float16", "int8")
    assert lines(predictor.predict(placement)) == [
        "quantize x: float -> int8",
        "dequantize x: int8 -> float16",
        "conv1+relu1: float16 -> float16",
        "quantize r: float16 -> int8",
        "conv2: int8 -> float16",
        "reformat out: float16 -> float",
    ]


SHORT, LONG = Edge("s", "add", 0), Edge("c", "add", 1)


def test_an_add_without_pairs_fuses_into_the_conv_that_runs_last():
    assert lines(predict(BLOCK, INPUTS, [A3])) == [
        "quantize x: float -> int8",
        "short: int8 -> float16",
        "long+add: int8, float16 -> float16",
        "quantize a: float16 -> int8",
        "conv3: int8 -> float16",
        "reformat out: float16 -> float",
    ]


def test_an_add_takes_the_conv_whose_branch_has_no_pair_and_writes_integers():
    assert lines(predict(BLOCK, INPUTS, [A3], [SHORT]))[1:3] == [
        "short: int8 -> int8",
        "long+add: int8, int8 -> int8",
    ]
    # The Conv that runs first has to wait for the other branch.
    assert lines(predict(BLOCK, INPUTS, [A3], [LONG]))[1:3] == [
        "long: int8 -> int8",
        "short+add: int8, int8 -> int8",
    ]


def test_an_add_with_pairs_on_both_branches_fuses_with_neither():
    assert lines(predict(BLOCK, INPUTS, [A3], [SHORT], [LONG]))[1:4] == [
        "short: int8 -> int8",
        "long: int8 -> int8",
        "add: int8, int8 -> int8",
    ]


def test_an_integer_residual_of_a_layer_with_float_output_is_dequantized():
    assert lines(predict(BLOCK, INPUTS, [SHORT])) == [
        "quantize x: float -> int8",
        "short: int8 -> int8",
        "dequantize s: int8 -> float16",
        "long+add: int8, float16 -> float16",
        "conv3: float16 -> float16",
        "reformat out: float16 -> float",
    ]


def test_under_weak_typing_the_residual_is_dequantized_to_fp32_and_so_is_the_sum():
    assert lines(predict(BLOCK, INPUTS, [SHORT], typing="weak")) == [
        "quantize x: float -> int8",
        "short: int8 -> int8",
        "dequantize s: int8 -> float",
        "long+add: int8, float -> float",
        "reformat a: float -> float16",
        "conv3: float16 -> float16",
        "reformat out: float16 -> float",
    ]


def test_mixed_readers_get_float_and_a_quantize_for_those_with_a_pair():
    prediction = predict(FORK, [X], [TO_2, TO_3])
    assert lines(prediction)[:5] == [
        "quantize x: float -> int8",
        "conv1: int8 -> float16",
        "quantize c: float16 -> int8",
        "conv2: int8 -> float16",
        "conv3: int8 -> float16",
    ]
    assert prediction.layers[2].edges == (TO_2, TO_3)


IMAGE = graph_of(
    "(float[1,3,4,4] x) => (float[1,4,4,4] out)",
    "[conv1] c = Conv(x, w3) [sigmoid1] s = Sigmoid(c) [conv2] out = Conv(s, w1)",
)


def test_a_conv_on_an_image_with_a_float_reader_writes_fp32_under_weak_typing_only():
    assert lines(predict(IMAGE, [X], typing="weak"))[1:3] == [
        "conv1: int8 -> float",
        "sigmoid1: float -> float",
    ]
    assert lines(predict(IMAGE, [X], typing="strong"))[1:3] == [
        "conv1: int8 -> float16",
        "sigmoid1: float16 -> float16",
    ]


def test_under_weak_typing_an_integer_conv_writes_a_graph_output_in_its_own_type():
    assert lines(predict(TWO_CONVS, [X], [R], typing="weak"))[-1] == "conv2: int8 -> float"


def test_under_weak_typing_an_integer_conv_writes_what_a_softmax_at_the_end_computes_in():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
        "[conv1] c = Conv(x, w1) [softmax1] out = Softmax<axis = 1>(c)",
    )
    ends = [lines(predict(graph, [X], typing=typing))[1:] for typing in ("weak", "strong")]
    assert ends[0] == ["conv1: int8 -> float", "softmax1: float -> float"]
    assert ends[1][0] == "conv1: int8 -> float16"


def test_reshapes_are_no_layer_and_integer_tensors_keep_their_type():
    graph = graph_of(
        "(float[1,4,4,4] x, int64[2] n) => (float[4,16] out, int64[2] m)",
        "[shape1] out = Reshape(x, n) [add1] m = Add(n, k)",
    )
    prediction = predict(graph, typing="weak")
    assert lines(prediction) == [
        "shape1: float, int64 -> float",
        "add1: int64 -> int64",
    ]
    assert [x.layer.kind for x in prediction.layers] == ["no-op", "compute"]
    assert [x.layer.op for x in prediction.layers] == ["NoOp", "Add"]


def test_a_subgraph_reads_what_it_captures_in_float():
    branch = "g () => (float[1,4,2,2] o) {{ o = {op}(p) }}"
    graph = graph_of(
        "(float[1,4,4,4] x, bool b) => (float[1,4,2,2] out)",
        "[pool1] p = MaxPool<kernel_shape = [3, 3]>(x) [if1] out = If<"
        f"then_branch = {branch.format(op='Relu')}, else_branch = {branch.format(op='Neg')}>(b)",
    )
    assert graph.edges_of("p") == (Edge("p", "if1", 1),)
    assert lines(predict(graph, [Edge("x", "pool1", 0)])) == [
        "quantize x: float -> int8",
        "pool1: int8 -> int8",
        "dequantize p: int8 -> float16",
        "if1: bool, float16 -> float16",
        "reformat out: float16 -> float",
    ]


def test_what_rules_are_not_asked_for_on_a_target_is_left_out():
    dated = rule(CONV.replace("layouts:", "when: {engine_versions: '>=10'}\nlayouts:"))

    def nodes(version: str | None) -> list[tuple[str, ...]]:
        target = Target(engine_version=version)
        predictor = Predictor(TWO_CONVS, [dated], target, "float", "int8")
        return [layer.nodes for layer in predictor.predict(EMPTY).plan.layers]

    assert nodes("8.6") == [("conv1",), ("relu1",), ("conv2",)]
    assert nodes("10.8") == nodes(None) == [("conv1", "relu1"), ("conv2",)]


@pytest.mark.parametrize(
    ("condition", "target", "met"),
    [
        ("engine_versions: '>=8.5,<11'", Target(engine_version="10.8"), True),
        ("engine_versions: '>=8.5,<11'", Target(engine_version="11.1"), False),
        ("engine_versions: '>=8.5'", Target(), True),
        ("compute_capability: '>=7.2'", Target(compute_capability="8.6"), True),
        ("compute_capability: '>=7.2'", Target(compute_capability="7.0"), False),
        ("compute_capability: '>=7.2'", Target(compute_capability="12.0"), True),
        ("typing: weak", Target(typing="weak"), True),
        ("typing: weak", Target(typing="strong"), False),
        ("typing: weak", Target(), True),
    ],
)
def test_conditions_on_the_target(condition: str, target: Target, met: bool):
    conditioned = rule(CONV.replace("layouts:", f"when: {{{condition}}}\nlayouts:"))
    assert target.meets(conditioned.when) is met


# Properties of any prediction, with the small rules and with the built-in pack.

RULES = {"small": PACK, "tensorrt": load_pack("tensorrt").rules}


@st.composite
def predictions(draw: st.DrawFn) -> tuple[Graph, Placement, Predictor]:
    graph = graph_of_text(draw(graph_texts()))
    target = Target(typing=draw(st.sampled_from(["weak", "strong"])))
    rules = RULES[draw(st.sampled_from(sorted(RULES)))]
    base = draw(st.sampled_from(["float", "float16"]))
    return graph, draw(placements(graph)), Predictor(graph, rules, target, base, "int8")


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(predictions())
def test_every_prediction_is_a_plan(case: tuple[Graph, Placement, Predictor]):
    """Every node is in one layer, and every layer reads what was written before in that type."""
    graph, placement, predictor = case
    prediction = predictor.predict(placement)
    covered = [node for layer in prediction.plan.layers for node in layer.nodes]
    assert sorted(covered) == sorted(graph.by_name)
    ready = {(tensor, "float") for tensor in graph.inputs}
    for predicted in prediction.layers:
        layer = predicted.layer
        assert {(port.tensor, port.dtype) for port in layer.inputs} <= ready, layer
        ready |= {(port.tensor, port.dtype) for port in layer.outputs}
        if layer.kind in ("compute", "no-op"):
            assert layer.nodes
            assert tuple(edge.tensor for edge in predicted.edges) == tuple(
                port.tensor for port in layer.inputs
            )
        else:
            assert len(set(predicted.edges)) == len(predicted.edges) > 0
            # A reformat of one type is a copy into a joined tensor.
            same = layer.input_types == layer.output_types
            assert not same or layer.kind in ("requantize", "reformat")
    assert {(tensor, "float") for tensor in graph.outputs} <= ready


@settings(max_examples=50, deadline=None)
@given(predictions())
def test_equal_forms_are_equal_plans(case: tuple[Graph, Placement, Predictor]):
    _, placement, predictor = case
    prediction = predictor.predict(placement)
    again = predictor.predict(moved(prediction.form))
    if again.form.canonical() == prediction.form.canonical():
        assert again.plan == prediction.plan
    assert predictor.predict(placement).plan == prediction.plan


SHAPE_IN_FP16 = rule("""
id: shape
pattern: {shape: {op: [Shape, Tanh], inputs: [x], output: y}}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [shape], op: Any, inputs: float, outputs: float, reads: [], float_type: float16}
""")


def test_a_float_type_that_a_rule_states_is_not_that_of_integers():
    graph = graph_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] out, int64[4] s)",
        "[shape] s = Shape(x) [tanh] out = Tanh(x)",
    )
    told = lines(predict(graph, rules=[SHAPE_IN_FP16], base="float"))
    assert "tanh: float -> float16" in told
    assert "shape: float -> int64" in told


def test_an_fp32_input_is_converted_before_what_takes_any_type_under_strong_typing():
    """As a candidate has it, with a Cast behind the input; else the builder chooses the type."""
    graph = graph_of(
        "(float[1,8,4,4] x) => (float[1,8,4,4] out)",
        "[gap] m = GlobalAveragePool(x) [mul1] out = Mul(x, m)",
    )
    strong = lines(predict(graph, typing="strong"))
    assert strong[:2] == ["reformat x: float -> float16", "gap: float16 -> float16"]
    assert lines(predict(graph, typing="weak"))[0] == "gap: float -> float"


@pytest.mark.parametrize("pack", ["onnxruntime", "openvino", "tensorrt"])
def test_a_scale_before_a_pool_may_be_a_node_of_which_no_rule_says_anything(pack: str):
    """The direction classifier of PP-OCRv4 on ONNX Runtime: HardSwish in parts, and a pool."""
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,8,8] x) => (float[1,8,4,4] y)
    <float[8,8,1,1] w = {1}, float three = {3}, float zero = {0}, float six = {6}> {
      [conv] c = Conv(x, w) [shift] s = Add(c, three) [clip] h = Clip(s, zero, six)
      [gate] m = Mul(c, h) [scale] d = Div(m, six)
      [pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)
    }""")
    spans = make_predictor(graph, load_pack(pack), ANY_TARGET, "float").spans
    assert any({"scale", "pool"} <= span for span in spans)
