"""Norms before queries, keys and values of several samples, and maps made of their rows."""

from tests.prediction.kernels.building import builder_test

SQUARES = """[square] y2 = Pow(t, two)
      [mean] v0 = ReduceMean<axes = [-1]>(y2)
      [above] e = Add(v0, small)
      [root] r0 = Sqrt(e)
      [inverse] i = Reciprocal(r0)
      [norm1] n = Mul(t, i)"""


def attended(samples: int, norm: str, biased: bool = False) -> str:
    """Rows of a map are normed, attended to and made a map again."""
    one, three = (
        f"[bias{name}] {name}1 = {'Add' if biased else 'Identity'}({name}0{', b' * biased})"
        for name in ("q", "k")
    )
    return f"""
    (float[{samples},64,8,8] x) => (float[{samples},64,8,8] out)
    <float[64,64,3,3] wc = {{1}}, float[64,64] wq = {{1}}, float[64,64] wk = {{1}},
     float[64,64] wv = {{1}}, float[64,64] wo = {{1}}, float[64] b = {{1}}, float[64] g = {{1}}> {{
      heads = Constant<value = int64[4] {{{samples}, 64, 4, 16}}>()
      rows = Constant<value = int64[3] {{{samples}, 64, 64}}>()
      map = Constant<value = int64[4] {{{samples}, 8, 8, 64}}>()
      two = Constant<value = float {{2.0}}>()
      small = Constant<value = float {{1e-5}}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, wc, b)
      [turn1] t1 = Transpose<perm = [0, 2, 3, 1]>(c)
      [rows1] t = Reshape(t1, rows)
      {norm}
      [query] q0 = MatMul(n, wq)
      {one}
      [key] k0 = MatMul(n, wk)
      {three}
      [value] v1 = MatMul(n, wv)
      [heads1] q2 = Reshape(q1, heads)
      [heads2] k2 = Reshape(k1, heads)
      [heads3] v2 = Reshape(v1, heads)
      [turn2] q = Transpose<perm = [0, 2, 1, 3]>(q2)
      [turn3] k = Transpose<perm = [0, 2, 3, 1]>(k2)
      [turn4] v = Transpose<perm = [0, 2, 1, 3]>(v2)
      [scores] s = MatMul(q, k)
      [soft] p = Softmax<axis = -1>(s)
      [mix] o1 = MatMul(p, v)
      [turn5] o2 = Transpose<perm = [0, 2, 1, 3]>(o1)
      [rows2] o3 = Reshape(o2, rows)
      [project] o4 = MatMul(o3, wo)
      [bias1] o5 = Add(o4, b)
      [add1] r = Add(o5, t)
      [map1] m1 = Reshape(r, map)
      [turn6] m = Transpose<perm = [0, 3, 1, 2]>(m1)
      [conv2] out = Conv<pads = [1, 1, 1, 1]>(m, wc, b)
    }}"""


JOINT = """
    (float[2,24,32] x) => (float[2,2,24,16] out)
    <float[32,32] wq = {1}, float[32,64] wk = {1}> {
      heads = Constant<value = int64[4] {2, 24, 2, 16}>()
      both = Constant<value = int64[5] {2, 24, 2, 2, 16}>()
      zero = Constant<value = int64 {0}>()
      one = Constant<value = int64 {1}>()
      [relu] r = Relu(x)
      [query] q0 = MatMul(r, wq)
      [keys] k0 = MatMul(r, wk)
      [heads1] q1 = Reshape(q0, heads)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(q1)
      [heads2] k1 = Reshape(k0, both)
      [turn2] k2 = Transpose<perm = [2, 0, 3, 1, 4]>(k1)
      [key] k = Gather<axis = 0>(k2, zero)
      [value] v = Gather<axis = 0>(k2, one)
      [turn3] t = Transpose<perm = [0, 1, 3, 2]>(k)
      [scores] s = MatMul(q, t)
      [soft] p = Softmax<axis = -1>(s)
      [mix] out = MatMul(p, v)
    }"""
NORM = "[norm1] n = LayerNormalization<axis = -1>(t, g, b)"
GRAPHS = {
    "rows of several samples are scaled by another kernel than takes mean and variance": attended(
        2, NORM
    ),
    "so they are with what is added behind the norm": attended(
        2, f"{NORM.replace(' n =', ' n1 =')}\n[add0] n = Add(n1, g)"
    ),
    "and those that are divided by the root of their squares' mean": attended(2, SQUARES),
    "not if parts of the products have a bias, as those are read where it is added": attended(
        2, NORM, biased=True
    ),
    "nor of a single sample": attended(1, NORM),
    "joint keys and values are a product of their own": JOINT,
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
