"""Sums over the places of maps that were resized, as NVIDIA's builder makes them."""

from tests.prediction.kernels.building import builder_test


def gated(last: str, channels: int = 32) -> str:
    """``last`` makes ``e`` of the resized map ``u`` and of ``d``; its channels are scaled then."""
    return f"""
    (float[1,32,8,8] x, float[1,32,16,16] y) => (float[1,{channels},16,16] out)
    <float[32,32,1,1] w = {{1}}, float[{channels},{channels},1,1] v = {{1}}> {{
      sizes = Constant<value = int64[4] {{1, 32, 16, 16}}>()
      [conv1] a = Conv(x, w)
      [relu1] b = Relu(a)
      [conv2] c = Conv(y, w)
      [relu2] d = Relu(c)
      [resize1] u = Resize<mode = "nearest", nearest_mode = "floor",
          coordinate_transformation_mode = "asymmetric">(b, , , sizes)
      {last}
      [mean1] m = GlobalAveragePool(e)
      [conv3] n = Conv(m, v)
      [gate1] g = Sigmoid(n)
      [scale1] s = Mul(e, g)
      [conv4] out = Conv(s, v)
    }}"""


JOIN = "[join1] e = Concat<axis = 1>(u, d)"
GRAPHS = {
    "what is computed of it and another map is turned by the sum": gated("[add1] e = Add(u, d)"),
    "what is computed of it alone is in the sum's kernel": gated("[tanh1] e = Tanh(u)"),
    "so is what comes last": gated("[mul1] f = Mul(u, d)\n[add1] e = Add(f, d)"),
    "and what it is joined by": gated(JOIN, channels=64),
    "before which the sum's kernel computes what comes last": gated(
        "[add1] f = Add(u, d)\n[relu3] h = Relu(f)\n[join1] e = Concat<axis = 1>(h, d)", channels=64
    ),
}
PAIRS = "x->conv1 w->conv1 y->conv2 w->conv2 s->conv4 v->conv4"
QUANTIZED = {"so it is with pairs": (PAIRS, gated(JOIN, channels=64))}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_so_they_are_with_pairs = builder_test(QUANTIZED, opset=17)
