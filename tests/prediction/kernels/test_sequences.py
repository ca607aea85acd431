"""Convs over one dimension and the order of sums, as NVIDIA's builder makes them."""

from pathlib import Path

import pytest

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def line(body: str) -> str:
    return f"""
    (float[1,32,64] x) => (float[1,32,64] out)
    <float[32,32,1] w1 = {{1}}, float[32,32,3] w2 = {{1}}, float[32,32,3] w3 = {{1}},
     float[32] b = {{1}}> {{
      [conv1] c = Conv(x, w1, b)
      {body}
    }}"""


SECOND = "[conv2] d = Conv<pads = [1, 1]>(t, w2, b)\n"
LAST = "[conv3] out = Conv<pads = [1, 1]>(e, w3, b)"
LINES = {
    "a gate of a sequence is no part of its Conv": line(
        "[gate1] g = Sigmoid(c)\n[mul1] e = Mul(c, g)\n" + LAST
    ),
    "nor is HardSwish": line("[gate1] e = HardSwish(c)\n" + LAST),
    "a residual that something else reads, too, is added by a kernel of its own": line(
        "[tanh1] t = Tanh(c)\n" + SECOND + "[add1] e = Add(d, c)\n" + LAST
    ),
    "with what activates the sum": line(
        "[tanh1] t = Tanh(c)\n" + SECOND + "[add1] s = Add(d, c)\n[relu1] e = Relu(s)\n" + LAST
    ),
    "one that its Conv activates is as well": line(
        "[relu1] r = Relu(c)\n[tanh1] t = Tanh(r)\n" + SECOND + "[add1] e = Add(d, r)\n" + LAST
    ),
    "and a graph input": line(SECOND.replace("(t", "(c") + "[add1] e = Add(d, x)\n" + LAST),
    "one that Convs and the sum alone read is added by the Conv": line(
        SECOND.replace("(t", "(c") + "[add1] e = Add(d, c)\n" + LAST
    ),
    "and one that is computed of a Conv's output": line(
        "[tanh1] t = Tanh(c)\n[gate1] g = Sigmoid(c)\n"
        + SECOND + "[add1] e = Add(d, g)\n" + LAST
    ),
    "and one that a sum was activated to": line(
        SECOND.replace("(t", "(c")
        + "[add1] s = Add(d, c)\n[relu1] r = Relu(s)\n[tanh1] u = Tanh(r)\n"
        "[conv4] f = Conv<pads = [1, 1]>(u, w3, b)\n[add2] e = Add(f, r)\n" + LAST
    ),
}  # fmt: skip


def branches(body: str) -> str:
    return f"""
    (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[32,32,1,1] w1 = {{1}}, float[32,32,1,1] w2 = {{1}}, float[32,32,3,3] w3 = {{1}},
     float[32,32,3,3] w4 = {{1}}, float[32] b = {{1}}> {{
      [conv1] c = Conv(x, w1, b)
      [relu1] r = Relu(c)
      {body}
      [add1] out = Add(e, s)
    }}"""


SIDE = "[side1] s = Conv(r, w2, b)\n"
LONG = "[conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w3, b)\n"
END = "[conv3] e = Conv<pads = [1, 1, 1, 1]>(d, w4, b)\n"
SUMS = {
    "a Conv beside a branch adds if the branch begins before it": (LONG + SIDE + END, "side1"),
    "wherever the branch ends": (LONG + END + SIDE, "side1"),
    "the branch adds if it begins later": (SIDE + LONG + END, "conv3"),
}

GRAPHS = {**LINES, **{shown: branches(body) for shown, (body, _) in SUMS.items()}}


@pytest.mark.parametrize("shown", SUMS)
def test_the_conv_that_comes_later_depth_first_adds(shown: str, tmp_path: Path):
    plan = predicted(model_of(text_of(GRAPHS[shown], 18), tmp_path).graph, EMPTY)
    (adding,) = [layer.nodes for layer in plan.layers if "add1" in layer.nodes]
    assert set(adding) == {SUMS[shown][1], "add1"}


def test_a_sequence_is_gated_by_a_kernel_of_its_own(tmp_path: Path):
    shown = LINES["a gate of a sequence is no part of its Conv"]
    plan = predicted(model_of(text_of(shown, 18), tmp_path).graph, EMPTY)
    computed = [set(layer.nodes) for layer in plan.of_kind("compute")]
    assert computed == [{"conv1"}, {"gate1", "mul1"}, {"conv3"}]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
