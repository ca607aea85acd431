"""Attention in INT8: one kernel for heads of 16, 32 or 64 channels and up to 512 tokens alone."""

from placer.graph.text import graph_of_text
from placer.prediction.kernels.attention import attentions
from tests.prediction.kernels.building import builder_test
from tests.prediction.test_onnxruntime_plans import HEAD


def attention(width: int, tokens: int, values: int = 0, axis: int = -1) -> str:
    """Two heads of ``width`` channels, those of values of ``values`` if they differ."""
    shape, wide = (f"float[1,2,{tokens},{channels}]" for channels in (width, values or width))
    return f"""
    ({shape} q, {shape} k, {wide} v) => ({wide} out) {{
      half = Constant<value = float {{0.5}}>()
      [reluq] rq = Relu(q)
      [reluk] rk = Relu(k)
      [reluv] rv = Relu(v)
      [turnk] tk = Transpose<perm = [0, 1, 3, 2]>(rk)
      [scores1] s = MatMul(rq, tk)
      [scale1] t = Mul(s, half)
      [soft1] a = Softmax<axis = {axis}>(t)
      [mix1] m = MatMul(a, rv)
      [relu1] out = Relu(m)
    }}"""


JOINT = """
    (float[1,49,64] x) => (float[1,49,64] out)
    <float[64] g = {1}, float[64,192] wj = {1}, float[64,64] wo = {1}> {
      heads = Constant<value = int64[5] {1, 49, 3, 4, 16}>()
      first = Constant<value = int64[1] {0}>()
      rows = Constant<value = int64[3] {1, 49, 64}>()
      [norm1] n = LayerNormalization<axis = -1>(x, g)
      [joint1] j = MatMul(n, wj)
      [heads1] h = Reshape(j, heads)
      [turn1] t = Transpose<perm = [2, 0, 3, 1, 4]>(h)
      [cut1] q5, k5, v5 = Split<axis = 0, num_outputs = 3>(t)
      [query1] q = Squeeze(q5, first)
      [key1] k = Squeeze(k5, first)
      [value1] v = Squeeze(v5, first)
      [turn2] u = Transpose<perm = [0, 1, 3, 2]>(k)
      [scores1] s = MatMul(q, u)
      [soft1] a = Softmax<axis = -1>(s)
      [mix1] m = MatMul(a, v)
      [turn3] r = Transpose<perm = [0, 2, 1, 3]>(m)
      [rows1] o = Reshape(r, rows)
      [out1] y = MatMul(o, wo)
      [add1] out = Add(y, x)
    }"""

PAIRS = "rq->scores1 tk->scores1 a->mix1 rv->mix1 m->relu1"

GRAPHS = {
    "heads of 16 channels are one kernel": (PAIRS, attention(16, 128)),
    "heads of 32 channels and 512 tokens are": (PAIRS, attention(32, 512)),
    "heads of 40 channels are two products and a Softmax": (PAIRS, attention(40, 128)),
    "and so are values of 32 channels": (PAIRS, attention(16, 128, 32)),
    "and so are 520 tokens": (PAIRS, attention(16, 520)),
}
PLACES = ("zero", "one", "two")
GATHERED = JOINT.replace("49", "48").replace(
    "[cut1] q5, k5, v5 = Split<axis = 0, num_outputs = 3>(t)",
    " ".join(f"{name} = Constant<value = int64 {{{i}}}>()" for i, name in enumerate(PLACES)),
)
for heads, place in zip("qkv", PLACES, strict=True):
    GATHERED = GATHERED.replace(
        f"{heads} = Squeeze({heads}5, first)", f"{heads} = Gather<axis = 0>(t, {place})"
    )
SCORED = "q->scores1 u->scores1 o->out1 wo->out1"
JOINED = {
    "what moves parts of a joint product without a bias is called after it": (
        SCORED + " a->mix1 v->mix1",
        JOINT,
    ),
    "parts that are not quantized alike are cut out at once": (
        SCORED + " n->joint1 wj->joint1",
        JOINT,
    ),
    "a pair before parts are taken is that of each, and one kernel makes them": (
        "n->joint1 wj->joint1 h->turn1",
        GATHERED,
    ),
    "rows for a float weight are called after their views": (
        "h->turn1 a->mix1 r->rows1",
        GATHERED,
    ),
}

GROUPED = """
    (float[1,4,24,16] q, float[1,2,24,16] k, float[1,2,24,16] v, float[1,1,24,24] mask)
    => (float[1,24,4,16] out) {
      half = Constant<value = float {0.5}>()
      two = Constant<value = int64[1] {2}>()
      twice = Constant<value = int64[5] {1, 2, 2, 24, 16}>()
      heads = Constant<value = int64[4] {1, 4, 24, 16}>()
      [reluq] rq = Relu(q)
      [reluk] rk = Relu(k)
      [reluv] rv = Relu(v)
      [more1] k5 = Unsqueeze(rk, two)
      [repeat1] kt = Expand(k5, twice)
      [keys1] k4 = Reshape(kt, heads)
      [turnk] tk = Transpose<perm = [0, 1, 3, 2]>(k4)
      [more2] v5 = Unsqueeze(rv, two)
      [repeat2] vt = Expand(v5, twice)
      [values1] v4 = Reshape(vt, heads)
      [scores1] s = MatMul(rq, tk)
      [scale1] t = Mul(s, half)
      [mask1] n = Add(t, mask)
      [soft1] a = Softmax<axis = -1>(n)
      [mix1] m = MatMul(a, v4)
      [turn1] u = Transpose<perm = [0, 2, 1, 3]>(m)
      [relu1] out = Relu(u)
    }"""
INSIDE = {
    "pairs on scores, scaled or masked, are inside a kernel of floats": (
        "s->scale1 n->soft1",
        GROUPED,
    ),
    "a pair before keys are repeated is one behind, and masked scores are not rounded": (
        "rq->scores1 rk->more1 n->soft1 a->mix1 rv->more2 u->relu1",
        GROUPED,
    ),
    "of a pair on keys other kernels repeat keys and values": ("k5->repeat1", GROUPED),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_so_are_those_of_pairs_inside = builder_test(INSIDE, opset=17)
test_so_are_those_of_joint_products = builder_test(JOINED, opset=18)


def test_a_softmax_of_columns_is_none_of_an_attention():
    # TensorRT-RTX 1.7.1 runs both products as layers of their own.
    assert attentions(graph_of_text(HEAD + "g" + attention(16, 128)), ())
    assert not attentions(graph_of_text(HEAD + "g" + attention(16, 128, axis=2)), ())
