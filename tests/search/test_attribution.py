"""Times of an engine's layers, given to predicted ones."""

from dataclasses import replace

import pytest

from placer.plan import Plan
from placer.search.models.attribution import attribute
from placer.search.models.latency_model import assumed_cost
from tests.search.landscapes import BRANCHES, landscape


def test_layers_that_an_engine_built_as_one_share_its_time_by_what_they_have_to_do():
    """As ONNX Runtime sums residuals in the Conv before."""
    land = landscape(BRANCHES)
    predicted = land.predict(land.state(land.space.floats))
    layers = {own.layer.nodes[0]: own.layer for own in predicted.layers}
    first, second = layers.pop("pool1"), layers.pop("concat1")
    one = replace(first, nodes=(*first.nodes, *second.nodes), time_us=30.0)
    alone = [replace(layer, time_us=10.0) for layer in layers.values()]
    found = attribute(predicted, Plan((one, *alone)), land.layers)
    numbers = {own.layer.nodes[0]: land.layers.number(own) for own in predicted.layers}
    times = {node: found[number] for node, number in numbers.items()}
    costs = {n: assumed_cost(land.layers.signatures[number].work) for n, number in numbers.items()}
    assert times["pool1"] + times["concat1"] == pytest.approx(30)
    assert times["pool1"] / times["concat1"] == pytest.approx(costs["pool1"] / costs["concat1"])
    assert {times[node] for node in layers} == {10}


def test_a_layer_that_the_engine_left_out_takes_no_time():
    land = landscape(BRANCHES)
    predicted = land.predict(land.state(land.space.floats))
    layers = [own.layer for own in predicted.layers if "pool1" not in own.layer.nodes]
    found = attribute(predicted, Plan(tuple(replace(o, time_us=1.0) for o in layers)), land.layers)
    times = {own.layer.nodes[0]: found[land.layers.number(own)] for own in predicted.layers}
    assert times.pop("pool1") == 0
    assert set(times.values()) == {1}


def test_without_times_nothing_is_told():
    land = landscape(BRANCHES)
    predicted = land.predict(land.state(land.space.floats))
    assert attribute(predicted, Plan(tuple(o.layer for o in predicted.layers)), land.layers) == {}
