"""What holds a gate among changes of a fast placement that misses it, by its measured noise."""

from placer.search.landscape.landscape import State
from placer.search.models.agreement import Agreement
from placer.search.models.latency_model import LatencyModel
from placer.search.models.noise_model import NoiseModel, NoiseObservation
from placer.search.proposals.near_misses import MEASUREMENTS, NearMisses
from tests.search.test_landscape import BRANCHES, landscape

LAND = landscape(BRANCHES, "tensorrt", "float16")
DEFAULTS, FLOATS = (LAND.state(c) for c in (LAND.space.defaults, LAND.space.floats))
LIMIT = 0.01
QUIETER = 2  # The group without which the default is quieter, against what sums expect.


def found(start_noise: float, noise_without: float) -> tuple[State | None, list[State]]:
    """What is proposed, and what was measured: only without ``QUIETER`` noise changes."""
    measured: list[State] = []
    sites = LAND.members[QUIETER]

    def measure(state: State) -> float:
        measured.append(state)
        return noise_without if all(state[i] == FLOATS[i] for i in sites) else start_noise

    near = NearMisses(
        LAND,
        LatencyModel(LAND, [], {}),
        NoiseModel(LAND, [NoiseObservation(DEFAULTS, start_noise)]),
        measure,
        lambda _: True,
        Agreement(),
        LIMIT,
    )
    return near.best({DEFAULTS: start_noise}, 2.0), measured


def test_a_change_that_measures_quiet_enough_is_proposed():
    state, measured = found(1.3 * LIMIT, 0.3 * LIMIT)
    assert state is not None
    assert all(state[i] == FLOATS[i] for i in LAND.members[QUIETER])
    assert len(measured) <= MEASUREMENTS


def test_nothing_is_proposed_where_no_change_is_quieter():
    state, measured = found(1.3 * LIMIT, 1.3 * LIMIT)
    assert state is None
    assert 0 < len(measured) <= MEASUREMENTS


def test_nothing_is_measured_where_the_gate_is_missed_by_far():
    assert found(1e6 * LIMIT, LIMIT / 2) == (None, [])
