"""Operands that a number multiplies behind their pair, whose scale takes it in."""

from tests.prediction.kernels.building import builder_test

SCALED = """(float[{heads}32,16] x, float[{heads}16,32] z) => (float out) {{
      number = Constant<value = float {{0.35}}>() [first] a = Relu(x) [second] b = Sigmoid(z)
      {queries} {keys} [scores] s = MatMul(q, k) [shares] out = Softmax<axis = -1>(s) }}"""
QUERIES, KEYS = "[scale] q = Mul(a, number)", "[scale_keys] k = Mul(b, number)"
TURNED = """[scale_keys] m = Mul(b, number)
      [turn] k = Transpose<perm = [0, 1, 2]>(m)"""
WEIGHTED = """(float[16,32] x) => (float out) <float[32,64] w = {1}, float[64] b = {1},
      float[64,32] v = {1}> {
      number = Constant<value = float {0.35}>() [product1] a = MatMul(x, w) [sin] s = Sin(a)
      [scale] m = Mul(s, number) [product2] out = MatMul(m, v) }"""
GELU = """(float[16,32] x) => (float out) <float[32,64] w = {1}, float[64] b = {1},
      float[64,32] v = {1}> {
      root = Constant<value = float {1.4142135}>() one = Constant<value = float {1.0}>()
      half = Constant<value = float {0.5}>()
      [product1] a = MatMul(x, w) [bias] g = Add(a, b) [scale] d = Div(g, root) [erf] e = Erf(d)
      [sum] s = Add(e, one) [gate] m = Mul(g, s) [halve] h = Mul(m, half)
      [product2] out = MatMul(h, v) }"""
ROW = """(float[1,16] x) => (float[1,8] out) <float[16,16] w = {{1}}, float[16,8] v = {{1}}> {{
      number = Constant<value = float {{0.7}}>() [row] a = MatMul(x, w) [scale] m = {scale}
      [active] s = Sigmoid(m) [row2] out = MatMul(s, v) }}"""
GRAPHS = {
    "the product reads integers of queries that are scaled": (
        "a->scale",
        SCALED.format(heads="2,", queries=QUERIES, keys="k = Identity(b)"),
    ),
    "and of keys, each in one kernel": (
        "a->scale b->scale_keys",
        SCALED.format(heads="1,2,", queries=QUERIES, keys=KEYS),
    ),
    "beside keys with a pair of their own": (
        "a->scale k->scores",
        SCALED.format(heads="1,2,", queries=QUERIES, keys="[active] k = Tanh(b)"),
    ),
    "views may lie between": (
        "a->scale b->scale_keys",
        SCALED.format(heads="2,", queries=QUERIES, keys=TURNED),
    ),
    "so does a product with a weight": ("s->scale", WEIGHTED),
    "of a GELU with a pair inside the product halves, and another kernel adds the bias": (
        "d->erf",
        GELU,
    ),
    "so it is with a pair of the gate's factor": ("s->gate", GELU),
    "with both operands quantized alike it is a GELU": ("g->scale g->gate", GELU),
    "a row is multiplied in its kernel, with a node between two pairs": (
        "m->active s->row2",
        ROW.format(scale="Mul(a, number)"),
    ),
    "and divided": ("m->active s->row2", ROW.format(scale="Div(a, number)")),
}
test_scaled_pairs = builder_test(GRAPHS, 17)
