"""Several samples at once: the step's rows of a U-Net for diffusion, and heads of rows."""

from tests.prediction.kernels.building import builder_test


def denoiser(samples: int) -> str:
    """Two Convs, to whose maps a row for each sample is added that products of one tensor make."""
    return f"""
    (float[{samples},32,16,16] x, float[{samples},64] t) => (float[{samples},32,16,16] out)
    <float[64,64] wt = {{1}}, float[64] bt = {{1}}, float[64,32] w1 = {{1}}, float[32] b1 = {{1}},
     float[64,32] w2 = {{1}}, float[32] b2 = {{1}}, float[32,32,3,3] wc = {{1}},
     float[32] bc = {{1}}> {{
      two = Constant<value = int64[1] {{2}}>()
      three = Constant<value = int64[1] {{3}}>()
      [time1] s = Gemm(t, wt, bt)
      [relu1] a = Relu(s)
      [row1] e1 = Gemm(a, w1, b1)
      [long1] l1 = Unsqueeze(e1, two)
      [wide1] u1 = Unsqueeze(l1, three)
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, wc, bc)
      [add1] d1 = Add(c1, u1)
      [relu2] r1 = Relu(d1)
      [row2] e2 = Gemm(a, w2, b2)
      [long2] l2 = Unsqueeze(e2, two)
      [wide2] u2 = Unsqueeze(l2, three)
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, wc, bc)
      [add2] d2 = Add(c2, u2)
      [relu3] r2 = Relu(d2)
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(r2, wc, bc)
    }}"""


HEADS = """
    (float[16,64] x) => (float[16,40] scores, float[16,24] boxes)
    <float[64,64] w = {1}, float[64] b = {1}, float[64,40] w1 = {1}, float[40] b1 = {1},
     float[64,24] w2 = {1}, float[24] b2 = {1}> {
      [first] y = Gemm(x, w, b)
      [relu1] a = Relu(y)
      [head1] scores = Gemm(a, w1, b1)
      [head2] boxes = Gemm(a, w2, b2)
    }"""
ROUTED = """
    (float[1,16,8,8] x) => (float[1,24,8,8] out)
    <float[16,4] w = {1}, float[4] b = {1}, float[4,256] w1 = {1}, float[4,384] w2 = {1}> {
      row = Constant<value = int64[2] {1, 16}>()
      first = Constant<value = int64[4] {16, 16, 1, 1}>()
      second = Constant<value = int64[4] {24, 16, 1, 1}>()
      [mean1] m = GlobalAveragePool(x)
      [flat1] f = Reshape(m, row)
      [route1] r = Gemm(f, w, b)
      [sig1] s = Sigmoid(r)
      [mix1] k1 = MatMul(s, w1)
      [shape1] v1 = Reshape(k1, first)
      [conv1] c1 = Conv(x, v1)
      [relu1] a = Relu(c1)
      [mix2] k2 = MatMul(s, w2)
      [shape2] v2 = Reshape(k2, second)
      [conv2] out = Conv(a, v2)
    }"""
PAIRS = "a->head1 w1->head1 a->head2 w2->head2"
GRAPHS = {
    "products of several rows are one, and another kernel adds a row of each sample": (
        "",
        denoiser(2),
    ),
    "a Conv adds a row of a single sample": ("", denoiser(1)),
    "heads of the same rows are one product": ("", HEADS),
    "of integers, too": (PAIRS, HEADS),
    "weights that are mixed for each image are made by one kernel": ("", ROUTED),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
