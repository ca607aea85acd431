"""Where pairs move before layers fuse: Q backward, DQ forward, and what stops them."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placer.common.yaml_file import parse_text
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.motion import NormalForm, Passage, Scale, move_pairs, scales_of
from placer.prediction.layers.passages import find_passages
from placer.quantization import EMPTY, Placement
from placer.rules.matcher import Matches
from placer.rules.schema import Rule

HEAD = '<ir_version: 9, opset_import: ["": 17]>'
RULES = tuple(
    parse_text(f"why: a sentence for the test\nsource: test\n{text}", "rule.yaml", Rule)
    for text in (
        """
id: pass
pattern: {op: {op: [MaxPool, Reshape], inputs: [x, "_*"], output: y}}
motion: {before: x, after: y}
layouts: {follow: {default: true}}
""",
        """
id: join
pattern: {op: {op: Concat, inputs: ["xs*"], output: y}}
motion: {before: xs, after: y}
layouts: {follow: {default: true}}
""",
        """
id: part
pattern: {op: {op: Split, inputs: [x, "_?"], output: ["ys*"]}}
motion: {before: x, after: ys}
layouts: {follow: {default: true}}
""",
    )
)


def normal_form(placement: Placement, passages: Sequence[Passage]) -> NormalForm:
    return move_pairs(scales_of(placement), passages)


def form(graph: Graph, *groups: list[Edge]) -> NormalForm:
    placement = Placement.of_groups(groups)
    return normal_form(placement, find_passages(Matches(graph), RULES))


def partition(found: NormalForm) -> set[frozenset[Edge]]:
    """The pairs by scale; no tensor goes through two of them."""
    assert not found.second
    return {frozenset(edge for edge, _ in group) for group in found.canonical()}


CHAIN = f"""
{HEAD}
g (float[1,4,8,8] x) => (float[1,4,4,4] out) <float[4,4,1,1] w = {{1}}, int64[4] s = {{1,4,4,4}}> {{
  [conv1] c = Conv(x, w)
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
  [shape1] r = Reshape(p, s)
  [conv2] out = Conv(r, w)
}}
"""
C, P, R = Edge("c", "pool1", 0), Edge("p", "shape1", 0), Edge("r", "conv2", 0)


@pytest.mark.parametrize("given_edge", [C, P, R])
def test_a_pair_anywhere_in_a_chain_moves_to_all_of_it(given_edge: Edge):
    assert partition(form(graph_of_text(CHAIN), [given_edge])) == {frozenset({C, P, R})}


def test_a_pair_stops_where_a_node_does_not_commute():
    found = form(graph_of_text(CHAIN), [Edge("x", "conv1", 0)])
    assert partition(found) == {frozenset({Edge("x", "conv1", 0)})}


def test_unequal_scales_on_both_sides_stay_apart():
    found = form(graph_of_text(CHAIN), [C], [R])
    # The Q on r moves back as far as there is no other pair.
    assert partition(found) == {frozenset({C}), frozenset({P, R})}


def test_nothing_quantized_has_an_empty_form():
    found = normal_form(EMPTY, find_passages(Matches(graph_of_text(CHAIN)), RULES))
    assert (found.scales, found.second, found.canonical()) == ({}, {}, frozenset())


EXCLUSIVE = parse_text(
    """
id: pass
why: a sentence for the test
source: test
pattern: {op: {op: MaxPool, inputs: [x], output: y}}
motion: {before: x, after: y, exclusive: true}
layouts: {follow: {default: true}}
""",
    "rule.yaml",
    Rule,
)


@pytest.mark.parametrize(
    ("inputs", "outputs", "nodes", "given", "moved"),
    [
        # Past a node that alone reads its input, and past one that reads a graph input.
        ("x", "y", "[tanh1] t = Tanh(x) [pool1] y = MaxPool{}(t)", "y->", "t->pool1"),
        ("x", "y, z", "[pool1] y = MaxPool{}(x) [tanh1] z = Tanh(x)", "y->", "x->pool1"),
        # Not where something else reads the input, too.
        ("x", "y, z", "[tanh1] t = Tanh(x) [pool1] y = MaxPool{}(t) [exp1] z = Exp(t)", "y->", ""),
        # Forward, but not to a tensor that both leaves the graph and is read.
        ("x", "y", "[pool1] y = MaxPool{}(x)", "x->pool1", "y->"),
        ("x", "y, z", "[pool1] y = MaxPool{}(x) [tanh1] z = Tanh(y)", "x->pool1", ""),
    ],
)
def test_exclusive_motion(inputs: str, outputs: str, nodes: str, given: str, moved: str):
    typed = [", ".join(f"float[1,4,8,8] {n}" for n in s.split(", ")) for s in (inputs, outputs)]
    body = nodes.format("<kernel_shape = [1, 1]>")
    graph = graph_of_text(f"{HEAD} g ({typed[0]}) => ({typed[1]}) {{ {body} }}")
    edges = [edge for edges in graph.consumers.values() for edge in edges]

    def named(text: str) -> set[Edge]:
        return {e for e in edges if text and f"{e.tensor}->{e.node}" == text}

    passages = find_passages(Matches(graph), [EXCLUSIVE])
    found = normal_form(Placement.of(named(given)), passages)
    assert set(found.scales) == named(given) | named(moved)


UNEQUAL = f"""
{HEAD}
g (float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] out) <float[4,8,1,1] w = {{1}}> {{
  [join1] y = Concat<axis = 1>(x, z)
  [conv1] out = Conv(y, w)
}}
"""


def test_a_scale_for_each_channel_stays_behind_the_concat_that_it_comes_from():
    rule = parse_text(
        """
id: join
why: a sentence for the test
source: test
pattern: {op: {op: Concat, inputs: ["xs*"], output: y}}
motion: {before: xs, after: y, per_channel: true}
layouts: {follow: {default: true}}
""",
        "rule.yaml",
        Rule,
    )
    left, right = Edge("x", "join1", 0), Edge("z", "join1", 1)
    placement = Placement.of_groups([[left], [right]])
    found = normal_form(placement, find_passages(Matches(graph_of_text(UNEQUAL)), [rule]))
    assert found.scales[Edge("y", "conv1", 0)] == Scale(frozenset({"x", "z"}))
    assert not found.second


FORK = f"""
{HEAD}
g (float[1,4,8,8] x) => (float[1,4,4,4] a, float[1,4,4,4] b) <float[4,4,1,1] w = {{1}}> {{
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
  [conv1] a = Conv(p, w)
  [conv2] b = Conv(p, w)
}}
"""
X, A, B = Edge("x", "pool1", 0), Edge("p", "conv1", 0), Edge("p", "conv2", 0)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[A, B]], {frozenset({X, A, B})}),
        # Two groups of the same tensor have the same range.
        ([[A], [B]], {frozenset({X, A, B})}),
        ([[A]], {frozenset({A})}),
        ([[A, Edge("a", "", 0)], [B]], {frozenset({A, Edge("a", "", 0)}), frozenset({B})}),
        # DQ moves forward to every reader that has no pair.
        ([[X]], {frozenset({X, A, B})}),
        ([[X], [A]], {frozenset({X, B}), frozenset({A})}),
    ],
    ids=["one scale", "equal ranges", "float reader", "two scales", "forward", "forward past one"],
)
def test_readers_must_agree_before_a_q_moves_back(
    groups: list[list[Edge]], expected: set[frozenset[Edge]]
):
    assert partition(form(graph_of_text(FORK), *groups)) == expected


def test_q_moves_back_only_if_graph_outputs_carry_it_too():
    text = FORK.replace("float[1,4,4,4] b)", "float[1,4,4,4] b, float[1,4,4,4] p)")
    graph, output = graph_of_text(text), Edge("p", "", 2)
    assert partition(form(graph, [A, B])) == {frozenset({A, B})}
    assert partition(form(graph, [A, B, output])) == {frozenset({X, A, B, output})}


JOIN = f"""
{HEAD}
g (float[1,4,8,8] x) => (float[1,4,8,8] out, float[1,4,8,8] more)
<float[4,4,1,1] w = {{1}}, float[4,8,1,1] v = {{1}}> {{
  [conv1] a = Conv(x, w)
  [conv2] b = Conv(x, w)
  [join1] y = Concat<axis = 1>(a, b)
  [conv3] out = Conv(y, v)
  [conv4] more = Conv(b, w)
}}
"""
A1, B1, B4 = Edge("a", "join1", 0), Edge("b", "join1", 1), Edge("b", "conv4", 0)
Y = Edge("y", "conv3", 0)


def test_a_q_behind_a_concat_moves_to_each_input():
    assert partition(form(graph_of_text(JOIN), [Y])) == {frozenset({A1, B1, Y})}


def test_inputs_of_one_scale_pass_a_concat():
    assert partition(form(graph_of_text(JOIN), [A1, B1])) == {frozenset({A1, B1, Y})}


@pytest.mark.parametrize("groups", [[[A1], [B1]], [[A1]]], ids=["unequal", "one of two"])
def test_inputs_of_unequal_scales_do_not_pass_a_concat(groups: list[list[Edge]]):
    assert partition(form(graph_of_text(JOIN), *groups)) == set(map(frozenset, groups))


def test_a_q_moved_onto_another_pair_is_a_second_scale():
    found = form(graph_of_text(JOIN), [Y], [B1])
    assert found.scales[A1] == found.scales[Y] == found.second[B1] == found.last(B1)
    assert found.scales[B1] != found.scales[Y]
    assert set(found.second) == {B1}
    assert found.last(B4) is None


def test_inputs_of_one_scale_keep_a_q_of_another_behind_the_concat():
    found = form(graph_of_text(JOIN), [A1, B1], [Y])
    assert partition(found) == {frozenset({A1, B1}), frozenset({Y})}


def test_a_q_passes_a_split_once_all_parts_carry_it():
    graph = graph_of_text(
        f"""
        {HEAD}
        g (float[1,4,8,8] x) => (float[1,2,8,8] l, float[1,2,8,8] r) {{
          [split1] a, b = Split<axis = 1>(x)
          [relu1] l = Relu(a)
          [relu2] r = Relu(b)
        }}
        """
    )
    x, a, b = Edge("x", "split1", 0), Edge("a", "relu1", 0), Edge("b", "relu2", 0)
    assert partition(form(graph, [a])) == {frozenset({a})}
    assert partition(form(graph, [a], [b])) == {frozenset({a}), frozenset({b})}
    assert partition(form(graph, [a, b])) == {frozenset({x, a, b})}
    assert partition(form(graph, [x])) == {frozenset({x, a, b})}


def test_constants_of_a_concat_do_not_stop_a_q():
    graph = graph_of_text(
        f"""
        {HEAD}
        g (float[1,4] x) => (float[1,8] out) <float[1,4] k = {{1}}> {{
          [join1] y = Concat<axis = 1>(x, k)
          [relu1] out = Relu(y)
        }}
        """
    )
    x, y = Edge("x", "join1", 0), Edge("y", "relu1", 0)
    assert partition(form(graph, [y])) == {frozenset({x, y})}


# Random graphs of nodes that pairs pass (MaxPool, Reshape, Concat, Split) and others.


@st.composite
def graph_texts(draw: st.DrawFn) -> str:
    """Text of a graph of up to seven nodes whose tensors are t0, t1, ..., of shape (1, C, 4, 4)."""
    channels = [4]
    lines: list[str] = []
    constants: dict[str, str] = {}

    def pick(allowed: list[int]) -> int:
        return draw(st.sampled_from(allowed))

    for index in range(draw(st.integers(1, 7))):
        source = pick(list(range(len(channels))))
        width = channels[source]
        alike = [i for i, c in enumerate(channels) if c == width]
        ops = ["conv", "relu", "pool", "reshape", "concat", "add"]
        op = draw(st.sampled_from([*ops, "split"] if width % 2 == 0 else ops))
        made = [f"t{len(channels)}"]
        widths = [width]
        if op == "conv":
            constants[f"w{width}"] = f"float[4,{width},1,1] w{width} = {{0.5}}"
            call, widths = f"Conv(t{source}, w{width})", [4]
        elif op == "relu":
            call = f"Relu(t{source})"
        elif op == "pool":
            call = f"MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t{source})"
        elif op == "reshape":
            constants[f"s{width}"] = f"int64[4] s{width} = {{1,{width},4,4}}"
            call = f"Reshape(t{source}, s{width})"
        elif op == "concat":
            other = pick(list(range(len(channels))))
            call, widths = f"Concat<axis = 1>(t{source}, t{other})", [width + channels[other]]
        elif op == "add":
            call = f"Add(t{source}, t{pick(alike)})"
        else:
            made, widths = [*made, f"t{len(channels) + 1}"], [width // 2] * 2
            call = f"Split<axis = 1>(t{source})"
        lines.append(f"[n{index}] {', '.join(made)} = {call}")
        channels += widths
    body = " ".join(lines)
    read = set(re.findall(r"\bt\d+\b", " ".join(line.split(" = ", 1)[1] for line in lines)))
    leaves = [i for i in range(1, len(channels)) if f"t{i}" not in read]
    outputs = sorted({*leaves, *draw(st.sets(st.integers(1, len(channels) - 1), max_size=1))})
    declared = ", ".join(f"float[1,{channels[i]},4,4] t{i}" for i in outputs)
    held = f"<{', '.join(constants.values())}>" if constants else ""
    return f"{HEAD} g (float[1,4,4,4] t0) => ({declared}) {held} {{ {body} }}"


def edges_of(graph: Graph) -> list[Edge]:
    """All edges that may carry a pair."""
    tensors = [t for t, kind in graph.types.items() if kind.is_float]
    return sorted(edge for t in tensors for edge in graph.edges_of(t))


@st.composite
def placements(draw: st.DrawFn, graph: Graph) -> Placement:
    """Any edges in up to three groups; a constant's pair has a scale of its own."""
    groups: dict[object, set[Edge]] = {}
    for edge in edges_of(graph):
        group = draw(st.sampled_from([None, None, 1, 2, 3]))
        if group is not None:
            key = edge.tensor if edge.tensor in graph.initializers else group
            groups.setdefault(key, set()).add(edge)
    return Placement.of_groups(groups.values())


@st.composite
def placed(draw: st.DrawFn) -> tuple[str, Placement]:
    """A graph's text and a placement in it."""
    text = draw(graph_texts())
    return text, draw(placements(graph_of_text(text)))


def moved(found: NormalForm) -> Placement:
    """The pairs of a normal form as a placement."""
    groups: dict[int, set[Edge]] = {}
    for edge, scale in found.scales.items():
        groups.setdefault(scale, set()).add(edge)
    return Placement.of_groups(groups.values())


def is_distinct(placement: Placement) -> bool:
    """Whether no two groups have the same tensors, for those would have one scale."""
    tensors = [frozenset(edge.tensor for edge in group.edges) for group in placement.groups]
    return len(set(tensors)) == len(tensors)


QUICK = settings(max_examples=75, deadline=None)


@pytest.mark.slow
@QUICK
@given(placed())
def test_pairs_that_have_moved_move_no_further(case: tuple[str, Placement]):
    text, placement = case
    passages = find_passages(Matches(graph_of_text(text)), RULES)
    once = normal_form(placement, passages)
    again = moved(once)
    assume(is_distinct(again))
    assert normal_form(again, passages).canonical() == once.canonical()


@QUICK
@given(placed(), st.data())
def test_pairs_that_the_form_has_already_change_nothing(
    case: tuple[str, Placement], data: st.DataObject
):
    text, placement = case
    passages = find_passages(Matches(graph_of_text(text)), RULES)
    whole = normal_form(placement, passages)
    added = sorted(whole.scales.keys() - placement.edges)
    kept = set(data.draw(st.lists(st.sampled_from(added)))) if added else set()
    form = moved(whole)
    more = form.without(form.edges - placement.edges - kept)
    assume(is_distinct(more))
    assert normal_form(more, passages).canonical() == whole.canonical()


@pytest.mark.slow
@QUICK
@given(placed(), st.randoms(use_true_random=False))
def test_the_form_does_not_depend_on_names(case: tuple[str, Placement], random: object):
    """Names order the groups of a placement, which must not matter."""
    text, placement = case
    tensors = sorted(set(re.findall(r"\b[tw]\d+\b", text)))
    shuffled = random.sample(tensors, len(tensors))
    names = dict(zip(tensors, (f"u{name}" for name in shuffled), strict=True))
    renamed = re.sub(r"\b[tw]\d+\b", lambda found: names[found[0]], text)

    def translate(edge: Edge) -> Edge:
        return edge._replace(tensor=names[edge.tensor])

    other = Placement.of_groups(map(translate, group.edges) for group in placement.groups)
    found = normal_form(other, find_passages(Matches(graph_of_text(renamed)), RULES)).canonical()
    passages = find_passages(Matches(graph_of_text(text)), RULES)
    original = normal_form(placement, passages).canonical()
    assert found == {frozenset((translate(e), second) for e, second in g) for g in original}


@QUICK
@given(placed())
def test_pairs_stay_where_they_are_and_keep_their_partners(case: tuple[str, Placement]):
    text, placement = case
    found = normal_form(placement, find_passages(Matches(graph_of_text(text)), RULES))
    assert found.scales.keys() >= placement.edges
    for group in placement.groups:
        assert len({found.scales[edge] for edge in group.edges}) == 1
    assert found.second.keys() <= found.scales.keys()
