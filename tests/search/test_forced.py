"""Forced nodes: quantized in every proposal of every sampler, and the best of the rest is found."""

from __future__ import annotations

import itertools

import pytest

from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.restriction import forced
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.records import TrialRecord
from placer.search.samplers import (
    ExhaustiveProposer,
    Proposer,
    RandomProposer,
    TpeProposer,
)
from placer.search.space import build_space
from tests.search.landscapes import NET
from tests.search.simulated_engines import EdgeEngine, Engine, best, noisy_conv1, search

WEIGHT = "w1 -> conv1[1]"


def landscape(*nodes: str) -> Landscape:
    """Of the chain, in which conv0 and conv1 are equal and so a group, with ``nodes`` forced."""
    graph = graph_of_text(NET)
    pack = load_pack("onnxruntime")
    space = build_space(graph, forced(find_sites(graph, pack.rules), graph, frozenset(nodes)).sites)
    integer = pack.manifest.scheme.activation
    predictor = Predictor(graph, pack.rules, ANY_TARGET, "float", integer)
    return Landscape(space, LayerModel(graph, predictor))


def is_forced(land: Landscape, trial: TrialRecord) -> bool:
    edges = land.space.placement(trial.choices).edges
    return WEIGHT in {str(edge) for edge in edges}


def optimum(engine: Engine) -> float:
    """The least ratio of what may be proposed and holds the limit."""
    land = engine.land

    def may_be(state: State) -> bool:
        edges = land.space.placement(land.choices(state)).edges
        return WEIGHT in {str(edge) for edge in edges}

    states = itertools.product(*(range(len(names)) for names in land.names))
    held = (s for s in states if may_be(s) and engine.noise(land.choices(s)) <= engine.limit)
    return min(ratio for ratio in map(engine.ratio, held) if ratio is not None)


def test_a_forced_site_is_decided_apart_and_its_group_is_not_forced():
    space = landscape("conv1").space
    by_name = {group.name: group for group in space.groups}
    assert by_name["conv-act:conv1"].offered == ("integer",)
    assert by_name["conv-act:conv0"].offered == ("integer", "float")
    assert space.placement(space.floats) == EMPTY
    assert WEIGHT in {str(edge) for edge in space.placement(space.least).edges}


def test_the_search_begins_with_what_is_forced_and_never_leaves_it():
    land = landscape("conv1")
    records = search(Engine(land), 12)
    assert [record.kind for record in records[:2]] == ["forced", "default"]
    assert all(is_forced(land, record) for record in records)
    assert best(records).ratio == pytest.approx(optimum(Engine(land)))


@pytest.mark.slow
def test_gates_that_a_forced_node_makes_hard_are_still_met_as_well_as_can_be():
    """conv1 makes nearly all noise, so the search would leave it float."""
    land = landscape("conv1")
    engine = EdgeEngine(land, noise=noisy_conv1(land), limit=1.05)
    records = search(engine, 20)
    assert all(is_forced(land, record) for record in records)
    assert best(records).ratio == pytest.approx(optimum(engine))
    # The models of latency and noise begin at the float model, which is none of the trials.
    assert EMPTY.id not in {record.placement_id for record in records}


@pytest.mark.parametrize("sampler", [RandomProposer, TpeProposer])
def test_other_samplers_do_not_leave_it_either(sampler: type[RandomProposer | TpeProposer]):
    land = landscape("conv1")
    assert_forced(land, sampler(land.space, 0))


def test_trying_everything_tries_what_may_be_proposed():
    land = landscape("conv1")
    tried = assert_forced(land, ExhaustiveProposer(land.space))
    groups = land.space.groups
    combinations = itertools.product(*(group.offered for group in groups))
    choices = (dict(zip([g.name for g in groups], one, strict=True)) for one in combinations)
    assert tried == len({land.space.placement(one).id for one in choices})


def assert_forced(land: Landscape, proposer: Proposer) -> int:
    """Propose until nothing is left, at most 30 times; returns how often."""
    engine, records = Engine(land), list[TrialRecord]()
    while len(records) < 30 and (proposal := proposer.propose(records)) is not None:
        records.append(engine.trial(len(records), proposal))
        assert is_forced(land, records[-1])
    return len(records)
