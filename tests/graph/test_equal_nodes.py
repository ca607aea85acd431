"""Which nodes compute the same."""

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.layers.no_ops import equal_nodes, ranges_before, without_no_ops
from placer.quantization import Range

TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,4,4] x) => (float[1,4,4,4] out, float[1,4,4,4] other)
<float half = {0.5}, float also = {0.5}, float one = {1}> {
  [idle] same = Mul(x, one)
  [first] a = Mul(x, half)
  [second] b = Mul(same, also)
  [third] c = Softmax<axis = 1>(a)
  [fourth] d = Softmax<axis = 1>(b)
  [apart] e = Softmax<axis = 2>(b)
  [sum] f = Add(c, d)
  [turned] g = Add(d, e)
  [last] out = Sub(f, g)
  [leaving] other = Softmax<axis = 2>(a)
}
"""


def test_nodes_are_equal_by_what_they_read_past_idle_and_equal_ones():
    found = equal_nodes(graph_of_text(TEXT))
    assert found == {"second": "first", "fourth": "third", "leaving": "apart"}


def test_one_of_equal_nodes_is_left_with_the_pairs_of_all():
    graph = graph_of_text(TEXT)
    left = without_no_ops(graph, equal=equal_nodes(graph))
    names = [node.name for node in left.graph.nodes]
    assert names == ["first", "third", "apart", "sum", "turned", "last", "leaving"]
    assert left.twins == {"first": ("second",), "third": ("fourth",)}
    assert left.moved[Edge("d", "sum", 1)] == (Edge("c", "sum", 1),)
    assert left.moved[Edge("b", "fourth", 0)] == (Edge("a", "third", 0),)


def test_the_range_of_one_is_that_of_the_other():
    graph = graph_of_text(TEXT)
    ranges = {"d": Range(0.0, 1.0)}
    assert ranges_before(graph, ranges, equal_nodes(graph))["c"] == ranges["d"]


def test_random_nodes_are_not_equal():
    text = TEXT.replace("Softmax<axis = 1>", "RandomNormalLike")
    assert "fourth" not in equal_nodes(graph_of_text(text))
