"""A gate that cannot be met because an output is random says so."""

from collections.abc import Callable
from pathlib import Path

from placer.graph.randomness import random_outputs
from placer.graph.text import graph_of_text
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


def test_the_reason_is_named(placer: Callable[..., Finished], save: Callable[..., Path]):
    run = ("optimize", save(NOISY), "--engine", "fusion-model", "--gpu", "a100", "--no-cache")
    quick = ("--preset", "quick", "--budget", 3)
    finished = placer(*run, *quick, "--gate", "sqnr>=10")
    assert finished.code == 3
    assert "output 'side' is random (node 'noise')" in finished.err
