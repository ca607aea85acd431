"""Rows that are a Conv's line, too: turned where they are written, or read as they are."""

from tests.prediction.kernels.building import builder_test

LINE = """
      [turn] t = Transpose<perm = [0, 2, 1]>(n) [conv] c = Conv<pads = [1, 1]>(t, w)
      [relu] r = Relu(c) [back] k = Transpose<perm = [0, 2, 1]>(r) [add] s = Add(n, k)"""
GRAPH = f"""(float[1,24,64] x) => (float[1,24,64] out)
    <float[64] g = {{{{1}}}}, float[64,64,3] w = {{{{1}}}}, float[64,64] v = {{{{1}}}},
     float[64] b = {{{{1}}}}> {{{{
      {{}} {LINE} {{}} }}}}"""
NORM = "[norm] n = LayerNormalization(x, g, b)"
PRODUCT, BIAS = "[product] m = MatMul(x, v)", "[bias] l = Add(m, b)"
LAST = "[last] out = Relu(s)"
GRAPHS = {
    "a norm's kernel turns them": GRAPH.format(NORM, LAST),
    "also if another norm follows the sum": GRAPH.format(
        NORM, "[norm2] out = LayerNormalization(s, g, b)"
    ),
    "not if a product follows the sum": GRAPH.format(NORM, "[last] out = MatMul(s, v)"),
    "an activation's kernel turns them": GRAPH.format("[act] n = Sigmoid(x)", LAST),
    "a kernel of its own behind a product with a bias": GRAPH.format(
        f"{PRODUCT} {BIAS} [act] n = Tanh(l)", LAST
    ),
    "of a SiLU, too": GRAPH.format(
        f"{PRODUCT} {BIAS} [gate] h = Sigmoid(l) [mul] n = Mul(l, h)", LAST
    ),
    "a product's kernel does not": GRAPH.format(f"{PRODUCT} [act] n = Tanh(m)", LAST),
    "nor one that adds a residual": GRAPH.format(f"{PRODUCT} [sum] n = Add(m, x)", LAST),
    "also behind a bias, of what it multiplies": GRAPH.format(
        f"{PRODUCT} {BIAS} [sum] n = Add(l, x)", LAST
    ),
    "but a kernel of its own does that adds another one there": GRAPH.format(
        f"[given] e = Sigmoid(x) {PRODUCT.replace('x', 'e')} {BIAS} [sum] n = Add(l, x)", LAST
    ),
}

test_rows_of_lines = builder_test(GRAPHS, 17)
