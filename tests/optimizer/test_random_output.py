"""A gate that cannot be met because an output is random says so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.graph.randomness import random_outputs
from placer.graph.text import graph_of_text
from placer.graph.training import note_on_training
from tests.conftest import Finished

NOISY = """
<ir_version: 9, opset_import: ["": 17]>
net (float[1,32] x) => (float[1,32] scores, float[1,32] side) <float[32,32] w = {0.1}> {
  [mm] scores = MatMul(x, w)
  [noise] n = RandomNormalLike(x)
  [mix] side = Add(n, x)
}
"""


def test_outputs_behind_a_random_node():
    assert random_outputs(graph_of_text(NOISY)) == {"side": "noise"}


IN_TRAINING = """
<ir_version: 9, opset_import: ["": 17]>
net (float[4,3,8,8] x, bool trains) => (float[4,3,8,8] y, float[4,3,8,8] z, bool[4,3,8,8] m)
<float[3,3,1,1] w = {0.1}, float[3] one = {1, 1, 1}, float[3] zero = {0, 0, 0},
 float half = {0.5}, bool yes = {1}, bool no = {0}> {
  [conv] c = Conv(x, w)
  [norm] b, mean, var = BatchNormalization<training_mode = 1>(c, one, zero, zero, one)
  [dropped] y = Dropout(b, half, yes)
  [kept] z, m = Dropout(c, half, no)
}
"""


@pytest.mark.slow
def test_a_model_that_was_exported_in_training_mode(
    placer: Callable[..., Finished], save: Callable[..., Path]
):
    graph = graph_of_text(IN_TRAINING)
    assert random_outputs(graph) == {"y": "dropped"}
    assert note_on_training(graph) == (
        "nodes compute as in training, by the statistics of each batch or at random: 'norm' "
        "(BatchNormalization) and 1 more; unless that is meant, export the model in evaluation "
        "mode (model.eval())"
    )
    assert note_on_training(graph_of_text(NOISY)) is None
    asked = IN_TRAINING.replace("half, yes", "half, trains")
    assert random_outputs(graph_of_text(asked)) == {"y": "dropped"}
    run = ("--engine", "fusion-model", "--gpu", "a100", "--no-cache", "--preset", "quick")
    finished = placer("optimize", save(IN_TRAINING), *run, "--budget", 2, "--gate", "sqnr>=5@z")
    assert "warning: nodes compute as in training" in finished.out


@pytest.mark.slow
def test_a_gate_on_a_random_output_is_refused_before_the_search(
    placer: Callable[..., Finished], save: Callable[..., Path]
):
    run = ("--engine", "fusion-model", "--gpu", "a100", "--no-cache", "--preset", "quick")
    refused = placer("optimize", save(NOISY), *run, "--budget", 3, "--gate", "sqnr>=10")
    assert refused.code == 2
    assert "gate sqnr>=10: output 'side' is random (node 'noise') and differs from" in refused.err
    silent = NOISY.replace("Add(n, x)", "Mul(n, nothing)").replace(
        "w = {0.1}", "w = {0.1}, float nothing = {0}"
    )
    seeded = NOISY.replace("RandomNormalLike(x)", "RandomNormalLike<seed = 1.0>(x)")
    for text in (silent, seeded):
        finished = placer("optimize", save(text), *run, "--budget", 2, "--gate", "sqnr>=10")
        assert "is random" not in finished.err
