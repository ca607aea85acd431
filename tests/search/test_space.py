"""Groups of equal sites, split groups and fixed choices."""

from placer.graph import Edge
from placer.quantization import EMPTY
from placer.search.space import PER_SITE
from tests.search.landscapes import space


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


def test_a_split_group_decides_site_by_site():
    found = space()
    split = {
        **found.floats,
        "conv-act:conv0": PER_SITE,
        "site conv-act:conv0": "integer",
        "site conv-act:conv1": "float",
    }
    placement = found.placement(split)
    assert Edge("w0", "conv0", 1) in placement.edges
    assert Edge("w1", "conv1", 1) not in placement.edges
    assert found.choices(found.layouts(split)) == split
    assert found.choices(found.layouts(found.defaults)) == found.defaults


def test_the_choices_nearest_to_a_placement_give_it_back():
    found = space()
    for choices in (found.floats, found.defaults, found.everything):
        placement = found.placement(choices)
        assert found.placement(found.nearest(placement)).edges == placement.edges


def test_fixed_choices():
    found = space()
    assert found.placement(found.floats) == EMPTY
    softmax = {Edge("s", "softmax1", 0), Edge("out", "", 0)}
    default = found.placement(found.defaults).edges
    # The Add in front quantizes all that read it, so only the output edge is left to add.
    assert found.placement(found.everything).edges - default == softmax - default
    weighted = found.placement(found.weighted_only)
    assert not any(edge.node == "softmax1" for edge in weighted.edges)
