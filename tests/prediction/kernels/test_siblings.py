"""Norms of the same rows: what NVIDIA's builder makes of them is predicted."""

from tests.prediction.kernels.building import builder_test

PARALLEL = """
    (float[1,65,64] x) => (float[1,65,64] out, float[1,65,64] other)
    <float[64,64] w1 = {1}, float[64] b1 = {1}, float[64] g1 = {1}, float[64] g2 = {1},
     float[64,64] w2 = {1}, float[64,64] w3 = {1}> {
      [relu1] r = Relu(x)
      [product1] p = MatMul(r, w1)
      [bias1] c = Add(p, b1)
      [add1] y = Add(c, x)
      [norm1] n1 = LayerNormalization<axis = -1>(y, g1, b1)
      [norm2] n2 = LayerNormalization<axis = -1>(y, g2, b1)
      [product2] p2 = MatMul(n1, w2)
      [relu2] out = Relu(p2)
      [product3] p3 = MatMul(n2, w3)
      [relu3] other = Relu(p3)
    }"""
FEATURES = """
    (float[1,65,64] x) => (float[1,65,64] out, float[1,16,8,8] map)
    <float[64,64] w1 = {1}, float[64] b1 = {1}, float[64] g1 = {1}, float[64] g2 = {1},
     float[64,64] w2 = {1}, float[16,64,1,1] w3 = {1}> {
      one = Constant<value = int64[1] {1}>()
      end = Constant<value = int64[1] {65}>()
      rows = Constant<value = int64[4] {1, 8, 8, 64}>()
      [relu1] r = Relu(x)
      [product1] p = MatMul(r, w1)
      [bias1] c = Add(p, b1)
      [add1] y = Add(c, x)
      [norm1] n1 = LayerNormalization<axis = -1>(y, g1, b1)
      [norm2] n2 = LayerNormalization<axis = -1>(y, g2, b1)
      [product2] out = MatMul(n1, w2)
      [cut1] t = Slice(n2, one, end, one)
      [long1] l = Reshape(t, rows)
      [turn1] m = Transpose<perm = [0, 3, 1, 2]>(l)
      [conv1] map = Conv(m, w3)
    }"""
GRAPHS = {
    "two norms of the same rows are one kernel, as in parallel residuals": PARALLEL,
    "where rows of one are cut off, one kernel sums and another scales both": FEATURES,
    "whatever number is added to their variances": PARALLEL.replace(
        "[norm2] n2 = LayerNormalization<axis = -1>",
        "[norm2] n2 = LayerNormalization<axis = -1, epsilon = 0.001>",
    ),
}
QUANTIZED = {
    "each of two norms is quantized for who reads it": ("n1->product2 w2->product2", PARALLEL),
    "and so are rows that are cut off": ("m->conv1 w3->conv1", FEATURES),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=17)
