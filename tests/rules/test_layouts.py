"""Which layouts are offered at a match, and what they quantize."""

import pytest

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.quantization import Placement
from placer.rules.matcher import Matches
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from tests.rules.small_rules import HEAD, NET, rule

CONV_ACT = """
  conv: {op: Conv, inputs: [x, w], output: c}
  act: {op: Clip, inputs: [c, "_*"], output: y, optional: true}
"""


def test_smaller_matches_are_found_only_if_asked_for():
    matches, conv_act = Matches(graph_of_text(NET)), rule(CONV_ACT)
    assert [len(match.nodes) for match in matches.of(conv_act)] == [2]
    assert [len(match.nodes) for match in matches.of(conv_act, smaller=True)] == [2, 1]


LAYOUTS = """
  int8: {quantize: [conv.x], default: true},
  late: {quantize: [conv.w], when: {engine_versions: ">=10"}}
"""


def test_layouts_are_offered_where_their_condition_holds():
    def offered(target: Target) -> list[str]:
        (site,) = find_sites(graph_of_text(NET), [rule(CONV_ACT, layouts=LAYOUTS)], target)
        return list(site.layouts)

    assert offered(Target(engine_version="10.3")) == ["int8", "late"]
    assert offered(Target()) == ["int8", "late"]
    assert offered(Target(engine_version="8.6")) == ["int8"]


def test_rules_hold_where_their_condition_does():
    text = rule(CONV_ACT).model_dump()
    hopper = Rule.model_validate({**text, "when": {"compute_capability": ">=9"}})
    graph = graph_of_text(NET)
    assert len(find_sites(graph, [hopper], Target(compute_capability="9.0"))) == 1
    assert find_sites(graph, [hopper], Target(compute_capability="8.9")) == ()


@pytest.mark.parametrize("integers", ["int8", "uint8", "float8e4m3fn"])
def test_rules_may_be_for_one_type_of_activations(integers):
    text = rule(CONV_ACT).model_dump()
    own = Rule.model_validate({**text, "when": {"integers": integers}})
    graph = graph_of_text(NET)
    for given in ("int8", "uint8", "float8e4m3fn"):
        assert len(find_sites(graph, [own], Target(integer=given))) == (given == integers)
    assert len(find_sites(graph, [own], Target())) == (integers == "int8")


def test_a_default_layout_is_offered_everywhere():
    with pytest.raises(InputError, match="the default layout must be offered on all engines"):
        rule(CONV_ACT, layouts="int8: {default: true, when: {typing: weak}}")


CONCAT = """
id: tested
why: a sentence for the test
source: test
pattern:
  join: {op: Concat, inputs: ["xs*"], output: y}
layouts:
  all: {quantize: [join.xs, "y.*"], all_or_none: [[join.xs, "y.*"]], default: true}
  each: {quantize: [join.xs, "y.*"]}
  after: {quantize: ["y.*"], keep_float: [join.xs]}
"""


JOINS = graph_of_text(
    f"""
    {HEAD}
    g (float[1,4] a, float[1,4] b) => (float[1,12] out) {{
      [join1] y = Concat<axis = 1>(a, b)
      [join2] z = Concat<axis = 1>(y, b)
      [relu1] out = Relu(z)
    }}
    """
)


FIRST = {Edge("a", "join1", 0), Edge("b", "join1", 1), Edge("y", "join2", 0)}


SECOND = {Edge("y", "join2", 0), Edge("b", "join2", 1), Edge("z", "relu1", 0)}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("all", "all", FIRST | SECOND),
        # join2 keeps y in float: all of join1 stays float, or all but y.
        ("all", "after", {Edge("z", "relu1", 0)}),
        ("each", "after", FIRST - {Edge("y", "join2", 0)} | {Edge("z", "relu1", 0)}),
    ],
)
def test_a_set_is_quantized_as_a_whole_or_not_at_all(first: str, second: str, expected: set[Edge]):
    sites = find_sites(JOINS, [parse_text(CONCAT, "rule.yaml", Rule)])
    choices = {"tested:join1": first, "tested:join2": second}
    assert place(sites, choices) == Placement.of(expected)


def test_all_or_none_names_only_what_the_layout_quantizes():
    wrong = CONCAT.replace('all_or_none: [[join.xs, "y.*"]]', "all_or_none: [[join.xs]]")
    assert parse_text(wrong, "rule.yaml", Rule).layouts["all"].all_or_none == [["join.xs"]]
    with pytest.raises(InputError, match=r"all_or_none names 'y\.\*', which it does not quantize"):
        parse_text(
            CONCAT.replace('quantize: [join.xs, "y.*"], all', "quantize: [join.xs], all"),
            "rule.yaml",
            Rule,
        )
