"""What patterns match and how overlaps resolve."""

import pytest

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.rules.matcher import find_matches, match_rules
from placer.rules.schema import Rule


def rule(text: str) -> Rule:
    head = "why: a sentence for the test\nsource: test\n"
    return parse_text(head + text, "rule.yaml", Rule)


OPTIONAL_BEFORE = """
id: r
pattern:
  conv: {op: Conv, inputs: [y, w], output: c}
  act: {op: Relu, inputs: [x], output: y, optional: true}
layouts: {int8: {default: true}}
"""

ROW = """
id: r
pattern:
  product: {op: MatMul, inputs: [p, q], output: s}
  between:
    op: [Add, Mul]
    inputs: [s, _]
    output: m
    commutative: true
    optional: true
    repeat: true
  softmax: {op: Softmax, inputs: [m], output: y}
layouts: {float: {default: true}}
"""

CONV_RELU = """
id: conv-relu
pattern:
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
  act: {op: Relu, inputs: [c], output: y, optional: true}
layouts: {int8: {quantize: [conv.x, conv.w], default: true}}
"""

ADD = """
id: add
pattern:
  add: {op: Add, inputs: [c, r], output: y, commutative: true}
  conv: {op: Conv, inputs: [x, w], output: c}
layouts: {int8: {quantize: [add.r], default: true}}
"""

RESIDUAL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] out)
<float[4,4,1,1] wp = {1}, float[4,4,1,1] w1 = {1}> {
  [shortcut] p = Conv(x, wp)
  [conv1] c = Conv(x, w1)
  [add1] s = Add(p, c)
  [relu1] out = Relu(s)
}
"""


def test_optional_node_is_bound_where_present():
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,4,1,1] w = {1}> {
          [conv1] a = Conv(x, w)
          [relu1] b = Relu(a)
          [conv2] out = Conv(b, w)
        }
        """
    )
    bound = [{k: n.name for k, n in m.nodes.items()} for m in match_rules(graph, [rule(CONV_RELU)])]
    assert bound == [{"conv": "conv1", "act": "relu1"}, {"conv": "conv2"}]


REQUIRED = "conv: {op: Conv, inputs: [y, w], output: c}"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            ["act: {op: Relu, inputs: [x], output: y, optional: true}", REQUIRED],
            "the first node of a pattern cannot be optional",
        ),
        (
            [REQUIRED, "act: {op: Relu, inputs: [x], output: z, optional: true}"],
            "optional node 'act' needs a first input .* always bind, which 'x' is not",
        ),
        (
            ["add: {op: Add, inputs: [c, c], output: y, repeat: true}", REQUIRED],
            "the first node of a pattern cannot be optional, nor a row",
        ),
        (
            [REQUIRED, "act: {op: Relu, inputs: [x], output: y, optional: true, repeat: true}"],
            "optional node 'act' needs a first input .* which 'x' is not",
        ),
        (
            [REQUIRED, "act: {op: Relu, inputs: [_], output: d, optional: true}"],
            "optional node 'act' needs a first input .* which '_' is not",
        ),
        (
            [
                REQUIRED,
                "scale: {op: Mul, inputs: [c, s], output: d, optional: true}",
                "act: {op: Relu, inputs: [s], output: e, optional: true}",
            ],
            "optional node 'act' needs a first input .* which 's' is not",
        ),
    ],
)
def test_optional_node_whose_input_may_be_unknown_is_refused(pattern: list[str], message: str):
    nodes = "\n".join(f"  {node}" for node in pattern)
    with pytest.raises(InputError, match=message):
        rule(f"id: r\npattern:\n{nodes}\nlayouts: {{int8: {{default: true}}}}\n")


def test_optional_node_is_left_out_where_its_input_has_other_readers():
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out, float[1,4,8,8] other)
        <float[4,4,1,1] w = {1}> {
          [conv1] a = Conv(x, w)
          [relu1] out = Relu(a)
          [sigmoid1] other = Sigmoid(a)
        }
        """
    )
    (match,) = match_rules(graph, [rule(CONV_RELU)])
    assert list(match.nodes) == ["conv"]
    assert match.tensors["y"] == ("a",)
    assert match.edges("y.*", graph) == (Edge("a", "relu1", 0), Edge("a", "sigmoid1", 0))


@pytest.mark.parametrize(("order", "matched"), [(("relu", "other"), 1), (("other", "relu"), 0)])
def test_a_tensor_may_be_read_behind_what_is_matched(order: tuple[str, str], matched: int):
    pattern = CONV_RELU.replace("optional: true", "optional: false") + "read_behind: [c]\n"
    nodes = {"relu": "[relu1] r = Relu(a)", "other": "[sigmoid1] s = Sigmoid(a)"}
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,4,1,1] w = {{1}}> {{
          [conv1] a = Conv(x, w)
          {nodes[order[0]]}
          {nodes[order[1]]}
          [add1] out = Add(r, s)
        }}
        """
    )
    assert len(find_matches(graph, rule(pattern))) == matched
    assert not find_matches(graph, rule(pattern.replace("[c]\n", "[]\n")))


def test_optional_node_may_stand_before_those_that_are_not():
    pattern = rule(OPTIONAL_BEFORE)
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,4,1,1] w = {1}> {
          [relu1] a = Relu(x)
          [conv1] b = Conv(a, w)
          [conv2] out = Conv(b, w)
        }
        """
    )
    with_act, without = find_matches(graph, pattern)
    assert {name: node.name for name, node in with_act.nodes.items()} == {
        "conv": "conv1",
        "act": "relu1",
    }
    assert (list(without.nodes), without.tensors["x"]) == (["conv"], ("b",))


def test_row_of_nodes_is_as_long_as_each_is_read_once():
    pattern = rule(ROW)
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,4,4] x) => (float[2,4,4] out)
        <float half = {0.5}> {
          [matmul1] a = MatMul(x, x)
          [mul1] b = Mul(half, a)
          [add1] c = Add(b, x)
          [softmax1] d = Softmax(c)
          [matmul2] e = MatMul(d, d)
          [softmax2] out = Softmax(e)
        }
        """
    )
    longest, bare = find_matches(graph, pattern)
    assert [node.name for node in longest.row("between")] == ["mul1", "add1"]
    assert (longest.row("softmax")[0].name, bare.row("between")) == ("softmax1", ())


def test_commutative_inputs_yield_a_match_per_convolution():
    found = list(find_matches(graph_of_text(RESIDUAL), rule(ADD)))
    assert [m.nodes["conv"].name for m in found] == ["shortcut", "conv1"]
    assert [m.edges("add.r", graph_of_text(RESIDUAL))[0].tensor for m in found] == ["c", "p"]


def test_each_node_belongs_to_one_match_and_larger_matches_win():
    found = match_rules(graph_of_text(RESIDUAL), [rule(CONV_RELU), rule(ADD)])
    nodes = sorted(node.name for m in found for node in m.nodes.values())
    assert nodes == ["add1", "conv1", "shortcut"]
    assert sorted(m.rule.id for m in found) == ["add", "conv-relu"]


def test_priority_beats_size():
    first = rule(CONV_RELU.replace("id: conv-relu", "id: conv-relu\npriority: 1"))
    found = match_rules(graph_of_text(RESIDUAL), [first, rule(ADD)])
    assert {m.rule.id for m in found} == {"conv-relu"}


def test_float64_tensors_are_no_match_for_nothing_quantizes_them():
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) {
          [single] a = Tanh(x)
          b = Cast<to = 11>(a)
          [double] c = Tanh(b)
          y = Cast<to = 1>(c)
        }
        """
    )
    tanh = rule(
        """
id: tanh
pattern: {tanh: {op: Tanh, inputs: [x], output: y}}
layouts: {int8: {quantize: [tanh.x], default: true}}
"""
    )
    assert [match.anchor.name for match in match_rules(graph, [tanh])] == ["single"]


def test_variadic_input_takes_all_branches_and_float_tensors_only():
    concat = rule(
        """
id: concat
pattern:
  concat: {op: Concat, inputs: ["xs*"], output: y}
layouts: {int8: {quantize: [concat.xs], default: true}}
"""
    )
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4] a, float[1,4] b, int64[2] n, int64[2] m)
          => (float[1,12] out, int64[4] shape) {
          [floats] out = Concat<axis = 1>(a, b, a)
          [integers] shape = Concat<axis = 0>(n, m)
        }
        """
    )
    (match,) = match_rules(graph, [concat])
    assert match.nodes["concat"].name == "floats"
    assert match.edges("concat.xs", graph) == (
        Edge("a", "floats", 0),
        Edge("b", "floats", 1),
        Edge("a", "floats", 2),
    )


@pytest.mark.parametrize(
    ("condition", "matched"),
    [
        ("is_initializer: w", True),
        ("is_activation: w", False),
        ("never: {is_activation: w}", True),
        ("depthwise: conv", True),
        ("rank: {tensor: x, one_of: [4]}", True),
        ("rank: {tensor: x, one_of: [3, 5]}", False),
        ("dim: {tensor: x, axis: 1, multiple_of: 4}", True),
        ("dim: {tensor: x, axis: 1, multiple_of: 16}", False),
        ("dim: {tensor: x, axis: -1, at_least: 8, at_most: 8}", True),
        ("dim: {tensor: x, axis: 7, at_least: 1}", False),
        ("same_shape: [x, y]", True),
        ("same_shape: [x, w]", False),
        ("square: x", True),
        ("attribute: {node: conv, name: group, equals: 4}", True),
        ("attribute: {node: conv, name: kernel_shape, equals: [3, 3]}", False),
        ("attribute: {node: conv, name: dilations, equals: [1, 1], default: [1, 1]}", True),
        ("sole_consumer: x", True),
        ("sole_consumer: y", False),
        ("scalar: w", False),
    ],
)
def test_conditions(condition: str, matched: bool):
    conditioned = rule(CONV_RELU.replace("layouts:", f"where:\n  - {condition}\nlayouts:"))
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,1,1,1] w = {1}> {
          [conv1] out = Conv<group = 4>(x, w)
        }
        """
    )
    assert bool(match_rules(graph, [conditioned])) is matched


@pytest.mark.parametrize(
    ("ops", "matched"),
    [
        ('"com.example::Swish"', ["mine"]),
        ("Swish", ["onnx"]),
        ('[Swish, "com.example::Swish"]', ["onnx", "mine"]),
        ('"other::Swish"', []),
    ],
)
def test_an_operator_of_another_domain_is_named_with_it(ops: str, matched: list[str]):
    swish = rule(f"""
id: swish
pattern:
  conv: {{op: Conv, inputs: [x, w], output: c}}
  act: {{op: {ops}, inputs: [c], output: y}}
where: [{{written_by: {{tensor: c, op: [Conv]}}}}]
layouts: {{int8: {{quantize: [act.c, y.*], default: true}}, float: {{}}}}
""")
    graph = graph_of_text("""
<ir_version: 13, opset_import: ["": 24, "com.example": 1]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] z)
<float[4,4,1,1] w = {1}, float[1,4,8,8] m> {
  [conv1] a = Conv(x, w)
  [onnx] y = Swish(a)
  [conv2] b = Conv(x, w)
  [mine] m = com.example.Swish(b)
  [relu] z = Relu(m)
}
""")
    assert [match.nodes["act"].name for match in match_rules(graph, [swish])] == matched


THREE_READERS = """
id: three
pattern:
  a: {op: Relu, inputs: [x], output: p}
  b: {op: Relu, inputs: [x], output: q}
  c: {op: Relu, inputs: [x], output: r}
layouts: {int8: {default: true}}
"""


def test_a_rule_that_fits_in_too_many_ways_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Each node of the pattern may be each of twelve: 12 + 12 * 12 + 12 * 11 * 12 are tried."""
    lines = " ".join(f"[n{i}] y{i} = Relu(x)" for i in range(12))
    graph = graph_of_text(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y0) {{ {lines} }}
    """)
    monkeypatch.setenv("PLACER_MAX_BINDINGS", "1740")
    assert len(find_matches(graph, rule(THREE_READERS))) == 12 * 11 * 10
    monkeypatch.setenv("PLACER_MAX_BINDINGS", "1739")
    expected = "rule 'three' fits this model in too many ways: more than 1,739 bindings of nodes"
    with pytest.raises(InputError, match=expected):
        find_matches(graph, rule(THREE_READERS))
