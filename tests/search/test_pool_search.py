"""Descents within a limit of noise, and changes of the best placement that are looked at."""

from itertools import combinations

import numpy as np
import pytest

from placer.search.landscape.descent import descend
from placer.search.landscape.landscape import Objective, State, apply
from placer.search.models.latency_model import LatencyModel
from placer.search.proposals import pool_search
from placer.search.proposals.near_best import expected_gain, near_best
from placer.search.proposals.pool_search import PRICES, PoolSearch
from tests.search.test_exact import DEFAULTS, LAND, NOISE, Costs
from tests.search.test_latency_model import LAND as MEASURED
from tests.search.test_latency_model import profiled, random_states

MOVES = LAND.group_moves
MODEL = LatencyModel(MEASURED, [profiled(s) for s in (DEFAULTS, *random_states(4, 0))], {})


@pytest.mark.parametrize("world", range(3))
def test_from_dear_noise_to_cheap_descents_end_where_their_end_is_too_noisy(
    world: int, monkeypatch: pytest.MonkeyPatch
):
    limit, ends = 0.7 * NOISE.predict(DEFAULTS), list[State]()
    objective = Objective(Costs(LAND, world), np.zeros(NOISE.extras.shape))

    def spy(*arguments: object, roughly: bool) -> State:
        ends.append(descend(*arguments, roughly=roughly))  # type: ignore[arg-type]
        return ends[-1]

    monkeypatch.setattr(pool_search, "descend", spy)
    search = PoolSearch(LAND, NOISE, limit, explores=False, turn=0)
    pool = search.optima(objective, MOVES, [DEFAULTS])
    expected, state = set[State](), DEFAULTS
    for price in PRICES[::-1]:
        extras = objective.extras + price / limit * NOISE.extras
        state = descend(LAND, state, Objective(objective.costs, extras), MOVES)
        if search.holds(state):
            expected.add(state)
    assert set(pool) == expected
    assert len(ends) < len(PRICES)
    assert [search.holds(end) for end in ends] == [True] * (len(ends) - 1) + [False]


def is_any(_: State) -> bool:
    return True


def test_of_one_change_of_the_best_or_two_that_with_most_expected_gain_is_chosen():
    group_moves = MEASURED.group_moves
    found = near_best(MEASURED, MODEL, (1.0, DEFAULTS), group_moves, is_any, is_any, {})
    alters = MEASURED.alters(DEFAULTS, group_moves) & group_moves.changing(DEFAULTS)
    moves = [move for move, does in zip(group_moves.moves, alters, strict=True) if does]
    pairs = [
        (one, other)
        for one, other in combinations(moves, 2)
        if not {site for site, _ in one} & {site for site, _ in other}
    ]
    states = [apply(DEFAULTS, change) for change in [*((move,) for move in moves), *pairs]]

    def expected(state: State) -> float:
        mean, deviation = MODEL.predict(state)
        return expected_gain(1.0 - mean, deviation)

    assert found is not None
    assert found[0] == expected(found[1])
    assert expected(found[1]) == pytest.approx(max(map(expected, states)), rel=1e-9)


@pytest.mark.parametrize("share", [0.99, 1.01])
def test_exchanges_are_all_single_changes_and_pairs_that_promise_less_than_a_value(share: float):
    objective = Objective(Costs(LAND, 0), np.zeros(NOISE.extras.shape))
    search = PoolSearch(LAND, NOISE, NOISE.predict(DEFAULTS), explores=False, turn=0)
    start = LAND.value(DEFAULTS, objective)
    changing = MOVES.changing(DEFAULTS)
    moves = [move for move, does in zip(MOVES.moves, changing, strict=True) if does]
    gains = {m: LAND.value(apply(DEFAULTS, [m]), objective) - start for m in moves}
    room = share * start - start
    expected = {apply(DEFAULTS, [move]) for move, gain in gains.items() if gain < room}
    for one, other in combinations(moves, 2):
        apart = not {site for site, _ in one} & {site for site, _ in other}
        if apart and gains[one] + gains[other] < room:
            expected.add(apply(DEFAULTS, [one, other]))
    found = search.exchanges(DEFAULTS, objective, MOVES, share * start)
    assert 0 < len(found) < len(moves) * (len(moves) + 1) // 2
    assert found == {state: LAND.value(state, objective) for state in expected}
