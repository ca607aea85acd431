"""Placements: equal however they were reached, with text and number that say so."""

from placer.graph import Edge
from placer.quantization import EMPTY, FLOAT8, Placement
from placer.quantization.placement import ScaleGroup

X1, X2 = Edge("x", "conv1", 0), Edge("x", "conv2", 0)
S, T, W = Edge("s", "add", 1), Edge("t", "concat", 0), Edge("w", "conv1", 1)


def test_edges_of_one_tensor_share_a_scale_and_tensors_are_merged():
    placement = Placement.of([T, X2, W, X1, S], shared=[["x", "s"], ["s", "t"], ["float", "w"]])
    assert placement.sorted() == [[S, T, X1, X2], [W]]
    numbers = placement.group_of
    assert numbers[S] == numbers[T] == numbers[X1] == numbers[X2] != numbers[W]


def test_edges_of_unequal_formats_are_never_in_one_group():
    placement = Placement.of([X1, X2, S], shared=[["x", "s"]], formats={X2: FLOAT8})
    assert placement.sorted() == [[S, X1], [X2]]
    assert placement.formats == {X2: FLOAT8}
    assert placement.in_format(None) != placement


def test_the_text_and_the_number_are_those_of_the_decision():
    """Studies and files hold the number, so it is the same in every version."""
    placement = Placement.of([W, X2, X1], formats={W: FLOAT8})
    placement = placement.with_weights(frozenset([W])).computed_in("bfloat16")
    assert placement.canonical() == (
        f"'w'>'conv1':1 per tensor in {FLOAT8}\n'x'>'conv1':0; 'x'>'conv2':0\nbase bfloat16"
    )
    assert placement.id == "5b61f23c43f4"
    assert EMPTY.id == "e3b0c44298fc"
    again = Placement.of([X1, X2, W], formats={W: FLOAT8}).computed_in("bfloat16")
    assert again != placement
    assert again.with_weights(frozenset([W, S])) == placement  # It quantizes no S.


def test_a_change_leads_from_one_placement_to_the_other():
    before = Placement.of([X1, S, W], formats={S: FLOAT8}).with_weights(frozenset([W]))
    after = Placement.of([X1, X2, S]).with_weights(frozenset([W]))
    change = before.change_to(after)
    assert (change.added, change.removed, change.reformatted) == ((X2,), (W,), (S,))
    assert before.changed(change) == after
    assert before.id_after(change) == after.id
    assert after.changed(after.change_to(before)).groups == before.groups


def test_edges_left_in_float_are_in_no_group():
    placement = Placement.of([X1, X2, W]).with_weights(frozenset([W]))
    assert placement.without({W, X2}) == Placement.of([X1])
    assert placement.without({X1, X2, W}) == EMPTY


def test_several_scales_of_one_tensor_stay_apart():
    first, second = ScaleGroup(frozenset([X1])), ScaleGroup(frozenset([X2]))
    placement = Placement.of_scales([second, first, ScaleGroup(frozenset([S]))])
    assert {(min(g.edges), g.variant) for g in placement.groups} == {(X1, 1), (X2, 2), (S, 0)}
    assert placement.without({X1}) != Placement.of([X2, S])
