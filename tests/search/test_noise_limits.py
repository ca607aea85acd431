"""Where noise is looked for: blocks of sites, halved where the noise is, within a budget."""

from itertools import pairwise

import pytest

from placer.search.landscape.landscape import State
from placer.search.models.noise_limits import Probes
from tests.search.landscapes import BRANCHES, landscape

LAND = landscape(BRANCHES, "tensorrt", "float16")
FLOATS = LAND.state(LAND.space.floats)
DEFAULTS = LAND.state(LAND.space.defaults)
LAST = len(LAND.sites) - 1


def measured(budget: int, noisy: int = LAST) -> list[State]:
    """What is measured where all noise is that of one site."""

    def noise(state: State) -> float:
        return 1.0 if state[noisy] != FLOATS[noisy] else 0.0

    probes = Probes(LAND, noise, 0.5, per_site=True, budget=budget)
    return [observation.state for observation in probes.observations()]


def block(state: State) -> set[int]:
    """The sites that are measured together."""
    return {i for i, own in enumerate(state) if own != FLOATS[i]}


def is_default(state: State) -> bool:
    return all(own in (FLOATS[i], DEFAULTS[i]) for i, own in enumerate(state))


@pytest.mark.parametrize("site", sorted(block(DEFAULTS)))
def test_halves_with_the_noise_are_halved_until_one_site_is_left(site: int):
    """Also within groups of several sites."""
    assert {len(members) for members in LAND.members} > {1}
    found = [block(state) for state in measured(100, site) if is_default(state)]
    noisy = [sites for sites in found if site in sites]
    assert all(after < before for before, after in pairwise(noisy))
    assert noisy[-1] == {site}
    assert len(found) == 2 * len(noisy)  # Quiet halves are left as they are.


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4])
def test_no_more_blocks_are_measured_than_the_budget_has_and_the_same_ones_first(budget: int):
    assert measured(budget) == measured(100)[: budget - budget % 2]


def test_other_layouts_of_a_noisy_group_are_measured_by_themselves():
    others = [state for state in measured(budget=100) if not is_default(state)]
    (group,) = (own for own in LAND.members if LAST in own)
    left = set(range(len(LAND.names[LAST]))) - {FLOATS[LAST], DEFAULTS[LAST]}
    assert others == [
        tuple(layout if i in group else own for i, own in enumerate(FLOATS))
        for layout in sorted(left)
    ]
