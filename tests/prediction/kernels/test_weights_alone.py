"""Products of floats whose weights alone have pairs: at most a Relu is in their kernels."""

from tests.prediction.kernels.building import builder_test

WEIGHTS = "<float[32,64] w = {1}, float[64] b = {1}, float[64,32] v = {1}, float[32] c = {1}>"
MLP = f"""
    (float[1,16,32] x) => (float out) {WEIGHTS} {{
      [product1] h = MatMul(x, w) [bias1] g = Add(h, b) [relu1] r = Relu(g)
      [product2] q = MatMul(r, v) [bias2] p = Add(q, c) [add1] out = Add(p, x)
    }}"""
GATED = f"""
    (float[1,16,32] x) => (float out) {WEIGHTS} {{
      [product1] h = MatMul(x, w) [gate] g = Sigmoid(h) [mul] r = Mul(g, h)
      [product2] out = MatMul(r, v)
    }}"""
ROWS = f"""
    (float[8,32] x) => (float out) {WEIGHTS} {{
      [product1] h = Gemm(x, w, b) [relu1] r = Relu(h) [product2] out = Gemm(r, v)
    }}"""
T5 = f"""
    (float[1,16,32] x) => (float out) {WEIGHTS} {{
      [product1] h = MatMul(x, w) [relu1] r = Relu(h)
      [product2] q = MatMul(r, v) [add1] out = Add(q, x)
    }}"""
BESIDE = f"""
    (float[1,16,32] x) => (float out)
    {WEIGHTS[:-1]}, float[32,64] w2 = {{1}}, float[32,64] w3 = {{1}}> {{
      [norm] n = LayerNormalization(x, c, c)
      [queries] q = MatMul(n, w) [relu1] r = Relu(q) [keys] k = MatMul(n, w2) [relu2] s = Relu(k)
      [values] u = MatMul(n, w3) [shares] p = Softmax(u) [sub] d = Sub(r, s) [add] out = Add(d, p)
    }}"""
JOINT = f"""
    (float[1,16,32] x) => (float out, float out2, float out3)
    {WEIGHTS[:-1]}, float[32,64] w2 = {{1}}, float[32,64] w3 = {{1}}> {{
      [active] n = Tanh(x) [queries] q = MatMul(n, w) [sin1] out = Sin(q)
      [keys] k = MatMul(n, w2) [sin2] out2 = Sin(k) [values] u = MatMul(n, w3) [sin3] out3 = Sin(u)
    }}"""
PAIR = """(float[1,32,32] x) => (float out, float out2)
    <float[32,32] w = {1}, float[32,32] v = {1}, float[32] c = {1}> {
      [active] n = Tanh(x) [queries] q = MatMul(n, w) [sin1] out = Sin(q) [keys] k = MatMul(n, v)
      %s }"""
TURN = "[turn] t = Transpose<perm = [0, 2, 1]>"
INTEGERS = "n->queries n->keys"
ALONE = "w->product1 v->product2"
GRAPHS = {
    "another kernel adds the bias and the residual": (ALONE, MLP),
    "another kernel computes a SiLU": (ALONE, GATED),
    "a Relu of the sums is part of the kernel": (ALONE, T5),
    "so is one whose result another kernel quantizes": ("w->product1 r->product2 v->product2", T5),
    "another kernel computes what is behind a Gemm, and casts": (ALONE, ROWS),
    "of several products those with a Relu are one": ("w->queries w2->keys w3->values", BESIDE),
    "and so are those of floats": ("", BESIDE),
    "of joint products the last weight is dequantized by another kernel": ("w3->values", JOINT),
    "but any other weight with a pair leaves each product alone": ("w->queries", JOINT),
    "integers that multiply floats are joint": ("n->queries n->keys w3->values", JOINT),
    "what is turned as a whole is not": (INTEGERS, PAIR % f"{TURN}(k) [cos] out2 = Cos(t)"),
    "also behind a bias": (INTEGERS, PAIR % f"[bias] b = Add(k, c) {TURN}(b) [cos] out2 = Cos(t)"),
    "nor are both operands of a product": (INTEGERS, PAIR % "[scores] out2 = MatMul(q, k)"),
    "which are quantized again": (
        f"{INTEGERS} q->scores t->scores",
        PAIR % f"{TURN}(k) [scores] out2 = MatMul(q, t)",
    ),
    "what is turned once it is activated is": (
        INTEGERS,
        PAIR % f"[cos] b = Cos(k) {TURN}(b) [abs] out2 = Abs(t)",
    ),
    "a product of integers beside": ("w->product1 r->product2 v->product2", MLP),
}

test_of_weights_alone = builder_test(GRAPHS, 17)
test_of_weights_alone_of_one_scale = builder_test(
    {"one scale is as many": GRAPHS["another kernel adds the bias and the residual"]},
    17,
    one_scale=True,
)
