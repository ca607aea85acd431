"""The price at which noise holds a limit, and what fits in below it."""

import numpy as np
import pytest

from placer.search.landscape.landscape import Objective
from placer.search.proposals.fill import filled, price_at_limit
from tests.search.test_exact import DEFAULTS, LAND, NOISE, Costs


def objective(world: int) -> Objective:
    return Objective(Costs(LAND, world), np.zeros(NOISE.extras.shape))


@pytest.mark.parametrize("world", range(3))
def test_the_less_noise_is_allowed_the_dearer_it_is(world: int):
    limits = [part * NOISE.predict(DEFAULTS) for part in (100.0, 1.0, 0.5, 0.1)]
    prices = [price_at_limit(LAND, DEFAULTS, objective(world), NOISE, n) / n for n in limits]
    assert prices[0] == 0.0
    assert prices[-1] > 0.0
    assert prices == sorted(prices)


@pytest.mark.parametrize("world", range(3))
def test_what_is_filled_in_gains_and_holds_the_limit(world: int):
    costs, moves = objective(world), LAND.group_moves
    start = LAND.state(LAND.space.least)
    limit = 0.6 * NOISE.predict(DEFAULTS)
    end = filled(LAND, start, costs, moves, NOISE, limit)
    assert NOISE.predict(end) <= limit
    gains, _ = LAND.gains(start, costs, moves)
    fits = NOISE.predict(start) + moves.change(NOISE.extras, start) <= limit
    best = gains[fits].min()
    assert (LAND.value(end, costs) < LAND.value(start, costs)) == (best < 0)
    assert LAND.value(end, costs) <= LAND.value(start, costs)
