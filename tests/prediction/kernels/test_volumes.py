"""Depthwise Convs of three dimensions, as networks for video have them."""

from tests.prediction.kernels.building import builder_test


def volume(behind: str) -> str:
    """``behind`` makes ``d`` of what a depthwise Conv writes."""
    return f"""
    (float[1,16,4,8,8] x) => (float[1,16,4,8,8] out)
    <float[32,16,1,1,1] w1 = {{1}}, float[32] b1 = {{1}}, float[32,1,3,3,3] w2 = {{1}},
     float[32] b2 = {{1}}, float[16,32,1,1,1] w3 = {{1}}, float[32,32,1,1,1] w4 = {{1}}> {{
      [conv1] a = Conv(x, w1, b1)
      [relu1] b = Relu(a)
      [conv2] c = Conv<group = 32, pads = [1, 1, 1, 1, 1, 1]>(b, w2, b2)
      {behind}
      [conv3] out = Conv(d, w3)
    }}"""


SILU = "[gate1] e = Sigmoid(c) [mul1] d = Mul(c, e)"
MEANS = """
      [mean1] e = GlobalAveragePool(c) [conv4] f = Conv(e, w4) [gate1] g = Sigmoid(f)
      [mul1] d = Mul(c, g)"""
GRAPHS = {
    "another kernel moves their channels, in FP16 as well": volume("[relu2] d = Relu(c)"),
    "a generated kernel adds the bias and computes a SiLU": volume(SILU),
    "or the kernel that takes means of the sum": volume(MEANS),
    "as of integers": ("b->conv2 w2->conv2", volume(SILU)),
    "whose sums are scaled where means are taken": ("b->conv2 w2->conv2", volume(MEANS)),
}
test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
