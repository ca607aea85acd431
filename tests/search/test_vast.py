"""Where there are very many changes, only what may be of use is asked."""

import math
from functools import partial
from operator import ne

import numpy as np
import pytest

from placer.search.landscape.descent import Near, descend
from placer.search.landscape.landscape import Landscape, Objective, State, apply
from placer.search.proposals.pool_search import FEWEST_FINALISTS, PoolSearch
from tests.search.landscapes import landscape
from tests.search.test_alike import chain


@pytest.fixture
def vast(monkeypatch: pytest.MonkeyPatch) -> Landscape:
    monkeypatch.setattr("placer.search.landscape.landscape.VAST", 0)
    return landscape(chain(12, pooled=4), "tensorrt", "float16")


def random_states(land: Landscape, count: int) -> list[State]:
    rng = np.random.default_rng(0)
    return [tuple(int(rng.integers(len(names))) for names in land.names) for _ in range(count)]


def objective(land: Landscape) -> Objective:
    """A cost per signature that depends on its id only."""
    costs = {n: int(s.id, 16) % 1000 / 1000 for n, s in enumerate(land.layers.signatures)}
    return Objective(costs, np.zeros((len(land.names), max(map(len, land.names)))))


def numbered(land: Landscape, states: list[State]) -> Objective:
    """The same once all that changes of ``states`` make of layers is numbered, by another."""
    other = Landscape(land.space, land.layers)
    for state in states:
        other.deltas(state, other.all_moves)
    return objective(land)


@pytest.mark.slow
def test_what_comes_first_is_what_changes_do(vast: Landscape):
    states = random_states(vast, 12)
    costs = numbered(vast, states)
    guessed = 0
    for state in states:
        near = Near(vast, state, costs, vast.all_moves)
        before = near.gains()
        first = [found for found, _ in zip(near.in_order(), range(20), strict=False)]
        other = Landscape(vast.space, vast.layers)
        exact, _ = other.gains(state, costs, other.all_moves)
        assert [gain for _, gain in first] == [exact[index] for index, _ in first]
        guessed += int((before != exact).sum())
    assert guessed  # Else nothing was put to the test.


@pytest.mark.slow
def test_what_is_known_comes_in_order_without_asking(vast: Landscape):
    states = random_states(vast, 12)
    costs = numbered(vast, states)
    seen = 0
    for state in states:
        near = Near(vast, state, costs, vast.all_moves)
        asked = sum(len(piece.known) for piece in vast.all_moves.pieces)
        found = list(near.known_in_order())
        assert asked == sum(len(piece.known) for piece in vast.all_moves.pieces)
        other = Landscape(vast.space, vast.layers)
        exact, _ = other.gains(state, costs, other.all_moves)
        assert [gain for _, gain in found] == sorted(exact[index] for index, _ in found)
        seen += len(found)
    assert seen


def test_beside_an_optimum_is_looked_at_only_if_it_was_tried(vast: Landscape):
    search = PoolSearch(vast, None, math.inf, explores=False, turn=0)
    costs = numbered(vast, random_states(vast, 12))
    for state in random_states(vast, 6):
        end = descend(vast, state, costs, vast.all_moves)
        pool = search.values([end], costs)
        search.look_around(pool, costs, vast.all_moves, lambda _: True)
        assert list(pool) == [end]
        search.look_around(pool, costs, vast.all_moves, partial(ne, end))
        assert len(pool) == 1 + FEWEST_FINALISTS
        assert min(pool, key=pool.__getitem__) == end


@pytest.mark.slow
def test_descents_ask_less_and_end_where_nothing_known_improves(vast: Landscape):
    states = random_states(vast, 12)
    costs = numbered(vast, states)
    asked = dict[bool, int]()
    for is_vast in (True, False):
        land = Landscape(vast.space, vast.layers)
        land.__dict__["is_vast"] = is_vast
        for state in states:
            end = descend(land, state, costs, land.all_moves)
            assert land.value(end, costs) <= land.value(state, costs)
            assert Near(land, end, costs, land.all_moves).improving() == []
        known = {id(p.known): len(p.known) for p in land.all_moves.pieces}
        asked[is_vast] = sum(known.values())
    assert asked[True] < asked[False]


def test_what_is_found_does_not_depend_on_what_was_asked_before(vast: Landscape):
    states = random_states(vast, 8)
    costs = numbered(vast, states)
    ends = []
    for state in states:
        fresh = Landscape(vast.space, vast.layers)
        ends.append(descend(fresh, state, costs, fresh.all_moves))
    for state in states:
        vast.deltas(state, vast.all_moves)
    for state, end in zip(states, ends, strict=True):
        Near(vast, state, costs, vast.all_moves)
        vast.guesses.begin()
        assert descend(vast, state, costs, vast.all_moves) == end


def test_one_piece_is_looked_at_for_all_that_do_the_same(vast: Landscape):
    moves = vast.all_moves
    every = np.arange(len(moves.pieces))
    shared = 0
    for state in random_states(vast, 8):
        picked, same = moves.distinct(state, every)
        assert list(picked) == sorted(picked)
        own = [(p.alike, p.layouts, p.context(state)) for p in moves.pieces]
        assert [own[i] for i in picked[same]] == own
        assert len(set(own)) == len(picked)
        shared += len(own) - len(picked)
    assert shared  # Else nothing was put to the test.


@pytest.mark.slow
def test_rough_descents_ask_less_and_find_most_of_the_gain(vast: Landscape):
    costs = numbered(vast, random_states(vast, 12))
    asked, gains = dict[bool, int](), dict[bool, float]()
    for roughly in (True, False):
        land = Landscape(vast.space, vast.layers)
        gains[roughly] = 0.0
        for state in random_states(vast, 12):
            land.guesses.begin()
            end = descend(land, state, costs, land.all_moves, roughly=roughly)
            gains[roughly] += land.value(state, costs) - land.value(end, costs)
        known = {id(p.known): len(p.known) for p in land.all_moves.pieces}
        asked[roughly] = sum(known.values())
    assert asked[True] < asked[False]
    assert 0.5 * gains[False] < gains[True] <= gains[False]


def test_the_way_back_does_the_opposite(vast: Landscape):
    moves, guesses = vast.all_moves, vast.guesses
    numbers = {piece.move: index for index, piece in enumerate(moves.pieces)}
    seen = 0
    for state in random_states(vast, 6):
        for piece, index in ((p, i) for p, i in numbers.items() if len(p) == 1):
            (site, layout) = piece[0]
            back = numbers.get(((site, state[site]),))
            if back is None or layout == state[site]:
                continue
            guesses.begin()
            guesses.ask(state, moves, np.array([index]))
            after = apply(state, [piece])
            known, is_guess = guesses.of(after, moves, np.array([back]), begins=False)
            assert not is_guess.any()
            assert known == Landscape.numbers(vast, after, moves, np.array([back]))
            seen += int(known[0] != 0)
    assert seen  # Else nothing was put to the test.
