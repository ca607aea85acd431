"""Masks that are added to scores of rank 3, which are shaped for it and back, as in DETR."""

from tests.prediction.kernels.building import builder_test


def attended(tokens: int, mask: str) -> str:
    """An attention of four heads; ``mask`` is added to what all rows of scores share."""
    return f"""
    (float[1,{tokens},64] x) => (float[1,{tokens},64] out)
    <float[64,64] wq = {{1}}, float[64,64] wk = {{1}}, float[64,64] wv = {{1}},
     float[64,64] wo = {{1}}, float[64] b = {{1}}> {{
      heads = Constant<value = int64[4] {{1, {tokens}, 4, 16}}>()
      flat = Constant<value = int64[3] {{4, {tokens}, 16}}>()
      long = Constant<value = int64[4] {{1, 4, {tokens}, {tokens}}}>()
      short = Constant<value = int64[3] {{4, {tokens}, {tokens}}}>()
      again = Constant<value = int64[4] {{1, 4, {tokens}, 16}}>()
      rows = Constant<value = int64[3] {{1, {tokens}, 64}}>()
      quarter = Constant<value = float {{0.25}}>()
      mask = Constant<value = float[1,1,1,{tokens}] {{{mask}}}>()
      [query] q0 = MatMul(x, wq)
      [bias1] q1 = Add(q0, b)
      [scale1] q2 = Mul(q1, quarter)
      [view1] q3 = Reshape(q2, heads)
      [turn1] q4 = Transpose<perm = [0, 2, 1, 3]>(q3)
      [flat1] q = Reshape(q4, flat)
      [key] k0 = MatMul(x, wk)
      [bias2] k1 = Add(k0, b)
      [view2] k2 = Reshape(k1, heads)
      [turn2] k3 = Transpose<perm = [0, 2, 1, 3]>(k2)
      [flat2] k4 = Reshape(k3, flat)
      [turn3] k = Transpose<perm = [0, 2, 1]>(k4)
      [value] v0 = MatMul(x, wv)
      [bias3] v1 = Add(v0, b)
      [view3] v2 = Reshape(v1, heads)
      [turn4] v3 = Transpose<perm = [0, 2, 1, 3]>(v2)
      [flat3] v = Reshape(v3, flat)
      [scores] s0 = MatMul(q, k)
      [long1] s1 = Reshape(s0, long)
      [mask1] s2 = Add(s1, mask)
      [short1] s3 = Reshape(s2, short)
      [soft] p = Softmax<axis = -1>(s3)
      [mix] o1 = MatMul(p, v)
      [again1] o2 = Reshape(o1, again)
      [turn5] o3 = Transpose<perm = [0, 2, 1, 3]>(o2)
      [rows1] o4 = Reshape(o3, rows)
      [project] out = MatMul(o4, wo)
    }}"""


GRAPHS = {
    "a mask that masks nothing keeps products and Softmax apart": attended(
        16, ", ".join(["0.0"] * 16)
    ),
    "which pad an odd number of keys": attended(9, ", ".join(["0.0"] * 9)),
    "a mask of numbers is part of the attention": attended(9, ", ".join(["0.0"] * 8 + ["-9.0"])),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
