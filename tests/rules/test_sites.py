"""From layouts to placements."""

import pytest

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.quantization import FLOAT8, Placement
from placer.quantization.placement import ScaleGroup
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, formats_of, place

STEM = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,8,8] image) => (float[1,4,3,3] out)
<float[4,3,3,3] w1 = {1}, float[4,4,1,1] w2 = {1}> {
  [conv1] c = Conv(image, w1)
  [relu1] r = Relu(c)
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
  [conv2] out = Conv(p, w2)
}
"""


def test_a_maxpool_follows_its_producer_and_shares_its_scale():
    graph = graph_of_text(STEM)
    sites = find_sites(graph, load_pack("onnxruntime").rules)
    assert [site.name for site in sites] == ["conv-act:conv1", "follow:pool1", "conv-act:conv2"]
    placement = place(sites, {})
    pair = frozenset({Edge("r", "pool1", 0), Edge("p", "conv2", 0)})
    assert ScaleGroup(pair) in placement.groups
    assert Edge("out", "", 0) in placement.edges


FACT = """
id: fact
why: tells what is built
source: none
priority: 99
decides: false
pattern:
  conv: {op: Conv, inputs: [x, w], output: y}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [conv], op: Conv, inputs: float, outputs: float, reads: []}
"""


def test_a_rule_that_does_not_decide_leaves_its_nodes_to_others():
    fact = parse_text(FACT, "fact.yaml", Rule)
    rules = (*load_pack("onnxruntime").rules, fact)
    sites = find_sites(graph_of_text(STEM), rules)
    assert [site.name for site in sites] == ["conv-act:conv1", "follow:pool1", "conv-act:conv2"]


def test_a_rule_that_does_not_decide_quantizes_nothing():
    text = FACT.replace("    default: true", "    default: true\n    quantize: [conv.x]")
    with pytest.raises(InputError, match="'decides: false' has one layout, with 'fuses' alone"):
        parse_text(text, "fact.yaml", Rule)


def test_what_depends_on_shapes_alone_is_not_decided():
    """A detector's anchors are positions in pixels, the same for all images of a size."""
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8] boxes) => (float[1,4,8] out)
        <float zero = {0}, float one = {1}, float half = {0.5}, int64 last = {2}> {
          [shape] s = Shape(boxes)
          [width] n = Gather<axis = 0>(s, last)
          [count] f = Cast<to = 1>(n)
          [range] r = Range(zero, f, one)
          [grid] x = Expand(r, s)
          [columns] a = Add(x, half)
          [rows] b = Mul(x, half)
          [centres] c = Add(a, b)
          [shift] out = Add(boxes, c)
        }
        """
    )
    sites = find_sites(graph, load_pack("onnxruntime").rules)
    assert [site.name for site in sites] == ["elementwise-linear:shift"]


@pytest.mark.parametrize(
    ("weight", "sites"), [("float[4,8] w", ["matmul:project"]), ("float[1,8] w", [])]
)
def test_layers_with_weights_are_decided_whatever_they_depend_on(weight: str, sites: list[str]):
    """With a dynamic batch they take their time in every run; an outer product is no such layer."""
    inner = weight[6]
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,{inner}] x) => (float[1,8] out)
        <float[{inner}] query = {{1}}, {weight} = {{1}}> {{
          [shape] s = Shape(x)
          [expand] q = Expand(query, s)
          [project] out = MatMul(q, w)
        }}
        """
    )
    found = find_sites(graph, load_pack("onnxruntime").rules)
    assert [site.name for site in found] == sites


def test_what_depends_on_shapes_alone_takes_no_node_from_a_site():
    """A learned query of which there is one for each image is scaled before data is added."""
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] out) <float[4] query = {1}, float[4] w = {1}> {
          [shape] s = Shape(x)
          [expand] q = Expand(query, s)
          [gain] p = Mul(q, w)
          [add] out = Add(p, x)
        }
        """
    )
    text = """
id: {0}
why: a sentence for the test
source: test
priority: {1}
pattern:
  {2}
layouts: {{int8: {{default: true, quantize: [{3}]}}}}
"""
    first = "first: {op: Mul, inputs: [a, w], output: b}"
    second = "second: {op: Add, inputs: [b, c], output: y}"
    rules = [
        parse_text(text.format("alone", 1, first, "first.a"), "alone.yaml", Rule),
        parse_text(text.format("both", 0, f"{first}\n  {second}", "second.c"), "both.yaml", Rule),
    ]
    assert [site.name for site in find_sites(graph, rules)] == ["both:gain"]


def test_a_follower_stays_float_when_its_producer_does():
    graph = graph_of_text(STEM)
    sites = find_sites(graph, load_pack("onnxruntime").rules)
    placement = place(sites, {"conv-act:conv1": "float"})
    assert placement == Placement.of(
        [Edge("p", "conv2", 0), Edge("w2", "conv2", 1), Edge("out", "", 0)]
    )


def test_an_edge_that_one_layout_keeps_float_is_float():
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,4,1,1] w0 = {1}, float[4,4,1,1] w1 = {1}> {
          [pool] p = GlobalAveragePool(x)
          [conv0] a = Conv(x, w0)
          [conv1] c = Conv(a, w1)
          [add1] s = Add(c, a)
          [up] out = Add(s, p)
        }
        """
    )
    sites = find_sites(graph, load_pack("tensorrt").rules)
    placement = place(sites, {})
    assert Edge("a", "add1", 1) in placement.edges
    assert Edge("c", "add1", 0) not in placement.edges
    float_residual = place(sites, {"conv-add-relu:add1": "float-residual"})
    assert placement.edges - float_residual.edges == {Edge("a", "add1", 1)}


PEAK = """
id: peak
why: a Q behind a float maximum gives garbage
source: none
pattern:
  peak: {op: ReduceMax, inputs: [x], output: y}
layouts:
  float: {default: true, keep_float: ["y.*"], keep_float_past: [Add, Mul, Sigmoid, Concat]}
"""


def test_edges_stay_float_past_operators_of_nothing_else():
    """A constant, a SiLU's gate, other operands of a Concat; a sum with what varies ends it."""
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x, float[1,4,8,1] z) => (float[1,4,16,1] out, float[1,4,8,1] other)
        <float k = {1}> {
          [peak] m = ReduceMax<axes = [3]>(x)
          [shift] a = Add(k, m)
          [gate] g = Sigmoid(a)
          [act] s = Mul(a, g)
          [join] out = Concat<axis = 2>(z, s)
          [sum] t = Add(z, m)
          [last] other = Relu(t)
        }
        """
    )
    (site,) = find_sites(graph, [parse_text(PEAK, "peak.yaml", Rule)])
    assert site.layouts["float"].keep_float == {
        *(Edge("m", "shift", 1), Edge("m", "sum", 1), Edge("a", "gate", 0), Edge("a", "act", 0)),
        *(Edge("g", "act", 1), Edge("s", "join", 1), Edge("out", "", 0)),
    }


def test_formats_do_not_depend_on_the_order_of_sites():
    edge = Edge("x", "conv1", 0)
    int8, float8, of_another = (edge, None, True), (edge, FLOAT8, True), (edge, FLOAT8, False)
    assert formats_of([int8, float8]) == formats_of([float8, int8]) == {}
    assert formats_of([int8, of_another]) == formats_of([of_another, int8]) == {}
    assert formats_of([float8, of_another]) == formats_of([of_another, float8]) == {edge: FLOAT8}


def test_equal_blocks_have_equal_signatures():
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] out)
        <float[4,4,1,1] w0 = {1}, float[4,4,1,1] w1 = {2}, float[4,4,3,3] w2 = {1}> {
          [a] u = Conv(x, w0)
          [b] v = Conv(u, w1)
          [c] out = Conv<pads = [1, 1, 1, 1]>(v, w2)
        }
        """
    )
    first, second, third = find_sites(graph, load_pack("onnxruntime").rules)
    assert first.signature == second.signature
    assert first.signature != third.signature
