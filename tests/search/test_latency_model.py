"""What measured candidates tell of the costs of layers. Latencies are sums of hidden costs."""

import itertools
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest

from placer.search.landscape.landscape import Landscape, State, apply
from placer.search.landscape.layer_signatures import Signature
from placer.search.landscape.moves import sites_of
from placer.search.models.latency_model import LatencyModel, Observation
from tests.search.landscapes import BRANCHES, landscape

LAND = landscape(BRANCHES, "tensorrt", "float16")


def hidden_cost(signature: Signature, world: int = 0) -> float:
    """Microseconds: what there is to do, times a factor from 0.6 to 1.4 that is the layer's own.

    The factors of each ``world`` are others.
    """
    if signature.work is None:
        return 0.0
    factor = 0.6 + 0.8 * Random(f"{signature.id} {world}").random()
    return factor * (2 + signature.work.bytes / 5e5)


def hidden_us(state: State, world: int = 0) -> float:
    """The latency that an engine would measure."""
    counts = LAND.predict(state).counts()
    return sum(hidden_cost(LAND.layers.signatures[n], world) * many for n, many in counts.items())


FLOATS = LAND.state(LAND.space.floats)
DEFAULTS = LAND.state(LAND.space.defaults)


def ratio(state: State, world: int = 0) -> float:
    return hidden_us(state, world) / hidden_us(FLOATS, world)


def share(number: int, world: int = 0) -> float:
    return hidden_cost(LAND.layers.signatures[number], world) / hidden_us(FLOATS, world)


def working(numbers: Iterable[int]) -> list[int]:
    """Those of layers that do something."""
    return [n for n in sorted(numbers) if LAND.layers.signatures[n].work is not None]


def total(state: State, world: int = 0) -> Observation:
    """A measured candidate without a profile."""
    return Observation(state, ratio(state, world), 0.0, {})


def profiled(state: State, world: int = 0) -> Observation:
    """A measured candidate and the times of its layers."""
    layers = {n: share(n, world) for n in LAND.predict(state).counts()}
    return Observation(state, ratio(state, world), 0.0, layers)


def random_states(count: int, seed: int) -> list[State]:
    rng = np.random.default_rng(seed)
    return [tuple(int(rng.integers(len(names))) for names in LAND.names) for _ in range(count)]


def errors(model: LatencyModel, states: list[State], world: int = 0) -> np.ndarray:
    return np.array([abs(model.predict(state)[0] - ratio(state, world)) for state in states])


def test_the_float_model_is_the_unit():
    expected, deviation = LatencyModel(LAND, [], {}).predict(FLOATS)
    assert expected == pytest.approx(1, abs=1e-3)
    assert deviation <= 1e-3


def test_totals_tell_the_latency_of_candidates_that_were_not_measured():
    others = random_states(30, seed=1)
    measured = [total(state) for state in random_states(60, seed=0)]
    before, after = (errors(LatencyModel(LAND, seen, {}), others) for seen in ([], measured))
    assert before.mean() > 0.05
    assert after.max() < 0.03
    assert after.mean() < before.mean() / 10


def test_profiles_tell_the_cost_of_every_layer():
    model = LatencyModel(LAND, [profiled(DEFAULTS)], {})
    costs = model.objective().costs
    for number in working(LAND.predict(DEFAULTS).counts()):
        assert costs[number] == pytest.approx(share(number), rel=0.1)


@pytest.mark.slow
def test_one_profile_tells_more_than_one_total():
    """On average: in a single world a total may happen to be nearer."""
    others, by_total, by_profile = random_states(30, seed=1), [], []
    for world in range(60):
        for kind, found in ((total, by_total), (profiled, by_profile)):
            model = LatencyModel(LAND, [kind(DEFAULTS, world)], {})
            found.append(errors(model, others, world).mean())
    assert np.mean(by_profile) < np.mean(by_total)


def test_deviations_shrink_with_measurements():
    """What was measured is known; what shares layers with it is known better than before."""
    similar = apply(DEFAULTS, [((0, FLOATS[0]),)])
    before, after = (LatencyModel(LAND, seen, {}) for seen in ([], [total(DEFAULTS)]))
    assert after.predict(DEFAULTS)[1] <= 1e-3 < before.predict(DEFAULTS)[1]
    assert after.predict(similar)[1] < before.predict(similar)[1]


def test_changes_are_predicted_as_the_states_they_lead_to():
    """Bit by bit, also where they lead to layers that no measured candidate has."""
    model = LatencyModel(LAND, [profiled(DEFAULTS)], {})
    pairs = itertools.combinations(LAND.group_moves.moves[::3], 2)
    both = [(*a, *b) for a, b in pairs if not sites_of(a) & sites_of(b)]
    moves = LAND.moves([*LAND.all_moves.moves, *both])
    for state in (DEFAULTS, *random_states(2, seed=0)):
        after = [model.predict(apply(state, [move])) for move in moves.moves]
        assert model.predict_changes(state, moves) == after


def test_an_uncertain_measurement_teaches_less():
    state, claimed = DEFAULTS, 0.2
    certain, vague = (
        LatencyModel(LAND, [Observation(state, claimed, deviation, {})], {}).predict(state)
        for deviation in (0.0, 1.0)
    )
    assert certain[0] == pytest.approx(claimed, abs=0.01)
    assert abs(vague[0] - claimed) > abs(certain[0] - claimed)
    assert vague[1] > certain[1]


def test_remembered_costs_are_used_until_this_model_tells_otherwise():
    LAND.predict(DEFAULTS)
    # Not all: the costs of the float model's layers are tied to their sum.
    numbers = working(LAND.predict(DEFAULTS).counts().keys() - LAND.predict(FLOATS).counts().keys())
    remembered = {LAND.layers.signatures[n].id: 2 * share(n) for n in numbers}
    costs = LatencyModel(LAND, [], remembered).objective().costs
    for number in numbers:
        assert costs[number] == pytest.approx(2 * share(number), rel=0.3)
    costs = LatencyModel(LAND, [profiled(DEFAULTS)], remembered).objective().costs
    for number in numbers:
        assert costs[number] == pytest.approx(share(number), rel=0.15)


def test_what_predicted_layers_do_not_explain_is_learned_by_group_and_layout():
    """A layout costs 0.1 more than its layers: candidates that have it are predicted with it."""
    site, layout = 0, DEFAULTS[0]
    assert FLOATS[site] != layout

    def measure(state: State) -> float:
        return ratio(state) + (0.1 if state[site] == layout else 0.0)

    seen = [Observation(state, measure(state), 0.0, {}) for state in random_states(60, seed=0)]
    model = LatencyModel(LAND, seen, {})
    found = [model.predict(state)[0] - measure(state) for state in random_states(30, seed=1)]
    assert np.abs(found).max() < 0.05


def test_drawn_costs_differ_where_nothing_was_measured_and_are_never_negative():
    model = LatencyModel(LAND, [profiled(FLOATS)], {})
    numbers = range(len(LAND.layers.signatures))
    costs = [model.objective([i]).costs for i in range(30)]
    drawn = np.array([[own[number] for number in numbers] for own in costs])
    assert drawn.min() >= 0
    spread = drawn.std(axis=0) / drawn.mean(axis=0)
    known = working(LAND.predict(FLOATS).counts())
    unknown = working(LAND.predict(DEFAULTS).counts().keys() - set(known))
    assert spread[known].max() < 0.1
    assert spread[unknown].min() > 0.1


def test_layers_that_appear_later_cost_what_their_kind_tells():
    land: Landscape = landscape(BRANCHES, "tensorrt", "float16")
    model = LatencyModel(land, [], {})
    known = len(land.layers.signatures)
    costs, draws = model.objective().costs, [model.objective([i]).costs for i in range(30)]
    new = [n for n in land.predict(land.state(land.space.defaults)).counts() if n >= known]
    working_new = [n for n in new if land.layers.signatures[n].work is not None]
    assert working_new
    for number in working_new:
        assert costs[number] > 0
        assert len({own[number] for own in draws}) > 1


def test_what_is_remembered_of_a_layer_counts_before_any_candidate_has_it():
    numbers = working(LAND.predict(DEFAULTS).counts().keys() - LAND.predict(FLOATS).counts().keys())
    expected = LatencyModel(LAND, [], {}).objective().costs[numbers[0]]
    remembered = {LAND.layers.signatures[numbers[0]].id: 2 * expected}
    cost = LatencyModel(LAND, [], remembered).objective().costs[numbers[0]]
    assert 1.5 * expected < cost < 2 * expected
