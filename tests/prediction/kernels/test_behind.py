"""What no product's kernel computes, and factors of 1, which nothing is left of."""

import pytest

from tests.prediction.kernels.building import builder_test


def of_conv(behind: str) -> str:
    """A sum of two Convs, and nodes between it and the next one."""
    return f"""
        (float[1,32,16,16] x) => (float[1,32,16,16] out)
        <float[64,32,3,3] w1 = {{1}}, float[64,32,1,1] w2 = {{1}}, float[32,64,3,3] w3 = {{1}}> {{
          one = Constant<value = float {{1.0}}>()
          [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [conv2] b = Conv(x, w2)
          [add1] c = Add(b, a)
          {behind}
          [conv3] out = Conv<pads = [1, 1, 1, 1]>(d, w3)
        }}"""


def of_rows(operator: str) -> str:
    """A product of rows and its bias before ``operator``."""
    return f"""
        (float[1,32,64] x) => (float[1,32,64] out)
        <float[64,64] w1 = {{1}}, float[64] b1 = {{1}}, float[64,64] w2 = {{1}}> {{
          [product1] p = MatMul(x, w1)
          [bias1] b = Add(p, b1)
          [other1] d = {operator}(b)
          [product2] out = MatMul(d, w2)
        }}"""


ALONE = ("Softplus", "Sin", "Sign", "Floor", "ThresholdedRelu", "Atan")
WITH_PRODUCT = ("Elu", "Exp", "Abs", "Celu", "Softsign", "Sqrt", "Log")
GRAPHS = {
    **{f"a kernel behind a Conv's computes {op}": of_conv(f"[op1] d = {op}(c)") for op in ALONE},
    **{f"a Conv's kernel computes {op}": of_conv(f"[op1] d = {op}(c)") for op in WITH_PRODUCT},
    **{f"the bias before {op} is added with it": of_rows(op) for op in ALONE},
    "what is in no prepared kernel goes along": of_conv(
        "[sig1] s = Sigmoid(c) [mul1] e = Mul(c, s) [op1] d = Sin(e)"
    ),
    "nothing is left of a Div by 1": of_conv("[div1] d = Div(c, one)"),
    "nor of a Mul by 1 behind an activation": of_conv("[sig1] s = Sigmoid(c) [m1] d = Mul(one, s)"),
}
QUANTIZED = {
    "a pair before a Div by 1 is one before what reads it": (
        "c->div1 w3->conv3",
        of_conv("[div1] d = Div(c, one)"),
    ),
}

test_layers_are_those_that_the_builder_makes = pytest.mark.slow(builder_test(GRAPHS, opset=18))
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=18)
