"""INT8 products whose sums have one scale, as weights per tensor make them."""

from tests.prediction.kernels.building import builder_test


def conv(behind: str, group: int = 1, window: int = 3) -> str:
    pad = window // 2
    return f"""
    (float[1,32,16,16] x) => (float[1,32,16,16] out)
    <float[32,{32 // group},{window},{window}] w = {{1}}, float[32] b = {{1}},
     float[32,32,3,3] v = {{1}}, float[32] vb = {{1}}> {{
      [act] a = Softplus(x)
      [conv] y = Conv<pads = [{pad}, {pad}, {pad}, {pad}], group = {group}>(a, w, b)
      {behind}
    }}"""


def two(behind: str) -> str:
    return conv(f"[turn] t = Tanh(a)\n[other] z = Conv<pads = [1, 1, 1, 1]>(t, v, vb)\n{behind}")


def matrix(behind: str, batches: int = 1) -> str:
    return f"""
    (float[{batches},16,64] x) => (float[{batches},16,64] out)
    <float[64,128] w = {{1}}, float[128] b = {{1}}, float[128,64] v = {{1}}> {{
      [act] a = Softplus(x)
      [product] y = MatMul(a, w)
      {behind}
      [last] out = MatMul(r, v)
    }}"""


def heads(queries: int, keys: int, depth: int) -> str:
    return f"""
    (float[1,2,{queries},{depth}] x, float[1,2,{depth},{keys}] z)
    => (float[1,2,{queries},{keys}] out)
    <float[1] unused = {{1}}> {{
      [act] a = Softplus(x)
      [turn] t = Tanh(z)
      [product] s = MatMul(a, t)
      [soft] out = Softmax<axis = -1>(s)
    }}"""


CONV, NEXT = "a->conv w->conv", " r->next v->next"
SECOND = "[next] out = Conv<pads = [1, 1, 1, 1]>(r, v, vb)"
GRAPHS = {
    "a Conv's kernel rectifies, and another one quantizes": (
        CONV + NEXT,
        conv(f"[relu] r = Relu(y)\n{SECOND}"),
    ),
    "it adds another map": (CONV, conv("[add] s = Add(y, a)\n[relu] out = Relu(s)")),
    "what is rounded is added in float": (
        CONV + " a->add",
        conv("[add] s = Add(y, a)\n[relu] out = Relu(s)"),
    ),
    "SiLU is generated": (CONV, conv("[gate] g = Sigmoid(y)\n[mul] out = Mul(y, g)")),
    "so is all that groups of channels are scaled by": (CONV, conv("[relu] out = Relu(y)", 4)),
    "each channel by itself is padded": (CONV, conv("[relu] out = Relu(y)", 32)),
    "of two Convs the one whose sum is not rounded adds": (
        CONV + " t->other v->other y->add",
        two("[add] s = Add(z, y)\n[relu] out = Relu(s)"),
    ),
    "a product writes integers": (
        "a->product w->product y->last v->last",
        matrix("").replace("MatMul(r, v)", "MatMul(y, v)"),
    ),
    "also behind a Relu": ("a->product w->product r->last v->last", matrix("[relu] r = Relu(y)")),
    "and of several batches": (
        "a->product w->product r->last v->last",
        matrix("[relu] r = Relu(y)", 4),
    ),
    "but not what a bias is added to": (
        "a->product w->product r->last v->last",
        matrix("[bias] r = Add(y, b)"),
    ),
    "scores are integers": ("a->product t->product s->soft", heads(16, 16, 32)),
    "keys that are odd in number are padded": ("a->product t->product s->soft", heads(16, 17, 32)),
    "and scores cut in float": ("a->product t->product", heads(16, 17, 32)),
    "both are padded to an even depth": ("a->product t->product s->soft", heads(16, 16, 17)),
}
SECOND_CONV = "[other] q = Conv<pads = [1, 1, 1, 1]>(a, v, vb)\n"
SILUS = (
    "[gate] g = Sigmoid(y)\n[mul] p = Mul(y, g)\n"
    + SECOND_CONV
    + "[gate2] h = Sigmoid(q)\n[mul2] r = Mul(q, h)\n"
)
JOINED = "[join] c = Concat<axis = 1>(p, r)\n[next] out = Conv(c, u)"
CONCATS = {
    "kernels of one scale write where their parts belong": (
        CONV + " a->other v->other c->next u->next",
        conv(SILUS + JOINED).replace("v = {1}", "v = {1}, float[32,64,1,1] u = {1}"),
    ),
    "so do those that quantize with two": (
        CONV + " a->other v->other p->join r->join c->next u->next",
        conv("[relu] p = Relu(y)\n" + SECOND_CONV + "[relu2] r = Relu(q)\n" + JOINED).replace(
            "v = {1}", "v = {1}, float[32,64,1,1] u = {1}"
        ),
    ),
}
FLOATS = {
    "a float Conv adds what is rounded before": (
        "r->add",
        """
        (float[1,32,16,16] x) => (float[1,32,16,16] out)
        <float[32,32,3,3] w = {1}, float[32,32,3,3] v = {1}> {
          [first] r = Conv<pads = [1, 1, 1, 1]>(x, w)
          [conv] y = Conv<pads = [1, 1, 1, 1]>(r, v)
          [add] s = Add(y, r)
          [relu] out = Relu(s)
        }""",
    ),
    "a MaxPool of integers is dequantized for it": (
        "p->add",
        """
        (float[1,32,16,16] x) => (float[1,32,16,16] out)
        <float[32,32,3,3] w = {1}, float[32,32,3,3] v = {1}> {
          [first] r0 = Conv<pads = [1, 1, 1, 1]>(x, w)
          [act] r = Softplus(r0)
          [pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r)
          [conv] y = Conv<pads = [1, 1, 1, 1]>(r, v)
          [add] s = Add(y, p)
          [relu] out = Relu(s)
        }""",
    ),
}
GATE = {
    "a gate behind a rounded sum is not called after its Conv": (
        "x->conv1 w1->conv1 c->mean m->conv2 w2->conv2 e->gate",
        """
        (float[1,32,16,16] x) => (float[1,32,16,16] out)
        <float[32,32,3,3] w1 = {1}, float[32] b1 = {1}, float[32,32,1,1] w2 = {1},
         float[32] b2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
          [mean] m = GlobalAveragePool(c)
          [conv2] e = Conv(m, w2, b2)
          [gate] s = HardSigmoid(e)
          [scale] out = Mul(c, s)
        }""",
    ),
}
test_gates_of_one_scale = builder_test(GATE, 17, one_scale=True)
test_layers_of_one_scale = builder_test(GRAPHS, 20, one_scale=True)
test_concats_of_one_scale = builder_test(CONCATS, 20, one_scale=True)
test_sums_with_what_is_rounded = builder_test(FLOATS, 20)
