"""Layouts that are left where the user decides which nodes stay float."""

import itertools

import pytest

from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.rules.packaging.load import load_pack
from placer.rules.restriction import Forced, forced, restricted, without_tensors
from placer.rules.sites import Site, find_sites, place
from placer.search.space import build_space

NET = graph_of_text("""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,1,1] w1 = {1}, float[4,4,1,1] w2 = {1}, float[4,4,1,1] w3 = {1}> {
  [conv1] a = Conv (x, w1)
  [relu1] b = Relu (a)
  [conv2] c = Conv (b, w2)
  [add] s = Add (c, x)
  [conv3] d = Conv (s, w3)
  [softmax] y = Softmax (d)
}
""")


def sites_of(pack: str, *exclude: str, graph: Graph = NET) -> tuple[Site, ...]:
    sites = find_sites(graph, load_pack(pack).rules)
    return restricted(sites, graph, frozenset(exclude))


def readers(edges: frozenset[Edge]) -> set[str]:
    return {edge.node for edge in edges}


@pytest.mark.parametrize("pack", ["tensorrt", "onnxruntime", "openvino"])
@pytest.mark.parametrize("tensor", ["a", "b", "c", "s"])
def test_a_tensor_that_is_to_stay_float_has_no_pair_in_any_layout(pack: str, tensor: str):
    sites = without_tensors(sites_of(pack), frozenset([tensor]))
    assert sites
    for site in sites:
        assert site.default in site.layouts
        for layout in site.layouts.values():
            assert tensor not in {edge.tensor for edge in layout.quantize}


@pytest.mark.parametrize("pack", ["tensorrt", "openvino"])
@pytest.mark.parametrize("node", ["conv1", "conv2", "add", "conv3"])
def test_no_input_of_an_excluded_node_is_quantized_whatever_is_chosen(pack: str, node: str):
    space = build_space(NET, sites_of(pack, node))
    assert node in readers(build_space(NET, sites_of(pack)).placement({}).edges)
    for choices in (space.defaults, space.everything, space.floats):
        edges = space.placement(choices).edges
        assert node not in readers(edges)
    assert readers(space.placement(space.everything).edges)  # Others still are.


def test_a_pair_behind_a_neighbour_stays():
    """ONNX Runtime's integer Conv needs a pair behind it, whoever reads that."""
    without = place(sites_of("onnxruntime", "softmax"), {})
    assert Edge("d", "softmax", 0) in without.edges


def test_a_pair_that_an_excluded_node_alone_would_read_is_no_layout():
    """ONNX Runtime's Add may have one behind it alone, which here nothing has a use for."""
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8] x, float[1,16,8] z) => (float[1,16,8] y)
    <float[8] scale = {1}, float[8] bias = {1}> {
      [add] s = Add (x, z)
      [norm] y = LayerNormalization (s, scale, bias)
    }
    """)
    (site,), (left,) = (
        sites_of("onnxruntime", graph=graph),
        sites_of("onnxruntime", "norm", graph=graph),
    )
    assert list(site.layouts) == ["float", "output", "integer"]
    assert list(left.layouts) == ["float", "integer"]


def test_without_patterns_nothing_changes():
    sites = find_sites(NET, load_pack("tensorrt").rules)
    assert restricted(sites, NET, frozenset()) == sites


def test_sites_with_other_layouts_are_decided_apart():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float[4,4,1,1] w1 = {1}, float[4,4,1,1] w2 = {1}, float[4,4,1,1] w3 = {1}> {
      [conv1] a = Conv (x, w1)
      [conv2] b = Conv (a, w2)
      [conv3] c = Conv (b, w3)
      [softmax] y = Softmax (c)
    }
    """)
    groups = build_space(graph, sites_of("tensorrt", graph=graph)).groups
    assert [len(group.sites) for group in groups] == [3]
    groups = build_space(graph, sites_of("tensorrt", "conv2", graph=graph)).groups
    assert [[site.match.anchor.name for site in group.sites] for group in groups] == [
        ["conv1", "conv3"]
    ]


# --- forced nodes ---------------------------------------------------------------------------


def forced_sites(pack: str, *nodes: str) -> Forced:
    return forced(sites_of(pack), NET, frozenset(nodes))


@pytest.mark.parametrize("pack", ["tensorrt", "openvino", "onnxruntime"])
@pytest.mark.parametrize("node", ["conv1", "conv2", "conv3", "add"])
def test_a_forced_node_reads_a_pair_whatever_is_proposed(pack: str, node: str):
    found = forced_sites(pack, node)
    assert found.nodes == {node}
    space = build_space(NET, found.sites)
    names = [group.name for group in space.groups]
    for layouts in itertools.product(*(group.offered for group in space.groups)):
        edges = space.placement(dict(zip(names, layouts, strict=True))).edges
        assert node in readers(edges)
        assert all(own <= edges for own in found.edges.values())
    # What models of the search begin with is the float model all the same.
    assert node not in readers(space.placement(space.floats).edges)


def test_a_node_in_the_layer_of_another_forces_that_one():
    found = forced_sites("tensorrt", "relu1")
    space = build_space(NET, found.sites)
    assert found.nodes == {"relu1"}
    assert readers(space.placement(space.least).edges) >= {"conv1"}


def test_nodes_that_no_rule_decides_on_are_not_forced():
    assert forced_sites("tensorrt", "softmax").nodes == frozenset()
    assert forced_sites("tensorrt", "softmax", "conv1").nodes == {"conv1"}


def test_without_forced_nodes_nothing_is_barred():
    sites = sites_of("tensorrt")
    assert forced(sites, NET, frozenset()).sites == sites
