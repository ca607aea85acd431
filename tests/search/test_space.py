"""Groups of equal sites, and the seeds of a search."""

from placer.graph import Edge
from placer.placement import EMPTY
from placer.rules.loader import load_pack
from placer.rules.sites import find_sites
from placer.rules.testing import graph_of_text
from placer.search.space import Space, build_space

NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] out)
<float[4,4,1,1] w0 = {1}, float[4,4,1,1] w1 = {2}, float[4,4,3,3] w2 = {1}> {
  [conv0] a = Conv(x, w0)
  [conv1] b = Conv(a, w1)
  [conv2] c = Conv<pads = [1, 1, 1, 1]>(b, w2)
  [add1] s = Add(c, a)
  [softmax1] out = Softmax<axis = 1>(s)
}
"""


def space() -> Space:
    graph = graph_of_text(NET)
    return build_space(graph, find_sites(graph, load_pack("onnxruntime").rules))


def test_sites_of_equal_structure_are_one_decision():
    groups = space().groups
    assert [g.name for g in groups] == [
        "conv-act:conv0",
        "conv-act:conv2",
        "elementwise:add1",
        "softmax:softmax1",
    ]
    assert [site.name for site in groups[0].sites] == ["conv-act:conv0", "conv-act:conv1"]


def test_a_group_decides_for_all_its_sites():
    placement = space().placement({**space().floats, "conv-act:conv0": "integer"})
    assert {edge.node for edge in placement.edges} == {"conv0", "conv1", "conv2", "add1"}
    assert Edge("w1", "conv1", 1) in placement.edges
    assert Edge("w2", "conv2", 1) not in placement.edges


def test_seeds():
    found = space()
    seeds = {name: found.placement(choices) for name, choices in found.seeds().items()}
    assert list(seeds) == [
        "none",
        "default",
        "everything",
        "weighted only",
        "default without the first layer",
        "default without the last layer",
    ]
    assert seeds["none"] == EMPTY
    softmax = {Edge("s", "softmax1", 0), Edge("out", "", 0)}
    # The Add in front quantizes all that read it, so only the output edge is left to add.
    assert seeds["everything"].edges - seeds["default"].edges == softmax - seeds["default"].edges
    assert not any(e.node == "softmax1" for e in seeds["weighted only"].edges)
    assert Edge("w0", "conv0", 1) not in seeds["default without the first layer"].edges
    assert Edge("w2", "conv2", 1) not in seeds["default without the last layer"].edges
