"""Matrices that are turned for a product with a weight, and odd numbers of their rows."""

from tests.prediction.kernels.building import builder_test

SERIES = """(float[{batch},96,{rows}] x) => (float out)
    <float[96,96] w = {{1}}, float[96] b = {{1}}> {{
      [first] f = Relu(x) [turn] t = Transpose<perm = [0, 2, 1]>(f) [product] m = MatMul(t, w)
      {behind} }}"""
BIAS = "[bias] a = Add(m, b)"
ACTIVE = f"{BIAS} [active] out = Relu(a)"
MIXED = f"""{BIAS} [active] s = Relu(a) [back] k = Transpose<perm = [0, 2, 1]>(s)
      [add] out = Add(k, f)"""
HEAD = """(float[1,21,64] x, float[1,24,21] e) => (float[1,24,21] out)
    <float[64,24] w = {1}, float[24] b = {1}> {
      [product] m = MatMul(x, w) [bias] a = Add(m, b)
      [back] k = Transpose<perm = [0, 2, 1]>(a) [mul] out = Mul(k, e) }"""
VECTOR = """(float[64] x) => (float[32] out) <float[64,32] w = {1}> {
      [active] a = Relu(x) [product] out = MatMul(a, w) }"""
MATRIX = f"""(float[96,21] x) => (float[21,96] out) <float[96,96] w = {{1}}, float[96] b = {{1}}> {{
      [first] f = Relu(x) [turn] t = Transpose(f) [product] m = MatMul(t, w) {ACTIVE} }}"""
GRAPHS = {
    "a vector has one row": VECTOR,
    "axes that are not named are reversed": MATRIX,
    "the product's kernel reads what was to be turned": SERIES.format(
        batch=1, rows=24, behind=ACTIVE
    ),
    "an odd number of rows is padded before, and cut behind": SERIES.format(
        batch=1, rows=21, behind=ACTIVE
    ),
    "also in networks that mix steps, of several samples": SERIES.format(
        batch=4, rows=7, behind=MIXED
    ),
    "and where the rows are turned behind": HEAD,
}
SHAPES = """queries = Constant<value = int64[4] {1, 24, 4, 16}>()
      keys = Constant<value = int64[4] {1, 24, 2, 16}>()
      pairs = Constant<value = int64[5] {1, 2, 2, 24, 16}>()
      heads = Constant<value = int64[4] {1, 4, 24, 16}>()
      axis = Constant<value = int64[1] {2}>() scale = Constant<value = float {0.5}>()"""
NO_POSITIONS = f"""(float[1,24,64] x, float[1,1,24,24] mask) => (float[1,4,24,24] out)
    <float[64,64] wq = {{1}}, float[64,32] wk = {{1}}> {{
      {SHAPES}
      [query] q = MatMul(x, wq) [heads1] q1 = Reshape(q, queries)
      [turn1] q2 = Transpose<perm = [0, 2, 1, 3]>(q1) [scale1] q3 = Mul(q2, scale)
      [key] k = MatMul(x, wk) [heads2] k1 = Reshape(k, keys)
      [turn2] k2 = Transpose<perm = [0, 2, 1, 3]>(k1) [wide] k3 = Unsqueeze(k2, axis)
      [repeat] k4 = Expand(k3, pairs) [heads3] k5 = Reshape(k4, heads)
      [turn3] k6 = Transpose<perm = [0, 1, 3, 2]>(k5) [scale2] k7 = Mul(k6, scale)
      [scores] s = MatMul(q3, k7) [masked] m = Add(s, mask) [shares] out = Softmax<axis = -1>(m)
    }}"""

test_turned_operands = builder_test(GRAPHS, 17)
test_quantized_operands = builder_test(
    {
        "integers of an odd number of rows are padded, too": (
            "t->product w->product",
            GRAPHS["an odd number of rows is padded before, and cut behind"],
        )
    },
    17,
)
test_scaled_heads_without_positions = builder_test(
    {"scores scale queries and keys themselves": NO_POSITIONS}, 17
)
