"""Rows beside one-dimensional Convs, as in Paraformers: NVIDIA's builder's layers."""

from tests.prediction.kernels.building import builder_test

ROWS = """
    (float[1,40,64] x) => (float[1,40,64] out)
    <float[64] g = {{1}}, float[64] b = {{1}}, float[64,64] w1 = {{1}}, float[64] b1 = {{1}},
     float[64,1,11] w2 = {{1}}, float[64,64] w3 = {{1}}> {{
      [norm] n = LayerNormalization(x, g, b)
      [line] t = Transpose<perm = [0, 2, 1]>(x)
      [memory] c = Conv<group = 64, pads = [5, 5]>(t, w2)
      [back] r = Transpose<perm = [0, 2, 1]>(c)
      [product] m = MatMul(n, w1)
      [bias] l = Add(m, b1)
      {behind}
    }}"""
NORMED = """
    [norm2] k = LayerNormalization(s, g, b)
    [last] p = MatMul(k, w3)
    [residual] out = Add(s, p)"""
PARTS = """
    (float[1,40,64] x) => (float[1,40,64] out)
    <float[64] g = {{1}}, float[64] b = {{1}}, float[64,192] w1 = {{1}}, float[192] b1 = {{1}},
     float[64,1,11] w2 = {{1}}> {{
      heads = Constant<value = int64[4] {{1, 40, 4, 16}}>()
      rows = Constant<value = int64[3] {{1, 40, 64}}>()
      [norm] n = LayerNormalization(x, g, b)
      [joint] j = MatMul(n, w1)
      [bias] l = Add(j, b1)
      [parts] q, k, v = Split<axis = -1>(l)
      [heads1] q4 = Reshape(q, heads) [turn1] qt = Transpose<perm = [0, 2, 1, 3]>(q4)
      [heads2] k4 = Reshape(k, heads) [turn2] kt = Transpose<perm = [0, 2, 3, 1]>(k4)
      [heads3] v4 = Reshape(v, heads) [turn3] vt = Transpose<perm = [0, 2, 1, 3]>(v4)
      [scores] a = MatMul(qt, kt) [shares] s = Softmax<axis = -1>(a) [mix] o = MatMul(s, vt)
      [together] ot = Transpose<perm = [0, 2, 1, 3]>(o) [flat] y = Reshape(ot, rows)
      {behind}
    }}"""
LINE = """
    [line] t = Transpose<perm = [0, 2, 1]>(v)
    [memory] c = Conv<group = 64, pads = [5, 5]>(t, w2)
    [back] r = Transpose<perm = [0, 2, 1]>(c)
    [sum] out = Add(y, r)"""
GRAPHS = {
    "a product's kernel turns the line that it adds": ROWS.format(
        behind="[sum] s = Add(l, r) [last] out = MatMul(s, w3)"
    ),
    "a generated kernel adds it where more is computed": ROWS.format(
        behind="[sum] s = Add(l, r) [gate] k = Sigmoid(s) [last] out = MatMul(k, w3)"
    ),
    "a generated kernel adds it before a norm": ROWS.format(behind=f"[sum] s = Add(l, r) {NORMED}"),
    "a generated kernel adds its sum with other rows before a norm": ROWS.format(
        behind=f"[first] f = Add(r, x) [sum] s = Add(l, f) {NORMED}"
    ),
    "a Conv reads the rows of values": PARTS.format(behind=LINE),
}
QUANTIZED = {
    "one kernel scales and cuts a joint product of which a part is read as it is": (
        "n->joint w1->joint",
        PARTS.format(behind="[sum] out = Add(y, v)"),
    ),
    "and turns a part to a line": ("n->joint w1->joint", PARTS.format(behind=LINE)),
}

test_rows_beside_lines = builder_test(GRAPHS, 17)
test_quantized_parts = builder_test(QUANTIZED, 17)
