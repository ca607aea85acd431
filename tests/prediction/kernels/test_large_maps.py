"""Means of large maps: what NVIDIA's builder makes of them is predicted."""

from tests.prediction.kernels.building import builder_test


def gated(places: int, middle: int, activation: str = "[act1] a = HardSwish(c)") -> str:
    """A Conv, and a squeeze-and-excitation block of 32 channels over ``places`` squared."""
    return f"""
    (float[1,16,{places},{places}] x) => (float[1,16,{places},{places}] out)
    <float[32,16,3,3] w1 = {{1}}, float[{middle},32,1,1] w2 = {{1}}, float[{middle}] b2 = {{1}},
     float[32,{middle},1,1] w3 = {{1}}, float[32] b3 = {{1}}, float[16,32,1,1] w4 = {{1}},
     float[32,1,1] k = {{1}}> {{
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      {activation}
      [mean1] m = GlobalAveragePool(a)
      [conv2] d = Conv(m, w2, b2)
      [relu1] r = Relu(d)
      [conv3] e = Conv(r, w3, b3)
      [sig1] s = Sigmoid(e)
      [gate1] y = Mul(a, s)
      [conv4] out = Conv(y, w4)
    }}"""


def classified(places: int) -> str:
    return f"""
    (float[1,16,{places},{places}] x) => (float[1,10] out)
    <float[32,16,3,3] w1 = {{1}}, float[32,10] w2 = {{1}}, float[10] b2 = {{1}}> {{
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] r = Relu(c)
      [mean1] m = GlobalAveragePool(r)
      [flat1] f = Flatten(m)
      [product1] out = Gemm(f, w2, b2)
    }}"""


GRAPHS = {
    "the kernel of a large map's mean makes a column for the product of a row": classified(32),
    "that of a small one leaves the row as it is": classified(16),
    "a gate of few channels is computed, then a large map is gated and turned back": gated(32, 4),
    "a small map is gated in the gate's kernel": gated(16, 4),
    "a large map that a prepared kernel wrote is, too": gated(32, 4, "[act1] a = Relu(c)"),
    "one node that makes a large map ends its kernel": gated(
        32, 16, "[act0] a0 = Relu(c)\n[act1] a = Mul(a0, k)"
    ),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
