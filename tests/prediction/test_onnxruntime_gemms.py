"""Gemms of ONNX Runtime, written as such or made of a MatMul and an Add, by bias and by pairs."""

from pathlib import Path

import pytest

from placer.graph import Edge
from placer.plan.diff import diff_plans
from tests.prediction.test_onnxruntime_plans import VERSION, plans

X, W = Edge("x", "product", 0), Edge("w", "product", 1)
INTO = (X, W)
# Of the constant or the input b; as large as the product, it is a residual.
BIASES = ["float[16]", "float[1,16]", "float[4,16]", "float[4,1]", "float[1]"]
FAST = ("float[1,16]", True)
GEMM = "[product] s = Gemm(x, w, b)"
SUM = "[product] m = MatMul(x, w)\n  [add] s = Add(b, m)"
ALONE = "[last] y = Tanh(s)"
RELU = "[act] r = Relu(s)\n  [last] y = Tanh(r)"
READ_TWICE = "[act] r = Relu(s)\n  [last] y = Tanh(r)\n  [other] z = Sigmoid(r)"
LEAVES = "[act] y = Relu(s)"
AFTER = {
    ALONE: Edge("s", "last", 0),
    RELU: Edge("r", "last", 0),
    READ_TWICE: Edge("r", "last", 0),
    LEAVES: Edge("y", "", 0),
}


def graph(nodes: str, behind: str, bias: str, *, constant: bool) -> str:
    inputs = "float[4,32] x" if constant else f"float[4,32] x, {bias} b"
    constants = "float[32,16] w = {1}" + (f", {bias} b = {{1}}" if constant else "")
    outputs = "float[4,16] y, float[4,16] z" if "z =" in behind else "float[4,16] y"
    return f"g ({inputs}) => ({outputs}) <{constants}> {{\n  {nodes}\n  {behind}\n}}"


def placements(nodes: str, behind: str) -> list[tuple[Edge, ...]]:
    """Pairs in front, on the bias and behind, on some of the edges."""
    after = (AFTER[behind],)
    bias = (Edge("b", "add", 0),) if nodes == SUM else ()
    return [INTO, (*INTO, *after), (W,), (*INTO, *bias), (*INTO, *bias, *after), (W, *after)]


CASES = [
    pytest.param(bias, constant, marks=() if (bias, constant) == FAST else pytest.mark.slow)
    for bias in BIASES
    for constant in (True, False)
]


@pytest.mark.skipif(VERSION < (1, 25), reason="MatMulNBits is of 1.25")
@pytest.mark.parametrize("behind", AFTER, ids=["alone", "Relu", "read twice", "leaves"])
@pytest.mark.parametrize("nodes", [GEMM, SUM], ids=["Gemm", "MatMul and Add"])
@pytest.mark.parametrize(("bias", "constant"), CASES)
def test_gemms_are_predicted_by_bias_and_pairs(
    bias: str, nodes: str, behind: str, tmp_path: Path, *, constant: bool
):
    text = graph(nodes, behind, bias, constant=constant)
    for edges in placements(nodes, behind):
        predicted, built = plans(text, [(edge,) for edge in edges], tmp_path)
        assert diff_plans(predicted, built).agrees, edges
