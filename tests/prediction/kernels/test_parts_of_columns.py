"""Columns of a product that a Split or Slices take apart, which add their bias where it is read."""

from tests.prediction.kernels.building import builder_test

ROWS = """(float[16,24] x) => (float out)
    <float[24,64] w = {{1}}, float[64] b = {{1}}, float[16,8] u = {{1}}> {{
      start = Constant<value = int64[1] {{0}}>() half = Constant<value = int64[1] {{32}}>()
      all = Constant<value = int64[1] {{64}}>() axis = Constant<value = int64[1] {{1}}>()
      {} }}"""
GEMM, SPLIT = "[product] c = Gemm(x, w, b)", "[parts] p, q = Split<axis = 1>(c)"
GATE = "[gate] s = Sigmoid(q) [mul] out = Mul(p, s)"
SLICES = "[first] p = Slice(c, start, half, axis) [second] q = Slice(c, half, all, axis)"
FOUR = """[parts] p, q, r, o = Split<axis = 1>(c) [gate] s = Sigmoid(q) [mul] t = Mul(p, s)
    [add] a = Add(t, r) [mul2] out = Mul(a, o)"""
HEAD = """(float[1,24,64] x, float[1,24,64] e) => (float[1,24,64] out)
    <float[64,128] w = {1}, float[128] b = {1}> {
      [joint] m = MatMul(x, w) [bias] c = Add(m, b) [parts] k, v = Split<axis = 2>(c)
      [turn] t = Transpose<perm = [0, 2, 1]>(k) [scores] s = MatMul(e, t)
      [shares] a = Softmax<axis = -1>(s) [mix] out = MatMul(a, v) }"""
HEADS = """(float[1,16,64] x) => (float[1,4,16,16] out) <float[64,192] w = {1}> {
      heads = Constant<value = int64[4] {1, 16, 4, 16}>()
      [first] e = Relu(x) [joint] m = MatMul(e, w) [parts] q, k, v = Split<axis = 2>(m)
      [split1] qs = Reshape(q, heads) [split2] ks = Reshape(k, heads)
      [split3] vs = Reshape(v, heads) [turn1] qt = Transpose<perm = [0, 2, 1, 3]>(qs)
      [turn2] kt = Transpose<perm = [0, 2, 3, 1]>(ks)
      [turn3] vt = Transpose<perm = [0, 2, 1, 3]>(vs)
      [scores] s = MatMul(qt, kt) [shares] a = Softmax<axis = -1>(s) [mix] out = MatMul(a, vt) }"""
PAIRS = "x->joint w->joint"
GRAPHS = {
    "a gated linear unit of a Gemm": ROWS.format(f"{GEMM} {SPLIT} {GATE}"),
    "by Slices": ROWS.format(f"{GEMM} {SLICES} {GATE}"),
    "without a bias": ROWS.format(f"[product] c = Gemm(x, w) {SPLIT} {GATE}"),
    "behind a Relu, as it is computed": ROWS.format(
        f"[product] m = Gemm(x, w, b) [relu] c = Relu(m) {SPLIT} {GATE}"
    ),
    "of four parts the product's kernel adds the bias": ROWS.format(f"{GEMM} {FOUR}"),
    "so it does of a MatMul": ROWS.format(
        f"[product] m = MatMul(x, w) [bias] c = Add(m, b) {FOUR}"
    ),
}

test_parts = builder_test(GRAPHS, 17)
test_quantized_parts = builder_test(
    {
        "one kernel scales and cuts keys and values of one head": (PAIRS, HEAD),
        "heads are quantized where they are cut out, without a name of the product": (
            "qt->scores kt->scores a->mix vt->mix",
            HEADS,
        ),
        "and halves of a Gemm": ("x->product w->product", GRAPHS["a gated linear unit of a Gemm"]),
    },
    17,
)
