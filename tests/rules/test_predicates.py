"""Each condition of the rule language, true and false, and the outputs and targets of rules."""

import pytest
from onnx import TensorProto

from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.rules.matcher import find_matches, match_rules
from placer.rules.sites import find_sites
from tests.rules.small_rules import HEAD, NET, rule

PATTERN = """
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
  clip: {op: Clip, inputs: [c, low, "high?"], output: r}
  silu: {op: Sigmoid, inputs: [r], output: y, optional: true}
"""


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("elements: {tensor: w, from_axis: 1, at_least: 288, at_most: 288}", True),
        ("elements: {tensor: w, from_axis: 1, at_most: 287}", False),
        ("elements: {tensor: w, at_least: 1152}", True),  # all of them
        ("elements: {tensor: w, from_axis: 4, at_most: 1}", False),  # no such axis
        ("elements: {tensor: b, at_most: 9}", False),  # absent
        ("elements: {tensor: low, at_least: 1, at_most: 1}", True),  # a scalar
        ("elements: {tensor: low, from_axis: 1, at_most: 1}", False),
        ("kernel_covers_strides: conv", True),
        ("kernel_covers_strides: clip", False),
        ("kernel_covers_strides: silu", False),  # absent
        ("is_graph_input: x", True),
        ("is_graph_input: c", False),
        ("is_graph_input: w", False),
        ("is_graph_input: b", False),  # absent
        ("is_graph_output: r", True),
        ("is_graph_output: y", True),  # the optional node is absent, so y is r
        ("is_graph_output: c", False),
        ("is_graph_output: b", False),
        ("consumers: {tensor: r, at_least: 2}", True),  # a node and a graph output
        ("consumers: {tensor: r, at_least: 3}", False),
        ("consumers: {tensor: r, at_most: 1}", False),
        ("consumers: {tensor: c, at_least: 1, at_most: 1}", True),
        ("consumers: {tensor: b, at_most: 0}", True),
        ("written_by: {tensor: c, op: [Relu, Conv]}", True),
        ("written_by: {tensor: r, op: [Relu, Conv]}", False),
        ("written_by: {tensor: x, op: [Relu, Conv]}", False),  # a graph input
        ("written_by: {tensor: r, op: [Conv], past: [Clip]}", True),
        ("written_by: {tensor: r, op: [Conv], past: [Relu]}", False),
        ("read_by: {tensor: c, op: [Relu, Clip]}", True),
        ("read_by: {tensor: c, op: [Conv]}", False),
        ("read_by: {tensor: r, op: [Relu]}", False),  # a graph output, too
        ("read_by: {tensor: r, op: [Relu], among_others: true}", True),
        ("read_by: {tensor: c, op: [Clip], changes_rank: true}", False),
        ("read_by: {tensor: b, op: [Relu]}", False),  # absent
        ("varies: c", True),
        ("varies: w", False),
        ("varies: b", False),  # absent
        ("read_before: {tensor: c, node: clip}", True),
        ("read_before: {tensor: r, node: conv}", False),  # a graph output
        ("read_before: {tensor: c, node: clip, with_parts: true}", True),
        ("written_apart: [x, c]", True),
        ("written_apart: [c, c]", False),
        ("written_apart: [x, b]", False),  # absent
        ("channels_last: c", True),
        ("channels_last: x", False),
        ("one_piece: c", False),  # no Slice writes it
        ("different: [x, c]", True),
        ("different: [x, x]", False),
        ("different: [x, b]", False),  # absent
        ("values: {tensor: low, at_least: 0, at_most: 0}", True),
        ("values: {tensor: high, at_least: 6}", True),
        ("values: {tensor: high, at_most: 5.5}", False),
        ("values: {tensor: low, at_least: 0.5}", False),
        ("values: {tensor: x, at_least: -1000}", False),  # no constant
        ("values: {tensor: w, at_least: -1000}", False),  # more than 1024 elements
        ("values: {tensor: b, at_least: -1000}", False),
        ("attribute: {node: conv, name: pads, at_least: 0}", True),
        ("attribute: {node: conv, name: pads, at_least: 1, at_most: 1}", True),
        ("attribute: {node: conv, name: pads, at_least: 2}", False),
        ("attribute: {node: conv, name: pads, equals: [1, 1, 1, 1], at_most: 0}", False),
        ("attribute: {node: conv, name: group, at_most: 1, default: 1}", True),
        ("attribute: {node: conv, name: group, at_most: 1}", False),  # absent, no default
        ("attribute: {node: conv, name: auto_pad, at_least: 0}", False),  # no number
        ("attribute: {node: conv, name: auto_pad, equals: NOTSET}", True),
        ("attribute: {node: silu, name: alpha, at_least: 0, default: 1}", False),  # absent node
        ("any_of: [{is_graph_input: c}, {is_initializer: w}]", True),
        ("any_of: [{is_graph_input: c}, {is_initializer: x}]", False),
        ("any_of: [{any_of: [{is_activation: w}]}, {never: {is_graph_input: c}}]", True),
        ("never: {any_of: [{is_graph_input: c}, {is_initializer: w}]}", False),
    ],
)
def test_conditions(condition: str, holds: bool):
    assert bool(match_rules(graph_of_text(NET), [rule(PATTERN, condition)])) is holds


def test_all_values_of_a_constant_count():
    graph = graph_of_text(
        f"""
        {HEAD}
        g (float[4] x) => (float[4] out) <float[4] k = {{-1, 2, 3, 6}}> {{ [mul1] out = Mul(x, k) }}
        """
    )
    pattern = "\n  mul: {op: Mul, inputs: [x, k], output: y}"

    def matched(limits: str) -> bool:
        condition = f"values: {{tensor: k, {limits}}}"
        return bool(match_rules(graph, [rule(pattern, condition)]))

    assert matched("at_least: -1, at_most: 6")
    assert not matched("at_least: 0")
    assert not matched("at_most: 5")


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ("{2}, int64[1] start2 = {2}, int64[1] end2 = {9}", True),
        ("{2}, int64[1] start2 = {-4}, int64[1] end2 = {6}", True),
        ("{2}, int64[1] start2 = {3}, int64[1] end2 = {6}", False),  # a gap
        ("{3}, int64[1] start2 = {2}, int64[1] end2 = {6}", False),  # an overlap
        ("{2}, int64[1] start2 = {2}, int64[1] end2 = {5}", False),  # the last is in no part
    ],
)
def test_slices_that_cut_a_tensor_into_parts(ends: str, holds: bool):
    graph = graph_of_text(
        f"""
        {HEAD}
        g (float[1,6] x) => (float[1,n] a, float[1,m] b)
        <int64[1] axis = {{1}}, int64[1] start1 = {{0}}, int64[1] end1 = {ends}> {{
          [slice1] a = Slice(x, start1, end1, axis)
          [slice2] b = Slice(x, start2, end2, axis)
        }}
        """
    )
    pattern = "\n  slice: {op: Slice, inputs: [x, '_*'], output: y}"
    assert bool(match_rules(graph, [rule(pattern, "sliced_apart: y")])) is holds
    assert match_rules(graph, [rule(pattern, "one_piece: y")])
    # Values in another file are not known here.
    graph.initializers["axis"].data_location = TensorProto.EXTERNAL
    assert not match_rules(graph, [rule(pattern, "sliced_apart: y")])


@pytest.mark.parametrize(
    ("shape", "perm", "holds"),
    [
        ("4,1,5", "[1, 0, 2]", True),
        ("4,1,5", "[0, 2, 1]", True),
        ("4,1,5", "[2, 1, 0]", False),
        ("4,2,5", "[1, 0, 2]", False),
    ],
)
def test_a_transpose_that_moves_axes_of_length_1_keeps_the_order(
    shape: str, perm: str, holds: bool
):
    text = f"g (float[{shape}] x) => (float[a,b,c] y) {{ [tr1] y = Transpose<perm = {perm}>(x) }}"
    pattern = "\n  tr: {op: Transpose, inputs: [x], output: y}"
    graph = graph_of_text(f"{HEAD} {text}")
    assert bool(match_rules(graph, [rule(pattern, "keeps_order: tr")])) is holds


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        ("LayerNormalization(x, other)", True),
        ("LayerNormalization(z, other)", False),
        ("LayerNormalization<epsilon = 0.5>(x, other)", False),
        ("Add(x, other)", False),
    ],
)
def test_a_node_repeats_an_earlier_one_of_the_same_tensor_and_attributes(other: str, holds: bool):
    text = f"""
        {HEAD} g (float[2,4] x, float[2,4] z) => (float[2,4] w, float[2,4] y)
        <float[4] gain = {{1}}, float[4] other = {{2}}> {{
          [first] w = {other} [norm] y = LayerNormalization(x, gain)
        }}
    """
    pattern = '\n  op: {op: LayerNormalization, inputs: [x, "_*"], output: y}'
    found = match_rules(graph_of_text(text), [rule(pattern, "repeats: op")])
    assert [match.nodes["op"].name for match in found] == (["norm"] if holds else [])


@pytest.mark.parametrize(
    ("factor", "holds"),
    [
        ("Mul(x, gain)", True),
        ("Div(x, gain)", True),
        ("Div(gain, x)", False),
        ("Add(x, gain)", False),
        ("Mul(x, gain) [tr] y = Transpose<perm = [0, 1]>(m)", False),  # A gain for each channel.
        ("Mul(x, half) [tr] y = Transpose<perm = [0, 1]>(m)", True),
    ],
)
def test_a_constant_factor_moves_to_the_parts_that_are_taken_behind_it(factor: str, holds: bool):
    written = "m" if "[tr]" in factor else "y"
    text = f"""
        {HEAD} g (float[2,4] x) => (float[2,2] a, float[2,2] b)
        <float[4] gain = {{1, 2, 3, 4}}, float half = {{0.5}}, int64[2] halves = {{2, 2}}> {{
          [f] {written} = {factor} [cut] a, b = Split<axis = 1>(y, halves)
        }}
    """
    pattern = "\n  op: {op: Split, inputs: [y, _], output: [a, b]}"
    assert bool(match_rules(graph_of_text(text), [rule(pattern, "moved_factor: y")])) is holds


@pytest.mark.parametrize(
    ("behind", "holds"),
    [
        ("[n1] out = Sub(x, y)", True),
        ("[n1] out = Sub(other, y)", False),
        ("[n1] d = Sub(x, other) [n2] out = Mul(d, y)", False),
        ("[n1] e = Add(y, c) [n2] s = Sqrt(e) [n3] out = Div(x, s)", True),
        ("[n1] m = Mul(other, other) [n2] v = Sub(y, m) [n3] out = Pow(v, root)", True),
        ("[n1] out = Pow(y, two)", False),
        ("[n1] e = Mul(y, c) [n2] out = Div(x, e)", True),
        ("[n1] out = Div(y, c)", False),
        ("[n1] s = Sigmoid(y) [n2] out = Mul(x, s)", False),  # A gate.
        ("[n1] w = Add(x, y) [n2] out = Sqrt(w)", False),  # No statistic, but a map.
    ],
)
def test_a_mean_is_a_statistic_of_a_norm_if_it_shifts_or_scales(behind: str, holds: bool):
    text = f"""
        {HEAD} g (float[1,4,8,8] x, float[1,4,1,1] other) => (float[1,4,?,?] out)
        <float c = {{0.1}}, float two = {{2}}, float root = {{-0.5}}> {{
          [mean] y = GlobalAveragePool(x) {behind}
        }}
    """
    pattern = "\n  op: {op: GlobalAveragePool, inputs: [x], output: y}"
    assert bool(match_rules(graph_of_text(text), [rule(pattern, "norm_statistic: y")])) is holds


@pytest.mark.parametrize(("types", "holds"), [("[bool]", True), ("[float, int64]", False)])
def test_a_tensor_is_told_by_its_element_type(types: str, holds: bool):
    text = f"{HEAD} g (float[2] x) => (bool[2] y) {{ [op] y = Less(x, x) }}"
    pattern = '\n  op: {op: Less, inputs: [x, "_"], output: y}'
    where = f"type: {{tensor: y, one_of: {types}}}"
    assert bool(match_rules(graph_of_text(text), [rule(pattern, where)])) is holds


@pytest.mark.parametrize(
    ("opset", "node", "holds"),
    [
        (17, "ReduceMean<axes = [-1]>(x)", True),
        (17, "ReduceMean<axes = [2]>(x)", True),
        (17, "ReduceMean<axes = [1]>(x)", False),
        (17, "ReduceMean<axes = [1, 2]>(x)", False),
        (17, "ReduceMean(x)", False),
        (18, "ReduceMean(x, last)", True),
        (18, "ReduceMean(x, n)", False),
        (17, "Softmax(x)", True),
        (17, "Softmax<axis = 2>(x)", True),
        (17, "Softmax<axis = 1>(x)", False),
        (17, "Slice(x, one, two, last)", True),
        (17, "Slice(x, one, two, one)", False),
        (17, "Slice(x, one, two)", False),
    ],
)
def test_operators_along_axes_are_told_by_them(opset: int, node: str, holds: bool):
    text = f"""
        {HEAD} g (float[4,2,5] x, int64[1] n) => (float[a,b,c] y)
        <int64[1] last = {{-1}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{ [op] y = {node} }}
    """.replace('"": 17', f'"": {opset}')
    pattern = '\n  op: {op: [ReduceMean, Slice, Softmax], inputs: [x, "_*"], output: y}'
    assert bool(match_rules(graph_of_text(text), [rule(pattern, "over_last_axis: op")])) is holds


def test_the_second_operand_of_min_is_no_axis():
    """TensorRT issue 2466: tf2onnx writes a norm with Min of infinity."""
    text = f"{HEAD} g (float[4,5] x) => (float[4,5] y) <float e = {{inf}}> {{ [op] y = Min(x, e) }}"
    pattern = '\n  op: {op: [ReduceMean, Min], inputs: [x, "_?"], output: y}'
    assert not match_rules(graph_of_text(text), [rule(pattern, "over_last_axis: op")])


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        ("<axes = [-1]>(x)", "(x, last)", True),
        ("<axes = [2]>(x)", "(x, last)", True),
        ("<axes = [1]>(x)", "(x, last)", False),
        ("<axes = [2]>(x)", "(x, both)", False),
        ("<axes = [1, 2]>(x)", "(x, both)", False),
        ("(x)", "(x)", False),
        ("<axes = [2]>(x)", "(x, given)", False),
    ],
)
def test_reduce_operators_along_one_axis_are_told_from_others(first: str, second: str, holds: bool):
    text = f"""
        {HEAD} g (float[4,5,5] x, int64[1] given) => (float[a,b,c] y)
        <int64[1] last = {{-1}}, int64[2] both = {{1, 2}}> {{
          [max] m = ReduceMax{first} [sum] t = ReduceSum{second} [op] y = Sub(m, t)
        }}
    """
    pattern = """
  max: {op: ReduceMax, inputs: [x], output: m}
  sum: {op: ReduceSum, inputs: [x, "_?"], output: t}
  op: {op: Sub, inputs: [m, t], output: y}"""
    found = match_rules(graph_of_text(text), [rule(pattern, "over_one_axis: [max, sum]")])
    assert bool(found) is holds


@pytest.mark.parametrize(
    ("node", "holds"),
    [
        ("MatMul(x, z)", True),
        ('Einsum<equation = "bij,bjk->bik">(x, z)', True),
        ('Einsum<equation = "b i j, b k j -> b i k">(x, z)', True),
        ('Einsum<equation = "...ij,...jk->...ik">(x, z)', True),
        ('Einsum<equation = "bij,bjk->bki">(x, z)', False),
        ('Einsum<equation = "bij,bij->bij">(x, z)', False),
        ("Add(x, z)", False),
    ],
)
def test_products_of_matrices_are_told_by_their_equation(node: str, holds: bool):
    text = f"{HEAD} g (float[2,4,4] x, float[2,4,4] z) => (float[a,b,c] y) {{ [op] y = {node} }}"
    pattern = "\n  op: {op: [MatMul, Einsum, Add], inputs: [x, z], output: y}"
    graph = graph_of_text(text)
    assert bool(match_rules(graph, [rule(pattern, "batched_product: op")])) is holds


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("consumers: {tensor: q, at_least: 1}", "where: unknown tensor 'q'"),
        ("values: {tensor: q, at_least: 1}", "where: unknown tensor 'q'"),
        ("pads_only: {tensor: q, last: 2}", "where: unknown tensor 'q'"),
        ("sliced_apart: q", "where: unknown tensor 'q'"),
        ("keeps_order: q", "where: unknown node 'q'"),
        ("over_last_axis: q", "where: unknown node 'q'"),
        ("over_one_axis: [q]", "where: unknown node 'q'"),
        ("is_graph_output: q", "where: unknown tensor 'q'"),
        ("any_of: [{never: {is_graph_input: q}}]", "where: unknown tensor 'q'"),
        ("any_of: []", "any_of"),
        ("attribute: {node: conv, name: group}", "give equals, at_least or at_most"),
    ],
)
def test_mistakes_in_conditions_are_named(condition: str, expected: str):
    with pytest.raises(InputError) as caught:
        rule(PATTERN, condition)
    assert expected in str(caught.value)


SPLIT = graph_of_text(
    f"""
    {HEAD}
    g (float[1,6,4,4] x) => (float[1,2,4,4] a, float[1,2,4,4] c, float[1,4,4,4] n) {{
      [split1] l, m, r = Split<axis = 1, num_outputs = 3>(x)
      [relu1] a = Relu(l)
      [relu2] b = Relu(m)
      [relu3] c = Relu(r)
      [join] n = Concat<axis = 1>(b, l)
    }}
    """.replace('"": 17', '"": 18')
)


def test_a_variadic_output_takes_all_that_remain():
    pattern = "\n  split: {op: Split, inputs: [x], output: [first, 'others*']}"
    quantize = "int8: {quantize: ['others.*', 'first.*'], default: true}"
    (match,) = match_rules(SPLIT, [rule(pattern, layouts=quantize)])
    assert match.tensors == {"x": ("x",), "first": ("l",), "others": ("m", "r")}
    assert match.edges("others.*", SPLIT) == (Edge("m", "relu2", 0), Edge("r", "relu3", 0))
    assert match.edges("first.*", SPLIT) == (Edge("l", "relu1", 0), Edge("l", "join", 1))


@pytest.mark.parametrize(
    ("outputs", "bound"),
    [
        ("[p, q, s]", {"p": ("l",), "q": ("m",), "s": ("r",)}),
        ("[_, q]", {"q": ("m",)}),
        ("p", {"p": ("l",)}),
        ("[p, q, s, 'none*']", {"p": ("l",), "q": ("m",), "s": ("r",), "none": ()}),
        ("[p, q, s, none]", None),  # there is no fourth output
    ],
)
def test_outputs_are_named_in_order(outputs: str, bound: dict[str, tuple[str, ...]] | None):
    found = list(
        find_matches(SPLIT, rule(f"\n  split: {{op: Split, inputs: [x], output: {outputs}}}"))
    )
    if bound is None:
        assert found == []
    else:
        assert [match.tensors for match in found] == [{"x": ("x",), **bound}]


def test_a_second_output_leads_to_the_next_node():
    pattern = """
  split: {op: Split, inputs: [x], output: [_, m, _]}
  act: {op: Relu, inputs: [m], output: y}
"""
    (match,) = match_rules(SPLIT, [rule(pattern)])
    assert match.nodes["act"].name == "relu2"


@pytest.mark.parametrize(
    ("pads", "last", "holds"),
    [
        ("0, 0, 1, 0, 0, 0, 2, 1", 2, True),
        ("0, 0, 0, 1, 0, 0, 0, 0", 1, True),
        ("0, 0, 1, 0, 0, 0, 0, 0", 1, False),
        ("0, 0, 0, 0, 0, 1, 0, 0", 2, False),  # at the end of the second axis
        ("0, 1, 0, 0, 0, 0, 0, 0", 9, True),  # more than there are
    ],
)
def test_pads_of_other_axes_than_the_last_are_found(pads: str, last: int, holds: bool):
    graph = graph_of_text(
        f"{HEAD} g (float[1,4,4,4] x) => (float[1,a,b,c] y) "
        f"<int64[8] p = {{{pads}}}> {{ [pad1] y = Pad(x, p) }}"
    )
    pattern = "\n  pad: {op: Pad, inputs: [x, pads], output: y}"
    found = find_sites(graph, [rule(pattern, f"pads_only: {{tensor: pads, last: {last}}}")])
    assert bool(found) == holds


@pytest.mark.parametrize(
    ("made", "holds"),
    [
        ("y = Relu(x)", True),
        ("y = Sigmoid(x)", True),
        ("y = Tanh(x)", False),
        ("y = Clip(x, zero)", True),
        ("y = Clip(x, below)", False),
        ("y = Clip(x)", False),
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", False),
        ("r = Relu(x) y = MaxPool<kernel_shape = [2, 2]>(r)", True),
        ('r = Relu(x) y = Resize<mode = "cubic">(r, , twice)', False),
        ('r = Relu(x) y = Resize<mode = "linear">(r, , twice)', True),
    ],
)
def test_what_operators_leave_nothing_below_zero(made: str, holds: bool):
    graph = graph_of_text(
        f"{HEAD} g (float[1,4,4,4] x) => (float[1,a,b,c] z) "
        "<float zero = {0}, float below = {-1}, float[4] twice = {1, 1, 2, 2}> "
        f"{{ {made} [abs1] z = Abs(y) }}"
    )
    pattern = "\n  abs: {op: Abs, inputs: [y], output: z}"
    assert bool(find_sites(graph, [rule(pattern, "non_negative: y")])) is holds


@pytest.mark.parametrize(
    ("behind", "holds"),
    [
        ("out = Transpose(y)", True),
        ("v = Reshape(y, shape) out = Concat<axis = 0>(v, v)", True),
        ("v, w = Split<axis = 1>(y) m = Neg(v) n = Squeeze(w) out = Concat<axis = 1>(m, n)", True),
        ("v = Neg(y) out = Transpose(v)", False),
        ("out = Reshape(z, y)", False),  # says where elements go and is none of them
    ],
)
def test_what_leaves_the_graph_behind_nodes_that_move_elements(behind: str, holds: bool):
    shape = "2" if behind.endswith("(z, y)") else "2,4"
    graph = graph_of_text(
        f"{HEAD} g (int64[{shape}] x, int64[2,4] z) => (int64[a,b] out) "
        f"<int64[2] shape = {{4, 2}}> {{ y = Relu(x) {behind} }}"
    )
    pattern = "\n  relu: {op: Relu, inputs: [x], output: y}"
    assert bool(find_sites(graph, [rule(pattern, "leaves: y")])) is holds


@pytest.mark.parametrize(("enough", "holds"), [("false", False), ("true", True)])
def test_one_of_a_variadic_name_may_be_enough(enough: str, holds: bool):
    graph = graph_of_text(f"""{HEAD} g (float[1,4] x) => (float[1,8] out) {{
      [relu1] r = Relu(x)
      [join] out = Concat<axis = 1>(x, r)
    }}""")
    condition = f"written_by: {{tensor: xs, op: [Relu], among_others: {enough}}}"
    joined = rule('\n  join: {op: Concat, inputs: ["xs*"], output: y}\n', condition)
    assert bool(find_matches(graph, joined)) is holds


@pytest.mark.parametrize(
    ("writer", "holds"),
    [
        ("Add(x, k)", True),
        ("Add(k, x)", True),
        ("Sub(x, k)", True),
        ("Sub(k, x)", False),
        ("Add(x, x)", False),
        ("Mul(x, k)", False),
    ],
)
def test_a_writer_may_have_to_read_a_constant(writer: str, holds: bool):
    graph = graph_of_text(
        f"{HEAD} g (float[2,4] x) => (float[2,4] out) <float k = {{3}}> "
        f"{{ s = {writer} out = Relu(s) }}"
    )
    condition = "written_by: {tensor: s, op: [Add, Sub], with_constant: true}"
    matched = rule("\n  relu: {op: Relu, inputs: [s], output: y}\n", condition)
    assert bool(find_matches(graph, matched)) is holds


@pytest.mark.parametrize(("places", "holds"), [("", True), ("[1]", False), ("[1,1]", True)])
def test_readers_may_have_to_change_the_number_of_dimensions(places: str, holds: bool):
    graph = graph_of_text(f"""{HEAD} g (float[2,4] x) => (float out)
    <int64{places} i = {{0}}> {{
      [relu1] r = Relu(x)
      [gather1] g = Gather<axis = 1>(r, i)
      [sum1] out = ReduceSum<keepdims = 0>(g)
    }}""")
    condition = "read_by: {tensor: y, op: [Gather], changes_rank: true}"
    matched = rule("\n  relu: {op: Relu, inputs: [x], output: y}\n", condition)
    assert bool(find_matches(graph, matched)) is holds
