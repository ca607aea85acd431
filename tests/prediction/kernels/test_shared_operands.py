"""Products of activations that share an operand, and which of two computes what follows."""

from tests.prediction.kernels.building import builder_test

DELTA = """(float[{batch}64,32] x, float[{batch}64,32] v, float[{batch}64,32] r) => ({made})
    <float[32,64] w = {{1}}> {{
      [scores] q = MatMul(x, w) [shares] s = Softmax<axis = -1>(q) [rate] k = Mul(v, r)
      [own] o = Neg(v) [values] a = MatMul(s, o) [rated] e = MatMul(s, k) {behind} }}"""
BOTH = "[less] out = Sub(a, e)"
FACTORS = """(float[1,64,1024] x, float[1,64,16] bases) => (float[1,64,16] out) {
      shift = Constant<value = float {1.0}>()
      [map] m = Relu(x) [turn] t = Transpose<perm = [0, 2, 1]>(m) [score] c = MatMul(t, bases)
      [share] k = Softmax<axis = -1>(c) [turn_share] s = Transpose<perm = [0, 2, 1]>(k)
      [numerator] a = MatMul(m, k) [square] e = MatMul(s, k) [denominator] f = MatMul(bases, e)
      [mul] g = Mul(bases, a) [add] h = Add(f, shift) [div] out = Div(g, h) }"""
ON_DEMAND = """(float[1,64,128] x, float[1,64,128] z, float[1,128,16] n) => (float[1,64,16] out) {
      [share] k = Softmax<axis = -1>(n) [active] c = Relu(x) [minus] d = Neg(z)
      [first] a = MatMul(c, k) [second] e = MatMul(d, k) [mul] out = Mul(a, e) }"""
QUOTIENT = """(float[1,32,256] x, float[1,256,16] n, float[1,32,16] v) => (float[1,256,16] out) {
      [map] m = Relu(x) [active] u = Relu(v) [share] k = Softmax<axis = -1>(n)
      [turn] t = Transpose<perm = [0, 2, 1]>(m) [turn_active] s = Transpose<perm = [0, 2, 1]>(u)
      [numerator] a = MatMul(t, u) [square] e = MatMul(s, u) [denominator] f = MatMul(k, e)
      [mul] g = Mul(k, a) [div] out = Div(g, f) }"""
GRAPHS = {
    "what is there when the first product runs is joined for it": DELTA.format(
        batch="1,", made="float[1,64,32] out", behind=BOTH
    ),
    "so it is without a batch": DELTA.format(batch="", made="float[64,32] out", behind=BOTH),
    "products of heads stay apart": DELTA.format(
        batch="1,4,", made="float[1,4,64,32] out", behind=BOTH
    ),
    "and so does one whose own kernel computes more": DELTA.format(
        batch="1,",
        made="float[1,64,32] out, float[1,64,32] active",
        behind="[relu] out = Relu(a) [sigmoid] active = Sigmoid(e)",
    ),
    "and all do where one has to wait": DELTA.format(
        batch="1,",
        made="float[1,64,32] out",
        behind="[less] c = Sub(a, e) [late] f = MatMul(s, c) [exp] out = Exp(f)",
    ),
    "an operand that is turned is joined, too": FACTORS,
    "what is made on demand is not there, and the later product multiplies": ON_DEMAND,
    "the product of the last branch divides": QUOTIENT,
}

test_shared_operands = builder_test(GRAPHS, 17)
