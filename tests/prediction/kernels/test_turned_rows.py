"""Rows of a map that become a map again: NVIDIA's builder's layers are predicted."""

from tests.prediction.kernels.building import builder_test

RESIDUAL = """
    (float[1,64,8,8] x) => (float[1,64,8,8] out)
    <float[64,64,3,3] w1 = {1}, float[64,64,1,1] w2 = {1}, float[64] g = {1}, float[64] b = {1},
     float[64,128] w3 = {1}, float[128] b3 = {1}, float[128,64] w4 = {1}> {
      flat = Constant<value = int64[3] {1, 64, 64}>()
      map = Constant<value = int64[4] {1, 64, 8, 8}>()
      rows = Constant<value = int64[4] {1, 8, 8, 64}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [flatten] f = Reshape(c, flat)
      [turn1] t = Transpose<perm = [0, 2, 1]>(f)
      [norm] n = LayerNormalization(t, g, b)
      [product1] h0 = MatMul(n, w3)
      [bias1] h1 = Add(h0, b3)
      [relu] h = Relu(h1)
      [product2] p = MatMul(h, w4)
      [bias2] a = Add(p, b)
      [add] s = Add(t, a)
      [turn2] u = Transpose<perm = [0, 2, 1]>(s)
      [long] m = Reshape(u, map)
      [conv2] out = Conv(m, w2)
    }"""
FEW = RESIDUAL.replace("8,8]", "4,4]").replace("{1, 64, 64}", "{1, 64, 16}")
FEW = FEW.replace("{1, 64, 8, 8}", "{1, 64, 4, 4}").replace("{1, 8, 8, 64}", "{1, 4, 4, 64}")
LOCAL = """
    (float[1,64,32] x, float[1,64,32] y) => (float[1,64,16] out)
    <float[32,32] w1 = {1}, float[32] b1 = {1}, float[32,1,3,3] w2 = {1}, float[32,16] w3 = {1},
     float[16] b3 = {1}> {
      flat = Constant<value = int64[3] {1, 32, 64}>()
      map = Constant<value = int64[4] {1, 32, 8, 8}>()
      [relu] r = Relu(x)
      [other] o = Relu(y)
      [product1] p = MatMul(r, w1)
      [bias1] a = Add(p, b1)
      [add] s = Add(a, o)
      [turn1] t = Transpose<perm = [0, 2, 1]>(s)
      [map1] m = Reshape(t, map)
      [conv] c = Conv<group = 32, pads = [1, 1, 1, 1]>(m, w2)
      [gate] g = Sigmoid(c)
      [silu] h = Mul(c, g)
      [flatten] f = Reshape(h, flat)
      [turn2] u = Transpose<perm = [0, 2, 1]>(f)
      [product2] q = MatMul(u, w3)
      [bias2] out = Add(q, b3)
    }"""
NORMED = """
    (float[1,64,32] x) => (float[1,48,8,8] out)
    <float[32] g = {1}, float[48,32,1,1] w = {1}> {
      map = Constant<value = int64[4] {1, 8, 8, 32}>()
      [relu] r = Relu(x)
      [norm] n = LayerNormalization(r, g, g)
      [gate] s = Sigmoid(n)
      [silu] a = Mul(n, s)
      [rows] m = Reshape(a, map)
      [turn] t = Transpose<perm = [0, 3, 1, 2]>(m)
      [conv] out = Conv(t, w)
    }"""
GRAPHS = {
    "a Conv reads rows that are computed of a norm element by element as they are": NORMED,
    "another kernel adds a bias and rows for a map, and computes what makes rows of it": LOCAL,
    "a generated kernel adds bias and residual and turns the sum": RESIDUAL,
    "few tokens are stored where they are normed": FEW,
    "and turned with what is added, also as rows of a map": FEW.replace(
        "[turn2] u = Transpose<perm = [0, 2, 1]>(s)", "[long0] r = Reshape(s, rows)"
    ).replace("[long] m = Reshape(u, map)", "[turn2] m = Transpose<perm = [0, 3, 1, 2]>(r)"),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
