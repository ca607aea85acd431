"""How far whole latencies are off the layers, and what the search does then."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import Any, cast

import numpy as np
import pytest

from placer.search.landscape.landscape import Moves, Objective, State, apply
from placer.search.models.bayesian_linear import Gaussian, Summed, Sums
from placer.search.models.latency_model import LatencyModel
from placer.search.models.misfit import NEIGHBOURS, RULES, Correlation, Misfit, learn_misfit
from placer.search.proposals import exact
from placer.search.proposals.exact import Solution
from placer.search.proposals.further import on_descents
from placer.search.proposals.near_best import expected_gain, near_best
from placer.search.proposals.round import NEAR
from tests.search.landscapes import BRANCHES, landscape
from tests.search.simulated_engines import Engine, best, search

LAND = landscape(BRANCHES, "tensorrt", "float16")
FLOATS = LAND.state(LAND.space.floats)


def unlike(count: int) -> str:
    """Convolutions one after the other, each of another number of channels."""
    weights = ", ".join(f"float[{i + 9},{i + 8},1,1] w{i} = {{1}}" for i in range(count))
    nodes = " ".join(f"[conv{i}] t{i + 1} = Conv(t{i}, w{i})" for i in range(count))
    return f"""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,4,4] t0) => (float[1,{count + 8},4,4] t{count}) <{weights}> {{ {nodes} }}
"""


LONG = landscape(unlike(60), "tensorrt", "float16")


class PairedEngine(Engine):
    """Each two layouts of neighbouring sites slow each other down, or speed each other up."""

    world: tuple[int, ...] = ()

    def _latency(self, state: State) -> float:
        factor = 1.0
        for site, pair in enumerate(pairwise(state)):
            rng = np.random.default_rng([*self.world, site, *pair])
            factor *= 1 if pair == FLOATS[site : site + 2] else rng.uniform(0.85, 1.15)
        return super()._latency(state) * factor


def random_states(count: int) -> list[State]:
    rng = np.random.default_rng(0)
    return [tuple(int(rng.integers(len(names))) for names in LAND.names) for _ in range(count)]


def sums(errors: np.ndarray) -> Summed:
    """As many sums of two unknown costs of about 1 as there are ``errors``, which they are off."""
    counts = np.random.default_rng(1).integers(0, 3, (len(errors), 2)).astype(float)
    prior = Gaussian(np.ones(2), np.zeros((2, 0)), np.full(2, 0.01))
    exact = np.diag(np.full(len(errors), 1e-6))
    return Summed(Sums(prior, counts), counts @ np.array([1.1, 0.9]) + errors, exact)


def test_sums_of_costs_have_no_misfit():
    states = random_states(12)
    assert learn_misfit(sums(np.zeros(12)), Correlation(LAND, states)).deviation == 0


def test_the_misfit_is_learned_from_whole_latencies():
    states = random_states(40)
    covariance = Misfit(Correlation(LAND, states), ((0.08, 6.0),)).among() + 1e-9 * np.eye(40)
    drawn = np.linalg.cholesky(covariance) @ np.random.default_rng(2).standard_normal(40)
    assert learn_misfit(sums(drawn), Correlation(LAND, states)).deviation in (0.04, 0.08, 0.16)


def test_a_group_of_several_sites_counts_once():
    members = max(LAND.members, key=len)
    other = tuple(
        (number + 1) % len(LAND.names[site]) if site in members else number
        for site, number in enumerate(FLOATS)
    )
    correlation = Correlation(LAND, [FLOATS, other])
    np.testing.assert_allclose(correlation.to(np.array(FLOATS), 2.0), [1, np.exp(-1 / 2)])


def test_neighbours_are_alike_wherever_else_placements_differ():
    pairs = LAND.neighbours
    group = 0
    beside = sum(group in pair for pair in pairs)
    other = tuple(
        (number + 1) % len(LAND.names[site]) if site in LAND.members[group] else number
        for site, number in enumerate(FLOATS)
    )
    correlation = Correlation(LAND, [FLOATS, other])
    expected = [1, 1 - beside / len(pairs)]
    np.testing.assert_allclose(correlation.to(np.array(FLOATS), NEIGHBOURS), expected)


def test_placements_that_quantize_as_much_by_each_rule_are_alike():
    start = LONG.state(LONG.space.floats)
    of_rule = defaultdict[str, list[State]](list)  # One group of a rule each has its other layout.
    for group, (site,) in zip(LONG.space.groups, LONG.members, strict=True):
        of_rule[group.sites[0].match.rule.id].append(apply(start, [((site, 1 - start[site]),)]))
    changed, unlike_it = of_rule.values()
    correlation = Correlation(LONG, [start, changed[1], unlike_it[0]])
    own, other = (1 / (2 * len(states)) for states in (changed, unlike_it))
    found = correlation.to(np.array(changed[0]), RULES)
    np.testing.assert_allclose(found, [1 - own, 1, 1 - own - other])


@pytest.mark.parametrize("length_scale", [6.0, NEIGHBOURS, RULES])
def test_the_correlation_after_changes_is_that_of_the_changed_states(length_scale: float):
    # Changes of a group, and of two that may be of two rules.
    pairs = [a + b for a, b in combinations(LAND.all_moves.moves, 2) if not {*dict(a)} & {*dict(b)}]
    moves, measured = LAND.moves([*LAND.all_moves.moves, *pairs]), random_states(5)
    correlation, start = Correlation(LAND, measured[1:]), measured[0]
    expected = [
        correlation.to(np.array(apply(start, [move])), length_scale) for move in moves.moves
    ]
    found = correlation.after(np.array(start), moves, length_scale)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length_scale", [6.0, NEIGHBOURS, RULES])
def test_how_errors_of_placements_are_correlated_is_learned(length_scale: float):
    rng = np.random.default_rng(3)
    every = random_states(60)
    states = [
        tuple(a if rng.random() < 0.7 else b for a, b in zip(FLOATS, other, strict=True))
        for other in every
    ]
    correlation = Correlation(LAND, states)
    covariance = Misfit(correlation, ((0.08, length_scale),)).among() + 1e-9 * np.eye(len(states))
    drawn = np.linalg.cholesky(covariance) @ rng.standard_normal(len(states))
    assert learn_misfit(sums(drawn), correlation).parts[0][1] == length_scale


@pytest.mark.parametrize(
    ("gain", "deviation", "expected"),
    [(0.5, 0, 0.5), (-0.5, 0, 0), (0, 1, (2 * np.pi) ** -0.5), (2, 1, 2.0085)],
)
def test_losses_do_not_count(gain: float, deviation: float, expected: float):
    """Closed forms; the last from the table of the unit normal loss."""
    assert expected_gain(gain, deviation) == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_the_search_goes_on_near_the_best_where_the_model_is_wrong():
    engine = PairedEngine(LAND)
    records = search(engine, 60)
    assert any(record.kind == NEAR for record in records)
    assert best(records).ratio <= 1.02 * engine.optimum()


@pytest.mark.parametrize(("kind", "solves"), [(Engine, True), (PairedEngine, False)])
def test_an_integer_program_is_solved_where_latencies_are_sums_of_layers(
    kind: type[Engine], solves: bool, monkeypatch: pytest.MonkeyPatch
):
    solved: list[Solution | None] = []

    def solve(*given: Any) -> Solution | None:
        solved.append(exact.solve(*given))
        return solved[-1]

    monkeypatch.setattr("placer.search.proposals.pools.solve", solve)
    search(kind(LAND, noise=lambda choices: len(LAND.space.placement(choices).edges), limit=8), 13)
    assert bool(solved) == solves


class Told:
    """A model of latency that tells what it was told of some states, and 1 of all others."""

    def __init__(self, told: Mapping[State, float]) -> None:
        self._told = told

    def objective(self) -> Objective:
        """By layers, all states take as long."""
        extras = np.zeros((len(LONG.sites), max(len(names) for names in LONG.names)))
        return Objective(defaultdict(float), extras)

    def predict_changes(self, state: State, moves: Moves) -> list[tuple[float, float]]:
        """See ``LatencyModel``."""
        return [(self._told.get(apply(state, [move]), 1.0), 0.0) for move in moves.moves]


def is_any(_: State) -> bool:
    return True


def test_of_many_changes_that_with_the_most_expected_gain_is_found():
    moves = LONG.group_moves
    state = LONG.state(LONG.space.defaults)
    altering = np.flatnonzero(moves.changing(state) & LONG.alters(state, moves))
    assert len(altering) > 48
    for move in altering[[0, -1]].tolist():
        wanted = apply(state, [moves.moves[move]])
        model = cast(LatencyModel, Told({wanted: 0.9}))
        found = near_best(LONG, model, (1.0, state), moves, is_any, is_any, {})
        assert found is not None
        assert found[1] == wanted


def test_changes_of_two_groups_that_were_tried_leave_their_place_to_others():
    moves, state = LONG.group_moves, LONG.state(LONG.space.defaults)
    altering = np.flatnonzero(moves.changing(state) & LONG.alters(state, moves))[:16]
    pairs = combinations([moves.moves[move] for move in altering.tolist()], 2)
    apart = [pair for pair in pairs if pair[0][0][0] != pair[1][0][0]]
    wanted = apply(state, apart[-1])
    assert len(apart) > 48
    model = cast(LatencyModel, Told({}))
    found = near_best(LONG, model, (1.0, state), moves, wanted.__eq__, wanted.__eq__, {})
    assert found == (0.0, wanted)


class Bent:
    """A model of latency in which nothing but errors tells states apart: how far off one is."""

    def __init__(self, best: State) -> None:
        self._best = best

    def objective(self) -> Objective:
        """By layers, all states take as long."""
        return Told({}).objective()

    def error(self, state: State) -> float:
        """See ``LatencyModel``."""
        return 0.01 * sum(own != other for own, other in zip(state, self._best, strict=True))

    def errors_after(self, state: State, moves: Moves) -> np.ndarray:
        """See ``LatencyModel``."""
        return np.array([self.error(apply(state, [move])) for move in moves.moves])


def test_descents_with_errors_lead_to_what_layers_know_nothing_of():
    start, moves = LONG.state(LONG.space.defaults), LONG.group_moves
    changes = [m for m in moves.moves if any(start[site] != layout for site, layout in m)][:12]
    best_state = apply(start, changes)
    model = cast(LatencyModel, Bent(best_state))
    seen = on_descents(LONG, model, [start], moves, lambda _: True)
    assert best_state in seen
    last = apply(start, changes[:1])
    held = on_descents(LONG, model, [start], moves, last.__eq__)
    assert set(held) == {start, last}


@pytest.mark.slow
def test_it_does_not_end_while_layers_predict_a_gain():
    # Changes near float bring nothing here; one further away, which layers predict, does.
    engine = PairedEngine(LAND)
    engine.world = (9,)
    assert best(search(engine, 80)).ratio < 0.97


@pytest.mark.slow
def test_many_changes_in_vain_do_not_end_it_while_others_are_left():
    engine = PairedEngine(LAND)
    engine.world = (1,)
    records = search(engine, 60)
    since = records[records.index(best(records)) + 1 :]
    assert sum(record.kind == NEAR for record in since) > 24
