"""What single changes do to predicted layers, against predicting the changed placement."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placer.graph import Graph
from placer.graph.text import graph_of_text
from placer.prediction.predictor import Predictor
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape import Landscape, Objective, apply
from placer.search.layer_signatures import LayerModel
from placer.search.space import build_space
from tests.search.test_space import NET

# Two branches whose Concat only gains if both are quantized, and a chain of equal convolutions.
BRANCHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,16,16] x) => (float[1,16,16,16] out)
<float[8,8,3,3] w0 = {1}, float[8,8,3,3] w1 = {2}, float[8,8,1,1] w2 = {3},
 float[16,16,1,1] w3 = {4}> {
  [conv0] a = Conv<pads = [1, 1, 1, 1]>(x, w0)
  [relu0] b = Relu(a)
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(b, w1)
  [conv2] d = Conv(x, w2)
  [relu2] e = Relu(d)
  [concat1] f = Concat<axis = 1>(c, e)
  [conv3] g = Conv(f, w3)
  [pool1] h = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(g)
  [conv4] i = Conv(h, w3)
  [conv5] j = Conv(i, w3)
  [add1] out = Add(j, h)
}
"""


def landscape(text: str = NET, pack: str = "onnxruntime", base: str = "float") -> Landscape:
    graph: Graph = graph_of_text(text)
    rules = load_pack(pack).rules
    space = build_space(graph, find_sites(graph, rules))
    integer = load_pack(pack).manifest.scheme.activation
    return Landscape(space, LayerModel(graph, Predictor(graph, rules, ANY_TARGET, base, integer)))


BOTH = landscape(BRANCHES, "tensorrt", "float16")


def states() -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(0, len(names) - 1) for names in BOTH.names))


def objective() -> Objective:
    """A cost per signature that depends on its id only."""
    costs = {n: int(s.id, 16) % 1000 / 1000 for n, s in enumerate(BOTH.layers.signatures)}
    layouts = max(len(names) for names in BOTH.names)
    return Objective(costs, np.tile(np.arange(layouts) * 0.01, (len(BOTH.names), 1)))


@given(states())
def test_changes_predicted_together_are_those_predicted_one_by_one(state: tuple[int, ...]):
    before = BOTH.predict(state).counts()
    for move, delta in BOTH.deltas(state, BOTH.all_moves).items():
        after = BOTH.predict(apply(state, [move])).counts()
        changed = {n: after[n] - before[n] for n in before | after if after[n] != before[n]}
        assert {n: count for n, count in delta.items() if count} == changed


@given(states())
def test_a_change_alters_layers_if_their_counts_change(state: tuple[int, ...]):
    deltas = BOTH.deltas(state, BOTH.all_moves)
    altered = BOTH.alters(state, BOTH.all_moves)
    for move, alters in zip(BOTH.all_moves.moves, altered, strict=True):
        assert alters == any(deltas.get(move, {}).values())


@given(states())
def test_descending_ends_where_no_change_improves(state: tuple[int, ...]):
    for move in BOTH.group_moves.moves:
        BOTH.predict(apply(state, [move]))  # Numbers all signatures.
    end = BOTH.descend(state, objective(), BOTH.group_moves)
    assert BOTH.value(end, objective()) <= BOTH.value(state, objective())
    final = objective()
    gains, _ = BOTH.gains(end, final, BOTH.group_moves)
    assert gains.min() >= -1e-9


@given(states())
def test_states_and_choices_are_one_to_one(state: tuple[int, ...]):
    assert BOTH.state(BOTH.choices(state)) == state
