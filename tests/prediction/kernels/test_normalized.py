"""Rows divided by their length, and norms of queries: NVIDIA's builder's layers are predicted."""

from tests.prediction.kernels.building import builder_test

NORMALIZED = """
    (float[1,16,64] x) => (float[1,16,32] out)
    <float[64,48] w1 = {1}, float[48] b1 = {1}, float[48,32] w2 = {1}> {
      tiny = Constant<value = float {1e-12}>()
      shape = Constant<value = int64[3] {1, 16, 48}>()
      [product1] p = MatMul(x, w1)
      [bias1] c = Add(p, b1)
      [length] l = ReduceL2<axes = [-1], keepdims = 1>(c)
      [limit] m = Clip(l, tiny)
      [repeat] e = Expand(m, shape)
      [scale] n = Div(c, e)
      [product2] out = MatMul(n, w2)
    }"""
ROW = """
    (float[1,64] x) => (float[1,48] out) <float[64,48] w1 = {1}, float[48] b1 = {1}> {
      [product1] c = Gemm(x, w1, b1)
      [length] l = ReduceL2<axes = [-1], keepdims = 1>(c)
      [scale] out = Div(c, l)
    }"""
MAP = """
    (float[1,32,16,16] x) => (float[1,24,16,16] out)
    <float[32,32,3,3] w1 = {1}, float[24,32,3,3] w2 = {1}, float[1,32,1,1] g = {1}> {
      tiny = Constant<value = float {1e-12}>()
      shape = Constant<value = int64[4] {1, 32, 16, 16}>()
      [conv1] p = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] c = Relu(p)
      [length] l = ReduceL2<axes = [1], keepdims = 1>(c)
      [limit] m = Clip(l, tiny)
      [repeat] e = Expand(m, shape)
      [scale] n = Div(c, e)
      [gain] f = Mul(n, g)
      [conv2] out = Conv<pads = [1, 1, 1, 1]>(f, w2)
    }"""
QUERIES = """
    (float[1,24,64] x) => (float[1,24,64] out)
    <float[64,64] wq = {1}, float[64,64] wk = {1}, float[64,64] wv = {1}, float[64,64] wo = {1},
     float[16] gain = {1}> {
      two = Constant<value = float {2.0}>()
      tiny = Constant<value = float {1e-6}>()
      heads = Constant<value = int64[4] {1, 24, 4, 16}>()
      rows = Constant<value = int64[3] {1, 24, 64}>()
      half = Constant<value = float {0.25}>()
      [project1] q0 = MatMul(x, wq)
      [heads1] q1 = Reshape(q0, heads)
      [square] s = Pow(q1, two)
      [mean] m = ReduceMean<axes = [-1], keepdims = 1>(s)
      [shift] a = Add(m, tiny)
      [root] r = Sqrt(a)
      [invert] i = Reciprocal(r)
      [norm] n = Mul(q1, i)
      [scale] g = Mul(n, gain)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(g)
      [project2] k0 = MatMul(x, wk)
      [heads2] k1 = Reshape(k0, heads)
      [turn2] k = Transpose<perm = [0, 2, 3, 1]>(k1)
      [project3] v0 = MatMul(x, wv)
      [heads3] v1 = Reshape(v0, heads)
      [turn3] v = Transpose<perm = [0, 2, 1, 3]>(v1)
      [scores] t = MatMul(q, k)
      [half1] u = Mul(t, half)
      [soft] p = Softmax<axis = -1>(u)
      [mix] o = MatMul(p, v)
      [turn4] y = Transpose<perm = [0, 2, 1, 3]>(o)
      [flat] z = Reshape(y, rows)
      [project4] out = MatMul(z, wo)
    }"""
NORMED_ROWS = (
    QUERIES.replace("      [heads1] q1 = Reshape(q0, heads)\n", "")
    .replace("Pow(q1, two)", "Pow(q0, two)")
    .replace("Mul(q1, i)", "Mul(q0, i)")
    .replace("float[16] gain", "float[64] gain")
    .replace("[turn1]", "[heads1] q1 = Reshape(g, heads)\n      [turn1]")
    .replace("[0, 2, 1, 3]>(g)", "[0, 2, 1, 3]>(q1)")
)
DIVIDED = QUERIES.replace(
    "[invert] i = Reciprocal(r)",
    "one = Constant<value = float {1.0}>() [invert] i = Div(one, r)",
)
CAST = (
    DIVIDED.replace("[square]", "[widen] c = Cast<to = 1>(q1) [square]")
    .replace("Pow(q1, two)", "Pow(c, two)")
    .replace("Mul(q1, i)", "Mul(c, i)")
)
# As PyTorch's older exporter writes a norm in FP32: residuals read what the Cast makes, too.
NORMED = """[square] s = Pow(c, two)
      [mean] m = ReduceMean<axes = [-1], keepdims = 1>(s)
      [shift] a = Add(m, tiny)
      [root] r = Sqrt(a)
      [invert] i = Div(one, r)
      [norm] n = Mul(c, i)"""
RESIDUAL = f"""
    (float[1,24,64] x, float[1,24,64] y) => (float[1,24,64] out)
    <float[64,64] w = {{1}}> {{
      two = Constant<value = float {{2.0}}>()
      one = Constant<value = float {{1.0}}>()
      tiny = Constant<value = float {{1e-6}}>()
      [before] b = Sigmoid(x)
      [sum1] u = Add(b, y)
      [widen] c = Cast<to = 1>(u)
      {NORMED}
      [project] q = MatMul(n, w)
      [sum2] out = Add(c, q)
    }}"""
JOINT = f"""
    (float[1,24,64] x) => (float[1,4,24,16] out, float[1,24,64] v)
    <float[64,64] wq = {{1}}, float[64,64] wv = {{1}}> {{
      two = Constant<value = float {{2.0}}>()
      one = Constant<value = float {{1.0}}>()
      tiny = Constant<value = float {{1e-6}}>()
      heads = Constant<value = int64[4] {{1, 24, 4, 16}}>()
      [before] b = Relu(x)
      [project1] q = MatMul(b, wq)
      [project2] k = MatMul(b, wv)
      [gate] v = Sigmoid(k)
      [widen] c = Cast<to = 1>(q)
      {NORMED}
      [heads1] h = Reshape(n, heads)
      [turn1] t = Transpose<perm = [0, 2, 1, 3]>(h)
      [last] out = Sigmoid(t)
    }}"""
# Pow is computed in FP32; a product of a tensor with itself is not, but its mean is.
MULTIPLIED = ("Pow(c, two)", "Mul(c, c)")
GRAPHS = {
    "squares of a sum that is passed on are taken with it, behind its product's kernel": (
        RESIDUAL.replace(*MULTIPLIED).replace("[before] b = Sigmoid(x)", "[first] b = MatMul(x, w)")
    ),
    "what is squared by Mul is a product of its own": JOINT.replace(*MULTIPLIED),
    "what a kernel casts for its norm is passed on to residuals in FP16": RESIDUAL,
    "what a joint product writes is cast by the kernel of its norm": JOINT,
    "what is cast to FP32 for a power is passed on so, as means of powers are": CAST,
    "what is squared is a product of its own; the kernel of the means adds to them": NORMED_ROWS,
    "lengths that are expanded end their kernel; what limits them is in both": NORMALIZED,
    "without an Expand one kernel sums and divides": NORMALIZED.replace(
        "[repeat] e = Expand(m, shape)", "[repeat] e = Identity(m)"
    ),
    "the length of a single row is a kernel of its own": ROW,
    "channels of a map are divided by their length": MAP,
    "queries that are normed before they are turned to heads have keys and values copied": QUERIES,
    "turned before, they have not": QUERIES.replace(
        "[square] s = Pow(q1, two)",
        "[turn1] h = Transpose<perm = [0, 2, 1, 3]>(q1) [square] s = Pow(h, two)",
    )
    .replace("[norm] n = Mul(q1, i)", "[norm] n = Mul(h, i)")
    .replace("[turn1] q = Transpose<perm = [0, 2, 1, 3]>(g)", "[same] q = Identity(g)"),
    "divided by a root, they are passed on in FP32": QUERIES.replace(
        "[invert] i = Reciprocal(r)\n", ""
    ).replace("[norm] n = Mul(q1, i)", "[norm] n = Div(q1, r)"),
}
QUANTIZED = {
    "sums of integers are scaled where their length is summed": (
        "x->conv1 w1->conv1 f->conv2 w2->conv2",
        MAP,
    ),
    "a pair before the rows are scaled: the kernel of the means goes on to it": (
        "i->norm",
        JOINT.replace("[project2] k = MatMul(b, wv)", "[project2] k = Tanh(b)"),
    ),
    "so are queries": ("x->project1 wq->project1 x->project2 wk->project2 "
                       "x->project3 wv->project3", QUERIES),
}  # fmt: skip

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=17)
