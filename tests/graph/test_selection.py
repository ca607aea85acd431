"""Nodes named by the user: names, globs, operators, outputs and regions."""

import pytest

from placer.errors import InputError
from placer.graph.selection import selected_nodes
from placer.graph.text import graph_of_text

NET = graph_of_text("""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] boxes, float[1,4] scores)
<float[4,4] w = {1}> {
    [stem] a = MatMul (x, w)
    [head_boxes_fc] b = MatMul (a, w)
    [head_boxes_act] boxes = Relu (b)
    [head_scores_fc] s = MatMul (a, w)
    [head_scores_act] scores = Softmax (s)
}
""")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("stem", {"stem"}),
        ("head_*_act", {"head_boxes_act", "head_scores_act"}),
        ("op:Softmax", {"head_scores_act"}),
        ("op:*Mul", {"stem", "head_boxes_fc", "head_scores_fc"}),
        ("output:scores", {"head_scores_fc", "head_scores_act"}),
        ("between:a->boxes", {"head_boxes_fc", "head_boxes_act"}),
        ("between:x->b", {"stem", "head_boxes_fc"}),
    ],
)
def test_patterns(pattern: str, expected: set[str]):
    assert selected_nodes(NET, [pattern], "exclude") == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("stam", "`only` 'stam' selects no node of the model; did you mean 'stem'"),
        ("tail_*", "selects no node of the model"),
        ("op:Conv", "unknown operator 'Conv'; use one of: MatMul, Relu, Softmax"),
        ("output:b", "unknown output 'b'; use one of: boxes, scores"),
        ("between:a", "names one tensor; write between:FIRST->LAST"),
        ("between:x->box", "the model has no tensor 'box'; did you mean 'boxes'"),
        ("between:boxes->x", "selects no node"),
    ],
)
def test_patterns_that_select_nothing(pattern: str, message: str):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        selected_nodes(NET, [pattern], "only")


def test_several_patterns_select_what_any_of_them_does():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,4] y) { [op_Relu] a = Relu (x) [relu] y = Relu (a) }
    """)
    assert selected_nodes(graph, ["relu"], "only") == {"relu"}
    assert selected_nodes(graph, ["op:Relu"], "only") == {"op_Relu", "relu"}
    assert selected_nodes(graph, ["relu", "op_*"], "only") == {"op_Relu", "relu"}


def test_what_the_body_of_an_if_reads_belongs_to_its_output():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x, bool c) => (float[1,4] y, float[1,4] z) {
        [inner] a = Relu (x)
        [if] y = If (c) <
            then_branch = t () => (float[1,4] p) { p = Exp (a) },
            else_branch = e () => (float[1,4] q) { q = Neg (a) }
        >
        [other] z = Abs (x)
    }
    """)
    assert selected_nodes(graph, ["output:y"], "only") == {"inner", "if"}
