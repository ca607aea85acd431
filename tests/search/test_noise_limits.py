"""Where noise is looked for: blocks of sites, halved where the noise is, within a budget."""

from itertools import pairwise

import pytest

from placer.search.landscape import State
from placer.search.noise_limits import Probes
from tests.search.test_landscape import BRANCHES, landscape

LAND = landscape(BRANCHES, "tensorrt", "float16")
FLOATS = LAND.state(LAND.space.floats)
LAST = len(LAND.sites) - 1


def only_the_last_is_noisy(state: State) -> float:
    return 1.0 if state[LAST] != FLOATS[LAST] else 0.0


def blocks(budget: int) -> list[set[int]]:
    """The sites of each block that is measured."""
    probes = Probes(LAND, only_the_last_is_noisy, 0.5, per_site=True, budget=budget)
    states = [observation.state for observation in probes.observations()]
    return [{i for i, own in enumerate(state) if own != FLOATS[i]} for state in states]


def test_halves_with_the_noise_are_halved_until_one_site_is_left():
    found = blocks(budget=100)
    noisy = [block for block in found if LAST in block]
    assert all(after < before for before, after in pairwise(noisy))
    assert noisy[-1] == {LAST}
    assert len(found) == 2 * len(noisy)  # Quiet halves are left as they are.


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4])
def test_no_more_blocks_are_measured_than_the_budget_has_and_the_same_ones_first(budget: int):
    assert blocks(budget) == blocks(100)[: budget - budget % 2]
