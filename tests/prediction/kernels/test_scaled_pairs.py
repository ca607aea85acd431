"""Operands that a number multiplies behind their pair, whose scale takes it in."""

from tests.prediction.kernels.building import builder_test

SCALED = """(float[{heads}32,16] x, float[{heads}16,32] z) => (float out) {{
      number = Constant<value = float {{0.35}}>() [first] a = Relu(x) [second] b = Sigmoid(z)
      {queries} {keys} [scores] s = MatMul(q, k) [shares] out = Softmax<axis = -1>(s) }}"""
QUERIES, KEYS = "[scale] q = Mul(a, number)", "[scale_keys] k = Mul(b, number)"
TURNED = """[scale_keys] m = Mul(b, number)
      [turn] k = Transpose<perm = [0, 1, 2]>(m)"""
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
}
test_scaled_pairs = builder_test(GRAPHS, 17)
