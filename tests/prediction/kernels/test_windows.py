"""Windows of a map that are attended to by themselves, as in Swin, and the rows beside them."""

from tests.prediction.kernels.building import builder_test


def windows(behind: str) -> str:
    """Windows of 4 x 4 places become a map again, of which ``behind`` makes rows ``z``."""
    return f"""
    (float[1,256,64] x) => (float[1,256,64] out)
    <float[64,64] w0 = {{1}}, float[64,64] w1 = {{1}}, float[64,64] w2 = {{1}},
     float[64,64] w3 = {{1}}, float[64,64] w4 = {{1}}, float[64] b = {{1}}, float[64] g = {{1}}> {{
      cut = Constant<value = int64[6] {{1, 4, 4, 4, 4, 64}}>()
      tokens = Constant<value = int64[3] {{16, 16, 64}}>()
      map = Constant<value = int64[4] {{1, 16, 16, 64}}>()
      rows = Constant<value = int64[3] {{1, 256, 64}}>()
      [first] x0 = MatMul(x, w0)
      [map1] y = Reshape(x0, map)
      [cut1] a1 = Reshape(y, cut)
      [turn1] a2 = Transpose<perm = [0, 1, 3, 2, 4, 5]>(a1)
      [tokens1] a3 = Reshape(a2, tokens)
      [product1] p1 = MatMul(a3, w1)
      [tanh1] p2 = Tanh(p1)
      [product2] p3 = MatMul(p2, w2)
      [bias1] p4 = Add(p3, b)
      [cut2] b1 = Reshape(p4, cut)
      [turn2] b2 = Transpose<perm = [0, 1, 3, 2, 4, 5]>(b1)
      [map2] b3 = Reshape(b2, map)
      {behind}
      [rows1] z = Reshape(z1, rows)
      [product3] f1 = MatMul(z, w3)
      [bias2] f2 = Add(f1, b)
      [tanh2] f3 = Tanh(f2)
      [product4] f4 = MatMul(f3, w4)
      [bias3] f5 = Add(f4, b)
      [norm2] n2 = LayerNormalization<axis = -1>(f5, g)
      [add2] out = Add(n2, z)
    }}"""


NORMED = windows("[norm1] n1 = LayerNormalization<axis = -1>(b3, g)\n[add1] z1 = Add(n1, y)")
PAIRS = "z->product3 w3->product3 f3->product4 w4->product4"
GRAPHS = {
    "rows that a product and a sum read are made where they are added": ("", NORMED),
    "whether the windows are normed or not": ("", windows("[add1] z1 = Add(b3, y)")),
    "and if the product reads integers": (PAIRS, NORMED),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
