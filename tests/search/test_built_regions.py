"""What is built around changes, looked up by the sites that decide it, against whole placements."""

import itertools

import numpy as np
import pytest

from placer.graph.text import graph_of_text
from placer.prediction.select import make_predictor
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.built_regions import RegionsOfState
from placer.search.landscape.landscape import Landscape, apply
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.landscape.moves import Move, State
from placer.search.space import build_space
from tests.search.landscapes import BRANCHES
from tests.search.test_landscape import CHAIN, MOVED, POOLED, READERS

# Pairs before an addition of 0 and a product with 1 are before what reads these, which some engines
# take out.
IDLE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out)
<float[8,8,1,1] w = {1}, float[1] zero = {0}, float[1] one = {1}> {
  [conv0] a = Conv(x, w) [idle0] b = Add(a, zero) [relu0] c = Relu(b)
  [conv1] d = Conv(c, w) [idle1] e = Mul(d, one) [conv2] f = Conv(e, w)
  [idle2] h = Mul(c, one) [conv3] i = Conv(h, w) [add1] j = Add(f, i)
  [pool1] k = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(j) [conv4] out = Conv(k, w)
}
"""
# No two sites are alike, and most are far from each other.
UNLIKE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] out)
<float[8,4,1,1] w1 = {1}, float[12,8,1,1] w2 = {1}, float[12,12,3,3] w3 = {1},
 float[12,12,1,1] w4 = {1}, float[16,12,1,1] w5 = {1}, float[4,16,1,1] w6 = {1}> {
  [conv1] a = Conv(x, w1) [relu1] b = Relu(a) [conv2] c = Conv(b, w2)
  [conv3] d = Conv<pads = [1, 1, 1, 1]>(c, w3) [relu3] e = Relu(d) [conv4] f = Conv(e, w4)
  [add1] h = Add(f, c) [conv5] i = Conv(h, w5) [relu5] j = Relu(i) [conv6] out = Conv(j, w6)
}
"""
TEXTS = {
    "branches": BRANCHES,
    "chain": CHAIN,
    "idle": IDLE,
    "moved": MOVED,
    "pooled": POOLED,
    "readers": READERS,
    "unlike": UNLIKE,
}
BASES = {"onnxruntime": "float", "openvino": "float", "tensorrt": "float16"}


def landscape(name: str, pack_name: str) -> Landscape:
    graph, pack = graph_of_text(TEXTS[name]), load_pack(pack_name)
    space = build_space(graph, find_sites(graph, pack.rules))
    predictor = make_predictor(graph, pack, ANY_TARGET, BASES[pack_name])
    return Landscape(space, LayerModel(graph, predictor))


@pytest.mark.parametrize(("name", "pack"), [*itertools.product(TEXTS, BASES)])
def test_what_is_looked_up_is_what_the_changed_placement_has(name: str, pack: str):
    land, rng = landscape(name, pack), np.random.default_rng(0)
    predictor, regions = land.layers.regional, land.effects.regions
    assert predictor is not None and regions is not None
    altered = 0
    for _ in range(12):
        state = tuple(int(rng.integers(len(names))) for names in land.names)
        near = land.predict(state).prediction
        of_state = regions.from_state(state, near)
        for move in land.all_moves.moves:
            after = land._place(apply(state, [move]))
            expected = predictor.vary(near, near.placement.change_to(after))
            assert of_state.steps(move) == expected
            altered += bool(expected)
    assert altered  # Else nothing was put to the test.


@pytest.mark.parametrize("name", ["branches", "unlike"])
def test_changes_of_groups_that_are_not_near_add_up(name: str):
    land, rng = landscape(name, "onnxruntime"), np.random.default_rng(0)
    moves = land.group_moves.moves
    near = set(zip(*(numbers.tolist() for numbers in land.near_groups), strict=True))
    apart = [
        (i, j)
        for i, j in itertools.combinations(range(len(moves)), 2)
        if {site for site, _ in moves[i]}.isdisjoint(site for site, _ in moves[j])
        and (i, j) not in near
    ]
    assert near and apart
    for _ in range(6):
        state = tuple(int(rng.integers(len(names))) for names in land.names)
        count = land.predict(state).counts()
        alone = [land.predict(apply(state, [move])).counts() for move in moves]
        for i, j in apart:
            both = land.predict(apply(state, [moves[i], moves[j]])).counts()
            for n in both | alone[i] | alone[j] | count:
                assert both[n] - count[n] == alone[i][n] + alone[j][n] - 2 * count[n]


@pytest.mark.parametrize("name", TEXTS)
def test_what_touches_many_regions_is_looked_up_in_the_whole_model_with_the_same_result(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    by_region, rng = landscape(name, "onnxruntime"), np.random.default_rng(0)
    states = [tuple(int(rng.integers(len(names))) for names in by_region.names) for _ in range(6)]
    expected = [changed_layers(by_region, state) for state in states]
    assert any(any(counts.values()) for counts in expected)
    monkeypatch.setattr("placer.search.landscape.effects.FEW_REGIONS", -1)
    monkeypatch.delattr(RegionsOfState, "steps")  # So nothing is looked up region by region.
    whole = landscape(name, "onnxruntime")
    assert [changed_layers(whole, state) for state in states] == expected


def changed_layers(land: Landscape, state: State) -> dict[Move, dict[str, int]]:
    """By change of ``state``, what it does to the counts of layers, by the layers' ids."""
    signatures = land.layers.signatures
    return {
        move: {signatures[number].id: count for number, count in counts.items() if count}
        for move, counts in land.deltas(state, land.all_moves).items()
    }
