"""What single changes do to predicted layers, against predicting the changed placement."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.text import graph_of_text
from placer.prediction.select import make_predictor
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.answers import Answers
from placer.search.landscape.descent import descend
from placer.search.landscape.landscape import Landscape, Moves, Objective, apply
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.models.latency_model import LatencyModel
from placer.search.space import build_space
from tests.search.landscapes import BRANCHES, landscape

BOTH = landscape(BRANCHES, "tensorrt", "float16")


def states() -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(0, len(names) - 1) for names in BOTH.names))


def objective() -> Objective:
    """A cost per signature that depends on its id only."""
    costs = {n: int(s.id, 16) % 1000 / 1000 for n, s in enumerate(BOTH.layers.signatures)}
    layouts = max(len(names) for names in BOTH.names)
    return Objective(costs, np.tile(np.arange(layouts) * 0.01, (len(BOTH.names), 1)))


def check_changes(land: Landscape, state: tuple[int, ...]) -> None:
    """What each change does to the layers is what two predictions of the whole model tell."""
    before = land.predict(state).counts()
    for move, delta in land.deltas(state, land.all_moves).items():
        after = land.predict(apply(state, [move])).counts()
        changed = {n: after[n] - before[n] for n in before | after if after[n] != before[n]}
        assert {n: count for n, count in delta.items() if count} == changed


@settings(deadline=None)
@given(states())
def test_changes_predicted_together_are_those_predicted_one_by_one(state: tuple[int, ...]):
    check_changes(BOTH, state)


def test_values_do_not_depend_on_the_order_in_which_layers_were_met():
    found = []
    for order in (1, -1):
        land = landscape(BRANCHES, "tensorrt", "float16")
        every = list(itertools.product(*map(range, map(len, land.names))))[:200]
        for state in every[::order]:
            land.predict(state)
        costs = {n: int(s.id, 16) / 3e19 for n, s in enumerate(land.layers.signatures)}
        free = Objective(costs, np.zeros((len(land.names), max(map(len, land.names)))))
        found.append([land.value(state, free) for state in every])
    assert found[0] == found[1]


# Operators that OpenVINO compiles into one layer: more of them than changes reach elsewhere.
CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out) <float[8,8,1,1] w = {1}> {
  [conv0] a = Conv(x, w)
  [op0] b = Tanh(a) [op1] c = Abs(b) [op2] d = Neg(c) [op3] e = Tanh(d)
  [op4] f = Abs(e) [op5] g = Neg(f) [op6] h = Tanh(g) [op7] i = Abs(h)
  [conv1] j = Conv(i, w) [relu1] k = Relu(j) [conv2] out = Conv(k, w)
}
"""


# What reads the graph input shares what quantizes it.
READERS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out, float[1,8,8,8] d) <float[8,8,1,1] w = {1}> {
  [conv1] a = Conv(x, w) [sub1] b = Sub(x, x) [conv2] c = Conv(b, w) [conv3] d = Conv(a, w)
  [add1] out = Add(c, x)
}
"""


@pytest.mark.parametrize("text", [CHAIN, READERS])
def test_changes_reach_through_merged_layers_and_graph_inputs(text: str):
    land = landscape(text, "openvino")
    for state in itertools.islice(itertools.product(*map(range, map(len, land.names))), 40):
        check_changes(land, state)


# Pairs move past the pooling, so that conv0 is near what reads the convolutions behind it.
POOLED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out) <float[8,8,1,1] w = {1}, float[8,16,1,1] w2 = {2}> {
  [conv0] a = Conv(x, w) [relu0] b = Relu(a)
  [pool0] c = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(b)
  [conv1] d = Conv(c, w) [relu1] e = Relu(d)
  [conv2] f = Conv(c, w) [relu2] g = Relu(f)
  [concat1] h = Concat<axis = 1>(e, g)
  [pool1] i = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(h)
  [conv3] out = Conv(i, w2)
}
"""


POOL = "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"

# Pairs move past however many nodes that only move elements, or poolings.
MOVED = f"""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out)
<float[8,8,1,1] w = {{1}}, int64[3] flat = {{1, 8, 64}}, int64[4] map = {{1, 8, 8, 8}}> {{
  [conv0] a = Conv(x, w) [relu0] b = Relu(a)
  [pool0] c = {POOL}(b) [pool1] d = {POOL}(c)
  [view0] e = Reshape(d, flat) [move0] f = Transpose<perm = [0, 2, 1]>(e)
  [move1] h = Transpose<perm = [0, 2, 1]>(f) [view1] i = Reshape(h, map)
  [conv1] j = Conv(i, w) [relu1] k = Relu(j)
  [conv2] l = Conv(i, w) [add1] m = Add(k, l)
  [conv3] n = Conv(m, w) [relu3] out = Relu(n)
}}
"""

# A layer from `scores` to `heads`.
ATTENTION = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,32] x, float[1,2,16,64] k, float[1,2,64,16] v) => (float[1,64,32] out)
<float[32,32] w = {1}, int64[4] apart = {1, 64, 2, 16}, int64[3] whole = {1, 64, 32},
 float half = {0.5}> {
  [fc0] a = MatMul(x, w)
  [view0] b = Reshape(a, apart) [move] q = Transpose<perm = [0, 2, 1, 3]>(b)
  [scores] s = MatMul(q, k) [scale] t = Mul(s, half) [cap] t1 = Tanh(t) [back] t2 = Div(t1, half)
  [softmax] p = Softmax(t2) [mix] o = MatMul(p, v)
  [heads] y = Transpose<perm = [0, 2, 1, 3]>(o) [view1] z = Reshape(y, whole)
  [fc1] out = MatMul(z, w)
}
"""


@pytest.mark.parametrize(
    ("text", "pack"),
    [
        (POOLED, "onnxruntime"),
        (MOVED, "onnxruntime"),
        (MOVED, "tensorrt"),
        (ATTENTION, "openvino"),
    ],
)
def test_what_is_kept_of_a_change_holds_wherever_it_is_used(text: str, pack: str):
    land, rng = landscape(text, pack), np.random.default_rng(0)
    for _ in range(40):
        state = tuple(int(rng.integers(len(names))) for names in land.names)
        check_changes(land, state)


# OpenVINO builds this norm otherwise where a dequantization reaches what is squared.
NORM = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,32] x) => (float[1,64,32] out)
<float[32,32] w = {1}, float tiny = {0.00001}, float[32] gain = {0.5}> {
  [fc0] a = MatMul(x, w)
  [square] b = Mul(a, a) [mean] c = ReduceMean<axes = [-1]>(b) [add] d = Add(c, tiny)
  [root] e = Sqrt(d) [inverse] f = Reciprocal(e) [norm] h = Mul(a, f) [gain1] i = Mul(h, gain)
  [fc1] j = MatMul(i, w) [fc2] k = MatMul(j, w) [fc3] out = MatMul(k, w)
}
"""

# And the factors of this rotary embedding once any activation of the model carries a pair.
ROTARY = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,24,4,16] x) => (float[1,4,24,16] out)
<float[1,1,24,16] cos = {0.5}, float[1,1,24,16] sin = {0.25}, float[16,16] w = {0.1},
 float half = {0.5}, int64[2] halves = {8, 8}> {
  [fc0] a = MatMul(x, w) [act] b = Relu(a) [fc1] c = MatMul(b, w) [scale] d = Mul(c, half)
  [heads] e = Transpose<perm = [0, 2, 1, 3]>(d) [even] f = Mul(e, cos)
  [split] g0, g1 = Split<axis = 3>(e, halves) [neg] h = Neg(g1)
  [turned] i = Concat<axis = -1>(h, g0) [odd] j = Mul(i, sin) [add] k = Add(f, j)
  [fc2] l = MatMul(k, w) [softmax] out = Softmax(l)
}
"""


@pytest.mark.parametrize("text", [NORM, ROTARY])
def test_pairs_far_away_change_layers(text: str):
    graph, pack = graph_of_text(text), load_pack("openvino")
    space = build_space(graph, find_sites(graph, pack.rules))
    predictor = make_predictor(graph, pack, ANY_TARGET, "float")
    land, rng = Landscape(space, LayerModel(graph, predictor)), np.random.default_rng(0)
    floats, model = land.state(space.floats), LatencyModel(land, [], {})
    quantized = [apply(floats, [move]) for move in land.all_moves.moves]
    drawn = [tuple(int(rng.integers(len(names))) for names in land.names) for _ in range(5)]
    for state in (floats, *quantized, *drawn):
        check_changes(land, state)
        latencies = [model.predict(apply(state, [move]))[0] for move in land.all_moves.moves]
        changed = [mean for mean, _ in model.predict_changes(state, land.all_moves)]
        assert changed == pytest.approx(latencies)
    assert predictor.asks_for_pairs


# TensorRT-RTX prepares weights in a kernel of their own, which is on no edge.
RESIDUAL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,32] x) => (float[1,64,32] out) <float[32,32] w = {1}, float[32,96] w3 = {1},
 int64[5] apart = {1, 64, 3, 2, 16}, int64[1] first = {0}, int64[3] ones = {1, 1, 1},
 int64[3] whole = {1, 64, 32}, float half = {0.5}> {
  [fc0] a = MatMul(x, w) [relu0] b = Relu(a) [fc] c = MatMul(b, w3)
  [view] d = Reshape(c, apart) [move] e = Transpose<perm = [2, 0, 3, 1, 4]>(d)
  [split] e0, e1, e2 = Split<axis = 0>(e, ones)
  [query] q0 = Squeeze(e0, first) [key] k0 = Squeeze(e1, first) [value] v = Squeeze(e2, first)
  [scale] q = Mul(q0, half) [turn] k = Transpose<perm = [0, 1, 3, 2]>(k0)
  [scores] s = MatMul(q, k) [softmax] p = Softmax(s) [mix] o = MatMul(p, v)
  [back] y = Transpose<perm = [0, 2, 1, 3]>(o) [flat] z = Reshape(y, whole)
  [fc1] f = MatMul(z, w) [sum] out = Add(f, b)
}
"""


def test_changes_of_kernels_that_prepare_weights_are_predicted():
    graph, pack = graph_of_text(RESIDUAL), load_pack("tensorrt-rtx")
    space = build_space(graph, find_sites(graph, pack.rules))
    predictor = make_predictor(graph, pack, ANY_TARGET, "float16")
    land, rng = Landscape(space, LayerModel(graph, predictor)), np.random.default_rng(0)
    for _ in range(10):
        state = tuple(int(rng.integers(len(names))) for names in land.names)
        assert land.deltas(state, land.all_moves)
        layers = land.predict(state).layers
        if any(layer.layer.name.startswith("weight of") for layer in layers):
            return
    pytest.fail("no such kernel was predicted")


@settings(deadline=None, max_examples=30)
@given(st.lists(states(), min_size=2, max_size=4))
def test_what_is_asked_about_a_state_is_what_differs_from_others(
    asked_about: list[tuple[int, ...]],
):
    moves, asked = BOTH.group_moves, list[int]()

    def ask(state: tuple[int, ...], of: Moves, pieces: np.ndarray) -> np.ndarray:
        asked.append(len(pieces))
        return BOTH.numbers(state, of, pieces)

    answers = Answers(ask)
    for state in asked_about:
        every = BOTH.numbers(state, moves, np.arange(len(moves.pieces)))
        assert answers.of(state, moves).tolist() == every.tolist()
    first, last = asked_about[0], asked_about[-1]
    answers.of(first, moves)
    assert asked[0] == len(moves.pieces)
    near = apply(last, [((0, 1 - min(last[0], 1)),)])
    count = len(asked)
    answers.of(near, moves)
    reaching = sum(0 in piece.near for piece in moves.pieces)
    assert sum(asked[count:]) <= reaching


@settings(deadline=None)
@given(states())
def test_a_change_alters_layers_if_their_counts_change(state: tuple[int, ...]):
    deltas = BOTH.deltas(state, BOTH.all_moves)
    altered = BOTH.alters(state, BOTH.all_moves)
    for move, alters in zip(BOTH.all_moves.moves, altered, strict=True):
        assert alters == any(deltas.get(move, {}).values())


@settings(deadline=None)
@given(states())
def test_descending_ends_where_no_change_improves(state: tuple[int, ...]):
    for move in BOTH.group_moves.moves:
        BOTH.predict(apply(state, [move]))  # Numbers all signatures.
    end = descend(BOTH, state, objective(), BOTH.group_moves)
    assert BOTH.value(end, objective()) <= BOTH.value(state, objective())
    final = objective()
    gains, _ = BOTH.gains(end, final, BOTH.group_moves)
    assert gains.min() >= -1e-9


@settings(deadline=None)
@given(states())
def test_states_and_choices_are_one_to_one(state: tuple[int, ...]):
    assert BOTH.state(BOTH.choices(state)) == state


# Half of the channels by an index that is computed from the shape, before all other nodes.
SETTLED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,4,4] x) => (float[1,8,4,4] out)
<float[8,8,1,1] w1 = {1}, float[8,8,1,1] w2 = {2}, int64[1] one = {1}, int64[1] two = {2},
 int64[1] from = {0}> {
  [shape1] s = Shape(x) [gather1] n = Gather(s, one) [div1] half = Div(n, two)
  [conv1] a = Conv(x, w1) [relu1] b = Relu(a) [conv2] c = Conv(b, w2)
  [slice1] d = Slice(c, from, half, one) [slice2] e = Slice(c, half, n, one)
  [join1] f = Concat<axis = 1>(d, e) [conv3] out = Conv(f, w1)
}
"""


def test_changes_are_found_where_shapes_settle_nodes():
    for pack in ("onnxruntime", "tensorrt", "openvino"):
        land = landscape(SETTLED, pack)
        state = land.state(land.space.defaults)
        check_changes(land, state)


HALF = """
<ir_version: 9, opset_import: ["": 19]>
g (float16[1,2] x) => (float16[1,2] out) <float16[2,2] w = {1, 2, 3, 4}> {
  [product1] a = MatMul(x, w) [relu1] b = Relu(a) [product2] out = MatMul(b, w)
}
"""


# A Cast reads what the Reshape writes, past which pairs move.
HALF_MOVED = """
<ir_version: 9, opset_import: ["": 19]>
g (float16[1,2] x) => (float16[2,2] out)
<float16[2,2] w = {1, 2, 3, 4}, float16[1,2] v = {1, 2}, int64[2] shape = {2, 1}> {
  [rows] r = Reshape(x, shape) [product1] a = MatMul(r, v) [relu1] b = Relu(a)
  [product2] out = MatMul(b, w)
}
"""


@pytest.mark.parametrize(("text", "casts"), [(HALF, 3), (HALF_MOVED, 2)])
def test_casts_that_an_engine_inserts_change_with_the_layers_beside_them(text: str, casts: int):
    graph, pack = graph_of_text(text), load_pack("onnxruntime")
    space = build_space(graph, find_sites(graph, pack.rules))
    land = Landscape(space, LayerModel(graph, make_predictor(graph, pack, ANY_TARGET, "float")))
    layers = [layer.layer.op for layer in land.predict(land.state(space.floats)).layers]
    assert layers.count("Cast") == casts  # Of the input, a weight and the output.
    check_changes(land, land.state(space.everything))
