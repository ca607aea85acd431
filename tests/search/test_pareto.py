"""The latency-accuracy front: which points are chosen, and how the search looks for them."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.layer_signatures import Signature
from placer.search.pareto import (
    FLOAT_MODEL,
    Point,
    dominated_area,
    front,
    noise_targets,
    point_of,
    spread,
    useful_front,
)
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord
from placer.search.space import Choices
from tests.search.landscapes import BRANCHES, landscape
from tests.search.outcomes import judgement, measurement
from tests.search.simulated_engines import Engine

# Few different values, so that points often are equal in one.
POINTS = st.builds(
    Point,
    st.integers(30, 110).map(lambda percent: percent / 100),
    st.one_of(st.just(0.0), st.integers(-60, 0).map(lambda decibels: 10 ** (decibels / 10))),
)
CLOUDS = st.lists(POINTS, max_size=12)
COUNTS = st.integers(2, 6)


def dominates(one: Point, other: Point) -> bool:
    return one != other and one.latency <= other.latency and one.noise <= other.noise


# --- which points ---------------------------------------------------------------------------


@given(CLOUDS)
def test_the_front_is_what_no_point_dominates(points: list[Point]):
    found = [points[index] for index in front(points)]
    assert set(found) == {p for p in points if not any(dominates(q, p) for q in points)}
    assert len(set(found)) == len(found)
    assert found == sorted(found, key=lambda p: (p.latency, -p.noise))


@given(CLOUDS)
def test_useful_points_are_those_of_the_front_that_the_float_model_does_not_dominate(
    points: list[Point],
):
    found = useful_front(points)
    assert found == [i for i in front(points) if points[i].latency < FLOAT_MODEL.latency]


@given(CLOUDS, COUNTS)
def test_chosen_points_are_of_the_front_and_keep_both_ends(points: list[Point], count: int):
    everything, chosen = front(points), spread(points, count)
    assert len(chosen) == min(count, len(everything))
    assert [index for index in everything if index in chosen] == chosen
    if everything:
        assert (chosen[0], chosen[-1]) == (everything[0], everything[-1])


@given(CLOUDS, COUNTS)
def test_chosen_points_dominate_nearly_as_much_as_the_best_choice(points: list[Point], count: int):
    """Greedy is within 1 - 1/e of the optimum (Nemhauser, Wolsey and Fisher 1978)."""
    everything, chosen = front(points), spread(points, count)
    if len(everything) <= count:
        return
    ends, between = (everything[0], everything[-1]), everything[1:-1]
    areas = [
        dominated_area([points[i] for i in (*ends, *inner)])
        for inner in itertools.combinations(between, count - 2)
    ]
    assert dominated_area([points[i] for i in chosen]) >= (1 - 1 / math.e) * max(areas) - 1e-12


@pytest.mark.slow
@given(CLOUDS, COUNTS, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order(points: list[Point], count: int, random):
    shuffled = random.sample(points, len(points))
    assert [shuffled[i] for i in spread(shuffled, count)] == [
        points[i] for i in spread(points, count)
    ]


def test_the_point_that_adds_most_comes_first():
    """Of the two between, near adds (0.9 - 0.45) * 3 to the area and knee (0.9 - 0.5) * 20."""
    fast, knee, near, exact = Point(0.4, 1e-2), Point(0.5, 1e-4), Point(0.45, 5e-3), Point(0.9, 0)
    assert spread([fast, near, knee, exact], 3) == [0, 2, 3]
    assert spread([fast, near, knee, exact], 2) == [0, 3]
    assert dominated_area([fast, knee, exact]) == pytest.approx(0.4 * 20)


# --- where the search looks -----------------------------------------------------------------


def trial(ratio: float, noise: float | None, **changes: object) -> TrialRecord:
    """A trial of some placement."""
    values: dict[str, object] = {
        "number": 0,
        "kind": "surrogate",
        "choices": {},
        "placement_id": "some",
        "measurement": measurement(ratio),
        "judgement": judgement(noise=noise),
    }
    return TrialRecord(**{**values, **changes})


def test_trials_that_were_not_judged_or_miss_a_gate_are_no_points():
    assert point_of(trial(0.5, 1e-3)) == Point(0.5, 1e-3)
    assert point_of(trial(0.5, None)) is None
    assert point_of(trial(0.5, 1e-3, ruled_out="slower than the best known")) is None
    assert point_of(trial(0.5, 1e-1, judgement=judgement(0.5, 1e-1))) is None


def decibels(limits: Sequence[float]) -> list[float]:
    return [-10 * math.log10(limit) for limit in limits]


def test_limits_reach_from_the_fastest_to_beyond_the_quietest_useful_placement():
    trials = [trial(1.0, 0.0), trial(0.5, 1e-2), trial(0.8, 1e-4), trial(1.2, 1e-9)]
    assert decibels(noise_targets(trials, 3, 0)) == pytest.approx([30, 40, 50])
    # Later cycles look between them.
    assert decibels(noise_targets(trials, 3, 1)) == pytest.approx([25, 35, 45])
    assert decibels(noise_targets(trials, 3, 2)) == pytest.approx([27.5, 37.5, 47.5])
    assert decibels(noise_targets(trials, 3, 3)) == pytest.approx([22.5, 32.5, 42.5])


def test_there_are_no_limits_where_nothing_can_be_gained():
    assert noise_targets([], 3, 0) == ()
    assert noise_targets([trial(1.0, 0.0), trial(1.1, 1e-3)], 3, 0) == ()
    # The fastest is exact: nothing can be more accurate.
    assert noise_targets([trial(0.7, 0.0), trial(0.8, 1e-3)], 3, 0) == ()


# --- the search -----------------------------------------------------------------------------


def cost(signature: Signature, salt: int) -> float:
    """Time of a layer: its memory traffic, times a factor from 0.6 to 1.4 that is its own."""
    if signature.work is None:
        return 0.0
    factor = 0.6 + 0.8 * (int(signature.id, 16) % (997 + salt)) / (997 + salt)
    return factor * (0.2 + signature.work.bytes / 1e4)


class NoisyEngine(Engine):
    """Layers that the float model has not got make noise of their own, from 20 to 50 dB."""

    def __init__(self, land: Landscape, salt: int) -> None:
        super().__init__(land, salt=salt, noise=self._sum)
        self._floats = {own.id for own in self._layers(land.state(land.space.floats))}

    def layers(self, state: State) -> dict[str, float]:
        return {own.id: cost(own, self._salt) for own in self._layers(state)}

    def front(self) -> list[Point]:
        """The true one, by trying everything."""
        states = itertools.product(*(range(len(names)) for names in self.land.names))
        points = [Point(self.ratio(s) or 1.0, self.noise(self.land.choices(s))) for s in states]
        return [points[index] for index in useful_front(points)]

    def _layers(self, state: State) -> list[Signature]:
        counts = Counter(self.land.predict(state).counts())
        return [self.land.layers.signatures[number] for number in counts.elements()]

    def _latency(self, state: State) -> float:
        return sum(cost(own, self._salt) for own in self._layers(state))

    def _sum(self, choices: Choices) -> float:
        return sum(
            10 ** (-2 - 3 * (int(own.id, 16) * (self._salt + 7) % 1009) / 1009)
            for own in self._layers(self.land.state(choices))
            if own.id not in self._floats
        )


def search(engine: Engine, trials: int, levels: int) -> list[TrialRecord]:
    proposer = SurrogateProposer(engine.land, 0, engine.noise, levels=levels)
    records: list[TrialRecord] = []
    while len(records) < trials and (proposal := proposer.propose(records)) is not None:
        records.append(engine.trial(len(records), proposal))
    return records


def found(records: Sequence[TrialRecord]) -> list[Point]:
    """The front of the trials."""
    points = [point for record in records if (point := point_of(record)) is not None]
    return [points[index] for index in useful_front(points)]


def area(points: Sequence[Point], corner: Point) -> float:
    """What ``points`` dominate, up to the float model's latency and the noise of ``corner``."""
    inside = [point for point in points if point.noise <= corner.noise]
    return dominated_area([Point(0.0, corner.noise), *inside, FLOAT_MODEL])


@pytest.mark.slow
def test_sixteen_trials_find_nearly_all_of_the_true_front():
    """Of 1024 placements, in most of five worlds; looking for the fastest rarely finds more."""
    of_front, of_fastest = [], []
    for salt in range(5):
        engine = NoisyEngine(landscape(BRANCHES, "tensorrt", "float16"), salt)
        true = engine.front()
        if len(true) > 1:
            whole = area(true, true[0])
            of_front.append(area(found(search(engine, 16, levels=3)), true[0]) / whole)
            of_fastest.append(area(found(search(engine, 16, levels=0)), true[0]) / whole)
    assert len(of_front) >= 3
    assert median(of_front) > 0.9
    more = [front >= fastest for front, fastest in zip(of_front, of_fastest, strict=True)]
    assert sum(more) >= len(more) - 1


@cache
def records_of_branches() -> tuple[TrialRecord, ...]:
    """A search for a front until it ends."""
    engine = NoisyEngine(landscape(BRANCHES, "tensorrt", "float16"), 0)
    return tuple(search(engine, 100, levels=3))


@pytest.mark.slow
@pytest.mark.parametrize("known", [4, 9, 14])
def test_a_resumed_search_goes_on_as_an_uninterrupted_one(known: int):
    """Another process, which measured no noise before, proposes the same."""
    records = records_of_branches()
    engine = NoisyEngine(landscape(BRANCHES, "tensorrt", "float16"), 0)
    proposer = SurrogateProposer(engine.land, 0, engine.noise, levels=3)
    proposal = proposer.propose(records[:known])
    assert (proposal.kind, proposal.choices) == (records[known].kind, records[known].choices)


@pytest.mark.slow
def test_no_placement_is_proposed_twice_and_the_search_ends_by_itself():
    records = records_of_branches()
    assert len({record.placement_id for record in records}) == len(records) < 60
