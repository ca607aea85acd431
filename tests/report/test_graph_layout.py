"""Layered drawings of graphs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.report.graph_layout import LONGEST_ROUTE, Layout, Point, layered_layout


def test_a_chain_runs_straight_down() -> None:
    layout = layered_layout(3, [(0, 1), (1, 2)], aspect=0.1)
    assert layout.points == (Point(0, 0), Point(0, 1), Point(0, 2))


def test_branches_stand_side_by_side_and_meet_in_the_middle() -> None:
    layout = layered_layout(4, [(0, 1), (0, 2), (1, 3), (2, 3)], aspect=0.1)
    start, left, right, end = layout.points
    assert (left.y, right.y) == (1, 1)
    assert right.x - left.x == 1
    assert start.x == end.x == (left.x + right.x) / 2


def test_an_edge_over_a_layer_goes_around_what_stands_there() -> None:
    layout = layered_layout(3, [(0, 1), (1, 2), (0, 2)], aspect=0.1)
    beside = layout.routes[2][1]
    assert beside.y == layout.points[1].y
    assert abs(beside.x - layout.points[1].x) == 0.75


def test_a_long_chain_is_wrapped_into_strips_joined_by_jumps() -> None:
    edges = [(i, i + 1) for i in range(99)]
    layout = layered_layout(100, edges, aspect=1)
    strips = {point.x for point in layout.points}
    assert len(layout.jumps) == len(strips) - 1 > 1
    assert max(point.y for point in layout.points) < 30


def test_a_cut_spares_the_branches() -> None:
    # Ten diamonds, each joined to the next by one edge: only such edges are cut.
    edges, joins = [], set()
    for top in range(0, 40, 4):
        edges += [(top, top + 1), (top, top + 2), (top + 1, top + 3), (top + 2, top + 3)]
        if top < 36:
            joins.add((top + 3, top + 4))
            edges.append((top + 3, top + 4))
    layout = layered_layout(40, edges, aspect=1)
    cut = {edges[number] for number in layout.jumps}
    assert cut
    assert cut <= joins


def test_an_edge_over_many_layers_is_a_jump() -> None:
    edges = [(i, i + 1) for i in range(LONGEST_ROUTE + 1)] + [(0, LONGEST_ROUTE + 1)]
    layout = layered_layout(LONGEST_ROUTE + 2, edges, aspect=0.01)
    assert layout.jumps == {LONGEST_ROUTE + 1}


def test_what_nothing_writes_stands_above_its_first_reader() -> None:
    layout = layered_layout(5, [(0, 2), (2, 3), (1, 4), (3, 4)], aspect=0.1)
    assert layout.points[1].y == layout.points[4].y - 1


def test_no_vertices() -> None:
    assert layered_layout(0, [], aspect=1) == Layout((), (), frozenset())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 40))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    found = draw(st.lists(pairs, max_size=80))
    return count, [(min(pair), max(pair)) for pair in found if pair[0] != pair[1]]


@settings(deadline=None)
@given(graphs(), st.floats(0.2, 5))
def test_every_drawing_has_distinct_places_and_routes_that_lead_down(
    graph: tuple[int, list[tuple[int, int]]], aspect: float
) -> None:
    count, edges = graph
    layout = layered_layout(count, edges, aspect)
    assert len({(round(x, 6), y) for x, y in layout.points}) == count
    assert len(layout.routes) == len(edges)
    for number, (edge, route) in enumerate(zip(edges, layout.routes, strict=True)):
        assert (route[0], route[-1]) == tuple(layout.points[vertex] for vertex in edge)
        if number not in layout.jumps:
            assert [point.y for point in route] == [route[0].y + step for step in range(len(route))]
