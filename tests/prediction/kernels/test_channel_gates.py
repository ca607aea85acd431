"""Gates of channels by two products of a row, and means of rows and columns."""

from tests.prediction.kernels.building import builder_test

WEIGHTS = """
<float[32,8] w1 = {1}, float[8,32] w2 = {1}, float[8] b1 = {1}, float[32] b2 = {1},
 float[32,32,1,1] w3 = {1}, float[32,32,1,1] w4 = {1}, float[32,32,1,1] w5 = {1},
 float[2] one = {1}, float[32,32,1,1] w6 = {1}>"""


def gated(between: str, gate: str = "[gate1] h = Sigmoid(g)", biased: bool = True) -> str:
    """A row of means is multiplied twice; ``between`` makes ``e`` of ``d``, and ``gate`` h of g."""
    bias = (", b1", ", b2") if biased else ("", "")
    op = "Gemm" if biased else "MatMul"
    return f"""
    (float[1,32,16,16] x) => (float[1,32,16,16] out) {WEIGHTS} {{
      shape = Constant<value = int64[4] {{1, 32, 1, 1}}>()
      limit = Constant<value = float {{6.0}}>()
      zero = Constant<value = float {{0.0}}>()
      root = Constant<value = float {{1.4142135}}>()
      ones = Constant<value = float {{1.0}}>()
      half = Constant<value = float {{0.5}}>()
      [conv1] a = Conv(x, w3)
      [mean1] c = ReduceMean<axes = [2, 3], keepdims = 0>(a)
      [row1] d = {op}(c, w1{bias[0]})
      {between}
      [row2] g = {op}(e, w2{bias[1]})
      {gate}
      [shape1] i = Reshape(h, shape)
      [scale1] s = Mul(a, i)
      [conv2] out = Conv(s, w4)
    }}"""


RELU, CLIP = "[act1] e = Relu(d)", "[act1] e = Clip(d, zero, limit)"
SILU = "[act1] k = Sigmoid(d) [act2] e = Mul(d, k)"
GELU = """[div1] k = Div(d, root) [erf1] l = Erf(k) [add1] m = Add(l, ones) [mul1] n = Mul(d, m)
          [mul2] e = Mul(n, half)"""
HARD = "[gate1] h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(g)"
ROWS = {
    "a kernel computes the activation of a sum with a bias": gated(RELU),
    "a SiLU as well": gated(SILU),
    "but not what reads the sum twice": gated(GELU),
    "nor a HardSwish": gated("[act1] e = HardSwish(d)"),
    "a Clip is limited on one side by each kernel": gated(CLIP),
    "without a bias the next kernel computes a Relu, and both are called after it": gated(
        RELU, biased=False
    ),
    "and others": gated("[act1] e = Tanh(d)", biased=False),
    "but no LeakyRelu": gated("[act1] e = LeakyRelu(d)", biased=False),
    "the kernel of the sum multiplies for a HardSigmoid": gated(RELU, HARD),
    "and adds the bias for a HardSwish": gated(RELU, "[gate1] h = HardSwish(g)"),
}
MEANS = f"""
    (float[1,32,16,16] x) => (float[1,32,16,16] out) {WEIGHTS} {{
      [conv1] a = Conv(x, w3)
      [relu1] b = Relu(a)
      [mean1] c = ReduceMean<axes = [3]>(b)
      [mean2] d = ReduceMean<axes = [2]>(b)
      [conv2] e = Conv(c, w4) [gate1] f = Sigmoid(e)
      [conv3] g = Conv(d, w5) [gate2] h = Sigmoid(g)
      [scale1] i = Mul(b, f) [scale2] j = Mul(i, h)
      [conv4] out = Conv(j, w6)
    }}"""
JOINED = """
    (float[1,32,16,16] x) => (float[1,32,16,16] out)
    <float[32,32,1,1] w3 = {1}, float[1,2,7,7] w = {1}, float[32,32,1,1] w4 = {1}> {
      [conv1] a = Conv(x, w3)
      [relu1] b = Relu(a)
      [mean1] c = ReduceMean<axes = [1]>(b)
      [max1] d = ReduceMax<axes = [1]>(b)
      [join1] e = Concat<axis = 1>(c, d)
      [conv2] f = Conv<pads = [3, 3, 3, 3]>(e, w)
      [gate1] g = Sigmoid(f)
      [scale1] h = Mul(b, g)
      [conv3] out = Conv(h, w4)
    }"""
MAPS = {
    "means of rows and columns are stored otherwise for Convs": MEANS,
    "the map's kernel takes the first of two sums": (
        "x->conv1 w3->conv1 j->conv4 w6->conv4",
        MEANS,
    ),
    "but the last one if the map is rounded": (
        "x->conv1 w3->conv1 b->mean1 b->mean2 b->scale1 j->conv4 w6->conv4",
        MEANS,
    ),
    "sums are joined by another kernel": (
        "x->conv1 w3->conv1 e->conv2 w->conv2 h->conv3 w4->conv3",
        JOINED,
    ),
    "a row of means is quantized where it is taken": (
        "x->conv1 w3->conv1 c->row1 w1->row1",
        gated(RELU),
    ),
}
test_rows_are_those_that_the_builder_makes = builder_test(ROWS, opset=17)
test_sums_are_those_that_the_builder_makes = builder_test(MAPS, opset=17)
