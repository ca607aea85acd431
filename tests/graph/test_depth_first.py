"""The order from the last output back."""

from placer.graph.depth_first import depth_first_from_outputs
from placer.graph.text import graph_of_text

HEAD = '<ir_version: 9, opset_import: ["": 17]>\n'


def _names(text):
    return [node.name for node in depth_first_from_outputs(graph_of_text(HEAD + text)).nodes]


def test_the_last_output_comes_first_and_inputs_in_their_order():
    names = _names(
        """g (float[4] x) => (float[4] y, float[4] z) {
          [right] a = Relu(x)
          [left] b = Tanh(x)
          [sum] y = Add(b, a)
          [last] z = Neg(a)
        }"""
    )
    assert names == ["right", "last", "left", "sum"]


def test_what_no_output_needs_stays_at_the_end():
    names = _names(
        """g (float[4] x) => (float[4] y) {
          [one] a = Relu(x)
          [two] b = Tanh(a)
          [three] y = Neg(x)
        }"""
    )
    assert names == ["three", "one", "two"]


def test_a_graph_that_is_in_order_is_left_as_it_is():
    graph = graph_of_text(HEAD + "g (float[4] x) => (float[4] y) {[one] y = Relu(x)}")
    assert depth_first_from_outputs(graph) is graph
