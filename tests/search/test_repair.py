"""What is left of placements that miss the gates, where noise does not add up."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from placer.search.landscape.landscape import Objective, State
from placer.search.proposals.repair import MEASUREMENTS, pruned, repaired
from placer.search.proposals.round import REPAIRED
from placer.search.space import Choices
from tests.search.landscapes import BRANCHES, landscape
from tests.search.simulated_engines import Engine, search

LAND = landscape(BRANCHES, "tensorrt", "float16")
FLOATS, DEFAULTS = LAND.state(LAND.space.floats), LAND.state(LAND.space.defaults)
ALIKE = np.ones((len(FLOATS), max(len(names) for names in LAND.names)))


def gains(*sites: int) -> Objective:
    """Each of ``sites`` gains 1 by its default layout, others lose 1; layers cost nothing."""
    extras = np.zeros_like(ALIKE)
    for site, (before, after) in enumerate(zip(FLOATS, DEFAULTS, strict=True)):
        if before != after:
            extras[site, after] = -1 if site in sites else 1
    return Objective(defaultdict(float), extras)


def at_default(state: State) -> set[int]:
    return {i for i, number in enumerate(state) if number != FLOATS[i]}


def test_of_two_groups_that_destroy_an_output_together_one_stays():
    asked: list[State] = []

    def holds(state: State) -> bool:
        asked.append(state)
        return not {0, 3} <= at_default(state)

    every = gains(*range(len(FLOATS)))
    found = repaired(LAND, FLOATS, DEFAULTS, ALIKE, every, holds)
    assert at_default(found) == at_default(DEFAULTS) - {3}
    assert holds(found)
    assert len(asked) <= MEASUREMENTS + 1


def test_no_more_is_changed_than_holds():
    found = repaired(LAND, FLOATS, DEFAULTS, ALIKE, gains(), lambda state: state == FLOATS)
    assert found == FLOATS


def test_changes_that_gain_nothing_are_undone():
    assert at_default(pruned(LAND, FLOATS, DEFAULTS, gains(1, 4, 5))) == {1, 4, 5}


@pytest.mark.slow
def test_what_holds_is_found_soon_where_most_pairs_of_groups_destroy_an_output():
    quiet = {LAND.members[0], LAND.members[4]}
    loud = [pair for pair in itertools.combinations(LAND.members, 2) if set(pair) != quiet]

    def noise(choices: Choices) -> float:
        on = at_default(LAND.state(choices))
        dead = any(on & set(first) and on & set(second) for first, second in loud)
        return 1.0 if dead else 1e-4 * len(on)

    records = search(Engine(LAND, noise=noise, limit=0.5), 12)
    held = [r for r in records if r.feasible and r.choices != LAND.space.floats]
    assert held[0].number < 10
    assert any(record.kind == REPAIRED for record in records)
